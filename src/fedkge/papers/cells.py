"""Cells of tables: numbers of runs beside those of papers, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedkge.papers.lines import Line
from fedkge.reports.compared.experiments import Spread


def difference(line: Line, metric: str) -> float | None:
    """Ours minus the paper's, with the digits that are shown; None where one of them is missing."""
    own, paper = line.metric(metric), line.paper.get(metric)
    return None if own is None or paper is None else round(own.mean / unit_of(metric), 2) - paper


def unit_of(metric: str) -> float:
    """Shares are told in per cent, mean ranks as they are."""
    return 1.0 if metric == "mr" else 0.01


def as_good(line: Line, metric: str) -> bool | None:
    """Whether a cell is as good as the paper's, or better; None where one of them is missing."""
    gap = difference(line, metric)
    return None if gap is None else gap <= 0 if metric == "mr" else gap >= 0


def cell(over: Spread | str | None, digits: int, unit: float = 1.0) -> str:
    """`33.00 ± 1.41`, a word, or a dash."""
    if over is None or isinstance(over, str):
        return over or "–"
    mean = f"{over.mean / unit:.{digits}f}"
    return mean if over.std is None else f"{mean} ± {over.std / unit:.{digits}f}"


def markdown(rows: Sequence[Sequence[Any]]) -> str:
    """A table; its second row has the alignments."""
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
