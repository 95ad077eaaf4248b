"""DP-SGD on confidential triples beside plain steps on unrestricted ones (DPKGE, Han et al., 2022).

A confidential step: each triple's gradient, with its negatives, is cut to a norm C, noise of standard
deviation sigma C is added, and the sum is divided by the expected size of a batch (Algorithm 1, lines 12 to
17). Whatever follows (Adam, constraints, penalties, what a method sends) is computed from that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf

import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.evaluation.checks import Diverged
from fedkge.graphs.graph import Axis, Graph, Ids, Mask
from fedkge.kernels import backend
from fedkge.models import Gradient, Model, Side, Tables
from fedkge.models.tables import LONGEST
from fedkge.privacy import Privacy, Spending
from fedkge.randomness import generator
from fedkge.training.cadence import Cadence, interleaved
from fedkge.training.capture import Size
from fedkge.training.clipping import PerTriple, at_once, differentiated
from fedkge.training.confidential import Sheet, parted, poisson_batches, shuffled_batches
from fedkge.training.factored import Changes
from fedkge.training.loop import Training
from fedkge.training.noise import LazyNoise, Noise, NoisyAdam, RowSGD, fixed_columns
from fedkge.training.optimizers import OPTIMIZERS, Adam, Optimizer
from fedkge.training.secret import Secret
from fedkge.training.trainer import Batch, Objective, Penalty, Trainer

CONFIDENTIAL = "confidential."  #: steps that have optimizers of their own, by strict rules
#: names that noise is drawn under; the second table's is older than its name, and keeps noise repeatable
STREAMS = {"": "", "second.": "companion."}
SPARE = (2.0, 6.0)  #: standard deviations of a Poisson batch's size that captured steps have places for


@dataclass(frozen=True)
class Protection:
    """How one site's confidential triples are protected."""

    privacy: Privacy
    confidential: Mask  # [m], of the training triples
    noise: float  #: the noise multiplier
    cadence: Cadence
    secret: Secret
    spending: Spending
    owner: Ids | None = None  # int64 [m]: whom a confidential triple is about, -1 for others; None: by triple
    persons: int = 0  #: that the site has, with triples or without

    def observed(self, triples: Tensor) -> Tensor:
        """The triples [n, 3] that a model may read numbers off, which then get no noise."""
        if not self.privacy.strict:
            return triples
        return triples[torch.from_numpy(~self.confidential).to(triples.device)]


class PrivateTraining(Training):
    """Training of one site, whose confidential triples have steps of their own.

    By `strict` rules batches are Poisson samples, a triple's negatives are drawn from all entities and
    depend on nothing but the step and itself, and every row gets noise in every confidential step, also of an
    empty batch. Filtered negatives of unrestricted triples look at unrestricted triples alone. By the
    `paper`'s rules batches are shuffled, negatives are filtered by all triples, the rows that a batch
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
        plain = tables.second is None and not penalties and not factored and unconstrained(tables)
        later = privacy.strict and trainer.optimizer == "sgd" and plain
        super().__init__(trainer, tables, corpus, objective, penalties, factored, captured)
        self.kind = CONFIDENTIAL if privacy.strict else ""
        if privacy.strict:
            for stepper in self.steppers.values():
                stepper.part(CONFIDENTIAL, privacy.lr or trainer.lr)
        self.lazy = self._owed() if later else {}
        self.noises = {} if later else self._noises()
        self.everyone = torch.ones_like(corpus.sizes, dtype=torch.bool)
        self.clip = tables.entities.new_tensor([privacy.clip or 0.0])
        expected, most = protection.cadence.expected, len(self.closed.triples)
        self._sizes = [min(most, int(expected + spare * expected**0.5) + 1) for spare in SPARE]
        chunks = 0 if trainer.chunk == 1 else max(1, ceil(expected / trainer.chunk))
        self.sheet = Sheet([*self.lazy, *self.noises], chunks, self._sizes[-1], tables.device)
        self._closed_steps = self._steps() if privacy.strict and not _formed(trainer, tables) else {}

    def _owed(self) -> dict[str, LazyNoise]:
        """Noise that is added later, and optimizers that leave untouched rows alone."""
        owed = {}
        for axis in Axis:
            table = self.tables.table(axis)
            for own in self.stepper.every.values():
                own.by_axis[axis] = RowSGD(table, own.by_axis[axis].rate)
            self.tables.gradients[axis].dense = None
            rate = self.stepper.every[CONFIDENTIAL].by_axis[axis].rate
            owed[str(axis)] = LazyNoise(table, self.tables.model, axis, rate)
        return owed

    def _noises(self) -> dict[str, Noise]:
        """One for each table that is trained, by name; of two models that share one, the first has it."""
        noises = {}
        for prefix, stepper in self.steppers.items():
            own = stepper.every[self.kind].by_axis
            for axis, optimizer in own.items():
                gradient, model, stepping = stepper.tables.gradients[axis], stepper.tables.model, None
                if self.protection.privacy.strict and adds_noise(optimizer, gradient, model, axis):
                    stepping = own[axis] = NoisyAdam(gradient.table, optimizer.rate)
                noises[f"{STREAMS[prefix]}{axis}"] = Noise(gradient, model, axis, stepping)
        return noises

    def check_rows(self) -> None:
        """By strict rules an error where rows are too long to compute with: NaN would tell who met them.

        Rows are known to whoever is protected against, so the error itself tells nothing.
        """
        if not self.protection.privacy.strict:
            return
        for name, (_, table) in self.tables.named().items():
            most = float(torch.linalg.vector_norm(table, inf)) if table.numel() else 0.0
            if not most <= LONGEST:  # NaN is not either
                raise Diverged(
                    f"site {self.name!r}: {name} has a number of {most:.3g}, and private training needs them "
                    f"within {LONGEST:g}; lower the learning rate, or ask who sent it"
                )

    # An epoch

    def _epoch(self, epoch: int, factored: bool = False) -> None:
        protection, steps = self.protection, self.protection.cadence.steps
        release = partial(protection.cadence.release, protection.privacy, protection.noise)
        left = protection.spending.left(release(1), steps)
        if not left:
            return
        entry = protection.spending.spend(release(left), epoch + 1)
        self._shuffle(epoch)
        unrestricted = [] if self.closed.alone else list(self._steps_of(epoch))
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
        size = self._size(len(chosen))
        self.sheet.write(self.protection.secret, number, chosen, size)
        step = partial(self._closed_step, factored=factored)
        if self._closed_steps:
            self._closed_steps[factored](step, (size, self.sheet.chunks), side)
        else:
            step((size, self.sheet.chunks), side)

    def _size(self, count: int) -> int:
        """The size of a step on so many triples: padded to one of few sizes where steps are captured."""
        if not self._closed_steps:
            return count
        if count > self._sizes[-1]:  # larger than all before, by rare chance: the sheet moves, capture anew
            self._sizes.append(count)
            self._closed_steps = self._steps()
        return next(size for size in self._sizes if size >= count)

    def _closed_step(self, size: Size, side: Side, factored: bool = False) -> None:
        """One step on the confidential triples of the sheet; strict: no host synchronisation."""
        placed, key, starts = self.sheet.placed(size[0]), self.sheet.negatives, self.sheet.starts
        batch = self._owing(self.closed.batch(placed, side, self.trainer.negatives, key, starts))
        for noise in self.noises.values():
            noise.begin()
        some = at_once(self.tables, batch.index.shape[1])
        pieces = [differentiated(self.tables, self.objective, piece) for piece in _pieces(batch, some)]
        clip = self._release(pieces)
        self._blur(clip, pieces)
        self._penalise(self.everyone)
        for stepper in self.steppers.values():
            stepper.step(batch, self.everyone, factored, self.kind)
        for noise in self.noises.values():
            noise.end()

    def _release(self, pieces: Sequence[PerTriple]) -> Tensor:
        """Add up the gradients, cut to the norm that is returned [1]; padding counts nothing."""
        if not pieces:
            return self.clip
        squares, losses = joined([p.squares() for p in pieces]), joined([p.losses for p in pieces])
        percentile, expected = self.protection.privacy.percentile, self.protection.cadence.expected
        clip = self.clip if percentile is None else _percentile(squares.sum(0).sqrt(), percentile)
        kernels = backend(self.tables.device)
        factors, loss = kernels.clip_factors(squares, losses, clip, self.sheet.there, expected)
        self.losses += loss
        for piece, own in zip(pieces, factors.split([len(p.losses) for p in pieces]), strict=True):
            piece.release_(own)
        return clip

    def _blur(self, clip: Tensor, pieces: Sequence[PerTriple]) -> None:
        """Add noise: to every row, now or later; by the paper's rules to those that were touched."""
        scale = clip * (self.protection.noise / self.protection.cadence.expected)
        for name, lazy in self.lazy.items():
            lazy.owe(self.sheet.noise(name), scale)
        for name, noise in self.noises.items():
            touched = None
            if not self.protection.privacy.strict:
                touched = torch.cat([piece.touched(noise.gradient) for piece in pieces]).unique()
            noise.add(self.sheet.noise(name), scale, touched)

    def _batch(self, size: Size, side: Side) -> Batch:
        return self._owing(super()._batch(size, side))

    def _owing(self, batch: Batch) -> Batch:
        """The same batch, once the rows that it reads have the noise that they are owed."""
        read = {Axis.ENTITY: [batch.anchor, batch.candidates], Axis.RELATION: [batch.relation]}
        for axis, rows in read.items():
            if str(axis) in self.lazy:
                self.lazy[str(axis)].settle(joined(rows))
        return batch


def check_trainer(trainer: Trainer, privacy: Privacy) -> None:
    """Options of a trainer that would let confidential triples out, past the noise."""
    if trainer.subsampling:
        raise ConfigError(
            "trainer.subsampling: weighs a triple by how many others there are, which the noise does not "
            f"cover; expected false with privacy.mode {privacy.mode!r}"
        )
    if privacy.strict and OPTIMIZERS[trainer.optimizer].rows_only:
        others = ", ".join(name for name, kind in OPTIMIZERS.items() if not kind.rows_only)
        raise ConfigError(
            f"trainer.optimizer: {trainer.optimizer} steps touched rows alone, noise is for all; "
            f"expected one of {others}"
        )


def _formed(trainer: Trainer, tables: Tables) -> bool:
    """Whether norms need gradients by row: as many as a batch touches, which a captured step cannot know."""
    second = tables.second
    shared = second is not None and second.relations is tables.relations
    return tables.model.projects or shared or trainer.l3 > 0


def unconstrained(tables: Tables) -> bool:
    """Whether the model allows all rows; one that does not moves every row after every step."""
    return all(tables.model.constrain(tables.table(axis)[:1], axis) is None for axis in Axis)


def adds_noise(optimizer: Optimizer, gradient: Gradient, model: Model, axis: Axis) -> bool:
    """Whether an optimizer adds noise where it steps a row: on a GPU, which waits for memory most of a step.

    Not with columns that no step moves.
    """
    if gradient.dense is not None or not isinstance(optimizer, Adam) or len(fixed_columns(model, axis)):
        return False
    return gradient.table.is_cuda


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one after another, along their last dimension."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), -1)


def _percentile(norms: Tensor, percentile: float) -> Tensor:
    """Of the norms that are not 0 (a margin loss has many that are), [1]; 0 if all are."""
    some = torch.where(norms > 0, norms, torch.nan)
    return torch.nanquantile(some, percentile / 100).nan_to_num()[None]


def _pieces(batch: Batch, some: int) -> Iterator[Batch]:
    """A batch in pieces of at most `some` triples; none of an empty one."""
    for start in range(0, len(batch.anchor), some):
        own = slice(start, start + some)
        names = ("anchor", "relation", "site", "weight")
        index = batch.index[own] if isinstance(batch.index, Tensor) else batch.index.some(own)
        yield replace(batch, index=index, **{name: getattr(batch, name)[own] for name in names})
