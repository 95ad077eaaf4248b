"""Hub and sites as processes: the same tables, whoever is killed, with nothing but their own folders."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedkge.errors import ConfigError, DataWarning, FedkgeError
from fedkge.exchange.codec import CODECS
from fedkge.exchange.rows import Message
from fedkge.exchange.tally import Tally
from fedkge.exchange.wire import encode
from fedkge.graphs.graph import Axis
from fedkge.graphs.marks import mark_share
from fedkge.nodes.clock import Clock
from fedkge.nodes.journal import Journal
from fedkge.nodes.store import locked
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runtimes import node
from fedkge.runtimes import processes as processes_module
from fedkge.runtimes.processes import EVENT, FAILURE, MESSAGE, Child, Processes, Reply
from fedkge.runtimes.record import Record
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
    (tmp_path / "secret").write_bytes(bytes(range(16)))
    options = {**OPTIONS, "align": {"secret": str(tmp_path / "secret")}}
    expected = simulated(tmp_path / "simulated", **options)
    heard: list[Message] = []
    nodes = processes(tmp_path / "run", heard.append, **options)
    (tmp_path / "secret").unlink()
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


def test_hub_and_site_that_are_killed_at_once_stall_nobody(tmp_path: Path) -> None:
    options = {"method": {"name": "fedep"}, "rounds": 4}
    simulated(tmp_path / "simulated", **options)
    killed: list[str] = []

    def kill(message: Message) -> None:
        if message.kind == "upload" and message.round == 2 and not killed:
            for victim in ("a", "hub"):
                killed.append(victim)
                nodes.children[victim].process.kill()
                nodes.children[victim].process.wait()

    nodes = processes(tmp_path / "run", kill, **options)
    began = time.monotonic()
    nodes.play()
    assert time.monotonic() - began < 60, "well below the time that an answer may take"
    assert [nodes.children[victim].starts for victim in killed] == [2, 2]
    assert_equal(tables(homes(tmp_path / "simulated")), tables(homes(tmp_path / "run")))


@pytest.mark.slow
def test_a_process_that_starts_late_joins_late(tmp_path: Path) -> None:
    """c is held up before it says anything; the others begin without it, and it takes part later."""
    one = experiment(
        method={"name": "fedep"},
        rounds=20,
        participation={"open": True},
        runtime={"name": "processes", "timeout": 20.0},
    )
    heard: list[Message] = []

    def tap(message: Message) -> None:
        heard.append(message)
        if message.kind == "upload" and message.sender == "a" and message.round > 1:
            os.kill(nodes.children["c"].process.pid, signal.SIGCONT)
            if not any(m.kind == "join" and m.sender == "c" for m in heard):
                time.sleep(2)  # small rounds are over before a process has started

    folder = RunFolder.create(tmp_path / "run", one, False)
    nodes = Processes(one, Sources.of(one, SITES), folder, CPU, tap=tap)
    os.kill(nodes.children["c"].process.pid, signal.SIGSTOP)
    nodes.play()
    rounds = {site: {m.round for m in heard if m.kind == "upload" and m.sender == site} for site in SITES}
    assert rounds["a"] == rounds["b"] == set(range(1, 21))
    assert 1 not in rounds["c"], "it joined after the first round"
    assert 20 in rounds["c"]
    assert (tmp_path / "run" / "sites" / "c" / "metrics.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "at"), [("a", "stop"), ("hub", "upload")])
def test_who_hangs_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str, at: str
) -> None:
    def hang(message: Message) -> None:
        if message.kind == at and message.round >= 2:
            os.kill(nodes.children[victim].process.pid, signal.SIGSTOP)

    monkeypatch.setattr(processes_module, "PATIENCE", 2)
    monkeypatch.setattr(processes_module, "LEAVE", 0.1)
    one = experiment(method={"name": "fedep"}, rounds=2, runtime={"name": "processes", "timeout": 10.0})
    nodes = Processes(one, Sources.of(one, SITES), RunFolder.create(tmp_path, one, False), CPU, tap=hang)
    if victim == "hub":
        with pytest.raises(FedkgeError, match="the hub does not answer any more; --resume goes on"):
            nodes.play()
    else:
        nodes.play()
    again = Processes(one, Sources.of(one, SITES), RunFolder.create(tmp_path, one, True), CPU)
    again.play()
    assert all((home / "metrics.json").is_file() for home in homes(tmp_path).values())


def test_odd_frames_of_a_child_go_nowhere(tmp_path: Path) -> None:
    nodes = Processes.__new__(Processes)
    nodes.record = Record(
        Journal(tmp_path / "run.jsonl"), 1, Tally(CODECS["float32"](), {Axis.ENTITY: 4}), Clock()
    )
    child = SimpleNamespace(id="a", replies=deque([Reply()]))
    for content in (b"no json", b"[]", b"{}", b'{"event": "diverged"}', b"\xff"):
        assert nodes._heard(child, EVENT, content) is None
    for message in (Message("a", "b", "shared", 0), Message("b", "hub", "join", 0)):
        assert nodes._heard(child, MESSAGE, encode(message)) is None
    assert child.replies[0].messages == []
    with pytest.raises(FedkgeError):
        nodes._heard(child, FAILURE, b"\xff")
    for message in (
        Message("hub", "a", "shared", 0),
        Message("hub", "a", "shared", 0, {"entity.where": torch.rand(3)}),
    ):
        nodes.record.tally.count(message)
    assert nodes.record.tally.sites["a"]["down_bytes"] > 0


@pytest.mark.slow
def test_who_never_joined_is_absent_from_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"method": {"name": "fedep"}, "rounds": 2, "participation": {"open": True}}
    one = experiment(**options, runtime={"name": "processes", "timeout": 20.0})
    folder = RunFolder.create(tmp_path, one, False)
    start = Child.start

    def held_up(child: Child) -> None:
        start(child)
        if child.id == "c":
            os.kill(child.process.pid, signal.SIGSTOP)

    monkeypatch.setattr(Child, "start", held_up)
    monkeypatch.setattr(processes_module, "LEAVE", 0.1)
    with pytest.warns(DataWarning, match="'c' did not take part"):
        summary = run(one, folder, CPU, SITES)
    assert list(summary["sites"]) == ["a", "b"]
    assert summary["absent"] == ["c"]


def test_one_process_at_a_time_is_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "LOCKED", 0.2)
    out = io.BytesIO()
    with locked(tmp_path / node.LOCK) as free:
        assert free
        assert node.serve(tmp_path, io.BytesIO(), out) == 2
    assert b"another process has been this node" in out.getvalue()
    assert node.serve(tmp_path, io.BytesIO(), out) == 0


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
