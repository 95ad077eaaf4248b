"""Choose by validation: the best point of a sweep, for every method and every question that was asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from re import sub
from typing import Any

from fedkge.config import as_variants
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.folders.options import METHOD, NAME, START, chosen, differing, same, valued
from fedkge.reports.folders.run import Run

#: Options that say what is asked and promised. Scores are compared only where these are the same, and only
#: among runs of one name: who names runs wants to see them all.
CONDITIONS = (METHOD, START, "evaluate.sides")
CONDITION_TABLES = ("data", "align", "marks", "persons", "privacy", "account", "accept")


def best_groups(groups: Sequence[Group]) -> list[Group]:
    """Of the experiments under each condition, the one with the best validation MRR; the first of equals.

    One that has no validation yet is chosen only where nothing else can be.
    """
    rivals: dict[str, list[Group]] = {}
    for group in groups:
        rivals.setdefault(same(_conditions(group)), []).append(group)
    return [max(of, key=_merit) for of in rivals.values()]


def revealed(runs: Sequence[Run], show_test: bool = False) -> list[Run]:
    """The runs whose test metrics are shown: those of chosen points, or all."""
    if show_test:
        return list(runs)
    best = {id(run) for group in best_groups(experiments(runs)) for run in group.runs}
    return [run for run in runs if id(run) in best]


def hides(runs: Sequence[Run], show_test: bool = False) -> bool:
    """Whether test metrics of some runs are kept back."""
    return len(revealed(runs, show_test)) < len(runs)


def best_config(runs: Sequence[Run]) -> dict[str, Any] | None:
    """The chosen experiment as a file has it; several, one for each condition, are its variants.

    None where nothing was validated.
    """
    best = [group for group in best_groups(experiments(runs)) if group.valid() is not None]
    if not best:
        return None
    if len(best) == 1:
        return dict(best[0].first.written)
    return as_variants(dict(zip(_names(best), (group.first.written for group in best), strict=True)))


def _merit(group: Group) -> float:
    found = group.valid()
    return -1.0 if found is None else found.mean


def _conditions(group: Group) -> dict[str, Any]:
    options = chosen(group.first)
    return {NAME: group.first.config.get(NAME)} | {
        key: value
        for key, value in options.items()
        if key in CONDITIONS or key.partition(".")[0] in CONDITION_TABLES
    }


def _names(groups: Sequence[Group]) -> list[str]:
    """Of each the conditions in which they differ, fit for a folder: `fedprox`, `fedprox-C3`."""
    tables = [_conditions(group) for group in groups]
    keys = sorted(differing(tables), key=lambda key: key != METHOD)
    names: list[str] = []
    for table in tables:
        words = [PurePath(valued(table[key])).name for key in keys if table.get(key) is not None]
        name = sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(words)) or "plain"
        names.append(name if name not in names else f"{name}-{len(names)}")
    return names
