"""What peers know of each other: reports, who has improved since they last met, and when all is said."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Report:
    """What a peer last said of itself."""

    life: int = 0  #: how often it came back with its checkpoint
    stamp: int = 0  #: later reports of one life have larger ones
    version: int = 0  #: counts its improvements
    idle: bool = False
    left: bool = False  #: it takes part in no further conversation
    over: bool = False  #: it has found that everybody is idle, and has ended
    met: Mapping[str, int] = field(default_factory=dict)  #: versions of its partners that it has met


class News:
    """One peer's knowledge of the others. A partner has news if it has improved since the two last met."""

    def __init__(self, me: str, others: Collection[str]) -> None:
        self.me, self.everyone = me, frozenset(others) | {me}
        self.partners = set(others) - {me}  # with whom there is, or may be, something in common
        self.own = Report()  # but for `idle` and `met`, which change without anybody being told
        self.met: dict[str, int] = {}
        self.reports: dict[str, Report] = {}
        self.queue: list[str] = []  # who has said so first is first
        self.gone: set[str] = set()  # peers that were not heard of for so long that nobody waits for them

    def of(self, q: str) -> bool:
        """Whether a partner has improved since the last meeting, and can be met."""
        report = self.reports.get(q)
        return (
            report is not None
            and q in self.partners - self.gone
            and not report.left
            and report.version > self.met.get(q, 0)
        )

    @property
    def wanted(self) -> list[str]:
        """Partners with news, in the order in which they said so."""
        return [q for q in self.queue if self.of(q)]

    def enqueue(self, q: str) -> None:
        if q not in self.queue:
            self.queue.append(q)

    def postpone(self, q: str) -> None:
        """Others come first."""
        self.queue.sort(key=lambda other: other == q)

    def meet(self, q: str, version: int) -> None:
        """A version of a partner was met, or is passed over."""
        self.met[q] = max(self.met.get(q, 0), version)
        self.queue = [other for other in self.queue if other != q or self.of(q)]

    def heard(self, q: str, note: Mapping[str, Any]) -> bool:
        """A report of another peer; whether it is later than what was known."""
        found, old = Report(**{**note, "met": dict(note["met"])}), self.reports.get(q, Report())
        if (found.life, found.stamp) <= (old.life, old.stamp):
            return False
        self.reports[q] = found
        if self.of(q):
            self.enqueue(q)
        return True

    def report(self, idle: bool) -> Report:
        """What it would say of itself."""
        met = {q: self.met.get(q, 0) for q in sorted(self.partners - self.gone)}
        return replace(self.own, idle=idle, met=met)

    def finished(self, idle: bool) -> bool:
        """Whether everybody is idle and has met the latest versions of its partners.

        Reports may be old. A peer that is idle wakes up only by news that it has not met, and each report
        says what was met: if all of them fit together, no news can be under way.
        """
        if idle and any(report.over for report in self.reports.values()):
            return True  # somebody has found out
        others = self.everyone - self.gone - {self.me}
        if not idle or not all(q in self.reports and self.reports[q].idle for q in others):
            return False
        known = {q: self.reports[q] for q in others} | {self.me: self.report(idle)}
        return all(
            report.left or known[r].left or version == known[r].version
            for report in known.values()
            for r, version in report.met.items()
            if r in known
        )

    def state(self) -> dict[str, Any]:
        """Plain values that a new process goes on from; who is gone is found out again."""
        return {
            "partners": sorted(self.partners),
            "own": asdict(self.own),
            "met": dict(self.met),
            "reports": {q: asdict(report) for q, report in self.reports.items()},
            "queue": list(self.queue),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.partners, self.own = set(state["partners"]), Report(**state["own"])
        self.met, self.queue = dict(state["met"]), list(state["queue"])
        self.reports = {q: Report(**report) for q, report in state["reports"].items()}
