"""Plots as SVG files: lines, bands, bars, boxes and heat maps, drawn from the same data as on the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape, unescape
from math import cos, pi, sin
from statistics import quantiles
from typing import Any

from fedkge.reports.drawing.axes import Axis, axis, filled_in
from fedkge.reports.drawing.figure import Figure, Trace
from fedkge.reports.pages.page import LIGHT

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 820, 74, 18, 34, 52  #: pixels of the picture, and around its plot
LETTER, LINE = 6.6, 17  #: pixels of a letter, and of a line of text
DASHES = ("", "7 4", "2 3", "9 3 2 3")
COLOURS = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", LIGHT))
CELLS = 16  #: columns of a heat map in which numbers have room


def svg(figure: Figure) -> str:
    """One plot as a picture of its own, with its title and a text for those who cannot see it."""
    return _picture(figure.title, figure.label, figure.height + TOP, _Drawing(figure).parts())


def panels(title: str, label: str, figures: Sequence[Figure]) -> str:
    """Plots side by side in one picture, under one legend; a name means the same line in all of them."""
    named: dict[str, Trace] = {}
    for one in (one for figure in figures for one in _named(figure)):
        named.setdefault(one["name"], one)
    rows, wide = list(_legend(list(named.values()))), WIDTH // len(figures)
    top = 26 + LINE * len(rows)
    parts = [_text(14, 20, title, weight="bold", size=14), *_names(rows, TOP + 4)]
    for i, figure in enumerate(figures):
        drawn = "".join(_Drawing(figure, wide, legend=False).parts())
        parts.append(f'<g transform="translate({i * wide} {top})">{drawn}</g>')
    return _picture(title, label, top + TOP + max(figure.height for figure in figures), parts)


def _picture(title: str, label: str, height: int, parts: Iterable[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{_colour("ink")}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(label)}</desc>"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


class _Drawing:
    def __init__(self, figure: Figure, wide: int = WIDTH, legend: bool = True) -> None:
        self.figure, layout = figure, figure.layout
        self.named = _named(figure)
        self.rows = list(_legend(self.named)) if legend and len(self.named) > 1 else []
        self.small = layout.get("showlegend") is False and bool(self.rows)  # one of many: says what it is
        top = TOP + LINE * (len(self.rows) + self.small)
        down = layout.get("yaxis", {})
        longest = max((len(unescape(str(name))) for name in down.get("ticktext", ())), default=0)
        left = min(300.0, max(LEFT, 24 + LETTER * longest))
        bars = any(one["type"] == "bar" for one in figure.data)
        heat = any(one["type"] == "heatmap" for one in figure.data)
        across = any(one.get("orientation") == "h" for one in figure.data)
        self.stacked = layout.get("barmode") == "stack"
        x = [v for one in figure.data for v in one.get("x", ())]
        y = [v for one in figure.data for v in (*one.get("y", ()), *_reach(one))]
        if any(one["type"] == "box" for one in figure.data):
            x = list(range(len(figure.data)))
        if self.stacked:
            x, y = (self._sums("x"), y) if across else (x, self._sums("y"))
        side = 0.5 if bars or heat else 0.0
        zero = {"rangemode": "tozero"} if bars else {}
        words_x, words_y = layout.get("xaxis", {}), layout.get("yaxis", {})
        if across:
            words_x = {**words_x, **zero}
        else:
            words_y = {**words_y, **zero}
        self.x = axis(words_x, x, left, wide - RIGHT, side * (not across))
        self.y = axis(words_y, y, figure.height + TOP - BOTTOM, top, side * (across or heat))

    def _sums(self, end: str) -> list[float]:
        columns = zip(*(one.get(end, ()) for one in self.figure.data), strict=False)
        return [0.0, *(sum(v or 0 for v in column) for column in columns)]

    def parts(self) -> Iterator[str]:
        yield _text(14, 20, self.figure.title, weight="bold", size=14)
        if self.small:
            yield _text(14, TOP + 4, self.figure.label, colour=_colour("soft"))
        yield from _names(self.rows, TOP + LINE * self.small + 4)
        yield from _axes(self.x, self.y)
        bars = [one for one in self.figure.data if one["type"] == "bar"]
        base: dict[float, float] = {}
        before: Trace = {}
        for i, one in enumerate(self.figure.data):
            match one["type"]:
                case "bar":
                    yield from self._bars(one, bars.index(one), len(bars), base)
                case "heatmap":
                    yield from self._heat(one)
                case "box":
                    yield from self._box(one, i)
                case _:
                    yield from self._scatter(one, before)
            before = one

    def _points(self, trace: Trace) -> list[tuple[float, float]]:
        pairs = zip(trace.get("x", ()), trace.get("y", ()), strict=False)
        return [(self.x.at(x), self.y.at(y)) for x, y in pairs if self.x.has(x) and self.y.has(y)]

    def _scatter(self, trace: Trace, before: Trace) -> Iterator[str]:
        points, colour = self._points(trace), _series(trace)
        if trace.get("fill") == "tonexty":
            around = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*self._points(before), *reversed(points)])
            yield f'<polygon points="{around}" fill="{colour}" fill-opacity="0.15"/>'
        mode = trace.get("mode", "lines")
        if "lines" in mode and trace.get("line", {}).get("width") != 0:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            stroke = f'stroke="{colour}" stroke-width="2"{_dashed(trace)}'
            yield f'<polyline points="{line}" fill="none" {stroke}/>'
        if "markers" in mode:
            for x, y in points:
                yield _marker(trace, x, y)
        yield from self._whiskers(trace, [x for x, _ in points])

    def _whiskers(self, trace: Trace, places: Sequence[float]) -> Iterator[str]:
        for x, (low, high) in zip(places, _ends(trace), strict=False):
            if self.y.has(low) and self.y.has(high):
                top, bottom = self.y.at(high), self.y.at(low)
                yield f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{_colour("ink")}"/>'

    def _bars(self, trace: Trace, turn: int, of: int, base: dict[float, float]) -> Iterator[str]:
        across = trace.get("orientation") == "h"
        along, amount = (self.y, self.x) if across else (self.x, self.y)
        places, values = (trace["y"], trace["x"]) if across else (trace["x"], trace["y"])
        wide = 0.7 * abs(along.at(1) - along.at(0)) / (1 if self.stacked else of)
        middles = []
        for place, value in zip(places, values, strict=True):
            start = base.get(place, 0.0) if self.stacked else 0.0
            shift = 0.0 if self.stacked else (turn - (of - 1) / 2) * wide
            middle = along.at(place) + shift * (1 if along.last > along.first or not across else -1)
            middles.append(middle)
            if value is None or not amount.has(start + value):
                continue
            one, other = sorted((amount.at(start), amount.at(start + value)))
            base[place] = start + value
            x, y, w, h = (middle - wide / 2, one, wide, other - one)
            if across:
                x, y, w, h = (one, middle - wide / 2, other - one, wide)
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0.5):.1f}" height="{max(h, 0.5):.1f}" '
                f'fill="{_series(trace)}"/>'
            )
            if "texttemplate" in trace and "error_y" not in trace:
                said, soft = filled_in(trace["texttemplate"], value), _colour("soft")
                up = y - 4 if value >= 0 else y + h + 12
                yield (
                    _text(other + 5, middle + 4, said, colour=soft)
                    if across
                    else _text(middle, up, said, anchor="middle", colour=soft, size=10)
                )
        if not across:
            yield from self._whiskers(trace, middles)

    def _heat(self, trace: Trace) -> Iterator[str]:
        low, high = trace.get("zmin", 0), trace.get("zmax", 1)
        wide, tall = abs(self.x.at(1) - self.x.at(0)), abs(self.y.at(1) - self.y.at(0))
        numbers = trace.get("text") if len(trace["x"]) <= CELLS else None
        for j, row in enumerate(trace["z"]):
            for i, value in enumerate(row):
                if value is None:
                    continue
                share = min(1.0, max(0.0, (value - low) / ((high - low) or 1)))
                x, y = self.x.at(trace["x"][i]), self.y.at(trace["y"][j])
                fill = _heat_colour(trace, share)
                yield (
                    f'<rect x="{x - wide / 2 + 1:.1f}" y="{y - tall / 2 + 1:.1f}" '
                    f'width="{max(wide - 2, 1):.1f}" height="{max(tall - 2, 1):.1f}" fill="{fill}"/>'
                )
                if numbers:
                    yield _text(x, y + 4, unescape(str(numbers[j][i])), anchor="middle")

    def _box(self, trace: Trace, place: int) -> Iterator[str]:
        values = sorted(v for v in trace["y"] if self.y.has(v))
        if len(values) < 2:
            return
        x, colour = self.x.at(place), _series(trace)
        low, middle, high = (self.y.at(q) for q in quantiles(values, n=4, method="inclusive"))
        for value in values:
            yield f'<circle cx="{x:.1f}" cy="{self.y.at(value):.1f}" r="2" fill="{colour}"/>'
        box = f'x="{x - 20:.1f}" y="{high:.1f}" width="40" height="{low - high:.1f}"'
        yield f'<rect {box} fill="{colour}" fill-opacity="0.15" stroke="{colour}"/>'
        yield f'<path d="M{x - 20:.1f} {middle:.1f}h40" stroke="{colour}" stroke-width="2"/>'


def _axes(x: Axis, y: Axis) -> Iterator[str]:
    left, right = min(x.first, x.last), max(x.first, x.last)
    top, bottom = min(y.first, y.last), max(y.first, y.last)
    grid, soft = _colour("grid"), _colour("soft")
    if y.visible:
        for value, name in y.ticks:
            at = y.at(value)
            yield f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" stroke="{grid}"/>'
            yield _text(left - 7, at + 4, name, anchor="end", colour=soft)
        yield (
            f'<g transform="translate(15 {(top + bottom) / 2:.0f}) rotate(-90)">'
            f"{_text(0, 0, y.title, anchor='middle', colour=soft)}</g>"
        )
    if x.visible:
        every = 1 + len(x.ticks) * 8 * int(LETTER) // max(1, int(right - left))
        for value, name in x.ticks[::every]:
            yield _text(x.at(value), bottom + 17, name, anchor="middle", colour=soft)
        yield _text((left + right) / 2, bottom + 38, x.title, anchor="middle", colour=soft)
    yield f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="{_colour("line")}"/>'


def _dashed(trace: Trace) -> str:
    dash = DASHES[trace.get("meta", {}).get("dash", 0) % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _sample(trace: Trace, x: float, y: float) -> str:
    """What stands beside a name: a piece of its line, or of its bar."""
    colour = _series(trace)
    if trace["type"] != "scatter" or "lines" not in trace.get("mode", "lines"):
        return f'<rect x="{x + 4}" y="{y - 4}" width="14" height="8" fill="{colour}"/>'
    return f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="2"{_dashed(trace)}/>'


def _marker(trace: Trace, x: float, y: float) -> str:
    """A point: a star where a round was kept, hollow where nothing is guaranteed."""
    marker, colour = trace.get("marker", {}), _series(trace)
    size, symbol = marker.get("size", 7), str(marker.get("symbol", "circle"))
    radius = (size if isinstance(size, int | float) else 7) / 2
    fill = "#ffffff" if symbol.endswith("-open") else colour
    if symbol != "star":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" stroke="{colour}"/>'
    tips = [(0.4 * radius if i % 2 else radius, pi * (i / 5 - 0.5)) for i in range(10)]
    points = " ".join(f"{x + far * cos(turn):.1f},{y + far * sin(turn):.1f}" for far, turn in tips)
    return f'<polygon points="{points}" fill="{colour}"/>'


def _named(figure: Figure) -> list[Trace]:
    return [one for one in figure.data if one.get("name") and one.get("showlegend", True)]


def _names(rows: Sequence[Sequence[tuple[float, Trace]]], y: float) -> Iterator[str]:
    """A legend, from its first line's height on."""
    for i, row in enumerate(rows):
        for at, trace in row:
            yield _sample(trace, at, y + LINE * i - 4)
            yield _text(at + 27, y + LINE * i, unescape(trace["name"]))


def _legend(named: Sequence[Trace]) -> Iterator[list[tuple[float, Trace]]]:
    """Names line by line, each with the pixel that it begins at."""
    row: list[tuple[float, Trace]] = []
    at = 14.0
    for trace in named:
        wide = 44 + LETTER * len(unescape(trace["name"]))
        if row and at + wide > WIDTH:
            yield row
            row, at = [], 14.0
        row.append((at, trace))
        at += wide
    if row:
        yield row


def _ends(trace: Trace) -> list[tuple[Any, Any]]:
    """The ends of a trace's whiskers; None where there are none."""
    found = trace.get("error_y")
    if not found:
        return []
    down = found.get("arrayminus", found["array"])
    rows = zip(trace["y"], down, found["array"], strict=True)
    return [(None, None) if None in (y, a, b) else (y - a, y + b) for y, a, b in rows]


def _reach(trace: Trace) -> list[Any]:
    return [end for ends in _ends(trace) for end in ends]


def _text(
    x: float, y: float, text: str, anchor: str = "start", colour: str = "", weight: str = "", size: int = 0
) -> str:
    more = f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' fill="{colour}"' if colour else ""
    more += f' font-weight="{weight}"' if weight else ""
    more += f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>' if text else ""


def _series(trace: Trace) -> str:
    return _colour(str(trace.get("meta", {}).get("series", "plain")))


def _colour(name: str) -> str:
    return str(COLOURS.get(name, COLOURS["plain"]))


def _heat_colour(trace: Trace, share: float) -> str:
    if trace.get("meta", {}).get("series") == "attendance":
        return _colour(f"att{min(3, int(share * 4))}")
    low, high = (_colour(name) for name in ("heat0", "heat1"))
    mixed = [
        round(int(low[i : i + 2], 16) * (1 - share) + int(high[i : i + 2], 16) * share) for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in mixed)
