"""Plots of how runs ended: results by site, what sites hold and share, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedkge.reports.compared.baseline import Differences, alone, versus
from fedkge.reports.compared.experiments import Group, Row
from fedkge.reports.drawing.figure import (
    Figure,
    Trace,
    beside,
    bytes_axis,
    finite,
    mark,
    named_axis,
    text,
    titled,
    whiskers,
)
from fedkge.reports.folders.run import side_note

BARS = 40  #: sites that get bars; more are drawn as a distribution
NUMBERS = 16  #: bars that have room for their numbers
CELLS = 60  #: sites on each side of the overlap


def site_figure(groups: Sequence[Group]) -> Figure | None:
    """Test MRR of each site, experiments side by side; a distribution when sites are too many for bars."""
    ended = [group for group in groups if group.ended]
    if not ended:
        return None
    sites = list(dict.fromkeys(site for group in ended for site in group.sites))
    bars = []
    for group in ended:
        found = [group.test(site=site) for site in sites]
        ends = whiskers([of and of.std for of in found])
        bars.append((group, [of and finite(of.mean) for of in found], ends))
    yaxis = titled("test MRR, filtered", rangemode="tozero")
    label = "Test MRR of each site, one bar per experiment; the table below has the numbers."
    title = f"Test MRR by site{side_note(run for group in ended for run in group.runs)}"
    return _by_site(title, label, sites, bars, yaxis, "", 400)


def gain_figure(groups: Sequence[Group], beyond: Mapping[str, Differences] | None = None) -> Figure | None:
    """How much better or worse each site is than alone: what joining brings it, and how sure that is."""
    found = [(group, versus(group, alone(group, groups))) for group in groups]
    gains = [(group, of.sites) for group, of in found if of is not None]
    sites = list(dict.fromkeys(site for _, of in gains for site in of))
    if not sites:
        return None
    bars = []
    for group, of in gains:
        known = [(beyond or {}).get(group.label, {}).get(site) for site in sites]
        down = [one and one.mean - one.low for one in known]
        ends = whiskers([one and one.high - one.mean for one in known], down)
        bars.append((group, [of.get(site) for site in sites], ends))
    yaxis = titled("test MRR minus alone", zeroline=True, zerolinewidth=2)
    label = "Test MRR of each site minus its test MRR alone: above zero it gains by joining, below it loses."
    return _by_site("What joining brings each site", label, sites, bars, yaxis, "+", 340)


def _by_site(
    title: str,
    label: str,
    sites: Sequence[str],
    bars: Sequence[tuple[Group, Sequence[float | None], Trace]],
    yaxis: Trace,
    sign: str,
    height: int,
) -> Figure:
    """Of each group a bar per site, with whiskers or else numbers; points beside boxes for many sites."""
    traces, few = [], len(sites) <= BARS
    for group, values, ends in bars:
        data: Trace = {"y": values, "customdata": list(map(text, sites))}
        if few:
            data |= ends or (beside(f"%{{y:{sign}.3f}}") if len(sites) * len(bars) <= NUMBERS else {})
            data["x"] = list(range(len(sites)))
        else:
            data |= {"boxpoints": "all", "jitter": 0.4, "pointpos": 0, "showlegend": False}
        hover = f"%{{customdata}}{'<br>%{fullData.name}' * few}: %{{y:{sign}.4f}}"
        traces.append(mark("bar" if few else "box", group.label, group.colour, group.dash, hover, **data))
    layout: Trace = {"showlegend": len(bars) > 1, "yaxis": yaxis}
    if few:
        layout |= {"xaxis": named_axis(sites), "barmode": "group", "bargap": 0.3, "bargroupgap": 0.06}
    return Figure(title, label, traces, layout, height, tools=True)


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
