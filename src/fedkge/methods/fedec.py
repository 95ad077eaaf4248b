"""FedEC (Chen et al., 2022): rows stay near what was received and away from their last values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedkge.errors import ConfigError
from fedkge.exchange.rows import Rows, Update
from fedkge.kernels import contrast
from fedkge.methods.base import METHODS, Kept
from fedkge.methods.fedep import FedEP
from fedkge.methods.state import Site
from fedkge.models import Tables
from fedkge.training import BySite, Moments

TINY = 1e-24  #: the least square of a row


@METHODS.register("fedec")
@dataclass(frozen=True)
class FedEC(FedEP):
    """Adds `mu * mean_e -log(exp(g/t) / (exp(g/t) + exp(l/t)))` to every step's loss.

    g is the cosine of entity e's row with its row at the start of the round, l with its row at the end of the
    last round's training. The loss is computed per entity, then averaged; FedLU's code averages the cosines
    before the exponential, and has mu = 0.1 where the paper says 0.3. The authors give no formula for the
    ensemble; here it is the weighted mean of the site's own rows and the hub's.
    """

    mu: float = 0.3  #: weight of the contrast; 0 is FedEP
    temperature: float = 0.2  #: temperature of the contrast
    ensemble: float = 0.0  #: weight of the hub's rows in the measured rows; 0: only the site's own rows

    def __post_init__(self) -> None:
        if not (self.mu >= 0 and self.temperature > 0 and 0 <= self.ensemble <= 1):
            raise ConfigError(
                "mu, temperature, ensemble: expected at least 0, above 0, and from 0 to 1, "
                f"got {self.mu}, {self.temperature}, {self.ensemble}"
            )

    def kept(self) -> Kept:
        """`unit(previous) - unit(received)`, so that `l - g = e . away / |e|`."""
        return Kept("away", self.penalty if self.mu else None)

    def adopt(self, site: Site, answer: Update) -> None:
        for axis in self.shares:
            site.kept[axis]["away"].copy_(normalize(site.tables.table(axis)))
        super().adopt(site, answer)
        for axis in self.shares:
            site.kept[axis]["away"].sub_(normalize(site.tables.table(axis)))

    def penalty(self, moments: Moments, by_site: BySite) -> Tensor:
        nearer = moments.product / moments.square.clamp_min(TINY).sqrt()  # l - g
        return self.mu * by_site.mean(softplus(nearer / self.temperature))

    @property
    def measures_answer(self) -> bool:
        return self.ensemble > 0

    def measured(self, site: Site, answer: Update) -> Tables:
        if not self.ensemble:
            return site.tables
        told = site.merged(answer)
        own = {axis: site.read(axis).take(rows.ids) for axis, rows in told.items()}
        mixed = {
            axis: Rows(rows.ids, own[axis].values.lerp(rows.values, self.ensemble))
            for axis, rows in told.items()
        }
        return site.overlay(mixed)


def softplus(z: Tensor) -> Tensor:
    """`log(1 + e^z)` by the losses' kernel: torch's own depends, in the last bit, on a number's place."""
    return contrast(torch.stack((-z, z), -1), 0.0)
