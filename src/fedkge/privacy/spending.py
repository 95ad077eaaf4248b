"""A site's way to its ledger: a release that would pass the budget is refused before it is recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedkge.errors import FedkgeError
from fedkge.privacy.budget import Budget
from fedkge.privacy.ledger import Entry, Ledger
from fedkge.privacy.releases import Release


class BudgetSpent(FedkgeError):  # noqa: N818 - reads as what it says
    """A release that does not fit what is left of a site's budget; nothing was recorded or released."""


@dataclass(frozen=True)
class _Known:
    """How often a step still fits; `most` says that this is all that was asked, not all that fits."""

    step: Release
    left: int
    most: bool
    recorded: int  #: by the site when this was so: who else records for it makes it stale


class Spending:
    """What one site spends, which has so many confidential triples (None: not said).

    Without a budget everything is recorded and nothing refused.
    """

    def __init__(
        self, ledger: Ledger, site: str, budget: Budget | None = None, triples: int | None = None
    ) -> None:
        self.ledger, self.site, self.budget, self.triples = ledger, site, budget, triples
        self._known: _Known | None = None

    def left(self, step: Release, most: int) -> int:
        """How often, up to `most`, `step` fits after all that was recorded; its own count does not matter."""
        if self.budget is None:
            return most
        step = replace(step, count=1)
        known, recorded = self._known, self.ledger.count(self.site)
        if (
            known is None
            or (known.step, known.recorded) != (step, recorded)
            or (known.most and known.left < most)
        ):
            allowed = self.budget.allowed(step, self.ledger.releases(self.site), most)
            self._known = known = _Known(step, allowed, allowed == most, recorded)
        return min(known.left, most)

    def spend(self, release: Release, epoch: int) -> Entry:
        """Record `release`, which may be made once this returns; its numbers are the noise's counters."""
        left = self.left(release, release.count)
        if left < release.count:
            assert self.budget is not None
            raise BudgetSpent(
                f"site {self.site!r}: {release.count:,} more of {release.mechanism} would pass epsilon "
                f"{self.budget.epsilon:g} at delta {self.budget.delta:g}; {left:,} are left"
            )
        entry = self.ledger.record(self.site, epoch, release, self.triples)
        if self._known is not None:  # of this very step, as `left` was asked for it
            after = self._known.left - release.count
            self._known = replace(self._known, left=after, recorded=entry.numbers.stop)
        return entry
