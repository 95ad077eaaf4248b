"""Attacks on runs as a page: how well each did, with and without protection, as tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from fedkge.audits.base import Attack, Bars, Curves, Row
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.drawing.figure import Figure, Trace, text
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure
from fedkge.reports.pages.html import document
from fedkge.reports.pages.markup import Column, count, rank, table, words

BESIDE = (
    ("s7", 2),
    ("s6", 1),
)  #: colour and dash of what guessing gives, and of other lines beside the measured


def attack_page(title: str, found: Mapping[Attack, Sequence[Row]]) -> str:
    """A section for each attack, of the rows that it found."""
    page = Canvas()
    return document(title, "", {one.title: _section(page, one, rows) for one, rows in found.items()}, page)


def _section(page: Canvas, attack: Attack, rows: Sequence[Row]) -> str:
    said = "".join(f"<p>{escape(line)}</p>" for line in attack.words(rows).splitlines())
    if not rows:
        return said
    plots = [_bars(plot) if isinstance(plot, Bars) else _curves(plot) for plot in attack.plots(rows)]
    shown = list(map(attack.shown, rows))
    return said + "".join(map(page.place, plots)) + table(shown, _columns(shown), attack.caption)


def _columns(rows: Sequence[Row]) -> list[Column]:
    forms = {int: count, float: rank}
    return [
        Column(key, key, forms.get(type(value), words), words=not str(value)[:1].isdigit())
        for key, value in rows[0].items()
    ]


def _curves(plot: Curves) -> Figure:
    styles = [(line, coloured(i)) for i, line in enumerate(plot.lines)]
    styles += [(line, BESIDE[min(i, 1)]) for i, line in enumerate(plot.beside)]
    lines = [Line(name, [Point(x, y) for x, y in points], *style) for (name, points), style in styles]
    xaxis = {"title": {"text": plot.x}, "type": "log"}
    scale = Scale(xaxis, {"title": {"text": plot.y}}, plot.hover)
    return line_figure(plot.title, f"{plot.title}; the table has the numbers.", lines, scale)


def _bars(plot: Bars) -> Figure:
    """Histograms over the same edges, side by side."""
    names = [f"{a:,.0f}" if b - a <= 1 else f"{a:,.0f}–{b - 1:,.0f}" for a, b in pairwise(plot.edges)]
    traces: list[Trace] = [
        {
            "type": "bar",
            "name": text(name, 60),
            "x": list(range(len(names))),
            "y": counts,
            "customdata": names,
            "hovertemplate": "%{customdata}<br>%{fullData.name}: %{y}<extra></extra>",
            "meta": {"series": f"s{i}", "dash": 0},
        }
        for i, (name, counts) in enumerate(plot.counts.items())
    ]
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    layout = {
        "xaxis": {"title": {"text": plot.x}, **ticks},
        "yaxis": {"title": {"text": plot.y}},
        "barmode": "group",
    }
    return Figure(plot.title, f"{plot.title}; the table has the numbers.", traces, layout, 320, tools=True)
