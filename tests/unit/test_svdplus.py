"""FedE-SVD+: factors against autograd and torch's own optimizer, and what must stay as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis, Graph
from fedkge.models import MODELS, Tables
from fedkge.runtimes.run import Simulation
from fedkge.training import Batch, Changes, Corpus, Factoring, Trainer, Training
from fedkge.training.factored import Factored, decomposed, folded
from fedkge.training.optimizers import SGD
from small_federations import assert_same, differ, experiment, played, small_federation, small_graph

SITES = small_federation()
WIDE = {"model": {"name": "transe", "dim": 36}}  # folded into 5 x 8, the last line half empty


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("shape", [(32, 8), (64, 8), (8, 8), (3, 8), (1, 8)])
def test_factors_are_those_of_numpy(shape: tuple[int, int]) -> None:
    matrices = random(20, *shape) * torch.logspace(-6, 6, 20)[:, None, None]
    u, s, v = decomposed(matrices)
    for i, matrix in enumerate(matrices.double().numpy()):
        np.testing.assert_allclose(s[i], np.linalg.svd(matrix, compute_uv=False), rtol=1e-5)
        size = np.abs(matrix).max()
        np.testing.assert_allclose((u[i] * s[i]) @ v[i], matrix, atol=1e-5 * size)
    one = torch.eye(min(shape)).expand(20, -1, -1)
    torch.testing.assert_close(u.mT @ u, one, atol=1e-4, rtol=0)
    torch.testing.assert_close(v @ v.mT, one, atol=1e-5, rtol=0)
    assert all(torch.equal(a[3:5], b) for a, b in zip((u, s, v), decomposed(matrices[3:5]), strict=True))


def held(table: Tensor, base: Tensor, alpha: float, rows: Tensor, ends: Tensor) -> Factored:
    return Factored(Changes(Factoring(8, alpha), base, rows), table, ends, (SGD, 0.1))


@pytest.mark.parametrize("moved", [0.0, 0.1])
def test_taking_apart_changes_nothing(moved: float) -> None:
    """Also where a row has not moved at all: its factors have directions, so that they can."""
    base = random(6, 36)
    table = base + moved * random(6, 36, seed=1)
    one = held(table.clone(), base, 0.0, torch.tensor([0, 2, 3, 5]), torch.tensor([3, 6]))
    one.begin()
    u, s, v = one._parts()
    torch.testing.assert_close(base[one.rows] + ((u * s[:, None]) @ v).flatten(1)[:, :36], table[one.rows])
    torch.testing.assert_close(u.mT @ u, torch.eye(5).expand(4, -1, -1), atol=1e-4, rtol=0)
    one.step(torch.zeros(4, 36), torch.tensor([True, True]))
    torch.testing.assert_close(one.table, table)


def test_gradients_are_autograds() -> None:
    base, gradient = random(7, 36, dtype=torch.float64), random(7, 36, seed=2, dtype=torch.float64)
    table = base + random(7, 36, seed=1, dtype=torch.float64)
    one = held(table, base, 0.05, torch.arange(7), torch.tensor([7]))
    one.begin()
    for factor in one.factors:
        factor.add_(0.1 * random(*factor.shape, seed=3, dtype=torch.float64))  # no longer orthogonal
    u, s, v = leaves = [part.clone().requires_grad_() for part in one._parts()]
    rows = base + ((u * s[:, None]) @ v).flatten(1)[:, :36]
    eye = torch.eye(5, dtype=torch.float64)
    square = (u.mT @ u - eye).square().sum() + (v @ v.mT - eye).square().sum()
    ((rows * gradient).sum() + 0.05 / 64 * square).backward()
    for found, leaf in zip(one._pulled(gradient), leaves, strict=True):
        torch.testing.assert_close(found, leaf.grad)


@pytest.mark.parametrize("width", [8, 100, 256, 512])
def test_rows_do_not_depend_on_those_beside_them(width: int) -> None:
    base, gradient = random(90, width), random(90, width, seed=2)
    table = base + 0.1 * random(90, width, seed=1)
    alone = table.clone()
    together = held(table, base, 0.05, torch.arange(90), torch.tensor([1, 34, 90]))
    parts = [slice(0, 1), slice(1, 34), slice(34, 90)]
    apart = [
        held(alone[part], base[part], 0.05, torch.arange(len(base[part])), torch.tensor([len(base[part])]))
        for part in parts
    ]
    for one in (together, *apart):
        one.begin()
    for _ in range(3):
        together.step(gradient, torch.tensor([True] * 3))
        for one, part in zip(apart, parts, strict=True):
            one.step(gradient[part], torch.tensor([True]))
    assert torch.equal(table, alone)


def test_sites_that_take_no_step_keep_their_rows() -> None:
    base = random(6, 16)
    table = base + 0.1 * random(6, 16, seed=1)
    before = table.clone()
    one = held(table, base, 0.05, torch.arange(1, 6), torch.tensor([3, 6]))
    one.begin()
    one.step(random(5, 16, seed=2), torch.tensor([False, True]))
    assert torch.equal(table[:3], before[:3])
    assert bool((table[3:] != before[3:]).any(1).all())


def slow_epoch(trainer: Trainer, tables: Tables, base: Tensor, rows: Tensor, batches: list[Batch]) -> None:
    """The last epoch as the paper has it: U, s and V as torch's own parameters, by autograd."""
    how = Factoring(8, 0.05)
    u, s, v = (p.clone().requires_grad_() for p in decomposed(folded((tables.entities - base)[rows], 8)))
    others = tables.entities.clone().requires_grad_()
    relations = tables.relations.clone().requires_grad_()
    adam = torch.optim.Adam([u, s, v, others, relations], lr=trainer.lr)
    width = base.shape[1]

    def whole() -> Tensor:
        return others.index_copy(0, rows, base[rows] + ((u * s[:, None]) @ v).flatten(1)[:, :width])

    eye = torch.eye(s.shape[1], dtype=s.dtype)
    for batch in batches:
        losses = trainer.objective(Tables(tables.model, whole(), relations), batch) * batch.weight
        square = (u.mT @ u - eye).square().sum() + (v @ v.mT - eye).square().sum()
        adam.zero_grad()
        (losses.sum() + how.alpha / 64 * square).backward()
        adam.step()
    with torch.no_grad():
        tables.entities.copy_(whole())
        tables.relations.copy_(relations)


def test_the_last_epoch_is_autograds() -> None:
    trainer = Trainer(epochs=1, batch_size=16, negatives=4, lr=1e-3)
    graph, model = SITES["b"], MODELS["distmult"](dim=36)
    keys = [torch.arange(graph.n_entities), torch.arange(graph.n_relations)]
    tables = Tables.create(model, *keys, seed=0, dtype=torch.float64)
    slow = tables.to("cpu")
    rows = torch.arange(2, graph.n_entities, 3)
    base = tables.entities + 0.1 * random(*tables.entities.shape, dtype=torch.float64)
    batches: list[Batch] = []

    def record(tables: Tables, batch: Batch) -> Tensor:
        batches.append(batch)
        return trainer.objective(tables, batch)

    changes = {Axis.ENTITY: Changes(Factoring(8, 0.05), base, rows)}
    Training(trainer, tables, Corpus.of({"b": graph}, 0), record, factored=changes).run(0)
    start = slow.entities.clone()
    slow_epoch(trainer, slow, base, rows, batches)
    assert float((slow.entities - start).abs().max()) > 5 * trainer.lr
    torch.testing.assert_close(tables.entities, slow.entities, rtol=0, atol=1e-5)
    torch.testing.assert_close(tables.relations, slow.relations, rtol=0, atol=1e-5)


SVDPLUS: dict[str, Any] = {"method": {"name": "svdplus"}}


def test_stacked_is_site_by_site(tmp_path: Path) -> None:
    options = {**SVDPLUS, **WIDE, "participation": {"fraction": 0.7}, "rounds": 6}
    assert_same(
        played(tmp_path / "alone", SITES, how=Simulation(stacked=False), **options),
        played(tmp_path / "stacked", SITES, **options),
    )


def test_where_nothing_is_shared_it_is_training_alone(tmp_path: Path) -> None:
    sites: dict[str, Graph] = {
        site: small_graph(n, [f"{site}{i}" for i in range(12)], ["r"], 40) for n, site in enumerate("ab")
    }
    with pytest.warns(match="every site trains alone"):
        plus = played(tmp_path / "plus", sites, **SVDPLUS, **WIDE)
    with pytest.warns(match="every site trains alone"):
        fedep = played(tmp_path / "fedep", sites, method={"name": "fedep"}, **WIDE)
    assert_same(plus, fedep)


def test_it_is_svd_but_for_the_last_epoch(tmp_path: Path) -> None:
    """As many values travel; the tables differ, and go on differing when nothing holds the factors."""
    svd = played(tmp_path / "svd", SITES, method={"name": "fedep"}, codec={"name": "svd"}, **WIDE)
    plus = played(tmp_path / "plus", SITES, **SVDPLUS, **WIDE)
    free = played(tmp_path / "free", SITES, method={"name": "svdplus", "alpha": 0.0}, **WIDE)
    assert plus.record.tally.summary()["up_bytes"] == svd.record.tally.summary()["up_bytes"]
    assert plus.record.tally.summary()["up_values"] == svd.record.tally.summary()["up_values"]
    assert differ(svd, plus)
    assert differ(plus, free)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"method": {"name": "svdplus", "rank": 9}}, r"method\.rank, columns: expected 1 <= rank <= columns"),
        ({"method": {"name": "svdplus", "alpha": -1.0}}, r"method\.alpha: expected at least 0, got -1"),
        ({**SVDPLUS, "codec": {"name": "int8"}}, "codec of its own"),
        ({**SVDPLUS, "trainer": {"optimizer": "row-adam"}}, r"trainer\.optimizer: row-adam steps only"),
    ],
)
def test_wrong_options(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        experiment(**changes)
