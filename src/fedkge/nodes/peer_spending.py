"""What a peer spends of its privacy: votes, and rows with noise, in its ledger before they are given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedkge.methods.fkge import FKGE
from fedkge.nodes.ledgers import open_ledger
from fedkge.privacy import Budget, Release, Spending
from fedkge.privacy.accountants import Rdp
from fedkge.privacy.pate import votes_release
from fedkge.privacy.releases import Everything, Gaussian


class PeerSpending:
    """A peer's ledger and its limits; without a folder nothing is recorded, as in a replay."""

    def __init__(self, peer: str, method: FKGE, home: Path | None, signing: bytes) -> None:
        self.peer, self.method = peer, method
        budget = None if method.epsilon is None else Budget(method.epsilon, method.delta, Rdp())
        self.spending = None if home is None else Spending(open_ledger(home, signing), peer, budget, None)

    def votes(self, votes: int, round: int) -> bool:
        """Record votes before they are given; false where the budget does not allow them."""
        method, spending = self.method, self.spending
        if method.scale == 0 or spending is None:
            return True
        release = votes_release(method.law, method.scale, votes, sent=not method.noise)
        given = sum(r.count for r in spending.ledger.releases(self.peer) if r.purpose == "votes")
        if method.budget is not None and given + votes > method.budget:
            return False
        if spending.left(release, votes) < votes:
            return False
        spending.spend(release, round)
        return True

    def rows(self, round: int) -> None:
        """Record that all rows are sent with noise: one conversation is one application to each of them."""
        if self.spending is not None:
            release = Release(Gaussian(self.method.noise), Everything(), 1, "rows", "row", "replace-one")
            self.spending.ledger.record(self.peer, round, release, None)

    @property
    def seal(self) -> Mapping[str, str | int]:
        """What a checkpoint says of the ledger."""
        if self.spending is None or not self.spending.ledger.entries:
            return {}
        return self.spending.ledger.seal

    def check(self, plain: Mapping[str, object]) -> None:
        """An error if the ledger has less than a checkpoint says."""
        if self.spending is not None and "ledger" in plain:
            self.spending.ledger.check(plain["ledger"], plain["releases"])  # type: ignore[arg-type]
