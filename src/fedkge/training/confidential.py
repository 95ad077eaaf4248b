"""A site's statements parted into confidential and unrestricted ones, and batches of the confidential."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedkge.graphs.graph import Graph, Ids, Mask
from fedkge.kernels import Draw, backend
from fedkge.models import Side
from fedkge.privacy import Privacy
from fedkge.training.cadence import Cadence
from fedkge.training.corpus import Answers, Corpus
from fedkge.training.secret import Secret
from fedkge.training.trainer import Batch, Trainer


def marked(graph: Graph, privacy: Privacy) -> Mask:
    """Which training statements are confidential, [m]: those that are marked, or all."""
    if privacy.mode == "fulldp":
        return np.ones(len(graph.train), np.bool_)
    return np.zeros(len(graph.train), np.bool_) if graph.confidential is None else graph.confidential


def unmarked(graph: Graph, privacy: Privacy) -> Graph:
    """The same graph, its names included, without confidential statements."""
    return replace(graph, train=graph.train[~marked(graph, privacy)], confidential=None)


@dataclass(frozen=True, slots=True)
class Closed:
    """Confidential statements of one site; `answers` are what their negatives leave out, if anything."""

    triples: Tensor  # int64 [c, 3]
    entities: int  #: that negatives are drawn from: all that the site has
    answers: Mapping[Side, Answers] | None
    alone: bool  #: there are no unrestricted statements beside them

    def batch(self, chosen: Tensor, side: Side, negatives: int, key: Tensor) -> Batch:
        """The statements at places `chosen` [b]; their negatives depend on the key [1] and the place alone.

        So a statement more or less changes nothing about the others.
        """
        h, r, t = self.triples[chosen].unbind(-1)
        anchor, target = (h, t) if side is Side.TAIL else (t, h)
        index = target.new_empty(len(chosen), 1 + negatives)
        index[:, 0] = target
        site, none = torch.zeros_like(chosen), torch.zeros_like(key)
        lo = hi = site
        known = none
        if self.answers is not None:
            own = self.answers[side]
            known, lo, hi = own.known, own.lo[chosen], own.hi[chosen]
        draw = Draw(key, none, none + self.entities, known, site, chosen, lo, hi)
        backend(index.device).negatives_(index, draw, none.expand(2).contiguous())
        return Batch(side, anchor, r, index, site, torch.ones(len(chosen), device=index.device))


def parted(
    site: tuple[str, Graph], confidential: Mask, seed: int, knows_all: bool, device: torch.device
) -> tuple[Corpus, Closed]:
    """The unrestricted statements to train on, and the confidential ones.

    Unless the trainer `knows_all`, what unrestricted statements leave out of their negatives are unrestricted
    statements, and the confidential leave out nothing. Where no statement is unrestricted, the corpus has
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
    triples = torch.from_numpy(graph.train[confidential]).to(device)
    return corpus, Closed(triples, graph.n_entities, answers, alone)


def _answers(corpus: Corpus, places: Tensor) -> dict[Side, Answers]:
    """What some of the statements leave out."""
    return {
        side: Answers(known.known, known.lo[places], known.hi[places])
        for side, known in corpus.answers.items()
    }


def poisson_batches(
    secret: Secret, cadence: Cadence, statements: int, numbers: range, trainer: Trainer, epoch: int
) -> Iterator[tuple[Ids, Side]]:
    """For each step a sample that each statement is in with probability `rate`, independently; a side."""
    for step, number in enumerate(numbers):
        random = secret.generator(number, "sample")
        count = random.binomial(statements, cadence.rate)
        batch, turn = divmod(step, trainer.visits)
        chosen = random.choice(statements, count, replace=False, shuffle=False)
        yield chosen.astype(np.int64), trainer.sides_of(batch, epoch)[turn]


def shuffled_batches(
    secret: Secret, cadence: Cadence, statements: int, numbers: range, trainer: Trainer, epoch: int
) -> Iterator[tuple[Ids, Side]]:
    """The steps' pieces of shuffled lists, one list for each visit of an epoch; and a side."""
    random, size = secret.generator(numbers.start, "order"), int(cadence.expected)
    orders = [random.permutation(statements) for _ in range(trainer.visits)]
    for step in range(len(numbers)):
        batch, turn = divmod(step, trainer.visits)
        yield orders[turn][batch * size : (batch + 1) * size], trainer.sides_of(batch, epoch)[turn]
