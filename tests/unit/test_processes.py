"""Hub and sites as processes: the same tables, whoever is killed, with nothing but their own folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.errors import ConfigError, FedkgeError
from fedkge.exchange.rows import Message
from fedkge.graphs.marks import mark_share
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.processes import Processes
from fedkge.runtimes.run import run
from small_federations import experiment, small_federation

safetensors = pytest.importorskip("safetensors.torch")

CPU = torch.device("cpu")
SITES = small_federation()


def tables(folders: dict[str, Path]) -> dict[str, torch.Tensor]:
    return {
        f"{site} {file.relative_to(folder)} {name}": tensor
        for site, folder in folders.items()
        for file in sorted(folder.rglob("*.safetensors"))
        for name, tensor in safetensors.load_file(file).items()
    }


def homes(path: Path) -> dict[str, Path]:
    return {site: path / "sites" / site for site in SITES}


def assert_equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> None:
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, two[name]), name


def processes(path: Path, tap: Any = None, **options: Any) -> Processes:
    one = experiment(**options, runtime={"name": "processes"})
    folder = RunFolder.create(path, one, resume=(path / "config.toml").exists())
    return Processes(one, Sources.of(one, SITES), folder, CPU, tap=tap)


def simulated(path: Path, **options: Any) -> dict[str, Any]:
    one = experiment(**options)
    return run(one, RunFolder.create(path, one, False), CPU, SITES)


OPTIONS: dict[str, Any] = {
    "method": {"name": "fedlu"},
    "rounds": 5,
    "codec": {"name": "int8", "delta": True},
    "select": {"name": "topk", "s": 2},
    "participation": {"fraction": 0.7, "dropout": 0.1},
}


def test_processes_need_nothing_but_their_own_folders(tmp_path: Path) -> None:
    """Every node's folder is moved to a place of its own, and the run's folder is gone."""
    expected = simulated(tmp_path / "simulated", **OPTIONS)
    heard: list[Message] = []
    nodes = processes(tmp_path / "run", heard.append, **OPTIONS)
    moved = {}
    for name, child in nodes.children.items():
        child.process.kill()
        child.process.wait()
        moved[name] = tmp_path / f"elsewhere of {name}" / "home"
        shutil.copytree(child.home, moved[name])
        child.home = moved[name]
    shutil.rmtree(tmp_path / "run" / "sites")
    shutil.rmtree(tmp_path / "run" / "hub")
    for child in nodes.children.values():
        child.start()
    nodes.play()
    assert_equal(tables(homes(tmp_path / "simulated")), tables({site: moved[site] for site in SITES}))
    assert nodes.record.courses == expected["courses"]
    assert nodes.record.tally.summary() == expected["traffic"]
    assert {message.kind for message in heard} == {
        "join",
        "shared",
        "train",
        "upload",
        "measure",
        "metrics",
        "stop",
    }
    others = {
        site: {f'"{e}"' for e in graph.entities} - {f'"{e}"' for e in SITES["a"].entities}
        for site, graph in SITES.items()
    }
    kit = (moved["a"] / "kit.checkpoint").read_bytes().decode("latin1")
    assert not any(name in kit for names in others.values() for name in names), "a has no name of others"


@pytest.mark.parametrize("victim", ["b", pytest.param("hub", marks=pytest.mark.slow)])
def test_a_process_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path, victim: str) -> None:
    options = {"method": {"name": "fedec"}, "rounds": 6}
    simulated(tmp_path / "simulated", **options)
    killed: list[int] = []

    def kill(message: Message) -> None:
        if message.kind == "upload" and message.round == 3 and not killed:
            killed.append(nodes.children[victim].process.pid)
            os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.2)

    nodes = processes(tmp_path / "run", kill, **options)
    nodes.play()
    assert killed
    assert nodes.children[victim].starts == 2
    assert_equal(tables(homes(tmp_path / "simulated")), tables(homes(tmp_path / "run")))


@pytest.mark.slow
def test_a_run_is_resumed_as_processes(tmp_path: Path) -> None:
    options = {"method": {"name": "fedep"}, "rounds": 6, "codec": {"name": "ternary", "delta": True}}
    expected = simulated(tmp_path / "simulated", **options)

    class Killed(Exception):
        pass

    def stop(message: Message) -> None:
        if message.kind == "metrics" and message.round == 4:
            raise Killed

    nodes = processes(tmp_path / "run", stop, **options)
    with pytest.raises(Killed):
        nodes.play()
    again = processes(tmp_path / "run", **options)
    assert again.round == 3, "the hub wrote its state when round 4 began"
    again.play()
    assert_equal(tables(homes(tmp_path / "simulated")), tables(homes(tmp_path / "run")))
    assert again.record.tally.summary()["up_values"] == expected["traffic"]["up_values"]


@pytest.mark.slow
def test_private_sites_keep_their_ledgers_to_themselves(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    marked = mark_share(SITES, 0.5, 0)
    privacy = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
    one = experiment(method={"name": "fedep"}, privacy=privacy, rounds=2, runtime={"name": "processes"})
    summary = run(one, RunFolder.create(tmp_path, one, False), CPU, marked)
    assert {cost["site"] for cost in summary["privacy"]} == set(SITES)
    for site in SITES:
        lines = (tmp_path / "sites" / site / "ledger.jsonl").read_text().splitlines()
        assert {json.loads(line)["site"] for line in lines} == {site}
    assert not (tmp_path / "hub" / "ledger.jsonl").exists()


def test_one_place_for_all_graphs_is_no_process_of_a_site(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"runtime\.name: the method pools all graphs"):
        processes(tmp_path / "run", method={"name": "collective"})


@pytest.mark.slow
def test_what_is_wrong_at_a_node_is_said(tmp_path: Path) -> None:
    nodes = processes(tmp_path / "run", method={"name": "fedep"})
    (tmp_path / "run" / "sites" / "b" / "kit.checkpoint").write_bytes(b"fedkge checkpoint 1 x\n")
    with pytest.raises(FedkgeError, match=r"b.*kit\.checkpoint: a checkpoint of format 1"):
        nodes.play()
