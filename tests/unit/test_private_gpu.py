"""Private training on a CUDA device: captured, never waiting, repeatable if asked, and near the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedkge.graphs.marks import mark_share
from fedkge.models import MODELS, Tables
from fedkge.privacy import Privacy
from fedkge.training import Trainer
from fedkge.training.cadence import Cadence
from fedkge.training.private import PrivateTraining, Protection
from fedkge.training.secret import Secret
from private_training import STRICT, Free, half_of
from small_federations import played, rows, small_federation
from small_graphs import first_tables, random_graph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

#: that noise moves rows by 0.01 and more in a few epochs, which `NEAR` would not pass
RATES = {"sgd": 1.0, "adagrad": 1e-2, "adam": 1e-2}
NEAR = {"rtol": 1e-2, "atol": 2e-3}
GRAPH = random_graph(0, 300, 5, 2000)
MARKS = half_of(GRAPH)


def private_on(
    device: str,
    model: str,
    optimizer: str,
    privacy: Privacy = STRICT,
    captured: bool = True,
    deterministic: bool = False,
    l3: float = 0.0,
    persons: int = 0,
    chunk: int = 1,
) -> PrivateTraining:
    options = {"optimizer": optimizer, "lr": RATES[optimizer], "deterministic": deterministic, "l3": l3}
    size = 32 if persons else 128
    trainer = Trainer(batch_size=size, negatives=17, chunk=chunk, **options)
    tables = first_tables(MODELS[model](dim=18), GRAPH).to(device)
    cadence = Cadence.of(trainer, privacy, persons or int(MARKS.sum()))
    owner = np.where(MARKS, np.arange(len(MARKS)) % (persons or 1), -1) if persons else None
    privacy = replace(privacy, unit="entity", per_person=16) if persons else privacy
    spent = (Secret(b"s" * 32), Free())
    protection = Protection(privacy, MARKS, 1.0, cadence, *spent, owner, persons)
    return PrivateTraining(trainer, tables, ("site", GRAPH), 0, protection, captured=captured)


def trained(*arguments: object, **options: object) -> Tables:
    training = private_on(*arguments, **options)
    training.run(0, 3)
    return training.tables


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("model", ["transe", "rotate", "complex", "transm", "transh"])
def test_a_few_epochs_end_near_the_cpus_with_the_same_noise(model: str, optimizer: str) -> None:
    pytest.importorskip("numba")
    on_gpu, on_cpu = (trained(device, model, optimizer) for device in ("cuda", "cpu"))
    torch.testing.assert_close(on_gpu.entities.cpu(), on_cpu.entities, **NEAR)
    torch.testing.assert_close(on_gpu.relations.cpu(), on_cpu.relations, **NEAR)


@pytest.mark.parametrize("chunk", [1, 16])
@pytest.mark.parametrize("model", ["transe", "rotate", "transh"])
def test_persons_end_near_the_cpus(model: str, chunk: int) -> None:
    pytest.importorskip("numba")
    on_gpu, on_cpu, by_triple = (
        trained(device, model, "adagrad", persons=persons, chunk=chunk)
        for device, persons in (("cuda", 200), ("cpu", 200), ("cuda", 0))
    )
    torch.testing.assert_close(on_gpu.entities.cpu(), on_cpu.entities, **NEAR)
    assert not torch.allclose(on_gpu.entities, by_triple.entities, **NEAR)


@pytest.mark.parametrize("model", ["transe", "complex", "transm"])
def test_with_l3_too(model: str) -> None:
    pytest.importorskip("numba")
    on_gpu, on_cpu = (trained(device, model, "adagrad", l3=0.1) for device in ("cuda", "cpu"))
    torch.testing.assert_close(on_gpu.entities.cpu(), on_cpu.entities, **NEAR)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("model", ["transe", "rotate", "transh"])
def test_captured_steps_repeat_and_are_what_eager_ones_are(model: str, optimizer: str) -> None:
    first, again, eager = (
        trained("cuda", model, optimizer, captured=captured, deterministic=True)
        for captured in (True, True, False)
    )
    assert torch.equal(first.entities, again.entities)
    assert torch.equal(first.relations, again.relations)
    torch.testing.assert_close(first.entities, eager.entities, **NEAR)  # eager pads nothing


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("model", ["transe", "rotate", "complex", "transm"])
def test_an_epoch_never_waits_for_the_device(model: str, optimizer: str) -> None:
    training = private_on("cuda", model, optimizer)
    training.run(0, 3)
    before = training.tables.entities.clone()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = training.run(3, 2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(loss).all()
    assert not torch.equal(before, training.tables.entities)


def test_the_papers_rules_end_near_the_cpus() -> None:
    pytest.importorskip("numba")
    privacy = Privacy("paper", noise=1.0, delta=1e-5, percentile=50.0)
    on_gpu, on_cpu = (trained(device, "transe", "adagrad", privacy) for device in ("cuda", "cpu"))
    torch.testing.assert_close(on_gpu.entities.cpu(), on_cpu.entities, **NEAR)


@pytest.mark.parametrize("name", ["fedep", "fedlu", "fedkd"])
def test_a_private_federation_ends_near_the_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With fedlu, two models share a relation table: their steps are not captured."""
    pytest.importorskip("numba")
    monkeypatch.setattr("fedkge.nodes.protection.new_secret", lambda site: Secret(site.encode().ljust(32)))
    mode = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
    marked = mark_share(small_federation(), 0.5, 0)
    options = {"method": {"name": name}, "privacy": mode, "rounds": 2}
    on_gpu, on_cpu = (
        rows(played(tmp_path / device, marked, device=torch.device(device), **options))
        for device in ("cuda", "cpu")
    )
    assert on_gpu.keys() == on_cpu.keys()
    for key, own in on_cpu.items():
        torch.testing.assert_close(on_gpu[key].cpu(), own, **NEAR)
