"""Which of several rows validates best, if they can be compared at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from fedkge.papers.records import portable
from fedkge.reports.compared.choosing import CONDITION_TABLES

if TYPE_CHECKING:
    from fedkge.papers.lines import Line

ONLY = "the only one run"


def best_of(ran: Sequence[Line]) -> tuple[Line, str]:
    """The row that stands for all that were run, and why it does.

    That is the row with the best validation MRR, the first of equals. The first row stands where one of its
    rivals has no validation. Rows that were run on other data, other sides or other seeds are no rivals.
    """
    first, *others = ran
    wanted = _terms(first)
    rivals, left = [first], dict[str, list[str]]()
    for line in others:
        if unlike := [name for name, value in _terms(line).items() if value != wanted[name]]:
            left.setdefault(" and ".join(unlike), []).append(line.note.partition(",")[0] or line.name)
        else:
            rivals.append(line)
    best, why = _best(rivals)
    told = [f"not compared (other {unlike}): {', '.join(names)}" for unlike, names in left.items()]
    return best, "; ".join(told if left and len(rivals) == 1 else [why, *told])


def validated(line: Line) -> float | None:
    """The validation MRR of the runs whose test metrics are shown; None where one of them has none.

    It is that of the tables by which the method is judged, for views too: records have no other.
    """
    found = [record["valid"]["mrr"] for record in line.records if "valid" in record]
    return mean(found) if found and len(found) == len(line.records) else None


def _best(rivals: Sequence[Line]) -> tuple[Line, str]:
    if len(rivals) == 1:
        return rivals[0], ONLY
    merits = [merit for line in rivals if (merit := validated(line)) is not None]
    if without := len(rivals) - len(merits):
        have = "has" if without == 1 else "have"
        return rivals[0], f"not chosen: {without} of {len(rivals)} {have} no validation"
    return rivals[merits.index(max(merits))], f"best of {len(rivals)} on validation"


def _terms(line: Line) -> Mapping[str, Any]:
    """What rows have in common if their validation can be compared."""
    config = portable(line.job.experiment().config())
    return {
        "data": {name: config.get(name) for name in CONDITION_TABLES},
        "sides": config["evaluate"]["sides"],
        "seeds": sorted(record["seed"] for record in line.records),
    }
