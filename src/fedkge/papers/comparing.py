"""Which of several rows validates best, if they can be compared at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from fedkge.papers.records import portable
from fedkge.reports.compared.choosing import CONDITION_TABLES

if TYPE_CHECKING:
    from fedkge.papers.lines import Line

ONLY = "the only one run"


def best_of(ran: Sequence[Line]) -> tuple[Line, str]:
    """The row that stands for all that were run, and why it does.

    That is the row with the best validation MRR over the seeds that all rivals have, the first of equals.
    The first row stands where one of its rivals has no validation. Rows that were run on other data, on
    other sides or with no such seed are no rivals.
    """
    first, *others = ran
    wanted, seeds = _terms(first), _seeds(first)
    rivals, left = [first], dict[str, list[str]]()
    for line in others:
        unlike = [name for name, value in _terms(line).items() if value != wanted[name]]
        if not seeds & _seeds(line):
            unlike.append("seeds")
        if unlike:
            left.setdefault(" and ".join(unlike), []).append(line.note.partition(",")[0] or line.name)
        else:
            rivals.append(line)
            seeds &= _seeds(line)
    best, why = _best(rivals, seeds)
    told = [f"not compared (other {unlike}): {', '.join(names)}" for unlike, names in left.items()]
    return best, "; ".join(told if left and len(rivals) == 1 else [why, *told])


def validated(line: Line, seeds: Collection[int]) -> float | None:
    """The validation MRR of the runs whose test metrics are shown; None where one of them has none.

    It is that of the tables by which the method is judged, for views too: records have no other.
    """
    of = [record for record in line.records if record["seed"] in seeds]
    found = [record["valid"]["mrr"] for record in of if "valid" in record]
    return mean(found) if found and len(found) == len(of) else None


def _best(rivals: Sequence[Line], seeds: Collection[int]) -> tuple[Line, str]:
    if len(rivals) == 1:
        return rivals[0], ONLY
    merits = [merit for line in rivals if (merit := validated(line, seeds)) is not None]
    if without := len(rivals) - len(merits):
        have = "has" if without == 1 else "have"
        return rivals[0], f"not chosen: {without} of {len(rivals)} {have} no validation"
    by = "" if all(_seeds(line) == seeds for line in rivals) else f" with seed {_listed(seeds)}"
    return rivals[merits.index(max(merits))], f"best of {len(rivals)} on validation{by}"


def _listed(seeds: Collection[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _seeds(line: Line) -> set[int]:
    return {record["seed"] for record in line.records}


def _terms(line: Line) -> Mapping[str, Any]:
    """What rows have in common if their validation can be compared."""
    config = portable(line.job.experiment().config())
    return {
        "data": {name: config.get(name) for name in CONDITION_TABLES},
        "sides": config["evaluate"]["sides"],
    }
