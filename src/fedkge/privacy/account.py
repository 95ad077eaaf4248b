"""A site's own account: every release that any run has made of its confidential triples, and a limit.

It lies in a folder of the site's, not of a run: seeds, sweeps, trials and unlearning add to it, and deleting
or moving a run takes nothing away. The key in that folder, which is made once, says which site it is:
what the data looks like does not matter. One process writes at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedkge.durable import locked, write_whole
from fedkge.errors import ConfigError, DataError
from fedkge.privacy.accountants import ACCOUNTANTS
from fedkge.privacy.budget import Budget
from fedkge.privacy.costs import Cost, cost_of, guaranteed, merged
from fedkge.privacy.delta import check_share, fitting
from fedkge.privacy.keyfile import key_in
from fedkge.privacy.ledger import Entry, Ledger
from fedkge.privacy.releases import Release
from fedkge.privacy.seal import Head
from fedkge.privacy.spending import Allowance, BudgetSpent
from fedkge.privacy.units import unit_of

KEY, LEDGER, LIMIT, LOCK = "site.key", "ledger.jsonl", "limit.json", "lock"
WAIT = 60.0  #: seconds that another process may hold the lock
MANY = 6  #: different steps from which on RDP counts, as PLD takes a second for each


def site_key(folder: Path) -> bytes:
    """A site's key, which is made once, with the head of a ledger without lines.

    So it is noticed if somebody without the key deletes the ledger and its head, or the key.
    """
    ledger = folder / LEDGER

    def begin(new: bytes) -> None:
        head = Head.read(ledger, None)
        if ledger.exists() or (folder / LIMIT).exists() or (head is not None and head.lines):
            raise DataError(f"{folder / KEY}: missing, while the account of a site is there; restore it")
        Head(0, "", 0).write(ledger, _signing(new))

    with _alone(folder):
        key = key_in(folder / KEY, begin)
    if not Head.at(ledger).exists():
        raise DataError(
            f"{Head.at(ledger)}: missing, while {KEY} is there, so that what was spent is not known; restore "
            f"it and {LEDGER}; if nothing was ever spent, delete {folder}"
        )
    return key


def _signing(key: bytes) -> bytes:
    """What an account is signed with: another key than that of runs, which could stand in its place."""
    return hashlib.blake2b(b"account", key=key, digest_size=32).digest()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with locked(folder / LOCK, WAIT) as free:
        if not free:
            raise DataError(f"{folder / LOCK}: another process has held it for {WAIT:g} s; wait for it")
        yield


class Account:
    """What a site has ever spent. `limit` is for all of it together, of one unit.

    Units have sums of their own, and neither covers the other: k triples about a person cost up to k times as
    much as one, and a step by persons can change twice as much for one of their triples.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, site_key(folder)
        with _alone(folder):
            self.ledger = Ledger(folder / LEDGER, _signing(self.key))
        self._allowances: dict[str, Allowance] = {}

    @classmethod
    def exists(cls, folder: Path) -> bool:
        """Whether there is one, which may be damaged."""
        return any((folder / name).is_file() for name in (KEY, LEDGER, LIMIT))

    @property
    def id(self) -> str:
        """Names the site to itself; tells nothing about its key."""
        return hashlib.blake2b(b"id", key=self.key, digest_size=8).hexdigest()

    # The limit

    @property
    def limit(self) -> Budget | None:
        """What all runs together may cost, where that is set."""
        path = self.folder / LIMIT
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            return Budget(float(said["epsilon"]), float(said["delta"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
            raise DataError(f"{path}: expected epsilon and delta as JSON: {error}") from None

    def set_limit(self, epsilon: float, delta: float) -> None:
        """From now on; what was spent before counts. δ must be below one in the units that it is about."""
        Budget(epsilon, delta)
        for unit, own in self._by_unit().items():
            check_share(delta, self.folder.name, guaranteed(own), unit_of(unit).all)
        with _alone(self.folder):
            write_whole(self.folder / LIMIT, json.dumps({"epsilon": epsilon, "delta": delta}).encode())

    def left(self, step: Release, most: int) -> int:
        """How often, up to `most`, a step fits the limit; all of it without one."""
        if self.limit is None:
            return most
        with _alone(self.folder):
            self.ledger.refresh()
        return self._left(step, most)

    def _left(self, step: Release, most: int) -> int:
        """The same, where there is a limit and nobody else writes; counted by what knows all of the unit."""
        limit, accountant = self.limit, self._accountant(step.unit, step)
        assert limit is not None
        counted = replace(limit, accountant=ACCOUNTANTS[accountant]())
        return self._allowance(step.unit).left(counted, step, most)

    def _allowance(self, unit: str) -> Allowance:
        if unit not in self._allowances:
            self._allowances[unit] = Allowance(lambda: merged(self.releases(unit)), lambda: self.ledger.total)
        return self._allowances[unit]

    # What was spent

    @contextmanager
    def charging(
        self, run: str, site: str, epoch: int, release: Release, units: int | None
    ) -> Iterator[None]:
        """Record a release when its run has recorded it, in here; one beyond the limit is refused."""
        with _alone(self.folder):
            self.ledger.refresh()
            if (limit := self.limit) is not None:
                self._check_delta(site, release, units)
                left = self._left(release, release.count)
                if left < release.count:
                    raise BudgetSpent(
                        f"site {site!r}: {release.count:,} more of {release.mechanism} would pass the limit "
                        f"of all its runs, epsilon {limit.epsilon:g} at delta {limit.delta:g} "
                        f"({self.folder}); {left:,} are left"
                    )
            yield
            self.ledger.record(site, epoch, release, units, run)
            self._allowance(release.unit).used(release)

    def owe(self, entries: Sequence[Entry], run: str) -> None:
        """Add what a run has recorded and this account lacks: the run, or somebody, was interrupted."""
        with _alone(self.folder):
            self.ledger.refresh()
            for entry in entries:
                self.ledger.record(entry.site, entry.epoch, entry.release, entry.triples, run)

    def made(self, run: str) -> int:
        """How many applications a run has made, as this account knows it."""
        return self.ledger.made(run)

    def releases(self, unit: str) -> list[Release]:
        return [entry.release for entry in self.ledger.entries if entry.release.unit == unit]

    def runs(self, unit: str) -> list[str]:
        """The runs that have spent something by a unit, in order."""
        return list(dict.fromkeys(e.run or "" for e in self.ledger.entries if e.release.unit == unit))

    def _accountant(self, unit: str, *further: Release) -> str:
        """The tightest that is quick enough, and knows all releases of a unit, those that follow too."""
        every = [*self.releases(unit), *further]
        if any(release.flaws for release in every):
            return "rdp-paper"
        return "rdp" if len({(r.mechanism, r.sampling) for r in every}) > MANY else "pld"

    def costs(self, site: str, delta: float | None = None) -> list[Cost]:
        """What all runs cost together, composed by one accountant, at δ (unset: the limit's); by unit.

        A unit that is too numerous for this δ has a smaller one: a δ for persons may be none for triples.
        """
        limit = self.limit
        at = delta if limit is None else limit.delta
        if at is None:
            return []
        return [
            cost_of(site, own, fitting(at, guaranteed(own)), self._accountant(unit))
            for unit, own in self._by_unit().items()
        ]

    def _by_unit(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.ledger.entries:
            found.setdefault(entry.release.unit, []).append(entry)
        return found

    def _check_delta(self, site: str, release: Release, units: int | None) -> None:
        """An error where the limit's δ bounds nothing, for so many triples or persons."""
        if (limit := self.limit) is not None and units is not None:
            try:
                check_share(limit.delta, site, units, unit_of(release.unit).all)
            except ConfigError as error:
                raise ConfigError(
                    f"account: the limit in {self.folder}: {error}; set another with `fedkge account`"
                ) from None

    def check_plan(self, site: str, step: Release, count: int, units: int | None) -> None:
        """An error unless so many steps fit the limit: said before a run begins."""
        limit = self.limit
        if count > 0:
            self._check_delta(site, step, units)
        if limit is None or count < 1 or (left := self.left(step, count)) >= count:
            return
        counted = replace(limit, accountant=ACCOUNTANTS[self._accountant(step.unit, step)]())
        spent, runs = counted.spent(self.releases(step.unit)), len(self.runs(step.unit))
        raise ConfigError(
            f"account: site {site!r} has spent epsilon {spent:.4g} of its limit {limit.epsilon:g} at delta "
            f"{limit.delta:g}, in {runs} runs ({self.folder}); this run plans {count:,} steps with "
            f"{step.mechanism}, and {left:,} are left; take a smaller privacy.epsilon or fewer rounds, or "
            "raise the limit with `fedkge account`"
        )
