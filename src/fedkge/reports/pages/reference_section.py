"""The page's part on what it takes to converge, beside a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from fedkge.reports.compared.experiments import Row, experiments
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
from fedkge.reports.pages.markup import RUN, SEED, SEEDS, Column, amount, count, folded, share, size, table

FORMS = {"rounds": count, "values": amount, "bytes": size}
DEVIATION = " ± is one standard deviation of the ratios over seeds."
NOTE = (
    "Both directions, on a logarithmic axis, near the levels to reach, which are dotted; a star is where a "
    "run converged. Dashed: experiments that send nothing, at the best that they reach."
)


def convergence(page: Canvas, runs: Sequence[Run], reference: str | None) -> str:
    """Validation MRR over bytes with the levels to reach, then ratios, then what they are ratios of."""
    if reference is None:
        return ""
    groups = experiments(runs)
    name = " and ".join(base.label for base in references(groups, reference))
    rows = reference_rows(runs, reference)
    caption = (
        "Rounds (R) until each converged (CG); values (P) and bytes (B) sent until then, and until it first "
        f"had 99 % and 98 % of the best validation MRR of {name}, as multiples of what {name} sent for it."
    ) + DEVIATION * ("seeds" in rows[0])
    parts = [page.place(figure, NOTE) for figure in reference_figures(groups, reference)]
    parts.append(_tables(rows, name, caption))
    if "seeds" in rows[0]:
        each, own = each_reference_rows(runs, reference), "Each run by itself: what the means are made of."
        parts.append(folded("Each seed", _tables(each, name, own)))
    return "".join(parts)


def _tables(rows: Sequence[Row], name: str, caption: str) -> str:
    """Ratios, and the same in their own units."""
    levels = {
        CONVERGED: "until the best validated round of each",
        **{level: f"until first at {level} % of the best validation MRR of {name}" for level in LEVELS},
    }
    ratios = [RUN, *([SEED] if "seed" in rows[0] else [])]
    ratios.append(Column("valid_mrr", "Valid MRR", share, "the best"))
    ratios.append(Column(f"R@{CONVERGED}", f"R@{CONVERGED}", count, f"rounds {levels[CONVERGED]}"))
    spent = [RUN, *(column for column in (SEEDS, SEED) if column.key in rows[0])]
    for what, key in SPENT.items():
        for level, when in levels.items():
            ratio, title = f"{RATIOS[what]}@{level}", f"{what.capitalize()}@{level}"
            if what != "rounds":
                ratios.append(Column(ratio, ratio, _or_words("{:.3f}".format), f"{what} sent {when}"))
            spent.append(Column(f"{key}@{level}", title, _or_words(FORMS[what]), when))
    same = "The same in rounds, in numbers sent, and in bytes sent."
    return table(rows, ratios, caption) + table(rows, spent, same)


def _or_words(form: Callable[[float], str]) -> Callable[[Any], str]:
    """A number in its form, or what is said instead of one."""
    return lambda value: escape(value) if isinstance(value, str) else form(value)
