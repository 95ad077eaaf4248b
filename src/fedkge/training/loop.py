"""Local training: the schedule of batches, and the step that every site takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import islice
from typing import ClassVar

import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Candidates, Deck, Draw, Tie, backend, beside
from fedkge.models import Side, Tables
from fedkge.training.capture import Size, Steps
from fedkge.training.corpus import Corpus
from fedkge.training.factored import Changes
from fedkge.training.negatives import Chunks, own, shared
from fedkge.training.stepper import Stepper
from fedkge.training.together import Together
from fedkge.training.trainer import Batch, BySite, Moments, Objective, Penalty, Trainer

#: part of the entities: where a step reads no more, rows take their steps when they are read
FEW = {"cpu": 0.25, "cuda": 0.5}
FORESEEN = 0.75  #: the same where the next steps are known: rows are then written once for several steps
#: steps that are captured as one: all but the first draw their batch beside the step before
TOGETHER = 64
#: steps that are drawn at once on a CPU, at most, and the pairs of positives and negatives in them
DRAWN, PAIRS = 32, 1 << 23
AHEAD = "ahead"  #: the stream in which the next batch is drawn and its rows are made ready


class Training:
    """One or several sites' tables under training, second ones too: optimizers and schedule of batches.

    Everything random is computed from the corpus's keys, the epoch and the step, so `state()` and the
    number of the next epoch are all that resuming needs. `penalties` are added to every step's loss, over the
    whole tables of the sites that take it. Rows that are `factored` are trained as factors of their change
    in the last epoch of every `run`.
    """

    rows_wait: ClassVar[bool] = True  #: rows may be late: nobody but `_step` reads them in a run

    def __init__(
        self,
        trainer: Trainer,
        tables: Tables,
        corpus: Corpus,
        objective: Objective | None = None,
        penalties: Mapping[Axis, Penalty] | None = None,
        factored: Mapping[Axis, Changes] | None = None,
        captured: bool = True,
    ) -> None:
        self.trainer, self.tables, self.corpus = trainer, tables, corpus
        self.objective = trainer.regularised(objective or trainer.objective)
        self.penalties = penalties or {}
        device = tables.device
        self.stepper = Stepper(trainer, tables, corpus, factored)
        self.steppers = {"": self.stepper}
        if tables.second is not None:
            self.steppers["second."] = Stepper(trainer, tables.second, corpus, lent=self.stepper)
        self.losses = torch.zeros(len(corpus.names), dtype=torch.float64, device=device)
        self.clock = torch.zeros(2, dtype=torch.int64, device=device)  # step of the epoch, epoch
        self._tick = torch.tensor([1, 0], device=device)  # to the next step
        self.weights = corpus.subsampling().to(tables.entities.dtype) if trainer.subsampling else None
        owner, ends = self.stepper.owner, self.stepper.ends
        self.by_site = {axis: BySite(owner[axis], _sizes(ends[axis])) for axis in self.penalties}
        self.powers = torch.tensor([2.0, 2.0, 1.0], dtype=tables.entities.dtype, device=device)
        self.captures = captured and device.type == "cuda"
        first = torch.cat((corpus.entity_ends.new_zeros(1), corpus.entity_ends[:-1]))
        self.owned = first, corpus.entity_ends - first  # of each site: its first entity, how many it has
        self.can_wait = (
            self.rows_wait
            and Axis.ENTITY not in self.penalties
            and all(stepper.can_wait() for stepper in self.steppers.values())
            and (device.type == "cpu" or trainer.chunk > 1)  # a GPU adds own candidates up for whole tables
        )
        self._lay_out(tuple(range(len(corpus.names))))
        self._captured = self._steps()
        self._together = Together.of(self, usual=objective is None)

    def choose(self, sites: Sequence[int]) -> None:
        """Which sites `run` trains from now on, by their place in the corpus; at first all of them.

        Steps of a choice are captured when it is made twice in a row.
        """
        chosen = tuple(sorted(sites))
        if chosen != self.chosen:
            self._lay_out(chosen)
            self._captured = {}
        elif not self._captured:
            self._captured = self._steps()

    def _steps(self) -> dict[bool, Steps]:
        """Steps to capture: those of rows, and those of factors; none where steps are not captured."""
        return {factored: Steps() for factored in (False, True)} if self.captures else {}

    def _lay_out(self, chosen: tuple[int, ...]) -> None:
        """Where each shuffled triple stands in the schedule: by batch, then by site."""
        corpus, size = self.corpus, self.trainer.batch_size
        self.chosen = chosen
        taking = torch.zeros_like(corpus.sizes, dtype=torch.bool)
        taking[list(chosen)] = True
        self.sizes = corpus.sizes * taking  # [s], triples that are up for training
        mine = taking[corpus.site].nonzero()[:, 0]
        batch = corpus.local[mine] // size
        self.layout = mine[torch.argsort(batch * len(corpus.names) + corpus.site[mine], stable=True)]
        self.counts: list[int] = torch.bincount(batch).tolist()  # triples per batch, of all sites
        slot_site, position = corpus.site[self.layout], corpus.local[self.layout] % size
        heads = (position % self.trainer.chunk == 0).nonzero()[:, 0]
        self.chunks: list[int] = torch.bincount(
            corpus.local[self.layout[heads]] // size
        ).tolist()  # per batch
        left = corpus.sizes[slot_site] - (corpus.local[self.layout] - position)
        self.deck = Deck(
            _starts(self.counts, batch.device),
            slot_site,
            position,
            1 / left.clamp_max(size).to(self.tables.entities.dtype),
            heads,
            _starts(self.chunks, batch.device),
        )
        self.schedule: dict[Side, Tensor] = {}
        if self.can_wait:
            for stepper in self.steppers.values():
                stepper.wait(self._reads_few())

    def _reads_few(self) -> bool:
        """Whether a step reads few of the entities of those that train."""
        chunks = self.counts if self.trainer.chunk == 1 else self.chunks
        read = [
            2 * own + shared * self.trainer.negatives for own, shared in zip(self.counts, chunks, strict=True)
        ]
        part = FORESEEN if self._draws_ahead() else FEW[self.tables.device.type]
        return max(read, default=0) <= part * int(self.owned[1][list(self.chosen)].sum())

    def state(self) -> dict[str, Tensor]:
        """Everything besides the tables and the number of the next epoch."""
        return {
            f"{prefix}{name}": tensor
            for prefix, stepper in self.steppers.items()
            for name, tensor in stepper.state().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def restart(self) -> None:
        """Forget the optimizers' moments, as methods do that make a new optimizer every round."""
        for stepper in self.steppers.values():
            stepper.restart()

    def run(self, epoch: int, epochs: int | None = None) -> Tensor:
        """Train epochs `epoch`, `epoch + 1`, ...; the mean loss [s] of each site, on the device."""
        self.losses.zero_()
        taken = self.stepper.steps.clone()
        with one_thread() if self.tables.device.type == "cpu" else _deterministic(self.trainer):
            for stepper in self.steppers.values():
                stepper.open()
            *first, last = range(epoch, epoch + (epochs or self.trainer.epochs))
            for number in first:
                self._epoch(number)
            for factored in self.stepper.factored.values():
                factored.begin()
            self._epoch(last, bool(self.stepper.factored))
            for stepper in self.steppers.values():
                stepper.close()
        return self.losses / (self.stepper.steps - taken).clamp_min(1)

    def _epoch(self, epoch: int, factored: bool = False) -> None:
        self._shuffle(epoch)
        steps = self._steps_of(epoch)
        at_once = TOGETHER if self._captured else self._drawn_at_once()
        while together := tuple(islice(steps, at_once)):
            self._take(together, factored)

    def _shuffle(self, epoch: int) -> None:
        """Deal out the triples of an epoch."""
        self.clock[0].fill_(0)  # a fill, not a copy: it must not wait for the device
        self.clock[1].fill_(epoch)
        if self._captured:
            self._captured[False](self._deal_out)
        else:
            self._deal_out()

    def _deal_out(self) -> None:
        """Shuffle by the clock's epoch; the order of a second visit is found beside the first."""
        aside, visits = beside(self.tables.device), self.trainer.visits
        for visit in range(visits):
            with aside.work() if visit else nullcontext():
                order = self.corpus.shuffled(self.clock[1], visit)[self.layout]
                for side in self.trainer.side_order[visit::visits]:
                    if side in self.schedule:  # captured steps read it by address
                        self.schedule[side].copy_(order)
                    else:
                        self.schedule[side] = order
        aside.join()

    def _steps_of(self, epoch: int) -> Iterator[tuple[Size, Side]]:
        """The steps of an epoch: how many triples and chunks of them, and which side."""
        for number, size in enumerate(zip(self.counts, self.chunks, strict=False)):
            for side in self.trainer.sides_of(number, epoch):
                yield size, side

    def _draws_ahead(self) -> bool:
        """Whether several steps are drawn before the first is taken.

        On a CPU the kernels of a step leave nothing else in the caches: small work is faster done in a row,
        and rows that wait are stepped up to their next reading. Candidates of one's own would take too much
        room.
        """
        return self.tables.device.type == "cpu" and self.trainer.chunk > 1

    def _drawn_at_once(self) -> int:
        pairs = max(self.counts, default=0) * self.trainer.negatives
        return max(1, min(DRAWN, PAIRS // max(1, pairs))) if self._draws_ahead() else 1

    def _take(self, steps: Sequence[tuple[Size, Side]], factored: bool) -> None:
        """Some steps, captured where steps are."""
        take = partial(self._run, factored=factored)
        if self._captured:
            self._captured[factored](take, *steps)
        elif self._together:
            self._together(steps)
        elif self._draws_ahead():
            drawn = [self._drawn(*step, self.clock + i * self._tick) for i, step in enumerate(steps)]
            for stepper in self.steppers.values():
                stepper.foresee(*zip(*drawn, strict=True))
            for batch, active in drawn:
                self._step(batch, active, factored)
        else:
            take(*steps)

    def _run(self, *steps: tuple[Size, Side], factored: bool) -> None:
        """One step after another; the next one's triples and negatives are drawn beside."""
        ahead = beside(self.tables.device, AHEAD)
        drawn = self._drawn(*steps[0], self.clock)
        for stepper in self.steppers.values():
            stepper.ready(drawn[0])
            stepper.turn()
        for following in (*steps[1:], None):
            now, soon = drawn, None
            if following is not None:
                with ahead.work():
                    drawn = self._drawn(*following, self.clock + self._tick)
                soon = drawn[0]
            self._step(*now, factored, soon)
        for stepper in self.steppers.values():
            stepper.tables.turned = None  # others may change rows from now on

    def _drawn(self, size: Size, side: Side, clock: Tensor) -> tuple[Batch, Tensor]:
        """The batch of a step, and which sites take it (bool [s])."""
        active = self.sizes > clock[0] // self.trainer.visits * self.trainer.batch_size
        return self._batch(size, side, clock), active

    def _step(self, batch: Batch, active: Tensor, factored: bool, soon: Batch | None = None) -> None:
        """One optimizer step of rows that are ready; then those of the batch after it are.

        No host synchronisation.
        """
        aside, ahead = beside(self.tables.device), beside(self.tables.device, AHEAD)
        with aside.work():
            for stepper in self.steppers.values():
                stepper.begin(active)
        if soon is not None:
            with ahead.work(after=aside):  # the steps are counted
                self._ready(soon, True)
        with torch.enable_grad():
            losses = self.objective(self.tables, batch)
            with aside.work():  # before the step: beside its many programs small work would wait
                self.losses.index_add_(0, batch.site, (losses.detach() * batch.weight).double())
            with ahead.work():  # the next batch is drawn by the same clock
                self.clock += self._tick
            losses.backward(batch.weight)  # of their weighted sum
        aside.join()
        self._penalise(active)
        for stepper in self.steppers.values():
            stepper.step(batch, active, factored)
        aside.join()
        ahead.join()
        if soon is not None:
            self._ready(soon, False)

    def _ready(self, batch: Batch, ahead: bool) -> None:
        """Make the rows of a batch ready: before the step before it is taken, or after that."""
        for stepper in self.steppers.values():
            if stepper.ahead is ahead:
                stepper.ready(batch)

    def _batch(self, size: Size, side: Side, clock: Tensor) -> Batch:
        corpus, trainer, answers = self.corpus, self.trainer, self.corpus.answers[side]
        kernels = backend(self.tables.device)
        known = answers.lo, answers.hi if trainer.filtered else answers.lo
        where = (self.deck, self.schedule[side], corpus.triples, known, clock, trainer.visits)
        dealt = kernels.deal(*where, size)
        anchor, true = (dealt.head, dealt.tail) if side is Side.TAIL else (dealt.tail, dealt.head)
        mine = (dealt.site, dealt.position, dealt.lo, dealt.hi)
        draw = Draw(corpus.negative_keys, *self.owned, answers.known, *mine)
        if trainer.chunk == 1:
            index: Candidates = own(true, draw, trainer.negatives, clock)
        else:
            longest = min(trainer.chunk, trainer.batch_size)
            chunks = Chunks(dealt.starts, dealt.chunk_site, dealt.chunk_position, longest)
            index = shared(true, draw, chunks, trainer.negatives, clock)
        weight = dealt.share
        if self.weights is not None:
            chosen = self.weights[dealt.triple]
            weight = (
                chosen / chosen.new_zeros(len(corpus.names)).index_add_(0, dealt.site, chosen)[dealt.site]
            )
        return Batch(side, anchor, dealt.relation, index, dealt.site, weight)

    def _penalise(self, active: Tensor) -> None:
        """Add the penalties' gradients, of the sites that take this step."""
        kernels = backend(self.tables.device)
        for axis, penalty in self.penalties.items():
            with torch.enable_grad():
                moments = kernels.moments(self.tables.table(axis), penalty.kept).requires_grad_()
                added = (penalty.of(Moments(*moments.unbind(-1)), self.by_site[axis]) * active).sum()
                (slopes,) = torch.autograd.grad(added, moments)
            self.tables.gradients[axis].add_tie(Tie(penalty.kept, slopes * self.powers))


def _starts(counts: Sequence[int], device: torch.device) -> Tensor:
    """Where each of several stretches begins."""
    lengths = torch.tensor(counts, device=device)
    return lengths.cumsum(0) - lengths


def _sizes(ends: Tensor) -> Tensor:
    return ends.diff(prepend=ends.new_zeros(1)).float()


@contextmanager
def one_thread() -> Iterator[None]:
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
    if before or not trainer.deterministic:
        yield  # to ask again for what is so imports torch's compiler: seconds
        return
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
