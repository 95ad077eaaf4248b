"""Plots of how runs ended: results by site, what sites hold, and where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedkge.reports.figure import Figure, Trace, finite, named_axis, text
from fedkge.reports.load import Run
from fedkge.reports.tables import labels, size_rows, time_rows

BARS = 40  #: sites that get bars; more are drawn as a distribution
CELLS = 60  #: sites on each side of the overlap


def site_figure(runs: Sequence[Run]) -> Figure | None:
    """Test MRR of each site, runs side by side; a distribution when the sites are too many for bars."""
    ended = [
        (i, name, run) for i, (name, run) in enumerate(zip(labels(runs), runs, strict=True)) if run.ended
    ]
    sites = list(dict.fromkeys(site for _, _, run in ended for site in run.sites))
    if not ended:
        return None
    layout: dict[str, Any] = {
        "yaxis": {"title": {"text": "test MRR, filtered"}, "rangemode": "tozero"},
        "showlegend": len(ended) > 1,
    }
    traces: list[Trace] = []
    for i, name, run in ended:
        values = [finite(run.metrics("test", site).get("mrr")) for site in sites]
        common = {"name": text(name), "y": values, "meta": {"series": i}}
        full = [text(site, 200) for site in sites]
        if len(sites) > BARS:
            hover = "%{customdata}: %{y:.4f}<extra></extra>"
            box = {"type": "box", "boxpoints": "all", "jitter": 0.4, "pointpos": 0, "showlegend": False}
            traces.append({**common, **box, "customdata": full, "hovertemplate": hover})
        else:
            hover = "%{customdata}<br>%{fullData.name}: %{y:.4f}<extra></extra>"
            shown = {"texttemplate": "%{y:.3f}", "textposition": "outside", "cliponaxis": False}
            bar = {
                "type": "bar",
                "x": list(range(len(sites))),
                **(shown if len(sites) * len(ended) <= 16 else {}),
            }
            traces.append({**common, **bar, "customdata": full, "hovertemplate": hover})
    if len(sites) <= BARS:
        layout |= {"xaxis": named_axis(sites), "barmode": "group", "bargap": 0.3, "bargroupgap": 0.06}
    label = "Test MRR of each site, one bar per run; the table below has the numbers."
    return Figure("Test MRR by site", label, traces, layout, 400, tools=True)


def size_figures(runs: Sequence[Run]) -> list[Figure]:
    """How many statements, entities and relations each site has."""
    rows = size_rows(runs)
    if not 1 < len(rows) <= BARS:
        return []
    sites = [row["site"] for row in rows]
    down = {**named_axis(sites), "autorange": "reversed"}
    figures = []
    for count in ("statements", "entities", "relations"):
        room = {"visible": False, "range": [0, 1.4 * max(row[count] for row in rows)]}  # for the numbers
        layout = {"xaxis": room, "yaxis": down, "showlegend": False, "bargap": 0.3}
        bar = {
            "type": "bar",
            "orientation": "h",
            "x": [row[count] for row in rows],
            "y": list(range(len(sites))),
            "texttemplate": "%{x:,}",
            "textposition": "outside",
            "cliponaxis": False,
            "customdata": [text(site, 200) for site in sites],
            "hovertemplate": "%{customdata}: %{x:,}<extra></extra>",
            "meta": {"series": "plain"},
        }
        label = f"Number of {count} at each site; the table below has the numbers."
        figures.append(Figure(count.capitalize(), label, [bar], layout, 40 + 28 * len(sites)))
    return figures


def overlap_figure(run: Run) -> Figure | None:
    """Entities that two sites have in common: the colour is their share of the row's site."""
    overlap = (run.summary or {}).get("overlap")
    if not overlap or not 1 < len(overlap["sites"]) <= CELLS:
        return None
    sites, counts = overlap["sites"], overlap["entities"]
    share = [
        [None if i == j or not row[i] else row[j] / row[i] for j in range(len(sites))]
        for i, row in enumerate(counts)
    ]
    names = [text(site, 200) for site in sites]
    heat = {
        "type": "heatmap",
        "x": list(range(len(sites))),
        "y": list(range(len(sites))),
        "z": share,
        "zmin": 0,
        "customdata": [
            [[names[i], names[j], count] for j, count in enumerate(row)] for i, row in enumerate(counts)
        ],
        "hovertemplate": "%{customdata[0]} has %{customdata[2]:,} entities of %{customdata[1]}"
        "<br>%{z:.1%} of its own<extra></extra>",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"tickformat": ".0%", "thickness": 12, "outlinewidth": 0, "title": {"text": "share"}},
        "meta": {"series": "heat"},
    }
    if len(sites) <= 16:
        heat |= {"text": [[f"{count:,}" for count in row] for row in counts], "texttemplate": "%{text}"}
    layout = {"xaxis": named_axis(sites), "yaxis": {**named_axis(sites), "autorange": "reversed"}}
    label = "Entities in common between sites, as a share of the row's site; the table below has the counts."
    return Figure("Entities in common", label, [heat], layout, max(320, 90 + 34 * len(sites)))


def time_figure(runs: Sequence[Run]) -> Figure:
    """Seconds of training, validation and the rest, one bar per run."""
    rows = time_rows(runs)
    kinds = {"train_seconds": "training", "evaluate_seconds": "ranking", "other_seconds": "other"}
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [row[kind] or 0 for row in rows],
            "y": list(range(len(rows))),
            "customdata": [text(row["run"], 200) for row in rows],
            "hovertemplate": "%{customdata}<br>%{fullData.name}: %{x:,.1f} s<extra></extra>",
            "meta": {"series": f"part{i}"},
        }
        for i, (kind, name) in enumerate(kinds.items())
    ]
    down = {**named_axis([row["run"] for row in rows]), "autorange": "reversed"}
    layout = {"barmode": "stack", "bargap": 0.4, "xaxis": {"title": {"text": "seconds"}}, "yaxis": down}
    label = "Seconds that each run spent on training, ranking and the rest."
    return Figure("Seconds by kind of work", label, traces, layout, 150 + 38 * len(rows))
