"""The method of docs/own-method.md: the very text is run, and does what it says."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from documents import ROOT, blocks
from fedkge.exchange.rows import Rows
from fedkge.graphs.graph import Axis
from fedkge.methods import METHODS, Hub, Method
from fedkge.runtimes.run import Progress, Simulation
from small_federations import assert_same, differ, federated, played, rows, small_federation

SITES = small_federation()
PAGE = ROOT / "docs" / "own-method.md"
NAME = "fedavgm"


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> type[Method]:
    """The method's class, registered for as long as the test runs."""
    (text,) = (block.text for block in blocks(PAGE) if block.title == "my_methods.py")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 30
    monkeypatch.setattr(METHODS, "_classes", {name: METHODS[name] for name in METHODS})
    module = ModuleType(f"fedkge.methods.{NAME}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(text, str(PAGE), "exec"), module.__dict__)
    return METHODS[NAME]


def test_it_moves_rows_with_momentum(added: type[Method]) -> None:
    """Against dictionaries, row by row; some sites and rows are missing in some rounds."""
    owned = {"a": [0, 1, 2], "b": [1, 2, 3], "c": [0, 3, 4]}
    hub = Hub({s: {Axis.ENTITY: torch.tensor(i)} for s, i in owned.items()}, {Axis.ENTITY: 6})
    method, random = added(momentum=0.6), torch.Generator().manual_seed(0)  # type: ignore[call-arg]
    assert method.answer(hub, "a") == {}
    row: dict[int, torch.Tensor] = {}
    speed: dict[int, torch.Tensor] = {}
    for sites in ("ab", "abc", "b", "", "ac", "abc"):
        sent = {s: Rows(torch.tensor(owned[s]), torch.randn(3, 2, generator=random)) for s in sites}
        method.aggregate(hub, {site: {Axis.ENTITY: of} for site, of in sent.items()})
        for number in range(6):
            came = [of.values[of.ids == number][0] for of in sent.values() if number in of.ids]
            if came:
                mean = torch.stack(came).mean(0)
                speed[number] = 0.6 * speed.get(number, torch.zeros(2)) + mean - row.get(number, mean)
                row[number] = row.get(number, mean) + speed[number]
        for site, ids in owned.items():
            told = method.answer(hub, site)[Axis.ENTITY]
            assert told.ids.tolist() == [number for number in ids if number in row]
            for number, values in zip(told.ids.tolist(), told.values, strict=True):
                torch.testing.assert_close(values, row[number])


def test_without_momentum_it_is_fedep(added: type[Method], tmp_path: Path) -> None:
    fedep = played(tmp_path / "fedep", SITES, method={"name": "fedep", "restart": False})
    without = played(tmp_path / "without", SITES, method={"name": NAME, "momentum": 0.0})
    for name, table in rows(fedep).items():
        torch.testing.assert_close(rows(without)[name], table, rtol=1e-4, atol=1e-5)
    moving = played(tmp_path / "moving", SITES, method={"name": NAME})
    assert max(float((rows(moving)[name] - table).abs().max()) for name, table in rows(fedep).items()) > 1e-3


def test_it_resumes_and_composes(added: type[Method], tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "method": {"name": NAME},
        "rounds": 6,
        "participation": {"fraction": 0.7, "quorum": 0.5, "late": "use", "dropout": 0.1},
        "select": {"name": "topk", "p": 0.5, "s": 2},
        "codec": {"name": "int8"},
    }
    whole = played(tmp_path / "whole", SITES, **options)

    class Stopped(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.round == 4:
            raise Stopped

    broken = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), watch=stop, **options)
    with pytest.raises(Stopped):
        broken.play()
    resumed = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), **options)
    resumed.play()
    assert_same(whole, resumed)
    mean, median = (
        played(tmp_path / rule, SITES, method={"name": NAME}, aggregate={"name": rule}, rounds=2)
        for rule in ("mean", "median")
    )
    assert differ(mean, median)
