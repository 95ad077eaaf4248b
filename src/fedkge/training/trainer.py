"""Local training: options, the schedule of batches, and the step that every site takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fedkge.errors import ConfigError, suggest
from fedkge.graphs.graph import Axis
from fedkge.kernels import Draw, Turn, backend
from fedkge.models import Gradient, Side, Tables
from fedkge.training.capture import Steps
from fedkge.training.corpus import Corpus
from fedkge.training.losses import LOSSES
from fedkge.training.optimizers import OPTIMIZERS

SIDES = ("both", *Side)


@dataclass(frozen=True, slots=True)
class Batch:
    """Statements of one step: for each an anchor, a relation, and candidates of which the first is true."""

    side: Side
    anchor: Tensor  # int64 [b]
    relation: Tensor  # int64 [b]
    index: Tensor  # int64 [b, 1 + negatives]
    site: Tensor  # int64 [b]
    weight: Tensor  # [b], sums to 1 over each site


Objective: TypeAlias = Callable[[Tables, Batch], Tensor]  #: the losses [b] of a batch's statements


@dataclass(frozen=True)
class Trainer:
    """How a site trains. An epoch visits every statement once per side."""

    epochs: int = 3  #: passes over the local statements per round
    batch_size: int = 512
    negatives: int = 256  #: per positive and side
    lr: float = 1e-3
    loss: str = "self-adversarial"  #: or "logistic", "margin"
    temperature: float = 1.0  #: of the self-adversarial weights; 0 is logistic
    ranking_margin: float = 1.0  #: of the margin loss
    optimizer: str = "adam"  #: or "row-adam", "adagrad", "sgd"
    sides: Literal["both", "head", "tail"] = "both"  #: which end is corrupted; both: batches take turns
    filtered: bool = True  #: negatives are never known training statements
    subsampling: bool = False  #: weigh statements by 1 / sqrt(how often their queries occur)
    deterministic: bool = False  #: on a GPU: sums in a fixed order, slower; the CPU always does so

    def __post_init__(self) -> None:
        numbers = {"epochs": 1, "batch_size": 1, "negatives": 1, "temperature": 0, "ranking_margin": 0}
        for name, least in numbers.items():
            if not least <= getattr(self, name) < inf:  # NaN is neither
                raise ConfigError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        if not 0 < self.lr < inf:
            raise ConfigError(f"lr: expected a number above 0, got {self.lr}")
        for name, known in (("loss", LOSSES), ("optimizer", OPTIMIZERS), ("sides", SIDES)):
            value = getattr(self, name)
            if value not in known:
                raise ConfigError(
                    f"{name}: expected one of {', '.join(known)}, got {value!r}{suggest(value, known)}"
                )

    @property
    def turns(self) -> tuple[Side, ...]:
        """The sides that batches take in turn."""
        return (Side.HEAD, Side.TAIL) if self.sides == "both" else (Side(self.sides),)

    def objective(self, tables: Tables, batch: Batch) -> Tensor:
        scores = tables.scores(batch.anchor, batch.relation, batch.index, batch.side)
        option = self.ranking_margin if self.loss == "margin" else self.temperature
        return LOSSES[self.loss](scores, option)


class Training:
    """One or several sites' tables under training: the optimisers' state and the schedule of batches.

    Everything random is computed from the corpus's keys, the epoch and the step, so `state()` and the
    number of the next epoch are all that resuming needs.
    """

    def __init__(
        self, trainer: Trainer, tables: Tables, corpus: Corpus, objective: Objective | None = None
    ) -> None:
        self.trainer, self.tables, self.corpus = trainer, tables, corpus
        self.objective = objective or trainer.objective
        device = tables.device
        kind = OPTIMIZERS[trainer.optimizer]
        self.ends = {Axis.ENTITY: corpus.entity_ends, Axis.RELATION: corpus.relation_ends}
        self.optimizers = {axis: kind(tables.table(axis), trainer.lr) for axis in Axis}
        # A CPU computes a row's gradient where it steps the row; a GPU adds up a table of them by atomics.
        factors = kind.from_factors and device.type == "cpu" and not tables.model.projects
        tables.gradients = {axis: Gradient(tables.table(axis), kind.rows_only or factors) for axis in Axis}
        self.steps = torch.zeros_like(corpus.sizes)  # [s], steps taken since the last restart
        self.losses = torch.zeros(len(corpus.names), dtype=torch.float64, device=device)
        self.clock = torch.zeros(2, dtype=torch.int64, device=device)  # step of the epoch, epoch
        self.weights = corpus.subsampling().to(tables.entities.dtype) if trainer.subsampling else None
        self.owner = {
            axis: torch.searchsorted(ends, torch.arange(int(ends[-1]), device=device), right=True)
            for axis, ends in self.ends.items()
            if tables.model.constrain(tables.table(axis)[:1], axis) is not None and not kind.rows_only
        }
        self._lay_out()
        self._captured = Steps() if device.type == "cuda" else None

    def _lay_out(self) -> None:
        """Where each shuffled statement stands in the schedule: by batch, then by site."""
        corpus, size = self.corpus, self.trainer.batch_size
        batch = corpus.local // size
        self.layout = torch.argsort(batch * len(corpus.names) + corpus.site, stable=True)
        self.slot_site = corpus.site[self.layout]
        self.slot_position = corpus.local[self.layout] % size
        self.counts: list[int] = torch.bincount(batch).tolist()  # statements per batch, of all sites
        ends = torch.tensor(self.counts, device=batch.device).cumsum(0)
        self.starts = ends - torch.tensor(self.counts, device=batch.device)

    def state(self) -> dict[str, Tensor]:
        """Everything besides the tables and the number of the next epoch."""
        moments = {
            f"{axis}.{name}": moment
            for axis, optimizer in self.optimizers.items()
            for name, moment in optimizer.state.items()
        }
        return {**moments, "steps": self.steps}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def restart(self) -> None:
        """Forget the optimisers' moments, as methods do that make a new optimiser every round."""
        self.steps.zero_()
        for optimizer in self.optimizers.values():
            optimizer.restart()

    def run(self, epoch: int, epochs: int | None = None) -> Tensor:
        """Train epochs `epoch`, `epoch + 1`, ...; the mean loss [s] of each site, on the device."""
        self.losses.zero_()
        taken = self.steps.clone()
        with _one_thread() if self.tables.device.type == "cpu" else _deterministic(self.trainer):
            for number in range(epoch, epoch + (epochs or self.trainer.epochs)):
                self._epoch(number)
        return self.losses / (self.steps - taken).clamp_min(1)

    def _epoch(self, epoch: int) -> None:
        turns = self.trainer.turns
        self.clock[0].fill_(0)  # a fill, not a copy: it must not wait for the device
        self.clock[1].fill_(epoch)
        self.schedule = {
            side: self._schedule_into(side, self.corpus.shuffled(epoch, turn)[self.layout])
            for turn, side in enumerate(turns)
        }
        for count in self.counts:
            for side in turns:
                if self._captured is None:
                    self._step(count, side)
                else:
                    self._captured(self._step, count, side)

    def _schedule_into(self, side: Side, order: Tensor) -> Tensor:
        """Keep the memory of the last epoch's schedule: captured steps read it by address."""
        kept: dict[Side, Tensor] = self.__dict__.setdefault("schedule", {})
        return kept[side].copy_(order) if side in kept else order

    def _step(self, count: int, side: Side) -> None:
        """One optimiser step on the next `count` statements; no host synchronisation."""
        turn = len(self.trainer.turns)
        batch = self._batch(count, side)
        with torch.enable_grad():
            losses = self.objective(self.tables, batch)
            weighted = losses * batch.weight
            weighted.sum().backward()
        self.losses.index_add_(0, batch.site, weighted.detach().double())
        active = self.corpus.sizes > self.clock[0] // turn * self.trainer.batch_size
        self.steps += active
        for axis, ends in self.ends.items():
            self.optimizers[axis].step(self.tables.gradients[axis], Turn(ends, self.steps, active))
        self._constrain(batch, active)
        self.clock[0] += 1

    def _batch(self, count: int, side: Side) -> Batch:
        corpus, trainer = self.corpus, self.trainer
        arange = torch.arange(count, device=self.clock.device)
        slots = self.starts[self.clock[:1] // len(trainer.turns)] + arange
        chosen = self.schedule[side][slots]
        h, r, t = corpus.triples[chosen].unbind(-1)
        anchor, target = (h, t) if side is Side.TAIL else (t, h)
        index = target.new_empty(count, 1 + trainer.negatives)
        index[:, 0] = target
        answers, site = corpus.answers[side], self.slot_site[slots]
        lo = answers.lo[chosen]
        hi = answers.hi[chosen] if trainer.filtered else lo
        first = torch.cat((corpus.entity_ends.new_zeros(1), corpus.entity_ends[:-1]))
        draw = Draw(
            corpus.negative_keys,
            first,
            corpus.entity_ends - first,
            answers.known,
            site,
            self.slot_position[slots],
            lo,
            hi,
        )
        backend(index.device).negatives_(index, draw, self.clock)
        dtype = self.tables.entities.dtype
        weight = torch.ones(count, dtype=dtype, device=index.device)
        if self.weights is not None:
            weight = self.weights[chosen]
        total = weight.new_zeros(len(corpus.names)).index_add_(0, site, weight)
        return Batch(side, anchor, r, index, site, weight / total[site])

    def _constrain(self, batch: Batch, active: Tensor) -> None:
        touched = {Axis.ENTITY: (batch.anchor, batch.index), Axis.RELATION: (batch.relation,)}
        for axis, optimizer in self.optimizers.items():
            if optimizer.rows_only:
                self.tables.constrain_touched_(axis, touched[axis])
            elif axis in self.owner:
                self.tables.constrain_(axis, active[self.owner[axis], None])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch's own loops on one thread: their sums would depend on the number; the kernels use all."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _deterministic(trainer: Trainer) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(trainer.deterministic or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
