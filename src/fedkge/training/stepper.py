"""One model's tables under optimisation: gradients, optimizers, and how many steps each site has taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Pace, beside
from fedkge.models import Gradient, Tables
from fedkge.training.corpus import Corpus
from fedkge.training.factored import Changes, Factored
from fedkge.training.optimizers import OPTIMIZERS, Adam, Optimizer, dense
from fedkge.training.trainer import Batch, Trainer


class Optimizers:
    """One optimizer for each table of a model, and how many steps each site has taken with them."""

    def __init__(self, by_axis: Mapping[Axis, Optimizer], sites: Tensor) -> None:
        self.by_axis = dict(by_axis)
        self.steps = torch.zeros_like(sites)  # [s], since the last restart

    def restart(self) -> None:
        self.steps.zero_()
        for optimizer in self.by_axis.values():
            optimizer.restart()


class Stepper:
    """Takes the steps of one `Tables`, of one site or of several laid one after another.

    Rows that are `factored` can be stepped as factors of their change. A table that another stepper steps
    already (`lent`) gets its gradient added there. Steps of another kind can have optimizers of their own.
    """

    def __init__(
        self,
        trainer: Trainer,
        tables: Tables,
        corpus: Corpus,
        factored: Mapping[Axis, Changes] | None = None,
        lent: Stepper | None = None,
    ) -> None:
        self.tables = tables
        kind = self.kind = OPTIMIZERS[trainer.optimizer]
        device = tables.device
        every = {Axis.ENTITY: corpus.entity_ends, Axis.RELATION: corpus.relation_ends}
        theirs = [a for a in Axis if lent is not None and tables.table(a) is lent.tables.table(a)]
        self.ends = {axis: ends for axis, ends in every.items() if axis not in theirs}
        self.every = {"": self._optimizers(trainer.lr, corpus.sizes)}  # by the kind of step
        factors = kind.from_factors and not tables.model.projects  # a row's gradient is computed to step it
        how = (kind.rows_only or factors, factors and not kind.rows_only)
        own = {axis: Gradient(tables.table(axis), *how) for axis in self.ends}
        own |= {axis: Gradient(tables.table(axis), False) for axis in factored or ()}
        tables.gradients = own | {axis: lent.tables.gradients[axis] for axis in theirs if lent}
        self.everyone = torch.ones_like(corpus.sizes, dtype=torch.bool)
        self.owner = {
            axis: torch.searchsorted(ends, torch.arange(int(ends[-1]), device=device), right=True)
            for axis, ends in self.ends.items()
        }
        self.factored = {
            axis: Factored(changes, tables.table(axis), self.ends[axis], (kind, trainer.lr))
            for axis, changes in (factored or {}).items()
        }
        self._constrained = [
            axis for axis in self.ends if tables.model.constrain(tables.table(axis)[:1], axis) is not None
        ]

    def _optimizers(self, rate: float, sites: Tensor) -> Optimizers:
        return Optimizers({axis: self.kind(self.tables.table(axis), rate) for axis in self.ends}, sites)

    def part(self, steps: str, rate: float) -> None:
        """Give steps of that kind optimizers of their own, of the same kind."""
        self.every[steps] = self._optimizers(rate, self.every[""].steps)

    @property
    def steps(self) -> Tensor:
        """How many steps each site has taken [s], of any kind, since the last restart."""
        return torch.stack([own.steps for own in self.every.values()]).sum(0)

    def begin(self, active: Tensor, steps: str = "") -> None:
        """Count a step of the active sites (bool [s]), which is to be taken."""
        own = self.every[steps]
        own.steps += active
        for axis, optimizer in own.by_axis.items():
            optimizer.begin(Pace(self.ends[axis], own.steps, active))

    def step(self, batch: Batch, active: Tensor, factored: bool = False, steps: str = "") -> None:
        """Take the step that has begun, of the active sites (bool [s]); no host synchronisation.

        With `factored`, rows that have factors follow them; the others step as ever.
        """
        own, aside = self.every[steps], beside(self.tables.device)
        largest = max(own.by_axis, key=lambda axis: len(self.tables.table(axis)), default=None)
        for axis in sorted(own.by_axis, key=lambda axis: axis is largest):
            with nullcontext() if axis is largest else aside.work():
                self._step_table(axis, own, self._pace(axis, own, active, batch), factored)
                if axis is Axis.RELATION and self.tables.turned is not None:
                    self.tables.turn()
        aside.join()
        for axis in self._constrained:
            if own.by_axis[axis].rows_only:  # only here: to put candidates side by side is a launch
                touched = (batch.anchor, batch.candidates) if axis is Axis.ENTITY else (batch.relation,)
                self.tables.constrain_touched_(axis, touched)
            else:
                self.tables.constrain_(axis, active[self.owner[axis], None])

    def _pace(self, axis: Axis, own: Optimizers, active: Tensor, batch: Batch) -> Pace:
        promised = batch.entities if axis is Axis.ENTITY and self.ahead else None
        return Pace(self.ends[axis], own.steps, active, promised=promised)

    def _step_table(self, axis: Axis, own: Optimizers, pace: Pace, factored: bool) -> None:
        gradient = self.tables.gradients[axis]
        held = self.factored.get(axis) if factored else None
        if held is None:
            own.by_axis[axis].step(gradient, pace)
        else:
            pull = dense(gradient)[held.rows]  # before the optimizer clears it
            own.by_axis[axis].step(gradient, pace)
            held.step(pull, pace.active)

    def turn(self) -> None:
        """From now on, steps of relations compute what phases stand for: the next batch finds it there."""
        if Axis.RELATION in self.ends and Axis.RELATION not in self._constrained:
            self.tables.turn()

    # Rows that are late

    def can_wait(self) -> bool:
        """Whether entities that no step reads may take their steps later: nobody else moves or reads them."""
        axis, only = Axis.ENTITY, list(self.every) == [""]
        if not only or axis not in self.ends or axis in self.factored or axis in self._constrained:
            return False
        whole = self.kind.from_factors and not self.kind.rows_only
        return whole and self.tables.gradients[axis].dense is None

    @property
    def plain(self) -> bool:
        """Whether steps are those of Adam over both tables, and nothing else is done to rows."""
        own = self.every[""].by_axis
        return (
            list(self.every) == [""]
            and set(self.ends) == set(Axis)
            and not self.factored
            and not self._constrained
            and all(type(optimizer) is Adam for optimizer in own.values())
            and all(gradient.dense is None for gradient in self.tables.gradients.values())
        )

    def wait(self, late: bool) -> None:
        """Whether entities take their steps when they are read, from the next `open` on."""
        optimizer = self.every[""].by_axis[Axis.ENTITY]
        assert isinstance(optimizer, Adam)
        optimizer.wait(late)

    def _waiting(self) -> Iterator[tuple[Adam, Pace]]:
        own = self.every[""]
        for axis, optimizer in own.by_axis.items():
            if isinstance(optimizer, Adam) and optimizer.taken is not None:
                yield optimizer, Pace(self.ends[axis], own.steps, self.everyone)

    def open(self) -> None:
        """Before the first of some steps: no row is late."""
        for optimizer, pace in self._waiting():
            optimizer.none_is_late(pace.steps[self.owner[Axis.ENTITY]])

    @property
    def ahead(self) -> bool:
        """Whether rows can be made ready for a step after the one before has begun, before it is taken.

        A GPU does that beside other work, where sums may come in any order.
        """
        if torch.are_deterministic_algorithms_enabled():
            return False
        return any(optimizer.table.is_cuda for optimizer, _ in self._waiting())

    def ready(self, batch: Batch) -> None:
        """Before a step begins: the rows that it reads are as if they had taken every step that has begun."""
        for optimizer, pace in self._waiting():
            optimizer.catch_up(pace, batch.entities, self.ahead)

    def foresee(self, batches: Sequence[Batch], active: Sequence[Tensor]) -> None:
        """The same for several steps at once, none of which has begun; on a CPU."""
        for optimizer, pace in self._waiting():
            optimizer.foresee(pace, [batch.entities for batch in batches], active)

    def close(self) -> None:
        """After the last: all rows are."""
        for optimizer, pace in self._waiting():
            optimizer.catch_up(pace)

    def restart(self) -> None:
        """Forget the moments, as methods do that make a new optimizer every round."""
        for own in self.every.values():
            own.restart()

    def state(self) -> dict[str, Tensor]:
        """Everything besides the tables: `steps`, and moments whose names begin with their axis."""
        moments = {
            f"{axis}.{steps}{name}": moment
            for steps, own in self.every.items()
            for axis, optimizer in own.by_axis.items()
            for name, moment in optimizer.state.items()
        }
        return {**moments, **{f"{steps}steps": own.steps for steps, own in self.every.items()}}
