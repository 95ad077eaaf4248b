"""Optimizers over whole tables, as the papers use them, and a row-wise Adam for large ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedkge.kernels import Adam as AdamOptions
from fedkge.kernels import Pace, Until, backend
from fedkge.models import Gradient


class Optimizer(ABC):
    """Steps one table from its gradient; `state` is all it remembers, as named tensors."""

    from_factors: ClassVar[bool] = False  #: can step whole tables from gradients that are still factors
    rows_only: ClassVar[bool] = False  #: steps touched rows alone, so that a step's cost is the batch's
    moments: ClassVar[tuple[str, ...]] = ()

    def __init__(self, table: Tensor, rate: float) -> None:
        self.table, self.rate = table, rate
        self.state = {name: torch.zeros_like(table) for name in self.moments}

    def begin(self, pace: Pace) -> None:  # noqa: B027 - most have nothing to do
        """What can be computed before a step's gradient is there."""

    @abstractmethod
    def step(self, gradient: Gradient, pace: Pace) -> None: ...

    def restart(self) -> None:
        for moment in self.state.values():
            moment.zero_()


def dense(gradient: Gradient) -> Tensor:
    """The whole table's gradient, which an optimizer that is not `rows_only` needs."""
    if gradient.dense is None:
        raise TypeError("this optimizer steps whole tables")
    return gradient.dense


class Adam(Optimizer):
    """Kingma & Ba (2015) over the whole table: rows a batch did not touch still move by their momentum.

    Where rows may be late, they move when they are read next (`catch_up`), by all the steps that they have
    missed: the same numbers, at the cost of the batch.
    """

    moments = ("m", "v")

    from_factors = True
    _rates: Tensor | None = None  # of the step that has begun
    taken: Tensor | None = None  #: int32 [e], the steps that each row has taken, where rows may be late
    _stepped: Tensor | None = None  # int32 [e], of those that were promised the last that is taken
    _every: Tensor | None = None  # rates of all steps: captured steps read them where they are
    _rooms: tuple[Tensor, Tensor] | None = None  # int32 [e] twice, for `foresee`
    _until: Sequence[Until] = ()  # of the next steps, where these are known

    def begin(self, pace: Pace) -> None:
        if self.table.is_cuda:  # a launch, which others need not wait for
            self._rates = backend(self.table.device).rates(pace, AdamOptions(self.rate), self.table.dtype)

    def step(self, gradient: Gradient, pace: Pace) -> None:
        kernels, options = backend(self.table.device), AdamOptions(self.rate)
        state = self.state["m"], self.state["v"]
        until, *self._until = self._until or (None,)
        pace = replace(pace, rates=self._rates, taken=self.taken, stepped=self._stepped, until=until)
        if gradient.dense is not None:
            kernels.adam_(self.table, gradient.dense, *state, pace, options)
        else:
            step = kernels.adam_whole_ if self.taken is None else kernels.adam_touched_
            step(self.table, gradient.take(), *state, pace, options)

    def wait(self, late: bool) -> None:
        """Whether rows may be late from now on; none is now."""
        self.taken = self._stepped = self._every = self._rooms = None
        if late:
            self.taken = torch.zeros(len(self.table), dtype=torch.int32, device=self.table.device)
            self._stepped = torch.zeros_like(self.taken)
            self._every = backend(self.table.device).all_rates(AdamOptions(self.rate), self.table)

    def none_is_late(self, steps: Tensor) -> None:
        """Rows have taken so many steps each [e]."""
        for count in (self.taken, self._stepped):
            assert count is not None
            count.copy_(steps)

    def catch_up(self, pace: Pace, ids: Sequence[Tensor] | None = None, promised: bool = False) -> None:
        """Let late rows, all of them or those that are named, take the steps that sites have taken."""
        state, pace = (self.state["m"], self.state["v"]), replace(pace, rates=self._every, taken=self.taken)
        kernels, options = backend(self.table.device), AdamOptions(self.rate)
        kernels.catch_up_(self.table, *state, pace, options, ids, promised)

    def foresee(self, pace: Pace, read: Sequence[Sequence[Tensor]], active: Sequence[Tensor]) -> None:
        """The next steps, on a CPU: the rows that each reads, and the sites that take it.

        Rows are made ready for all of them: a row is stepped once for all steps up to its next reading.
        """
        taken, *rooms = self.rooms()
        state, options = (self.state["m"], self.state["v"]), AdamOptions(self.rate)
        pace = replace(pace, taken=taken)
        self._until = backend(self.table.device).foresee(
            self.table, *state, pace, options, read, active, (rooms[0], rooms[1])
        )

    def rooms(self) -> tuple[Tensor, Tensor, Tensor]:
        """`taken`, and what kernels need that foresee; of no rows where none may be late."""
        if self.taken is None:
            none = torch.empty(0, dtype=torch.int32)
            return none, none, none
        if self._rooms is None:
            self._rooms = torch.full_like(self.taken, -1), torch.empty_like(self.taken)
        return self.taken, *self._rooms


class RowAdam(Adam):
    """Adam of touched rows alone, as torch.optim.SparseAdam: other rows and their moments stay."""

    rows_only = True

    def step(self, gradient: Gradient, pace: Pace) -> None:
        options = AdamOptions(self.rate)
        kernels, pace = backend(self.table.device), replace(pace, rates=self._rates)
        kernels.adam_touched_(self.table, gradient.take(), self.state["m"], self.state["v"], pace, options)


class AdaGrad(Optimizer):
    """Duchi et al. (2011)."""

    moments = ("squares",)

    def step(self, gradient: Gradient, pace: Pace) -> None:
        kernels = backend(self.table.device)
        kernels.adagrad_(self.table, dense(gradient), self.state["squares"], pace, self.rate)


class SGD(Optimizer):
    """Plain gradient descent."""

    def step(self, gradient: Gradient, pace: Pace) -> None:
        backend(self.table.device).sgd_(self.table, dense(gradient), pace, self.rate)


OPTIMIZERS: dict[str, type[Adam | RowAdam | AdaGrad | SGD]] = {
    "adam": Adam,
    "row-adam": RowAdam,
    "adagrad": AdaGrad,
    "sgd": SGD,
}
