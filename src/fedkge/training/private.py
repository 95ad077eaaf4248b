"""DP-SGD on confidential statements beside plain steps on unrestricted ones (DPKGE, Han et al., 2022).

A confidential step: each statement's gradient, with its negatives, is cut to a norm C, noise of standard
deviation sigma C is added, and the sum is divided by the expected size of a batch (Algorithm 1, lines 12 to
17). Whatever follows (Adam, constraints, penalties, what a method sends) is computed from that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis, Graph, Ids, Mask
from fedkge.models import Side, Tables
from fedkge.privacy import Privacy, Spending
from fedkge.randomness import generator
from fedkge.training.cadence import Cadence, interleaved
from fedkge.training.clipping import Statements, at_once, cut, differentiated
from fedkge.training.confidential import parted, poisson_batches, shuffled_batches
from fedkge.training.factored import Changes
from fedkge.training.loop import Training
from fedkge.training.noise import LazyNoise, Noise, RowSGD, signed
from fedkge.training.optimizers import OPTIMIZERS
from fedkge.training.secret import Secret
from fedkge.training.trainer import Batch, Objective, Penalty, Trainer

SPARE = 6.0  #: standard deviations of a Poisson batch's size that a captured step has place for


@dataclass(frozen=True)
class Protection:
    """How one site's confidential statements are protected."""

    privacy: Privacy
    confidential: Mask  # [m], of the training statements
    noise: float  #: the noise multiplier
    cadence: Cadence
    secret: Secret
    spending: Spending

    def observed(self, triples: Tensor) -> Tensor:
        """The statements [n, 3] that a model may read numbers off, which then get no noise."""
        if not self.privacy.strict:
            return triples
        return triples[torch.from_numpy(~self.confidential).to(triples.device)]


class PrivateTraining(Training):
    """Training of one site, whose confidential statements have steps of their own.

    By `strict` rules batches are Poisson samples, a statement's negatives are drawn from all entities and
    depend on nothing but the step and itself, and every row gets noise in every confidential step, also of an
    empty batch. Filtered negatives of unrestricted statements look at unrestricted statements alone. By the
    `paper`'s rules batches are shuffled, negatives are filtered by all statements, the rows that a batch
    touches get noise, and C is a percentile of the batch's norms, of those that are not 0.

    Each epoch's confidential steps are in the ledger before the first of them. Samples, negatives and noise
    come from the site's secret and the steps' numbers, so that a resumed run never repeats them. When the
    budget has no step left, nothing is trained any more.
    """

    def __init__(
        self,
        trainer: Trainer,
        tables: Tables,
        site: tuple[str, Graph],
        seed: int,
        protection: Protection,
        objective: Objective | None = None,
        penalties: Mapping[Axis, Penalty] | None = None,
        factored: Mapping[Axis, Changes] | None = None,
        captured: bool = True,
    ) -> None:
        privacy = protection.privacy
        check_trainer(trainer, privacy)
        self.name, self.seed, self.protection = site[0], seed, protection
        knows_all = trainer.filtered and not privacy.strict
        corpus, self.closed = parted(site, protection.confidential, seed, knows_all, tables.device)
        plain = tables.companion is None and not penalties and not factored and unconstrained(tables)
        later = privacy.strict and trainer.optimizer == "sgd" and plain
        super().__init__(trainer, tables, corpus, objective, penalties, factored, captured and not later)
        self.lazy = self._owed() if later else {}
        self.noises = {} if later else self._noises()
        self.everyone = torch.ones_like(corpus.sizes, dtype=torch.bool)
        self.clip = tables.entities.new_tensor([privacy.clip or 0.0])
        self.key = torch.zeros_like(corpus.negative_keys)
        self.placed = self.clock.new_zeros(0)  # [k] places of a batch, padded where steps are captured
        self.there = self.clock.new_zeros(1)  # how many of them are the batch
        self._closed_steps = self._steps() if privacy.strict else {}

    def _owed(self) -> dict[Axis, LazyNoise]:
        """Noise that is added later, and optimisers that leave untouched rows alone."""
        owed = {}
        for axis in Axis:
            table = self.tables.table(axis)
            self.stepper.optimizers[axis] = RowSGD(table, self.trainer.lr)
            self.tables.gradients[axis].dense = None
            owed[axis] = LazyNoise(table, self.tables.model, axis, self.trainer.lr)
        return owed

    def _noises(self) -> dict[str, Noise]:
        """One for each table that is trained, by name; of two models that share one, the first has it."""
        return {
            f"{prefix}{axis}": Noise(stepper.tables.gradients[axis], stepper.tables.model, axis)
            for prefix, stepper in self.steppers.items()
            for axis in stepper.optimizers
        }

    # An epoch

    def _epoch(self, epoch: int, factored: bool = False) -> None:
        protection, steps = self.protection, self.protection.cadence.steps
        release = partial(protection.cadence.release, protection.privacy, protection.noise)
        left = protection.spending.left(release(1), steps)
        if not left:
            return
        entry = protection.spending.spend(release(left), epoch + 1)
        self._shuffle(epoch)
        unrestricted = [] if self.closed.alone else list(self._turns(epoch))
        plain, private = iter(unrestricted), self._batches(entry.numbers, epoch)
        for confidential in interleaved(len(unrestricted), steps, self._coin(epoch)):
            if not confidential:
                self._take(*next(plain), factored)
            elif (step := next(private, None)) is not None:
                self._take_closed(*step, factored)
            else:
                break  # the budget ends within this epoch
        for lazy in self.lazy.values():
            lazy.settle_all()

    def _coin(self, epoch: int) -> Callable[[], bool]:
        """What decides where the schedule does not: by strict rules nothing random."""
        if self.protection.privacy.strict:
            return lambda: True
        random = generator(self.seed, self.name, "schedule", epoch)
        return lambda: bool(random.integers(2))

    def _batches(self, numbers: range, epoch: int) -> Iterator[tuple[int, Ids, Side]]:
        make = poisson_batches if self.protection.privacy.strict else shuffled_batches
        secret, cadence = self.protection.secret, self.protection.cadence
        found = make(secret, cadence, len(self.closed.triples), numbers, self.trainer, epoch)
        for number, (chosen, side) in zip(numbers, found, strict=True):
            yield number, chosen, side

    # A step

    def _take_closed(self, number: int, chosen: Ids, side: Side, factored: bool) -> None:
        """Put what is random about a confidential step where the step reads it, and take the step."""
        secret = self.protection.secret
        self.key.fill_(signed(secret.key(number, "negatives")))
        for name, noise in self.noises.items():
            noise.aim(secret.key(number, "noise", name))
        for axis, lazy in self.lazy.items():
            lazy.aim(secret.key(number, "noise", str(axis)))
        size = self._place(chosen)
        step = partial(self._closed_step, factored=factored)
        if self._closed_steps:
            self._closed_steps[factored](step, size, side)
        else:
            step(size, side)

    def _place(self, chosen: Ids) -> int:
        """Write a batch to memory that captured steps read; the size of the step, padding included."""
        self.there.fill_(len(chosen))
        if not self._closed_steps:
            self.placed = torch.from_numpy(chosen).to(self.clock.device)
            return len(chosen)
        expected = self.protection.cadence.expected
        size = max(len(chosen), len(self.placed), int(expected + SPARE * expected**0.5) + 1)
        if size > len(self.placed):  # larger than all before, by rare chance: capture anew
            self.placed, self._closed_steps = self.clock.new_zeros(size), self._steps()
        self.placed.copy_(torch.from_numpy(np.concatenate((chosen, np.zeros(size - len(chosen), np.int64)))))
        return size

    def _closed_step(self, size: int, side: Side, factored: bool = False) -> None:
        """One step on the confidential statements that were placed; strict: no host synchronisation."""
        batch = self._owing(self.closed.batch(self.placed, side, self.trainer.negatives, self.key))
        for noise in self.noises.values():
            noise.begin()
        some = at_once(self.tables, batch.index.shape[1])
        pieces = [differentiated(self.tables, self.objective, piece) for piece in _pieces(batch, some)]
        clip = self._release(pieces)
        self._blur(clip, pieces)
        self._penalise(self.everyone)
        for stepper in self.steppers.values():
            stepper.step(batch, self.everyone, factored)
        for noise in self.noises.values():
            noise.end()

    def _release(self, pieces: Sequence[Statements]) -> Tensor:
        """Add up the gradients, cut to the norm that is returned [1]; padding counts nothing."""
        if not pieces:
            return self.clip
        norms = torch.cat([piece.norms() for piece in pieces])
        percentile = self.protection.privacy.percentile
        clip = self.clip if percentile is None else _percentile(norms, percentile)
        real = torch.arange(len(norms), device=norms.device) < self.there
        factors = torch.where(real, cut(norms, clip), 0.0) / self.protection.cadence.expected
        losses = torch.where(real, torch.cat([piece.losses for piece in pieces]), 0.0)
        self.losses += losses.double().sum() / self.there.clamp_min(1)
        for piece, own in zip(pieces, factors.split([len(p.losses) for p in pieces]), strict=True):
            piece.release_(own)
        return clip

    def _blur(self, clip: Tensor, pieces: Sequence[Statements]) -> None:
        """Add noise: to every row, now or later; by the paper's rules to those that were touched."""
        scale = clip * (self.protection.noise / self.protection.cadence.expected)
        for lazy in self.lazy.values():
            lazy.owe(scale)
        for noise in self.noises.values():
            touched = None
            if not self.protection.privacy.strict:
                touched = torch.cat([piece.touched(noise.gradient) for piece in pieces]).unique()
            noise.add(scale, touched)

    def _batch(self, count: int, side: Side) -> Batch:
        return self._owing(super()._batch(count, side))

    def _owing(self, batch: Batch) -> Batch:
        """The same batch, once the rows that it reads have the noise that they are owed."""
        read = {Axis.ENTITY: (batch.anchor, batch.index.flatten()), Axis.RELATION: (batch.relation,)}
        for axis, lazy in self.lazy.items():
            lazy.settle(torch.cat(read[axis]).unique())
        return batch


def check_trainer(trainer: Trainer, privacy: Privacy) -> None:
    """Options of a trainer that would let confidential statements out, past the noise."""
    if trainer.subsampling:
        raise ConfigError(
            "trainer.subsampling: weighs a statement by how many others there are, which the noise does not "
            f"cover; expected false with privacy.mode {privacy.mode!r}"
        )
    if privacy.strict and OPTIMIZERS[trainer.optimizer].rows_only:
        others = ", ".join(name for name, kind in OPTIMIZERS.items() if not kind.rows_only)
        raise ConfigError(
            f"trainer.optimizer: {trainer.optimizer} steps touched rows alone, noise is for all; "
            f"expected one of {others}"
        )


def unconstrained(tables: Tables) -> bool:
    """Whether the model allows all rows; one that does not moves every row after every step."""
    return all(tables.model.constrain(tables.table(axis)[:1], axis) is None for axis in Axis)


def _percentile(norms: Tensor, percentile: float) -> Tensor:
    """Of the norms that are not 0 (a margin loss has many that are), [1]; 0 if all are."""
    some = torch.where(norms > 0, norms, torch.nan)
    return torch.nanquantile(some, percentile / 100).nan_to_num()[None]


def _pieces(batch: Batch, some: int) -> Iterator[Batch]:
    """A batch in pieces of at most `some` statements; none of an empty one."""
    for start in range(0, len(batch.anchor), some):
        own = slice(start, start + some)
        names = ("anchor", "relation", "index", "site", "weight")
        yield replace(batch, **{name: getattr(batch, name)[own] for name in names})
