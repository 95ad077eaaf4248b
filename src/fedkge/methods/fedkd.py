"""FedE-KD (a baseline in FedS, 2024): a small model is sent, a large one stays, and they teach each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.exchange.rows import Memory
from fedkge.kernels import distil
from fedkge.methods.base import METHODS, Second, View
from fedkge.methods.fedep import FedEP
from fedkge.models import Model, Tables
from fedkge.training import Batch, Trainer


@METHODS.register("fedkd")
@dataclass(frozen=True)
class FedKD(FedEP):
    """Loss of a triple: `L + H + (KL(l, h) + KL(h, l)) / (L + H)`, L and H the losses of the two models.

    l and h are softmaxes over the scores of the triple and its negatives. Each model has its own tables,
    including relations. Only the small model's shared rows are sent. The large model is measured; the small
    one is reported as `test_small`. The paper does not say what is differentiated: here the teacher and the
    denominator are constants. Where L + H is 0 up to rounding, as a margin loss often is, the two teach each
    other nothing.
    """

    small: int | None = None  #: dimensions of the small model, which is sent; unset: 3/4 of the large one's

    def second(self, model: Model) -> Second:
        small = max(1, 3 * model.dim // 4) if self.small is None else self.small
        if not 0 < small <= model.dim:
            raise ConfigError(f"method.small: expected 1 to {model.dim}, the model's dim, got {small}")
        return Second(replace(model, dim=small), restart=self.restart)

    def objective(self, trainer: Trainer, tables: Tables, batch: Batch, dials: Memory) -> Tensor:
        assert tables.second is not None
        large, small = (
            one.scores(batch.anchor, batch.relation, batch.index, batch.side)
            for one in (tables, tables.second)
        )
        own = trainer.losses(large) + trainer.losses(small)
        to_large, to_small = distil(large, small)
        learnt = own.detach() < torch.finfo(own.dtype).eps  # a quotient by 0 would move rows without limit
        return own + (to_large + to_small) / own.detach().masked_fill(learnt, inf)

    def views(self) -> tuple[View, ...]:
        return (View("small", lambda site, answer: site.travelling, second=True),)
