"""Plots of how runs ended: results by site, what sites hold and share, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedkge.reports.compared.baseline import Differences, alone, versus
from fedkge.reports.compared.details import Row, size_rows
from fedkge.reports.compared.experiments import Group
from fedkge.reports.drawing.figure import (
    Figure,
    Trace,
    beside,
    bytes_axis,
    colorbar,
    finite,
    heat,
    mark,
    named_axis,
    square,
    text,
    titled,
    whiskers,
)
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
        shown = whiskers([of.std if of else None for of in found])
        shown = shown or (beside("%{y:.3f}") if len(sites) * len(ended) <= NUMBERS else {})
        traces.append(_bars(group, sites, [finite(of.mean) if of else None for of in found], shown))
    yaxis = titled("test MRR, filtered", rangemode="tozero")
    label = "Test MRR of each site, one bar per experiment; the table below has the numbers."
    judged = side_note(run for group in ended for run in group.runs)
    layout = _bar_layout(len(ended), sites, yaxis)
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
        known = [(beyond or {}).get(group.label, {}).get(site) for site in sites]
        up = [one.high - one.mean if one else None for one in known]
        shown = whiskers(up, [one.mean - one.low if one else None for one in known])
        shown = shown or (beside("%{y:+.3f}") if len(sites) * len(compared) <= NUMBERS else {})
        traces.append(_bars(group, sites, [gains.sites.get(site) for site in sites], shown, "+.4f"))
    yaxis = titled("test MRR minus alone", zeroline=True, zerolinewidth=2)
    label = "Test MRR of each site minus its test MRR alone: above zero it gains by joining, below it loses."
    layout = _bar_layout(len(compared), sites, yaxis)
    return Figure("What joining brings each site", label, traces, layout, 340, tools=True)


def _bars(
    group: Group, sites: Sequence[str], values: Sequence[float | None], shown: Trace, form: str = ".4f"
) -> Trace:
    """A bar per site, with what is shown at it, or points beside a box when sites are too many."""
    data: Trace = {"y": values, "customdata": [text(site) for site in sites]}
    name, series, dash = group.label, group.colour, group.dash
    if len(sites) > BARS:
        data |= {"boxpoints": "all", "jitter": 0.4, "pointpos": 0, "showlegend": False}
        return mark("box", name, series, dash, f"%{{customdata}}: %{{y:{form}}}", **data)
    data |= {"x": list(range(len(sites))), **shown}
    return mark("bar", name, series, dash, f"%{{customdata}}<br>%{{fullData.name}}: %{{y:{form}}}", **data)


def _bar_layout(groups: int, sites: Sequence[str], yaxis: dict[str, Any]) -> dict[str, Any]:
    layout: dict[str, Any] = {"showlegend": groups > 1, "yaxis": yaxis}
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
    layout = {"xaxis": room, "yaxis": named_axis(sites, down=True), "showlegend": len(kinds) > 1}
    traces = [
        _across(sites, name, ("up", "down")[i] if len(kinds) > 1 else "plain", [row[kind] for row in rows])
        | beside(form)
        | {"hovertemplate": f"%{{customdata}}: {form}<extra>{name}</extra>"}
        for i, (kind, name) in enumerate(kinds.items())
    ]
    height = 40 + 30 * (len(kinds) > 1) + (14 + 14 * len(kinds)) * len(sites)
    layout |= {"bargap": 0.3, "barmode": "group"}
    return Figure(title, f"{label}; the table below has the numbers.", traces, layout, height)


def _across(names: Sequence[str], kind: str, series: str, values: Sequence[float], hover: str = "") -> Trace:
    """Bars from left to right, one below the other."""
    places = {"x": values, "y": list(range(len(names))), "customdata": [text(name) for name in names]}
    return mark("bar", "", series, 0, hover, orientation="h", **places) | {"name": kind}


def stacked_figure(
    title: str, label: str, names: Sequence[str], kinds: Sequence[tuple[str, str, Sequence[float]]], unit: str
) -> Figure:
    """A bar per name, of parts one behind the other: what each is called, its colour and its amounts."""
    form = "%{x:,.1f} s" if unit == "seconds" else "%{x:.4s}B"
    hover = f"%{{customdata}}<br>%{{fullData.name}}: {form}"
    traces = [_across(names, kind, series, values, hover) for kind, series, values in kinds]
    xaxis = titled(unit) if unit == "seconds" else bytes_axis(unit)
    layout = {"barmode": "stack", "bargap": 0.4, "xaxis": xaxis, "yaxis": named_axis(names, down=True)}
    return Figure(title, label, traces, layout, 150 + 38 * len(names))


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
    cells = [[f"{count:,}" for count in row] for row in counts] if len(sites) <= 16 else None
    trace = heat(list(range(len(sites))), share, cells) | colorbar("share", tickformat=".0%")
    trace |= {"zmin": 0, "zmax": max((value for row in share for value in row if value), default=1)}
    trace["customdata"] = [
        [[text(sites[i]), text(sites[j]), count] for j, count in enumerate(row)]
        for i, row in enumerate(counts)
    ]
    hover = "%{customdata[0]} has %{customdata[2]:,} entities of %{customdata[1]}<br>%{z:.1%} of its own"
    trace["hovertemplate"] = f"{hover}<extra></extra>"
    label = "Entities in common between sites, as a share of the row's site; the table below has the counts."
    return Figure("Entities in common", label, [trace], square(sites), max(320, 90 + 34 * len(sites)))


def time_figure(rows: Sequence[Row], kinds: dict[str, str]) -> Figure:
    """Seconds by kind of work, one bar per experiment."""
    parts = [(name, f"part{i}", [row[k] or 0 for row in rows]) for i, (k, name) in enumerate(kinds.items())]
    label = f"Seconds that each experiment spent on {', '.join(kinds.values())}."
    return stacked_figure("Seconds by kind of work", label, [row["run"] for row in rows], parts, "seconds")
