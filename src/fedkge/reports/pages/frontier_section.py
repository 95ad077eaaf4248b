"""The page's part on what privacy costs: accuracy over ε, what that means, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedkge.privacy.words import number
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.frontier import METRICS, Frontier, frontiers, rows_of, unplaced
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.drawing.frontier_plot import frontier_figures
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.frontier_words import cautions, each_epsilon, meaning
from fedkge.reports.pages.markup import Column, count, difference, folded, share, table, words

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
    Column("guarantee", "Guarantee", words, "formal: proven; none: ε is only a number", words=True),
    Column("accountant", "Accountant", words, words=True),
    *(Column(key, title, share, "test, over all sites; higher is better") for key, title in METRICS.items()),
    Column("gain", "Gain", difference, "in Hits@10, over leaving confidential triples out"),
    Column("seeds", "Seeds", count),
)
CAPTION = (
    "Accuracy, and what is promised for it. Unit: one confidential triple; neighbours: graphs that differ "
    "in one."
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
