"""Filtered ranks: how many candidates score above, and as high as, the true answer of each question.

A question is (head, relation, ?) or (?, relation, tail). Triples that ask the same question share its
scores; questions are scored some at a time, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkge.errors import ConfigError, DataError
from fedkge.evaluation.checks import check_ids, check_tables, diverged
from fedkge.evaluation.constraints import TypeConstraints
from fedkge.evaluation.filter import Known, Lists, anchor_and_answer
from fedkge.graphs.graph import Ids, Mask
from fedkge.kernels import Similarity, backend, reference
from fedkge.kernels.ranking import Counts, Listed, count_
from fedkge.models import Side, Tables

BYTES = 1 << 26  #: what the scores of one chunk of questions may take; on a GPU up to GPU_BYTES
GPU_BYTES = 1 << 32
GPU_SHARE = 4  #: one chunk takes at most this part of the memory that is free


class Ties(StrEnum):
    """Where an answer stands among candidates that score the same."""

    OPTIMISTIC = "optimistic"  #: before them
    REALISTIC = "realistic"  #: in their middle: the expected rank under a random order
    PESSIMISTIC = "pessimistic"  #: behind them


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """One line per question and answer; from the counts follow the ranks under every tie rule."""

    triple: Ids  # [q], the place among the ranked triples
    relation: Ids  # [q]
    tail: Mask  # [q], whether the tail was asked for
    greater: Ids  # [q], candidates that score above the answer
    equal: Ids  # [q], candidates that score the same, without the answer
    candidates: Ids  # [q], with the answer

    def __len__(self) -> int:
        return len(self.triple)

    def values(self, ties: Ties | str = Ties.REALISTIC) -> NDArray[np.float64]:
        """Ranks from 1: `1 + #greater + share of #equal`."""
        share = {Ties.OPTIMISTIC: 0.0, Ties.REALISTIC: 0.5, Ties.PESSIMISTIC: 1.0}[Ties(ties)]
        return 1 + self.greater + share * self.equal

    def where(self, chosen: Mask) -> Ranks:
        return Ranks(*(getattr(self, name)[chosen] for name in self.__slots__))

    def side(self, side: Side) -> Ranks:
        """The head questions, or the tail questions, alone."""
        return self.where(self.tail == (side is Side.TAIL))


def rank(
    tables: Tables,
    triples: Ids,
    known: Known,
    *,
    sides: Sequence[Side] = (Side.HEAD, Side.TAIL),
    candidates: TypeConstraints | None = None,
    chunk: int | None = None,
    site: str = "",
) -> Ranks:
    """Rank the true ends of `triples` [m, 3] among all entities that are not known answers.

    `chunk` is how many distinct questions are scored at a time; unset, as many as fit in the memory that
    chunks may take. `site` names the tables in errors.
    """
    return Asked.of(triples, known, tables.device, sides, candidates).rank(tables, chunk, site)


@dataclass(frozen=True, slots=True, eq=False)
class _Questions:
    """The distinct questions of one side, by relation and anchor, and the triples that ask each."""

    side: Side
    anchor: Ids  # [q]
    relation: Ids  # [q]
    first: Ids  # [q + 1]: question i is asked by the triples triple[first[i]:first[i + 1]]
    triple: Ids  # [m]
    answer: Ids  # [m]

    @classmethod
    def of(cls, triples: Ids, known: Known, side: Side) -> _Questions:
        anchor, answer = anchor_and_answer(triples, side)
        keys = known.key(anchor, triples[:, 1])
        triple = np.argsort(keys, kind="stable")
        distinct, first = np.unique(keys[triple], return_index=True)
        relation, anchor = np.divmod(distinct, max(1, known.n_entities))
        return cls(side, anchor, relation, np.append(first, len(keys)), triple, answer[triple])


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Questions about triples, laid out on a device: to be put to changing tables again and again."""

    triples: Ids  # [m, 3]
    rows: tuple[int, int]  #: entities and relations that tables must have
    sides: Sequence[_Laid]

    @classmethod
    def of(
        cls,
        triples: Ids,
        known: Known,
        device: torch.device,
        sides: Sequence[Side] = (Side.HEAD, Side.TAIL),
        candidates: TypeConstraints | None = None,
    ) -> Asked:
        check_ids(triples, known.n_entities, known.n_relations)
        if candidates is not None and candidates.tails.n != known.n_entities:
            raise DataError(
                f"type constraints over {candidates.tails.n} entities, tables of {known.n_entities}"
            )
        found = [_Laid.of(_Questions.of(triples, known, side), known, device, candidates) for side in sides]
        return cls(triples, (known.n_entities, known.n_relations), found)

    def rank(self, tables: Tables, chunk: int | None = None, site: str = "") -> Ranks:
        """See `rank`."""
        return self.count(tables, chunk, site).ranks()

    def count(self, tables: Tables, chunk: int | None = None, site: str = "") -> Counted:
        """The same, up to where the device would have to be waited for: many can be under way at once."""
        check_tables(tables, *self.rows)
        if chunk is not None and chunk < 1:
            raise ConfigError(f"chunk: expected at least 1, got {chunk}")
        most = chunk or _fitting(tables)
        return Counted(self, [list(_counted(tables, side, most)) for side in self.sides], site)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Answers to questions, still on the device."""

    asked: Asked
    sides: Sequence[Sequence[Counts]]  # by side and chunk of questions
    site: str

    def ranks(self) -> Ranks:
        parts = [part for counts in self.sides for part in counts]
        none = torch.empty(3, 0, dtype=torch.int64)
        columns = [torch.stack((part.greater, part.equal, part.candidates)) for part in parts]
        counts = (torch.cat(columns, 1) if parts else none).cpu().numpy()
        if parts and not torch.stack([part.finite for part in parts]).all():
            raise diverged(self.site)
        every = [side.questions for side in self.asked.sides]
        triple = np.concatenate([of.triple for of in every])
        tail = np.repeat([of.side is Side.TAIL for of in every], [len(of.triple) for of in every])
        return Ranks(triple, self.asked.triples[triple, 1], tail, *counts)


@dataclass(frozen=True, slots=True, eq=False)
class _Laid:
    """The questions of one side, on the device."""

    questions: _Questions
    anchor: Tensor  # int64 [q]
    relation: Tensor  # int64 [q]
    answer: Tensor  # int64 [m]
    asks: Tensor  # int64 [m]: which question each triple asks
    known: _OnDevice
    allowed: _OnDevice | None

    @classmethod
    def of(
        cls, questions: _Questions, known: Known, device: torch.device, candidates: TypeConstraints | None
    ) -> _Laid:
        each = np.repeat(np.arange(len(questions.anchor)), np.diff(questions.first))
        columns = questions.anchor, questions.relation, questions.answer, each
        keys, side = known.key(questions.anchor, questions.relation), questions.side
        allowed = None
        if candidates is not None:
            allowed = _OnDevice.of(candidates.side(side), questions.relation, device)
        anchor, relation, answer, asks = (torch.from_numpy(ids).to(device) for ids in columns)
        lists = _OnDevice.of(known.side(side), keys, device), allowed
        return cls(questions, anchor, relation, answer, asks, *lists)

    def counts(self, tables: Tables, start: int, end: int) -> Counts:
        """Of the questions from `start` to `end`."""
        mine = slice(int(self.questions.first[start]), int(self.questions.first[end]))
        scores = tables.all_scores(self.anchor[start:end], self.relation[start:end], self.questions.side)
        lists = self.known.part(start, end), self.allowed.part(start, end) if self.allowed else None
        return count_(scores, self.asks[mine] - start, self.answer[mine], *lists)


def _counted(tables: Tables, laid: _Laid, chunk: int) -> Iterator[Counts]:
    """Chunk by chunk; where a GPU's memory runs out, with half the questions from then on."""
    start, total = 0, len(laid.questions.anchor)
    while start < total:
        end = min(total, start + chunk)
        try:
            part = laid.counts(tables, start, end)
        except torch.cuda.OutOfMemoryError:
            if chunk == 1:
                raise
            chunk = max(1, chunk // 2)
            continue
        yield part
        start = end


@dataclass(frozen=True, slots=True, eq=False)
class _OnDevice:
    """The lists of all questions: on the device to be read there, and their lengths here."""

    ids: Tensor
    lo: Tensor
    hi: Tensor
    ends: Ids  # lengths summed up

    @classmethod
    def of(cls, lists: Lists, keys: Ids, device: torch.device) -> _OnDevice:
        lo, hi = lists.ranges(keys)
        ids, lo_there, hi_there = (torch.from_numpy(ids).to(device) for ids in (lists.ids, lo, hi))
        return cls(ids, lo_there, hi_there, np.append(0, np.cumsum(hi - lo)))

    def part(self, start: int, end: int) -> Listed:
        total = int(self.ends[end] - self.ends[start])
        return Listed(self.ids, self.lo[start:end], self.hi[start:end], total)


def _fitting(tables: Tables) -> int:
    """How many questions' scores fit: similarities, scores, and what comparing them takes."""
    budget = BYTES
    if tables.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(tables.device)
        budget = min(free // GPU_SHARE, GPU_BYTES)
    numbers = 4
    if backend(tables.device) is reference and tables.model.similarity is not Similarity.DOT:
        numbers += 4 * tables.entities.shape[1]  # plain torch stores the differences
    return max(1, budget // (max(1, len(tables.entities)) * numbers * tables.entities.element_size()))
