"""FedProx (Li et al., MLSys 2020) for embeddings: FedEP that stays near the rows that it received."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.exchange.rows import Update
from fedkge.methods.base import METHODS, Kept
from fedkge.methods.fedep import FedEP
from fedkge.methods.state import Site
from fedkge.training import BySite, Moments

TINY = 1e-12  #: keeps the norm's slope finite where nothing has moved yet


@METHODS.register("fedprox")
@dataclass(frozen=True)
class FedProx(FedEP):
    """Adds `mu / 2 ||E - E_t||^2` to every step's loss: Frobenius, over the site's whole table.

    E_t is the table at the start of the round. Tables that are not shared are left free. Li et al. square
    the norm, and so does FedLU's code; FedLU's paper (footnote 3) does not: `squared = false`. Both have
    mu = 0.1. A batch's loss is a mean and the norm is a sum over all rows, so with mu = 0.1 either form
    nearly stops training. docs/results-methods.md has measurements, and why 0.001 is the default.
    """

    mu: float = 0.001  #: strength of the pull towards the rows at the start of the round; 0 is FedEP
    squared: bool = True  #: false: the norm itself, as FedLU's paper writes it

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(f"mu: expected at least 0, got {self.mu}")

    def kept(self) -> Kept:
        return Kept("anchor", self.penalty if self.mu else None)

    def adopt(self, site: Site, answer: Update) -> None:
        super().adopt(site, answer)
        for axis in self.shares:
            site.kept[axis]["anchor"].copy_(site.tables.table(axis))

    def penalty(self, moments: Moments, by_site: BySite) -> Tensor:
        square = by_site.sum(moments.gap)
        return self.mu / 2 * (square if self.squared else (square + TINY).sqrt())
