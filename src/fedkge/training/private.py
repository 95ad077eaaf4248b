"""DP-SGD on confidential triples beside plain steps on unrestricted ones (DPKGE, Han et al., 2022).

A confidential step (`PrivateTraining._closed_step`): clip, sum, noise, step. The gradient of each unit (a
triple with its negatives, or all triples of a person) is cut to a norm C, the sum is divided by the expected
number of units, and noise of standard deviation sigma C, divided by the same, is added (Algorithm 1, lines 12
to 17). Whatever follows (Adam, constraints, penalties, what a method sends) is computed from that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from math import ceil, inf

import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.evaluation.checks import Diverged
from fedkge.graphs.graph import Axis, Graph, Ids, Mask
from fedkge.kernels import backend, beside
from fedkge.kernels.cipher import GRID
from fedkge.models import Side, Tables
from fedkge.models.tables import LONGEST
from fedkge.privacy import Privacy, Spending
from fedkge.randomness import generator
from fedkge.training.cadence import Cadence, interleaved
from fedkge.training.capture import Size
from fedkge.training.clipping import Grouping, PerTriple, differentiated
from fedkge.training.confidential import Sheet, Step, parted, poisson_batches, shuffled_batches
from fedkge.training.factored import Changes
from fedkge.training.loop import Training
from fedkge.training.noise import NoisySum
from fedkge.training.optimizers import OPTIMIZERS
from fedkge.training.secret import Secret
from fedkge.training.trainer import Objective, Penalty, Trainer
from fedkge.training.units import Units

CONFIDENTIAL = "confidential."  #: steps that have optimizers of their own, by strict rules
SPARE = (2.0, 6.0)  #: standard deviations of a Poisson batch's size that captured steps have places for
BEYOND = 1.001 * LONGEST  #: number in a row that was longer
MEASURED = ("adam", "row-adam", "adagrad")  #: their steps are a few learning rates long, whatever rows are
LARGEST_RATE, LARGEST_L3 = 1e3, 1.0  #: up to these, rows that begin a round below LONGEST stay computable
COARSEST = 0.5  #: share of the clipping norm that rounding to the grid may take


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

    @property
    def units(self) -> Units:
        """What is sampled and clipped as one."""
        if self.owner is None:
            return Units.triples(int(self.confidential.sum()))
        assert self.privacy.per_person is not None, "complete where persons are protected"
        return Units.persons(self.owner[self.confidential], self.persons, self.privacy.per_person)

    def observed(self, triples: Tensor) -> Tensor:
        """The triples [n, 3] that a model may read numbers off, which then get no noise."""
        if not self.privacy.strict:
            return triples
        return triples[torch.from_numpy(~self.confidential).to(triples.device)]


class PrivateTraining(Training):
    """Training of one site, whose confidential triples have steps of their own.

    By `strict` rules batches are Poisson samples of units, a triple's negatives are drawn from all entities
    and depend on nothing but the step and itself, and every row gets noise in every confidential step, also
    of an empty batch. Filtered negatives of unrestricted triples look at unrestricted triples alone. By the
    `paper`'s rules batches are shuffled, negatives are filtered by all triples, the rows that a batch
    touches get noise, and C is a percentile of the batch's norms, of those that are not 0.

    Each epoch's confidential steps are in the ledger before the first of them. Samples, negatives and noise
    come from the site's secret and the steps' numbers, so that a resumed run never repeats them. When the
    budget has no step left, nothing is trained any more.
    """

    rows_wait = False  # noise moves all of them

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
        super().__init__(trainer, tables, corpus, objective, penalties, factored, captured)
        self.kind = CONFIDENTIAL if privacy.strict else ""
        if privacy.strict:
            for stepper in self.steppers.values():
                stepper.part(CONFIDENTIAL, privacy.lr or trainer.lr)
        self.sums = {
            f"{prefix}{axis}": NoisySum(stepper.tables.gradients[axis], stepper.tables.model, axis)
            for prefix, stepper in self.steppers.items()
            for axis in stepper.ends
        }
        self.smallest_first = sorted(self.sums, key=lambda name: self.sums[name].gradient.table.numel())
        self.everyone = torch.ones_like(corpus.sizes, dtype=torch.bool)
        self.clip = tables.entities.new_tensor([privacy.clip or 0.0])
        large = max(trainer.lr, privacy.lr or 0.0) > LARGEST_RATE or trainer.l3 > LARGEST_L3
        self.grows = privacy.strict and (trainer.optimizer not in MEASURED or large)
        self.units = protection.units
        most, count = self.units.most, len(self.units.places)
        expected = protection.cadence.rate * count  # triples
        self._sizes = [min(count, int(expected + spare * (most * expected) ** 0.5) + 1) for spare in SPARE]
        slots = protection.cadence.rate * self.units.room  # of a batch: of what nobody's triples change
        chunks = 0 if trainer.chunk == 1 else max(1, ceil(slots / trainer.chunk))
        self.sheet = Sheet(list(self.sums), chunks, self._sizes[-1], most, tables.device)
        self._closed_steps = self._steps() if privacy.strict else {}

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

    def _bound_rows(self) -> None:
        """Take back rows that steps have made too long within a round, by strict rules.

        They stay beyond what is allowed, so that no upload has them and the next round refuses them.
        """
        if self.grows:
            for _, table in self.tables.named().values():
                table.nan_to_num_(BEYOND, BEYOND, -BEYOND).clamp_(-BEYOND, BEYOND)

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
        plain, private = iter(unrestricted), self._closed(self._batches(entry.numbers, epoch))
        for confidential in interleaved(len(unrestricted), steps, self._coin(epoch)):
            if not confidential:
                self._take([next(plain)], factored)
            elif (step := next(private, None)) is not None:
                self._take_closed(*step, factored)
            else:
                break  # the budget ends within this epoch

    def _coin(self, epoch: int) -> Callable[[], bool]:
        """What decides where the schedule does not: by strict rules nothing random."""
        if self.protection.privacy.strict:
            return lambda: True
        random = generator(self.seed, self.name, "schedule", epoch)
        return lambda: bool(random.integers(2))

    def _batches(self, numbers: range, epoch: int) -> Iterator[list[Step]]:
        make = poisson_batches if self.protection.privacy.strict else shuffled_batches
        secret, cadence = self.protection.secret, self.protection.cadence
        return make(secret, cadence, self.units, numbers, self.trainer, epoch, self.tables.device)

    # A step

    def _closed(self, batches: Iterable[list[Step]]) -> Iterator[tuple[int, Side]]:
        """Sizes and sides of steps; what is random about each is where the step reads it when it comes."""
        for steps in batches:
            sizes = [self._size(len(step.drawn.places)) for step in steps]
            self.sheet.lay_out(self.protection.secret, steps, sizes)
            for place, (step, size) in enumerate(zip(steps, sizes, strict=True)):
                self.sheet.turn_to(place)
                yield size, step.side

    def _take_closed(self, size: int, side: Side, factored: bool) -> None:
        """The confidential step that the sheet has, captured where steps are."""
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
        """One step on the confidential triples of the sheet; strict: no host synchronisation.

        Clip, sum, noise, step, in this order. Nothing reads the sums before they have noise, and no row is
        written before: what leaves this function is computed from noisy sums and from rows that were known.
        """
        self._bound_rows()
        placed, key, starts = self.sheet.placed(size[0]), self.sheet.negatives, self.sheet.starts
        batch = self.closed.batch(placed, side, self.trainer.negatives, key, starts)
        units, clip, triples = self.sheet.units(size[0]), self.clip, None
        aside = beside(self.tables.device)
        with aside.work():  # counts steps, and reads nothing else
            for stepper in self.steppers.values():
                stepper.begin(self.everyone, self.kind)
        with ExitStack() as stack:
            for noisy in self.sums.values():
                stack.enter_context(noisy.open())
            if len(placed):
                triples = differentiated(self.tables, self.objective, batch)
                factors, clip = self._clipped(triples, units)  # clip
                triples.release_(units.of_triples(factors))  # sum
            scale = self._scale(clip)
            for name in self.smallest_first:  # noise
                with aside.work() if name != self.smallest_first[-1] else nullcontext():
                    self._add_noise(name, scale, triples)
            aside.join()
            self._penalise(self.everyone)
            for stepper in self.steppers.values():  # step
                stepper.step(batch, self.everyone, factored, self.kind)

    def _clipped(self, triples: PerTriple, units: Grouping) -> tuple[Tensor, Tensor]:
        """What each unit's gradient is multiplied by [units], padding by 0; the norm C [1] of a release.

        Rounding sums to the grid of the noise can part two of them by a step in every number that a unit adds
        to. Strict rules take that off the norm that gradients are cut to.
        """
        squares, privacy, cadence = triples.squares(units), self.protection.privacy, self.protection.cadence
        percentile = privacy.percentile
        clip = self.clip if percentile is None else _percentile(squares.sum(0).sqrt(), percentile)
        rounded = self.protection.noise * triples.numbers(units) ** 0.5 / GRID if privacy.strict else 0.0
        if rounded > COARSEST:
            raise ConfigError(
                f"privacy.noise: {self.protection.noise:g} is so much that rounding takes {rounded:.0%} of "
                f"the clipping norm; expected at most {self.protection.noise * COARSEST / rounded:.3g}"
            )
        kernels = backend(self.tables.device)
        cut = (squares, triples.losses, clip * (1 - rounded), self.sheet.there, cadence.expected)
        factors, loss = kernels.clip_factors(*cut)
        self.losses += loss
        return factors, clip

    def _scale(self, clip: Tensor) -> Tensor:
        """The standard deviation of the noise on every number of a sum [1]."""
        return clip * (self.protection.noise / self.protection.cadence.expected)

    def _add_noise(self, name: str, scale: Tensor, triples: PerTriple | None) -> None:
        noisy = self.sums[name]
        touched = None if self.protection.privacy.strict else self._touched(noisy, triples)
        noisy.add_noise(self.sheet.noise(name), scale, touched)

    def _touched(self, noisy: NoisySum, triples: PerTriple | None) -> Tensor:
        """By the paper's rules: the rows that get noise."""
        if triples is None:
            return torch.zeros(len(noisy.gradient.table), dtype=torch.bool, device=self.tables.device)
        return triples.touched(noisy.gradient)


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


def _percentile(norms: Tensor, percentile: float) -> Tensor:
    """Of the norms that are not 0 (a margin loss has many that are), [1]; 0 if all are."""
    some = torch.where(norms > 0, norms, torch.nan)
    return torch.nanquantile(some, percentile / 100).nan_to_num()[None]
