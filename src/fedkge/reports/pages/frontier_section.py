"""The page's part on what privacy costs: accuracy over ε, what that means, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite, log10

from fedkge.privacy.words import number
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.frontier import (
    METRICS,
    OFF,
    U_ONLY,
    Choice,
    Frontier,
    frontiers,
    rows_of,
    unplaced,
)
from fedkge.reports.drawing.figure import Canvas, Figure, Trace, decades, finite, mark, text, titled, whiskers
from fedkge.reports.drawing.lines import Point, band, coloured
from fedkge.reports.folders.run import Run, side_note
from fedkge.reports.pages.frontier_words import cautions, each_epsilon, meaning
from fedkge.reports.pages.markup import Column, count, difference, folded, share, table, words

ROOM = 1.3  #: factor by which levels reach beyond the smallest and the largest ε
STYLE = {OFF: ("pooled", 3), U_ONLY: ("alone", 2)}  #: colour and dash of a level
EPSILON = "ε, the largest over sites; smaller is more private"
DASHED = 1  #: of lines without a guarantee


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
        xaxis = titled(EPSILON, range=list(map(log10, ends)), **decades(*ends, "{:g}".format))
        layout = {"xaxis": xaxis, "yaxis": titled(f"test {title}"), "showlegend": not i}
        what = f"Test {title} over ε"
        label = f"{what}{sides}: {', '.join([*lines, *frontier.levels])}; the table below has the numbers."
        figures.append(
            Figure(what + sides, label, traces, layout, 280 if i else 400, tools=not i, longest=48)
        )
    return figures


def _drawn(choice: Choice) -> bool:
    """A logarithmic axis has a place for it."""
    return choice.epsilon is not None and choice.epsilon > 0 and isfinite(choice.epsilon)


def _line(name: str, choices: Sequence[Choice], metric: str, colour: str, turn: int) -> Trace:
    """Hollow and dashed where one of them is no guarantee."""
    found = [choice.test(metric) for choice in choices]
    proven = all(choice.guarantee == "formal" for choice in choices)
    symbol = ("circle", "diamond", "square")[turn % 3] + "-open" * (not proven)
    return mark(
        "scatter",
        name if proven else f"{name}: no guarantee",
        colour,
        0 if proven else DASHED,
        "%{fullData.name}<br>%{y:.4f} at %{text}",
        mode="lines+markers",
        x=[choice.epsilon for choice in choices],
        y=[finite(of.mean) for of in found],
        text=[_hover(choice) for choice in choices],
        marker={"size": 10, "symbol": symbol},
        **whiskers([of.std for of in found]),
    )


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
    return "<br>".join(text(part) for part in parts)


def _level(name: str, choice: Choice, metric: str, ends: tuple[float, float]) -> list[Trace]:
    """A horizontal line, over a band of one deviation where there are several seeds."""
    mean, std, _ = choice.test(metric)
    series, dash = STYLE[choice.mode]
    hover = "%{fullData.name}: %{y:.4f}"
    level = mark("scatter", name, series, dash, hover, mode="lines", x=list(ends), y=[mean] * 2)
    around = [] if std is None else [Point(x, mean, mean - std, mean + std) for x in ends]
    return [*(band(series, around) if around else ()), level]


OPEN = 6  #: sentences on single ε that are not folded away
FOLDED = "Each ε in words"
UNPLACED = (
    "Not compared, since no other experiment here differs from it in privacy options, seed, rounds and "
    "training budget alone:"
)
NOTE = (
    "Up is better, left is more private. Whiskers and bands, where there are several seeds, are one standard "
    "deviation. Dashed and hollow: ε is no guarantee. Levels need no noise: what is reached without "
    "protection, and without confidential triples, which is what every ε has to beat."
)
COLUMNS = (
    Column("mode", "Mode", words),
    Column("epsilon", "ε", number, "the largest over sites, rounded up; smaller is more private"),
    Column("delta", "δ", lambda value: f"{value:g}", "added to what e^ε allows; far below 1 / triples"),
    Column("unit", "Unit", words, "what is protected", words=True),
    Column("guarantee", "Guarantee", words, "formal: proven; none: ε is only a number", words=True),
    Column("accountant", "Accountant", words, words=True),
    *(Column(key, title, share, "test, over all sites; higher is better") for key, title in METRICS.items()),
    Column("gain", "Gain", difference, "in Hits@10, over leaving confidential triples out"),
    Column("seeds", "Seeds", count),
)
CAPTION = (
    "Accuracy, and what is promised for it. Neighbours are graphs that differ in one unit: in one "
    "confidential triple, or in everything said about one person."
)


def privacy_cost(page: Canvas, runs: Sequence[Run]) -> str:
    """A part per frontier, and who is on none; empty when there is one experiment, or none with noise."""
    groups = experiments(runs)
    if len(groups) < 2:
        return ""
    found = frontiers(groups)
    heads = [f"<h3>{escape(one.label)}</h3>" if len(found) > 1 else "" for one in found]
    parts = [head + _part(page, one) for head, one in zip(heads, found, strict=True)]
    if left := [escape(group.label) for group in unplaced(groups, found)]:
        parts.append(f'<p class="soft">{UNPLACED} {"; ".join(left)}.</p>')
    return "".join(parts)


def _part(page: Canvas, frontier: Frontier) -> str:
    figures = frontier_figures(frontier)
    parts = [page.place(figure, "" if i else NOTE) for i, figure in enumerate(figures)]
    said, each = meaning(frontier), each_epsilon(frontier)
    parts.append(_listed(said + each) if len(each) <= OPEN else _listed(said) + folded(FOLDED, _listed(each)))
    parts.append(table(rows_of(frontier), COLUMNS, CAPTION))
    parts.append(_listed(cautions(frontier)))
    return "".join(parts)


def _listed(sentences: Sequence[str]) -> str:
    return f'<ul class="joining">{"".join(f"<li>{escape(text)}</li>" for text in sentences)}</ul>'
