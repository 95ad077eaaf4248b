"""Plots of how runs ended: results by site, what sites hold and share, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedkge.reports.compared.baseline import alone, versus
from fedkge.reports.compared.details import Row, size_rows
from fedkge.reports.compared.experiments import Group
from fedkge.reports.compared.paired import Difference, Differences
from fedkge.reports.drawing.figure import Figure, Trace, finite, named_axis, text
from fedkge.reports.folders.run import Run, side_note

BARS = 40  #: sites that get bars; more are drawn as a distribution
NUMBERS = 16  #: bars that have room for their numbers
CELLS = 60  #: sites on each side of the overlap


def site_figure(groups: Sequence[Group]) -> Figure | None:
    """Test MRR of each site, experiments side by side; a distribution when sites are too many for bars."""
    ended = [group for group in groups if group.ended]
    sites = list(dict.fromkeys(site for group in ended for site in group.sites))
    if not ended:
        return None
    traces: list[Trace] = []
    for group in ended:
        found = [group.test(site=site) for site in sites]
        trace = _bars(group, sites, [finite(of.mean) if of else None for of in found])
        deviations = [of.std if of else None for of in found]
        if any(deviations) and trace["type"] == "bar":
            trace["error_y"] = {"type": "data", "array": deviations, "width": 3, "thickness": 1.3}
        elif len(sites) * len(ended) <= NUMBERS:
            trace |= {"texttemplate": "%{y:.3f}", "textposition": "outside", "cliponaxis": False}
        traces.append(trace)
    layout = _bar_layout(ended, sites)
    layout["yaxis"] = {"title": {"text": "test MRR, filtered"}, "rangemode": "tozero"}
    label = "Test MRR of each site, one bar per experiment; the table below has the numbers."
    judged = side_note(run for group in ended for run in group.runs)
    return Figure(f"Test MRR by site{judged}", label, traces, layout, 400, tools=True)


def gain_figure(groups: Sequence[Group], beyond: Mapping[str, Differences] | None = None) -> Figure | None:
    """How much better or worse each site is than alone: what joining brings it, and how sure that is."""
    found = [(group, versus(group, alone(group, groups))) for group in groups]
    compared = [(group, gains) for group, gains in found if gains is not None]
    sites = list(dict.fromkeys(site for _, gains in compared for site in gains.sites))
    if not sites:
        return None
    traces = []
    for group, gains in compared:
        trace = _bars(group, sites, [gains.sites.get(site) for site in sites], "+.4f")
        known = (beyond or {}).get(group.label, {})
        if known and trace["type"] == "bar":
            trace["error_y"] = _whiskers([known.get(site) for site in sites])
        elif len(sites) * len(compared) <= NUMBERS:
            trace |= {"texttemplate": "%{y:+.3f}", "textposition": "outside", "cliponaxis": False}
        traces.append(trace)
    layout = _bar_layout([group for group, _ in compared], sites)
    layout["yaxis"] = {"title": {"text": "test MRR minus alone"}, "zeroline": True, "zerolinewidth": 2}
    label = "Test MRR of each site minus its test MRR alone: above zero it gains by joining, below it loses."
    return Figure("What joining brings each site", label, traces, layout, 340, tools=True)


def _whiskers(found: Sequence[Difference | None]) -> dict[str, Any]:
    """From each bar's end to both ends of its interval."""
    up = [one.high - one.mean if one else None for one in found]
    down = [one.mean - one.low if one else None for one in found]
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "width": 3,
        "thickness": 1.3,
    }


def _bars(group: Group, sites: Sequence[str], values: Sequence[float | None], form: str = ".4f") -> Trace:
    """A bar per site, or points beside a box when sites are too many."""
    full = [text(site, 200) for site in sites]
    common: Trace = {"name": text(group.label), "y": values, "customdata": full}
    common["meta"] = {"series": group.colour, "dash": group.dash}
    if len(sites) > BARS:
        hover = f"%{{customdata}}: %{{y:{form}}}<extra></extra>"
        box = {"type": "box", "boxpoints": "all", "jitter": 0.4, "pointpos": 0, "showlegend": False}
        return {**common, **box, "hovertemplate": hover}
    hover = f"%{{customdata}}<br>%{{fullData.name}}: %{{y:{form}}}<extra></extra>"
    return {**common, "type": "bar", "x": list(range(len(sites))), "hovertemplate": hover}


def _bar_layout(groups: Sequence[Group], sites: Sequence[str]) -> dict[str, Any]:
    layout: dict[str, Any] = {"showlegend": len(groups) > 1}
    if len(sites) <= BARS:
        layout |= {"xaxis": named_axis(sites), "barmode": "group", "bargap": 0.3, "bargroupgap": 0.06}
    return layout


def size_figures(runs: Sequence[Run]) -> list[Figure]:
    """How many triples, entities and relations each site has."""
    rows = size_rows(runs)
    if not 1 < len(rows) <= BARS:
        return []
    return [
        across(count.capitalize(), f"Number of {count} at each site", rows, {count: ""})
        for count in ("triples", "entities", "relations")
    ]


def across(
    title: str, label: str, rows: Sequence[Row], kinds: dict[str, str], form: str = "%{x:,}"
) -> Figure:
    """Bars from left to right, a row for each of `rows`' sites; several kinds lie side by side."""
    sites = [row["site"] for row in rows]
    most = max((row[kind] or 0 for row in rows for kind in kinds), default=0)
    room = {"visible": False, "range": [0, 1.4 * most or 1]}  # for the numbers
    down = {**named_axis(sites), "autorange": "reversed"}
    layout = {"xaxis": room, "yaxis": down, "showlegend": len(kinds) > 1, "bargap": 0.3, "barmode": "group"}
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [row[kind] for row in rows],
            "y": list(range(len(sites))),
            "texttemplate": form,
            "textposition": "outside",
            "cliponaxis": False,
            "customdata": [text(site, 200) for site in sites],
            "hovertemplate": f"%{{customdata}}: {form}<extra>{name}</extra>",
            "meta": {"series": ("up", "down")[i] if len(kinds) > 1 else "plain", "dash": 0},
        }
        for i, (kind, name) in enumerate(kinds.items())
    ]
    height = 40 + 30 * (len(kinds) > 1) + (14 + 14 * len(kinds)) * len(sites)
    return Figure(title, f"{label}; the table below has the numbers.", traces, layout, height)


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
        "zmax": max((value for row in share for value in row if value), default=1),
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


def time_figure(rows: Sequence[Row], kinds: dict[str, str]) -> Figure:
    """Seconds by kind of work, one bar per experiment."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": [row[kind] or 0 for row in rows],
            "y": list(range(len(rows))),
            "customdata": [text(row["run"], 200) for row in rows],
            "hovertemplate": "%{customdata}<br>%{fullData.name}: %{x:,.1f} s<extra></extra>",
            "meta": {"series": f"part{i}", "dash": 0},
        }
        for i, (kind, name) in enumerate(kinds.items())
    ]
    down = {**named_axis([row["run"] for row in rows]), "autorange": "reversed"}
    layout = {"barmode": "stack", "bargap": 0.4, "xaxis": {"title": {"text": "seconds"}}, "yaxis": down}
    label = f"Seconds that each experiment spent on {', '.join(kinds.values())}."
    return Figure("Seconds by kind of work", label, traces, layout, 150 + 38 * len(rows))
