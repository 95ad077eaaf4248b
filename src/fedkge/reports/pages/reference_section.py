"""The page's part on what it takes to converge, beside a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.reference import (
    CONVERGED,
    LEVELS,
    RATIOS,
    SPENT,
    each_reference_rows,
    reference_figures,
    reference_rows,
    references,
)
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Column, amount, count, folded, share, size, table, words

FORMS = {"rounds": count, "values": amount, "bytes": size}
DEVIATION = " ± is one standard deviation of the ratios over seeds."
NOTE = (
    "Both directions, on a logarithmic axis, near the levels to reach, which are dotted; a star is where a "
    "run converged. Dashed: experiments that send nothing, at the best that they reach."
)


def convergence(page: Canvas, runs: Sequence[Run], reference: str) -> str:
    """Validation MRR over bytes with the levels to reach, then ratios, then what they are ratios of."""
    groups = experiments(runs)
    name = " and ".join(base.label for base in references(groups, reference))
    levels = {
        CONVERGED: "until the best validated round of each",
        **{level: f"until first at {level} % of the best validation MRR of {name}" for level in LEVELS},
    }
    rows = reference_rows(runs, reference)
    several = "seeds" in rows[0]
    caption = (
        "Rounds (R) until each converged (CG); values (P) and bytes (B) sent until then, and until it first "
        f"had 99 % and 98 % of the best validation MRR of {name}, as multiples of what {name} sent for it."
    ) + DEVIATION * several
    parts = [page.place(figure, NOTE) for figure in reference_figures(groups, reference)]
    parts.append(table(rows, _ratios(rows, levels), caption))
    parts.append(table(rows, _spent(rows, levels), "The same in rounds, in numbers sent, and in bytes sent."))
    if several:
        each = each_reference_rows(runs, reference)
        ratios = table(each, _ratios(each, levels), "Each run by itself: what the means are made of.")
        spent = table(each, _spent(each, levels), "The same in rounds, in numbers sent, and in bytes sent.")
        parts.append(folded("Each seed", ratios + spent))
    return "".join(parts)


def _ratios(rows: Sequence[Row], levels: dict[str, str]) -> list[Column]:
    columns = [Column("run", "Run", words), *([Column("seed", "Seed", count)] if "seed" in rows[0] else [])]
    columns.append(Column("valid_mrr", "Valid MRR", share, "the best"))
    columns.append(Column(f"R@{CONVERGED}", f"R@{CONVERGED}", count, f"rounds {levels[CONVERGED]}"))
    for what in ("values", "bytes"):
        for level, when in levels.items():
            key = f"{RATIOS[what]}@{level}"
            columns.append(Column(key, key, _or_words(_ratio), f"{what} sent {when}"))
    return columns


def _spent(rows: Sequence[Row], levels: dict[str, str]) -> list[Column]:
    number = next((key for key in ("seeds", "seed") if key in rows[0]), None)
    columns = [Column("run", "Run", words), *([Column(number, number.capitalize(), count)] if number else [])]
    for what, key in SPENT.items():
        for level, when in levels.items():
            title = f"{what.capitalize()}@{level}"
            columns.append(Column(f"{key}@{level}", title, _or_words(FORMS[what]), when))
    return columns


def _or_words(form: Callable[[float], str]) -> Callable[[Any], str]:
    """A number in its form, or what is said instead of one."""
    return lambda value: escape(value) if isinstance(value, str) else form(value)


def _ratio(value: float) -> str:
    return f"{value:.3f}"
