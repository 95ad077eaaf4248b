"""Accuracy over ε: a line per mode and rules, and levels for what needs no noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log10
from typing import Any

from fedkge.privacy.words import number
from fedkge.reports.compared.frontier import METRICS, OFF, U_ONLY, Choice, Frontier
from fedkge.reports.drawing.figure import Figure, Trace, finite, text
from fedkge.reports.drawing.lines import coloured
from fedkge.reports.folders.run import side_note

ROOM = 1.3  #: factor by which levels reach beyond the smallest and the largest ε
STYLE = {OFF: ("pooled", 3), U_ONLY: ("alone", 2)}  #: colour and dash of a level
DASHED = 1  #: of lines without a guarantee
NAMES = 48  #: messages of a name in the legend


def frontier_figures(frontier: Frontier) -> list[Figure]:
    """One per metric, the first with a legend; none when no ε is known."""
    lines = {name: drawn for name, of in frontier.lines.items() if (drawn := [*filter(_drawn, of)])}
    if not lines:
        return []
    known = [choice.epsilon or 0.0 for of in lines.values() for choice in of]
    ends = min(known) / ROOM, max(known) * ROOM
    sides = side_note(run for choice in frontier.choices for run in choice.experiment.runs)
    figures = []
    for i, (metric, title) in enumerate(METRICS.items()):
        traces = [
            trace
            for name, of in frontier.levels.items()
            for choice in of
            for trace in _level(name, choice, metric, ends)
        ]
        traces += [_line(name, of, metric, *coloured(j)) for j, (name, of) in enumerate(lines.items())]
        layout: dict[str, Any] = {"xaxis": _axis(*ends), "yaxis": {"title": {"text": f"test {title}"}}}
        layout["showlegend"] = not i
        what = f"Test {title} over ε"
        label = f"{what}{sides}: {', '.join([*lines, *frontier.levels])}; the table below has the numbers."
        figures.append(Figure(what + sides, label, traces, layout, 280 if i else 400, tools=not i))
    return figures


def _drawn(choice: Choice) -> bool:
    """A logarithmic axis has a place for it."""
    return choice.epsilon is not None and choice.epsilon > 0 and isfinite(choice.epsilon)


def _line(name: str, choices: Sequence[Choice], metric: str, colour: str, turn: int) -> Trace:
    """Hollow and dashed where one of them is no guarantee."""
    found = [choice.test(metric) for choice in choices]
    proven = all(choice.guarantee == "formal" for choice in choices)
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(name if proven else f"{name}: no guarantee", NAMES),
        "x": [choice.epsilon for choice in choices],
        "y": [finite(of.mean) for of in found],
        "text": [_hover(choice) for choice in choices],
        "marker": {"size": 10, "symbol": ("circle", "diamond", "square")[turn % 3] + "-open" * (not proven)},
        "hovertemplate": "%{fullData.name}<br>%{y:.4f} at %{text}<extra></extra>",
        "meta": {"series": colour, "dash": 0 if proven else DASHED},
    }
    if any(of.std is not None for of in found):
        trace["error_y"] = {"type": "data", "array": [of.std for of in found], "width": 4, "thickness": 1.5}
    return trace


def _hover(choice: Choice) -> str:
    """ε with all that it must be told with, of the site that spent most."""
    worst = choice.worst or {}
    parts = [
        f"ε = {number(choice.epsilon or 0.0)}, δ = {choice.delta:g}",
        f"guarantee: {choice.guarantee}, accountant: {choice.accountant}",
        f"{worst.get('mechanism')}",
        f"sampling: {worst.get('sampling')}",
        f"seeds: {len(choice.experiment.ended)}",
    ]
    return "<br>".join(text(part, 80) for part in parts)


def _level(name: str, choice: Choice, metric: str, ends: tuple[float, float]) -> list[Trace]:
    """A horizontal line, over a band of one deviation where there are several seeds."""
    found = choice.test(metric)
    series, dash = STYLE[choice.mode]
    common: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": list(ends),
        "meta": {"series": series, "dash": dash},
    }
    level = {**common, "y": [found.mean] * 2, "name": text(name, NAMES)}
    level["hovertemplate"] = "%{fullData.name}: %{y:.4f}<extra></extra>"
    if found.std is None:
        return [level]
    edge = {**common, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    low = {**edge, "y": [found.mean - found.std] * 2}
    high = {**edge, "y": [found.mean + found.std] * 2, "fill": "tonexty"}
    return [low, high, level]


def _axis(low: float, high: float) -> dict[str, Any]:
    """As many ticks of every decade as there is room for, in plain numbers."""
    digits = range(1, 10) if high < 10 * low else (1, 2, 5) if high < 1000 * low else (1,)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [digit * 10.0**decade for decade in decades for digit in digits]
    title = {"text": "ε, the largest over sites; smaller is more private"}
    reach = [log10(low), log10(high)]
    ticks = {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}
    return {"title": title, "type": "log", "range": reach, **ticks}
