"""A site's triples parted into confidential and unrestricted ones, and batches of the confidential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedkge.graphs.graph import Graph, Ids, Mask, Split
from fedkge.graphs.persons import about_nobody
from fedkge.kernels import Candidates, Draw
from fedkge.kernels.poisson import at_once, samples
from fedkge.models import Side
from fedkge.privacy import Privacy
from fedkge.training.cadence import Cadence
from fedkge.training.clipping import Grouping
from fedkge.training.corpus import Answers, Corpus
from fedkge.training.negatives import Chunks, own, shared
from fedkge.training.secret import Secret
from fedkge.training.trainer import Batch, Trainer
from fedkge.training.units import Drawn, Units

KEY = 4  #: numbers that a key takes
FIRST = 8  #: steps that are sampled before the first is taken, at most; then twice as many each time


@dataclass(frozen=True, slots=True)
class Step:
    """One confidential step: its number in the ledger, its triples, and the side that is asked for."""

    number: int
    drawn: Drawn
    side: Side


def marked(graph: Graph, privacy: Privacy) -> Mask:
    """Which training triples are confidential, [m]: those that are marked, or all."""
    if privacy.mode == "fulldp":
        return np.ones(len(graph.train), np.bool_)
    return np.zeros(len(graph.train), np.bool_) if graph.confidential is None else graph.confidential


def hides(graph: Graph, privacy: Privacy) -> bool:
    """Whether there is anything to protect: confidential triples, or persons, whatever is said about them."""
    if privacy.by_person:
        return graph.persons is not None and bool(graph.persons.any())
    return bool(marked(graph, privacy).any())


def unmarked(graph: Graph, privacy: Privacy) -> Graph:
    """The same graph, its names included, without confidential triples."""
    return replace(graph, train=graph.train[~marked(graph, privacy)], confidential=None)


def opened(graph: Graph, privacy: Privacy) -> Graph:
    """What metrics in messages may depend on: valid and test are their questions, all triples filter answers.

    No question is about a person. Modes that keep confidential triples secret go further: these triples and
    those about persons do not filter, and no question has a relation that only confidential triples have.
    """
    valid, test = (about_nobody(graph, split) for split in (Split.VALID, Split.TEST))
    if not privacy.closed:
        return replace(graph, valid=valid, test=test)
    left = unmarked(graph, privacy)
    known = [part[np.isin(part[:, 1], left.train[:, 1])] for part in (valid, test)]
    return replace(left, valid=known[0], test=known[1])


@dataclass(frozen=True, slots=True)
class Closed:
    """Confidential triples of one site; `answers` are what their negatives leave out, if anything."""

    triples: Tensor  # int64 [3, c]: heads, relations, tails
    entities: Tensor  # int64 [1], how many negatives are drawn from: all that the site has
    answers: Mapping[Side, Answers] | None
    alone: bool  #: there are no unrestricted triples beside them
    none: Tensor  # int64 [2], zeros
    one: Tensor  # [1]

    def batch(
        self, chosen: Tensor, side: Side, negatives: int, key: Tensor, starts: Tensor | None = None
    ) -> Batch:
        """The triples at places `chosen` [b]; their negatives depend on the key [1, 4] and the place alone.

        With `starts` [c + 1] of chunks, on the key and the number of a triple's chunk, which its slot alone
        decides (`Sheet`). So a unit more or less changes nothing about the others: their places may move, but
        the key is secret, and under it all places draw by one law, independently.
        """
        h, r, t = self.triples[:, chosen]
        anchor, target = (h, t) if side is Side.TAIL else (t, h)
        site = torch.zeros_like(chosen)
        known, lo, hi = self.none[:1], site, site
        if self.answers is not None:
            answers = self.answers[side]
            known, lo, hi = answers.known, answers.lo[chosen], answers.hi[chosen]
        draw = Draw(key, self.none[:1], self.entities, known, site, chosen, lo, hi)
        if starts is None:
            index: Candidates = own(target, draw, negatives, self.none)
        else:
            number = torch.arange(len(starts) - 1, device=starts.device)
            chunks = Chunks(starts, torch.zeros_like(number), number, len(chosen))
            index = shared(target, draw, chunks, negatives, self.none)
        return Batch(side, anchor, r, index, site, self.one.expand(len(chosen)))


class Sheet:
    """What is random about one confidential step, side by side in memory: its sizes, keys, places and units.

    Steps are laid out some at a time. On a GPU that is one upload, which does not wait. A step's part of it
    is then copied to memory that stays where it is, for captured steps to read, unless one has more than
    `room` places.

    Where triples share negatives, the one in slot p is in chunk `p % chunks`, whoever else was sampled, and
    whatever else there is: slots and the number of chunks follow from public numbers (`Units.slots`).
    """

    def __init__(self, names: Sequence[str], chunks: int, room: int, most: int, device: torch.device) -> None:
        self.names = tuple(names)  #: that have noise by a key of their own
        self.chunks = chunks  #: that triples are dealt out to; 0: each has its own negatives
        self.most = most  #: triples of a unit
        self._room, self._starts = room, 2 + KEY * (1 + len(names))
        self._places = self._starts + (chunks + 1 if chunks else 0)
        self._numbers = torch.zeros(self._length, dtype=torch.int64, device=device)
        self._count = torch.arange(room + 1, device=device)
        self._steps = self._numbers[None]

    @property
    def _length(self) -> int:
        return self._places + self._room + (3 * self._room + 1 if self.most > 1 else 0)

    @property
    def there(self) -> Tensor:
        """How many triples and how many units there are [2]; places after them are padding."""
        return self._numbers[:2]

    @property
    def negatives(self) -> Tensor:
        """The key of the negatives [1, 4]."""
        return self._numbers[None, 2 : 2 + KEY]

    def noise(self, name: str) -> Tensor:
        """The key of one noise [4]."""
        first = 2 + KEY * (1 + self.names.index(name))
        return self._numbers[first : first + KEY]

    @property
    def starts(self) -> Tensor | None:
        """Where chunks begin, and the last one ends [chunks + 1], with the padding; None without chunks."""
        return self._numbers[self._starts : self._places] if self.chunks else None

    def placed(self, size: int) -> Tensor:
        """Places of the triples, chunk by chunk, and padding [size]."""
        return self._part(0)[:size]

    def units(self, size: int) -> Grouping:
        """Which triples are cut as one; units that there are none of are empty."""
        if self.most == 1:
            return Grouping(self._count[:size], self._count[: size + 1], None, 1)
        order, unit, starts = (self._part(number) for number in (1, 2, 3))
        return Grouping(order[:size], starts[: size + 1], unit[:size], self.most)

    def _part(self, number: int) -> Tensor:
        return self._numbers[self._places + number * self._room :]

    def lay_out(self, secret: Secret, steps: Sequence[Step], sizes: Sequence[int]) -> None:
        """Write down some steps, of so many places each; `turn_to` has the sheet read one of them."""
        device = self._numbers.device
        if max(sizes) > self._room or device.type == "cpu":
            self._room = max(sizes)
            self._count = torch.arange(self._room + 1, device=device)
        numbers = np.zeros((len(steps), self._length), np.int64)
        purposes = [("negatives",), *(("noise", name) for name in self.names)]
        keys = secret.cipher_keys((step.number for step in steps), purposes)
        numbers[:, 2 : self._starts] = keys.reshape(len(steps), -1)
        for row, step, size in zip(numbers, steps, sizes, strict=True):
            self._write(row, step.drawn, size)
        found = torch.from_numpy(numbers)
        self._steps = found if device.type == "cpu" else found.pin_memory().to(device, non_blocking=True)
        if device.type != "cpu" and self._length > len(self._numbers):
            self._numbers = self._numbers.new_zeros(self._length)

    def turn_to(self, place: int) -> None:
        """Have the sheet be of one of the steps that are laid out."""
        if self._numbers.device.type == "cpu":
            self._numbers = self._steps[place]
        else:
            self._numbers[: self._length].copy_(self._steps[place])

    def _write(self, numbers: Ids, drawn: Drawn, size: int) -> None:
        count, units = len(drawn.places), len(drawn.starts) - 1
        numbers[:2] = count, units
        moved, placed = np.arange(count), drawn.places
        if self.chunks:
            chunk = drawn.slots % self.chunks
            moved = np.argsort(chunk, kind="stable")
            placed = placed[moved]
            starts = np.searchsorted(chunk[moved], np.arange(self.chunks + 1))
            starts[-1] = size
            numbers[self._starts : self._places] = starts
        rest = numbers[self._places :]
        rest[:count] = placed
        rest[count:size] = np.arange(count, size)  # padding: any triples, but not all the same rows
        if self.most > 1:
            order, unit, starts = (rest[n * self._room :] for n in (1, 2, 3))
            order[:count][moved] = np.arange(count)
            order[count:size] = np.arange(count, size)
            owner = np.repeat(np.arange(units), np.diff(drawn.starts))
            unit[:count], unit[count:size] = owner[moved], min(units, size - 1)
            starts[: units + 1], starts[units + 1 : size + 1] = drawn.starts, count


def parted(
    site: tuple[str, Graph], confidential: Mask, seed: int, knows_all: bool, device: torch.device
) -> tuple[Corpus, Closed]:
    """The unrestricted triples to train on, and the confidential ones.

    Unless the trainer `knows_all`, what unrestricted triples leave out of their negatives are unrestricted
    triples, and the confidential leave out nothing. Where no triple is unrestricted, the corpus has
    all, for its sizes, and is not to be trained on.
    """
    name, graph = site
    alone = bool(confidential.all())
    whole = Corpus.of({name: graph}, seed, device) if knows_all or alone else None
    place = torch.from_numpy(np.flatnonzero(confidential)).to(device)
    rest = torch.from_numpy(np.flatnonzero(~confidential)).to(device)
    open_graph = replace(graph, train=graph.train[~confidential], confidential=None)
    corpus = whole if alone and whole is not None else Corpus.of({name: open_graph}, seed, device)
    answers = None
    if knows_all and whole is not None:
        answers = _answers(whole, place)
        corpus = corpus if alone else replace(corpus, answers=_answers(whole, rest))
    triples = torch.from_numpy(graph.train[confidential].T.copy()).to(device)
    entities = torch.tensor([graph.n_entities], device=device)
    none, one = torch.zeros(2, dtype=torch.int64, device=device), torch.ones(1, device=device)
    return corpus, Closed(triples, entities, answers, alone, none, one)


def _answers(corpus: Corpus, places: Tensor) -> dict[Side, Answers]:
    """What some of the triples leave out."""
    return {
        side: Answers(known.known, known.lo[places], known.hi[places])
        for side, known in corpus.answers.items()
    }


def poisson_batches(
    secret: Secret,
    cadence: Cadence,
    units: Units,
    numbers: range,
    trainer: Trainer,
    epoch: int,
    device: torch.device,
) -> Iterator[list[Step]]:
    """For each step a sample that each unit is in with probability `rate`, independently; some at a time."""
    most, start, some = at_once(len(units), device), 0, FIRST
    while own := numbers[start : start + min(some, most)]:
        keys = secret.cipher_keys(own, [("sample",)])[:, 0]
        chosen = samples(keys, len(units), cadence.rate, device)
        sides = _sides(trainer, epoch, range(start, start + len(own)))
        yield [Step(n, units.drawn(c), side) for n, c, side in zip(own, chosen, sides, strict=True)]
        start, some = start + len(own), 2 * some


def shuffled_batches(
    secret: Secret,
    cadence: Cadence,
    units: Units,
    numbers: range,
    trainer: Trainer,
    epoch: int,
    device: torch.device,
) -> Iterator[list[Step]]:
    """The steps' pieces of shuffled lists, one list for each visit of an epoch."""
    random, size = secret.generator(numbers.start, "order"), int(cadence.expected)
    orders = [random.permutation(len(units)) for _ in range(trainer.visits)]
    for step, side in enumerate(_sides(trainer, epoch, range(len(numbers)))):
        batch, visit = divmod(step, trainer.visits)
        chosen = orders[visit][batch * size : (batch + 1) * size]
        yield [Step(numbers[step], units.drawn(chosen), side)]


def _sides(trainer: Trainer, epoch: int, steps: range) -> list[Side]:
    places = (divmod(step, trainer.visits) for step in steps)
    return [trainer.sides_of(batch, epoch)[visit] for batch, visit in places]
