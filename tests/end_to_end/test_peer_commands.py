"""Three peers as three processes: they find the end by themselves, and one that is killed costs no more."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from fedkge.exports.files import load_embeddings
from fedkge.graphs.graph import Axis
from fedkge.nodes.journal import read_journal
from fedkge.runs.peering import PeerFile
from fedkge.runtimes.replay import replay
from network_of_peers import lay_out, said, start
from small_federations import small_federation

pytest.importorskip("grpc")
pytest.importorskip("cryptography")


def ended(files: dict[str, Path], running: dict[str, subprocess.Popen[bytes]], seconds: float = 150) -> None:
    until = time.monotonic() + seconds
    try:
        for name, process in running.items():
            code = process.wait(max(1, until - time.monotonic()))
            assert code == 0, said(files[name])
    except subprocess.TimeoutExpired:
        pytest.fail("\n".join(map(said, files.values())))
    finally:
        for process in running.values():
            process.kill()


def journal(file: Path, kind: str) -> list[dict[str, object]]:
    home = PeerFile.read(file).folder
    path = home / "journal.jsonl"
    return [event for event in read_journal(path) if event["event"] == kind] if path.is_file() else []


def test_three_processes_end_with_the_tables_of_a_replay_in_one(tmp_path: Path) -> None:
    files = lay_out(tmp_path, small_federation(relations_in_common=True), models={"b": "distmult"})
    ended(files, {name: start(file) for name, file in files.items()})
    read = {name: PeerFile.read(file) for name, file in files.items()}
    assert sum(len(journal(file, "conversation")) for file in files.values()) >= 2, "both ends of one"
    for name, peer in replay(read, torch.device("cpu")).items():
        tables, *_ = load_embeddings(read[name].folder)
        for axis in Axis:
            assert torch.equal(tables.table(axis), peer.own.best.table(axis)), name


@pytest.mark.slow
def test_a_peer_that_is_killed_in_a_conversation_costs_that_one_only(tmp_path: Path) -> None:
    files = lay_out(tmp_path, small_federation(relations_in_common=True), rounds=12, passes=120)
    running = {name: start(file) for name, file in files.items()}
    until = time.monotonic() + 100
    while not (begun := re.findall(r"begins conversation (\S+) with (\w+)", said(files["b"]))):
        assert time.monotonic() < until, said(files["b"])
        time.sleep(0.02)
    running["b"].send_signal(signal.SIGKILL)
    running["b"].wait()
    broken, partner = begun[0]
    assert "has talked" not in said(files["b"]), "it was over already"
    time.sleep(1)
    running["b"] = start(files["b"])
    ended(files, running)
    assert "goes on" in said(files["b"])
    assert broken in {e["talk"] for e in journal(files[partner], "aborted")}
    counted = {name: {e["talk"] for e in journal(file, "update")} - {""} for name, file in files.items()}
    for name, talks in counted.items():
        for talk in talks:
            assert sum(talk in own for own in counted.values()) == 2, (name, talk)
