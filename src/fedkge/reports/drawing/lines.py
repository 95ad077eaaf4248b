"""Lines, bands and their names: the marks that curves are drawn with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from fedkge.reports.compared.experiments import COLOURS, Spread
from fedkge.reports.drawing.figure import End, Figure, Trace, finite, mark, text, whiskers

HEIGHT = 360  #: pixels of a plot of lines
AREA = 270  #: of these about so many between its axes
GAP = 16  #: pixels from one name to the next
NAMES = 14  #: lines that are named at their ends; with more, a legend names them


class Point(NamedTuple):
    """A point of a line, and how far its band reaches; None where there is no band."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """A named line; `star` is the point that was kept."""

    name: str
    points: Sequence[Point]  #: from left to right
    series: str
    dash: int = 0
    star: Point | None = None


class Scale(NamedTuple):
    """What the axes are, and how the pointer reads a point."""

    xaxis: dict[str, Any]
    yaxis: dict[str, Any]
    hover: str  #: of plotly's template, as in `round %{x}: %{y:.4f}`


def coloured(i: int) -> tuple[str, int]:
    """Colour and dash of the i-th of many lines that are no experiments."""
    return f"s{i % COLOURS}", i // COLOURS


def line_figure(title: str, label: str, lines: Sequence[Line], scale: Scale) -> Figure:
    """Lines with bands under them, named at their ends."""
    low, high = _range(lines)
    layout = {"xaxis": scale.xaxis, "yaxis": {**scale.yaxis, "range": [low, high]}}
    ends = _ends([line for line in lines if line.points], low, high)
    return Figure(title, label, _traces(lines, scale.hover), layout, HEIGHT, tools=True, ends=ends)


def small_figure(title: str, label: str, lines: Sequence[Line], scale: Scale) -> Figure:
    """One of many small plots: the large one above it names axes and colours."""
    xaxis = {key: value for key, value in scale.xaxis.items() if key != "title"}
    layout = {"xaxis": {**xaxis, "nticks": 5}, "yaxis": {"nticks": 5}, "showlegend": False}
    return Figure(title, label, _traces(lines, scale.hover), layout, 210)


def _traces(lines: Sequence[Line], hover: str) -> list[Trace]:
    """Bands first, so that no line is under one."""
    drawn = [(str(i), line) for i, line in enumerate(lines) if line.points]
    return [trace for of in (_band, _line) for group, line in drawn for trace in of(group, line, hover)]


def _line(group: str, line: Line, hover: str) -> list[Trace]:
    """A line, and a star on the kept point."""
    name = "%{fullData.name}<br>"
    style = (line.name, line.series, line.dash)
    x, y = [point.x for point in line.points], [finite(point.y) for point in line.points]
    mode = "lines" if len(x) > 1 else "markers"
    traces = [mark("scatter", *style, f"{name}{hover}", x=x, y=y, mode=mode, legendgroup=group)]
    if line.star is not None:
        kept: Trace = {"x": [line.star.x], "y": [finite(line.star.y)], "mode": "markers"}
        kept |= {"marker": {"symbol": "star", "size": 14}, "showlegend": False, "legendgroup": group}
        traces.append(mark("scatter", *style, f"{name}kept: {hover}", **kept))
    return traces


def _band(group: str, line: Line, hover: str) -> list[Trace]:
    """What is under a line, from its lower edge to its upper."""
    points = [point for point in line.points if point.low is not None and point.high is not None]
    return band(line.series, points, legendgroup=group) if points else []


def band(series: str, points: Sequence[Point], **more: Any) -> list[Trace]:
    """Its lower edge, and its upper edge, down to which it is filled."""
    more |= {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    more["x"] = [point.x for point in points]
    low = mark("scatter", "", series, y=[finite(point.low) for point in points], **more)
    high = mark("scatter", "", series, y=[finite(point.high) for point in points], fill="tonexty", **more)
    return [low, high]


def level(name: str, series: str, dash: int, found: Spread, ends: Sequence[float]) -> list[Trace]:
    """A horizontal line, over a band of one deviation where there are several seeds."""
    mean, std, _ = found
    around = [] if std is None else [Point(x, mean, mean - std, mean + std) for x in ends]
    line = mark("scatter", name, series, dash, "%{fullData.name}: %{y:.4f}", mode="lines")
    return [*(band(series, around) if around else ()), line | {"x": list(ends), "y": [mean] * len(ends)}]


def dotted(
    name: str, series: str, dash: int, hover: str, found: Sequence[tuple[float, Spread | None]], **look: Any
) -> Trace:
    """A point for each x, with whiskers of one deviation where there are several seeds."""
    look |= {"x": [x for x, _ in found], "y": [finite(of.mean) if of else None for _, of in found]}
    return mark("scatter", name, series, dash, hover, **look, **whiskers([of and of.std for _, of in found]))


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    """From the lowest to the highest of all points and bands, with a little room."""
    edges = [edge for line in lines for point in line.points for edge in point[1:]]
    known = [edge for edge in edges if edge is not None and isfinite(edge)] or [0.0, 1.0]
    room = 0.05 * (max(known) - min(known)) or 0.05 * abs(max(known)) or 0.5
    return min(known) - room, max(known) + room


def _ends(lines: Sequence[Line], low: float, high: float) -> list[End]:
    """The lines' names at the height of their last points, moved apart where they would touch."""
    last = [(line.points[-1].y, line) for line in lines if isfinite(line.points[-1].y)]
    if not 1 < len(last) <= NAMES:
        return []
    last.sort(key=lambda end: -end[0])
    wanted = [(high - y) / (high - low) * AREA for y, _ in last]  # pixels from the top
    return [
        End(line.series, text(line.name), y, at - place)
        for (y, line), at, place in zip(last, wanted, apart(wanted, GAP, AREA), strict=True)
    ]


def apart(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Ascending places near `wanted`, at least `gap` from each other and, if there is room, within it."""
    places: list[float] = []
    for at in wanted:
        places.append(max(at, places[-1] + gap) if places else at)
    limit = room
    for i in reversed(range(len(places))):
        places[i] = min(places[i], limit)
        limit = places[i] - gap
    return places
