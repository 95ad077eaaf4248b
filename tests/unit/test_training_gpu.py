"""Training on a CUDA device: captured, never waiting, deterministic if asked, and near the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.models import MODELS, Tables
from fedkge.randomness import name_keys
from fedkge.training import Corpus, Trainer, Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def graph(seed: int, entities: int, relations: int, count: int) -> Graph:
    random = np.random.default_rng(seed)
    columns = [random.integers(0, high, count) for high in (entities, relations, entities)]
    triples = random.permutation(np.unique(np.stack(columns, 1), axis=0))
    names = (
        Names([f"e{i}" for i in range(entities)]),
        Names([f"r{seed}.{i}" for i in range(relations)], Axis.RELATION),
    )
    return Graph(*names, triples)


SITES = {"a": graph(1, 300, 5, 2000), "b": graph(2, 120, 3, 700)}


def trained(
    trainer: Trainer,
    model: str,
    device: str,
    epochs: int = 4,
    captured: bool = True,
    dim: int = 20,
    batches: int | None = None,
) -> Tables:
    keys = [
        torch.from_numpy(np.concatenate([name_keys(getattr(g, axis)) for g in SITES.values()]).view(np.int64))
        for axis in ("entities", "relations")
    ]
    tables = Tables.create(MODELS[model](dim=dim), keys[0], keys[1], 0, device)
    training = Training(trainer, tables, Corpus.of(SITES, 0, device))
    if not captured:
        training._captured = None
    training.counts = training.counts[:batches]
    training.run(0, epochs)
    return tables


OPTIONS = {"batch_size": 256, "negatives": 17, "lr": 1e-2, "subsampling": True}
CHUNKS = pytest.mark.parametrize("chunk", [1, 50])


@pytest.mark.parametrize("l3", [0.0, 0.1])
@pytest.mark.parametrize("model", sorted(MODELS))
@CHUNKS
def test_a_few_epochs_end_near_the_cpus(model: str, l3: float, chunk: int) -> None:
    pytest.importorskip("numba")
    trainer = Trainer(**OPTIONS, optimizer="sgd", l3=l3, chunk=chunk)
    on_gpu, on_cpu = trained(trainer, model, "cuda"), trained(trainer, model, "cpu")
    torch.testing.assert_close(on_gpu.entities.cpu(), on_cpu.entities, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(on_gpu.relations.cpu(), on_cpu.relations, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "row-adam", "adagrad", "sgd"])
@pytest.mark.parametrize("model", ["transe", "rotate", "complex", "transh"])
@CHUNKS
def test_the_deterministic_variant_repeats_bit_by_bit_captured_or_not(
    model: str, optimizer: str, chunk: int
) -> None:
    trainer = Trainer(**OPTIONS, optimizer=optimizer, deterministic=True, chunk=chunk)
    first, again, eager = (trained(trainer, model, "cuda", captured=way) for way in (True, True, False))
    assert torch.equal(first.entities, again.entities)
    assert torch.equal(first.relations, again.relations)
    assert torch.equal(first.entities, eager.entities)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("optimizer", ["adam", "row-adam"])
@pytest.mark.parametrize("model", ["transe", "rotate", "complex"])
@CHUNKS
def test_an_epoch_never_waits_for_the_device(model: str, optimizer: str, chunk: int) -> None:
    keys = [torch.arange(300), torch.arange(5)]
    tables = Tables.create(MODELS[model](dim=20), keys[0], keys[1], 0, "cuda")
    training = Training(
        Trainer(**OPTIONS, optimizer=optimizer, l3=0.1, chunk=chunk),
        tables,
        Corpus.of({"a": SITES["a"]}, 0, "cuda"),
    )
    training.run(0, 2)
    before = tables.entities.clone()
    with no_synchronisation():
        loss = training.run(2, 2)
    assert torch.isfinite(loss).all()
    assert not torch.equal(before, tables.entities)


def test_a_resumed_training_goes_on_as_the_undisturbed_one() -> None:
    trainer = Trainer(**OPTIONS, deterministic=True)
    whole = trained(trainer, "transe", "cuda", epochs=4)
    keys = [
        torch.from_numpy(np.concatenate([name_keys(getattr(g, axis)) for g in SITES.values()]).view(np.int64))
        for axis in ("entities", "relations")
    ]
    first = Tables.create(MODELS["transe"](dim=20), keys[0], keys[1], 0, "cuda")
    training = Training(trainer, first, Corpus.of(SITES, 0, "cuda"))
    training.run(0, 2)
    state = {name: tensor.clone() for name, tensor in training.state().items()}
    second = first.to("cuda")
    later = Training(trainer, second, Corpus.of(SITES, 0, "cuda"))
    later.load_state(state)
    later.run(2, 2)
    assert torch.equal(second.entities, whole.entities)


@pytest.mark.parametrize("model", ["transe", "rotate", "complex"])
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("deterministic", [False, True])
def test_rows_that_wait_end_as_those_that_do_not(
    model: str, captured: bool, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly; where sums come in any order, Adam's first steps make the difference larger."""
    trainer = Trainer(batch_size=32, negatives=17, lr=1e-3, chunk=16, deterministic=deterministic)
    found = []
    for waits in (True, False):
        monkeypatch.setattr(Training, "rows_wait", waits)
        found.append(trained(trainer, model, "cuda", captured=captured))
    for table in ("entities", "relations"):
        mine, theirs = (getattr(tables, table) for tables in found)
        apart = {"rtol": 1e-4, "atol": 1e-5} if deterministic else {"rtol": 1e-3, "atol": 1e-3}
        torch.testing.assert_close(mine, theirs, **apart)


@pytest.mark.parametrize("model", ["transe", "rotate", "complex"])
def test_wide_rows_that_wait_end_as_those_that_do_not(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several warps share a wide row: none of them may miss a part of its gradient."""
    trainer = Trainer(batch_size=32, negatives=17, lr=1e-3, chunk=16)
    found = []
    for waits in (True, False):
        monkeypatch.setattr(Training, "rows_wait", waits)
        found.append(trained(trainer, model, "cuda", epochs=1, dim=256, batches=8))
    for table in ("entities", "relations"):
        mine, theirs = (getattr(tables, table) for tables in found)
        apart = (mine - theirs).norm(dim=1)  # a warp's part that misses a step: 0.01
        assert int((apart > 3e-3).sum()) == 0, f"{int((apart > 3e-3).sum())} of {len(apart)} rows differ"
