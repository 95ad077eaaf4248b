"""What a peer spends of its privacy: votes, and rows with noise, in its ledgers before they are given."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from fedkge.errors import DataError
from fedkge.methods.fkge import FKGE
from fedkge.nodes.base import Setting
from fedkge.nodes.ledgers import open_ledger
from fedkge.privacy import Account, Budget, BudgetSpent, Release, Spending
from fedkge.privacy.accountants import Rdp
from fedkge.privacy.pate import votes_release
from fedkge.privacy.releases import Everything, Gaussian


class PeerSpending:
    """A peer's ledger, its site's account, and its limits.

    Without a folder nothing is recorded, as in a replay; without noise there is nothing to charge. An account
    knows a run by the meeting and the peer's secret: a peer that begins anew is another run.
    """

    def __init__(self, peer: str, method: FKGE, setting: Setting, signing: bytes) -> None:
        self.peer, self.method = peer, method
        self.spending: Spending | None = None
        if setting.home is None:
            return
        budget = None if method.epsilon is None else Budget(method.epsilon, method.delta, Rdp())
        accounts = {}
        if setting.account is not None and (method.scale or method.noise):
            accounts[peer] = Account(setting.account)
        run = f"{setting.run} {blake2b(signing, digest_size=4).hexdigest()}"
        self.spending = Spending(open_ledger(setting.home, signing), peer, budget, None, accounts, run)

    def votes(self, votes: int, round: int) -> bool:
        """Record votes before they are given; false where the budget does not allow them."""
        method, spending = self.method, self.spending
        if spending is None or (method.scale == 0 and not method.noise):
            return True  # where rows have noise and votes have none, that has an ε too: it is infinite
        chosen = method.choose == "csls"
        release = votes_release(method.law, method.scale, votes, sent=not method.noise, chosen=chosen)
        given = sum(r.count for r in spending.ledger.releases(self.peer) if r.purpose == "votes")
        if method.budget is not None and given + votes > method.budget:
            return False
        if spending.left(release, votes) < votes:
            return False
        spending.spend(release, round)
        return True

    @property
    def gives(self) -> bool:
        """Whether rows may be sent once more."""
        if self.spending is None or not self.method.noise:
            return True
        return self.spending.left(self._rows, 1) == 1

    def rows(self, round: int) -> None:
        """Record that all rows are sent with noise: one conversation is one application to each of them."""
        if self.spending is None or not self.method.noise:
            return
        try:
            self.spending.spend(self._rows, round)
        except BudgetSpent as error:  # by another run of the site, since it was asked
            raise DataError(str(error)) from None

    @property
    def _rows(self) -> Release:
        return Release(Gaussian(self.method.noise), Everything(), 1, "rows", "row", "replace-one")

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
