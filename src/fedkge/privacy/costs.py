"""What sites have spent, read off ledgers: ε per site, over epochs, and over several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from fedkge.privacy.accountants import ACCOUNTANTS, Accountant
from fedkge.privacy.delta import check_share
from fedkge.privacy.ledger import Entry
from fedkge.privacy.releases import Release
from fedkge.privacy.units import unit_of

POINTS = 24  #: of a curve over epochs


@dataclass(frozen=True)
class Cost:
    """One site's ε, and all that it must be printed with."""

    site: str
    epsilon: float
    delta: float
    accountant: str  #: its name
    releases: tuple[Release, ...]  #: equal ones together
    triples: int = 1  #: confidential ones, or persons, that the site has, at least

    @property
    def unit(self) -> str:
        return self.releases[0].unit

    @property
    def neighbours(self) -> str:
        return self.releases[0].neighbours

    @property
    def count(self) -> int:
        return sum(release.count for release in self.releases)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why ε is no guarantee, each reason once; none when it is one."""
        return tuple(dict.fromkeys(flaw for release in self.releases for flaw in release.flaws))

    @property
    def guarantee(self) -> str:
        if not isfinite(self.epsilon):
            return "none"
        return "none" if self.flaws else "formal"

    def plain(self) -> dict[str, Any]:
        """A row for a table or `summary.json`."""
        return {
            "site": self.site,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "accountant": self.accountant,
            "guarantee": self.guarantee,
            "releases": self.count,
            "mechanism": _distinct(release.mechanism for release in self.releases),
            "sampling": _distinct(release.sampling for release in self.releases),
        }


def accountant_for(entries: Iterable[Entry]) -> str:
    """The accountant that knows all of these: the tightest, unless some have no guarantee."""
    return "rdp-paper" if any(entry.release.flaws for entry in entries) else "pld"


def costs(entries: Sequence[Entry], delta: float, accountant: str | None = None) -> list[Cost]:
    """A cost per site and unit, in the order of their first entries, which may come from several ledgers.

    Where a guarantee follows, a δ of one in the confidential triples or more is an error.
    """
    name = accountant or accountant_for(entries)
    sites: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        sites.setdefault((entry.site, entry.release.unit), []).append(entry)
    return [cost_of(site, own, delta, name) for (site, _), own in sites.items()]


def cost_of(site: str, entries: Sequence[Entry], delta: float, accountant: str) -> Cost:
    """What some releases of one site cost together."""
    releases = [entry.release for entry in entries]
    epsilon = ACCOUNTANTS[accountant]().epsilon(releases, delta)
    check_share(delta, site, guaranteed(entries), unit_of(releases[0].unit).all)
    return Cost(site, epsilon, delta, accountant, merged(releases), max(entry.least for entry in entries))


def guaranteed(entries: Sequence[Entry]) -> int:
    """How many units δ must be far below one in; 0 where some releases have no guarantee."""
    return 0 if any(entry.release.flaws for entry in entries) else max(entry.least for entry in entries)


def merged(releases: Iterable[Release]) -> tuple[Release, ...]:
    """The same releases, equal ones as one with the sum of their counts."""
    counts: dict[Release, int] = {}
    for release in releases:
        step = replace(release, count=1)
        counts[step] = counts.get(step, 0) + release.count
    return tuple(replace(step, count=count) for step, count in counts.items())


def over_epochs(
    entries: Sequence[Entry], site: str, delta: float, accountant: Accountant
) -> dict[int, float]:
    """Epoch -> ε of all that the site had released by its end, from 0 on; of many epochs about `POINTS`.

    An epoch that was repeated after a kill counts each time.
    """
    own = [entry for entry in entries if entry.site == site]
    epochs = sorted({0, *(entry.epoch for entry in own)})
    stride = -(-len(epochs) // POINTS)
    return {
        epoch: accountant.epsilon([entry.release for entry in own if entry.epoch <= epoch], delta)
        for epoch in [*epochs[:-1:stride], epochs[-1]]
    }


def _distinct(parts: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, parts)))
