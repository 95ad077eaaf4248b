"""A site's way to its ledgers: a release that would pass a budget is refused before it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedkge.errors import DataError, FedkgeError
from fedkge.privacy.budget import Budget
from fedkge.privacy.ledger import Entry, Ledger
from fedkge.privacy.releases import Release

if TYPE_CHECKING:
    from fedkge.privacy.account import Account


class BudgetSpent(FedkgeError):  # noqa: N818 - reads as what it says
    """A release that does not fit what is left of a site's budget; nothing was recorded or released."""


@dataclass(frozen=True)
class _Known:
    """How often a step still fits; `most` says that this is all that was asked, not all that fits."""

    step: Release
    left: int
    most: bool
    recorded: int  #: by the site when this was so: who else records for it makes it stale


class Allowance:
    """How often a step still fits a budget: found once, by bisection over an accountant, and counted down."""

    def __init__(self, spent: Callable[[], Sequence[Release]], recorded: Callable[[], int]) -> None:
        self._spent, self._recorded = spent, recorded
        self._known: dict[Budget, _Known] = {}

    def left(self, budget: Budget, step: Release, most: int) -> int:
        """How often, up to `most`, `step` fits after all that was recorded; its own count does not matter."""
        step = replace(step, count=1)
        known, recorded = self._known.get(budget), self._recorded()
        if (
            known is None
            or (known.step, known.recorded) != (step, recorded)
            or (known.most and known.left < most)
        ):
            allowed = budget.allowed(step, self._spent(), most)
            self._known[budget] = known = _Known(step, allowed, allowed == most, recorded)
        return min(known.left, most)

    def used(self, release: Release) -> None:
        """That much was recorded just now, and nothing else since `left` was asked for it."""
        step, recorded = replace(release, count=1), self._recorded()
        self._known = {
            budget: replace(known, left=known.left - release.count, recorded=recorded)
            for budget, known in self._known.items()
            if known.step == step and known.recorded == recorded - release.count
        }


class Spending:
    """What one site spends in a run, which has so many confidential triples, or persons (None: not said).

    Without a budget everything is recorded and nothing refused. What a release is made of may be other sites'
    triples too, where graphs are pooled: all of their `accounts` are charged for it.
    """

    def __init__(
        self,
        ledger: Ledger,
        site: str,
        budget: Budget | None = None,
        triples: int | None = None,
        accounts: Mapping[str, Account] | None = None,
        run: str = "",
    ) -> None:
        self.ledger, self.site, self.budget, self.triples = ledger, site, budget, triples
        self.accounts, self.run = dict(accounts or {}), run
        self._allowance = Allowance(lambda: ledger.releases(site), lambda: ledger.count(site))
        for account in self.accounts.values():
            self._check_against(account)

    def _check_against(self, account: Account) -> None:
        """The account must know of no release of this run that the ledger lacks; what it lacks, it gets.

        It lacks lines if the run was killed (see `record`), or if somebody has restored an older copy.
        """
        made, known = self.ledger.made(self.run), account.made(self.run)
        if known > made:
            raise DataError(
                f"{self.ledger.path}: has {made:,} releases, and {account.ledger.path} knows of {known:,} "
                "that this run has made; restore the file: what was spent cannot be forgotten"
            )
        own = [entry for entry in self.ledger.entries if entry.run == self.run]
        while own and known >= own[0].release.count:
            known -= own.pop(0).release.count
        if known:
            raise DataError(
                f"{account.ledger.path}: its releases of this run are not those of {self.ledger.path}; "
                "restore both: what was spent cannot be forgotten"
            )
        account.owe(own, self.run)

    @property
    def bounded(self) -> bool:
        """Whether there is a budget, of this run or of all runs of a site."""
        return self.budget is not None or any(one.limit is not None for one in self.accounts.values())

    def left(self, step: Release, most: int) -> int:
        """How often, up to `most`, `step` fits after all that was recorded; its own count does not matter."""
        if self.budget is not None:
            most = self._allowance.left(self.budget, step, most)
        for account in self.accounts.values():
            most = account.left(step, most)
        return most

    def spend(self, release: Release, epoch: int) -> Entry:
        """Record `release`, which may be made once this returns; its numbers are the noise's counters."""
        if self.budget is not None:
            left = self._allowance.left(self.budget, release, release.count)
            if left < release.count:
                raise BudgetSpent(
                    f"site {self.site!r}: {release.count:,} more of {release.mechanism} would pass epsilon "
                    f"{self.budget.epsilon:g} at delta {self.budget.delta:g}; {left:,} are left"
                )
        entry = self.record(release, epoch)
        self._allowance.used(release)
        return entry

    def record(self, release: Release, epoch: int) -> Entry:
        """The same without a look at this run's budget; the limits of accounts hold.

        The accounts have it last: a run that is killed in between has not made the release, and its ledger
        never lacks what an account has.
        """
        with ExitStack() as charged:
            for site, account in sorted(self.accounts.items()):
                charged.enter_context(account.charging(self.run, site, epoch, release, self.triples))
            return self.ledger.record(self.site, epoch, release, self.triples, self.run)
