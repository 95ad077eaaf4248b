"""Shared negatives follow the law of own ones: over many draws the gradients of a batch agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.kernels import Draw
from fedkge.models import MODELS, Gradient, Side, Tables
from fedkge.training import Corpus, Trainer
from fedkge.training.negatives import Chunks, own, shared
from fedkge.training.trainer import Batch

DRAWS, POSITIVES, NEGATIVES, ENTITIES = 400, 48, 32, 400


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """One question has a fifth of all entities for answers."""
    rng = np.random.default_rng(0)
    triples = np.stack([rng.integers(0, most, 1500) for most in (ENTITIES, 4, ENTITIES)], 1)
    triples[:80, :2] = 0
    entities, relations = (Names([f"{i}" for i in range(n)]) for n in (ENTITIES, 4))
    return Corpus.of({"a": Graph(entities, relations, np.unique(triples, axis=0))}, 0)


def gradients(corpus: Corpus, chunk: int | None) -> Tensor:
    """Of the entities' table [draws, e, w]; None: own negatives."""
    tables = Tables.create(MODELS["transe"](dim=4, margin=2.0), *(torch.arange(n) for n in (ENTITIES, 4)), 0)
    tables.gradients = {axis: Gradient(tables.table(axis), False) for axis in Axis}
    trainer, answers = Trainer(negatives=NEGATIVES), corpus.answers[Side.TAIL]
    some = torch.arange(0, len(corpus.triples), len(corpus.triples) // POSITIVES)[:POSITIVES]
    h, r, t = corpus.triples[some].T.contiguous()
    site, position = torch.zeros(POSITIVES, dtype=torch.int64), torch.arange(POSITIVES)
    every = torch.tensor([0]), corpus.entity_ends
    draw = Draw(
        corpus.negative_keys, *every, answers.known, site, position, answers.lo[some], answers.hi[some]
    )
    starts = torch.arange(0, POSITIVES + 1, chunk or 1)
    chunks = Chunks(starts, site[starts[:-1]], starts[:-1], chunk or 1)
    found = []
    for number in range(DRAWS):
        clock = torch.tensor([number, 0 if chunk is None else chunk])
        index = own(t, draw, NEGATIVES, clock) if chunk is None else shared(t, draw, chunks, NEGATIVES, clock)
        batch = Batch(Side.TAIL, h, r, index, site, torch.full((POSITIVES,), 1 / POSITIVES))
        with torch.enable_grad():
            trainer.objective(tables, batch).backward(batch.weight)
        dense = tables.gradients[Axis.ENTITY].dense
        assert dense is not None
        found.append(dense.clone())
        dense.zero_()
    return torch.stack(found).double()


def test_the_expected_gradient_is_that_of_own_negatives(corpus: Corpus) -> None:
    reference = gradients(corpus, None)
    for chunk, least, most in ((1, 0.9, 1.1), (16, 1.1, 16.0)):
        found = gradients(corpus, chunk)
        error = (reference.var(0) + found.var(0)) / DRAWS
        gap = (reference.mean(0) - found.mean(0)).square()
        assert gap.sum() < 1.3 * error.sum()  # equal means: about 1
        assert least < found.var(0).sum() / reference.var(0).sum() < most  # more are alike, so it varies more
