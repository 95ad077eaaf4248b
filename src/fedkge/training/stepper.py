"""One model's tables under optimisation: gradients, optimisers, and how many steps each site has taken."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Turn
from fedkge.models import Gradient, Tables
from fedkge.training.corpus import Corpus
from fedkge.training.optimizers import OPTIMIZERS
from fedkge.training.trainer import Batch, Trainer


class Stepper:
    """Takes the steps of one `Tables`, of one site or of several laid one after another.

    `summed` axes have their gradient as a whole table, for penalties to be added to. A table that another
    stepper steps already (`lent`) gets its gradient added there.
    """

    def __init__(
        self,
        trainer: Trainer,
        tables: Tables,
        corpus: Corpus,
        summed: Collection[Axis] = (),
        lent: Stepper | None = None,
    ) -> None:
        self.tables = tables
        kind, device = OPTIMIZERS[trainer.optimizer], tables.device
        every = {Axis.ENTITY: corpus.entity_ends, Axis.RELATION: corpus.relation_ends}
        theirs = [a for a in Axis if lent is not None and tables.table(a) is lent.tables.table(a)]
        self.ends = {axis: ends for axis, ends in every.items() if axis not in theirs}
        self.optimizers = {axis: kind(tables.table(axis), trainer.lr) for axis in self.ends}
        # A CPU computes a row's gradient where it steps the row; a GPU adds up a table of them by atomics.
        factors = kind.from_factors and device.type == "cpu" and not tables.model.projects
        own = {axis: Gradient(tables.table(axis), kind.rows_only or factors) for axis in self.ends}
        own |= {axis: Gradient(tables.table(axis), False) for axis in summed}
        tables.gradients = own | {axis: lent.tables.gradients[axis] for axis in theirs if lent}
        self.steps = torch.zeros_like(corpus.sizes)  # [s], since the last restart
        self.owner = {
            axis: torch.searchsorted(ends, torch.arange(int(ends[-1]), device=device), right=True)
            for axis, ends in self.ends.items()
        }
        self._constrained = [
            axis for axis in self.ends if tables.model.constrain(tables.table(axis)[:1], axis) is not None
        ]

    def step(self, batch: Batch, active: Tensor) -> None:
        """One step of the active sites (bool [s]); no host synchronisation."""
        self.steps += active
        for axis, optimizer in self.optimizers.items():
            optimizer.step(self.tables.gradients[axis], Turn(self.ends[axis], self.steps, active))
        touched = {Axis.ENTITY: (batch.anchor, batch.index), Axis.RELATION: (batch.relation,)}
        for axis in self._constrained:
            if self.optimizers[axis].rows_only:
                self.tables.constrain_touched_(axis, touched[axis])
            else:
                self.tables.constrain_(axis, active[self.owner[axis], None])

    def restart(self) -> None:
        """Forget the moments, as methods do that make a new optimiser every round."""
        self.steps.zero_()
        for optimizer in self.optimizers.values():
            optimizer.restart()

    def state(self) -> dict[str, Tensor]:
        """Everything besides the tables."""
        moments = {
            f"{axis}.{name}": moment
            for axis, optimizer in self.optimizers.items()
            for name, moment in optimizer.state.items()
        }
        return {**moments, "steps": self.steps}
