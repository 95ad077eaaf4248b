"""A node's folder: a checkpoint is read as it was written, or it is an error that names the file."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from commands import fedkge, refused, write_home
from fedkge.errors import DataError
from fedkge.graphs.marks import mark_share
from fedkge.nodes.ledgers import ledger_at, open_ledger, run_entries
from fedkge.nodes.store import FORMAT, MAGIC, Store, packed, unpacked
from fedkge.reports.folders.load import events
from fedkge.runtimes.run import Progress, Simulation
from small_federations import assert_same, federated, played, result, small_federation

TENSORS = {"rows": torch.randn(3, 4).T, "steps": torch.tensor([7]), "none": torch.empty(0, 2)}
PLAIN = {"round": 2, "best": 0.1, "names": ["ä", "b"], "kept": None}
STRICT = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
MARKED = mark_share(small_federation(), 0.5, 0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "node")
    assert store.rounds() == []
    twice = {**TENSORS, "the same": TENSORS["steps"]}
    store.save(12, twice, PLAIN)
    found, plain = Store(tmp_path / "node").load(12)
    assert plain == PLAIN
    assert found.keys() == twice.keys()
    assert all(torch.equal(found[name], twice[name]) for name in twice)


def test_earlier_rounds_are_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for round in (3, 100, 7, 2_000_000):
        store.save(round, {}, {"round": round})
    assert store.rounds() == [3, 7, 100, 2_000_000]
    store.forget(100)
    assert store.rounds() == [100, 2_000_000]
    assert store.load(100)[1] == {"round": 100}


def test_a_round_of_which_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"000004\.checkpoint: cannot be read: No such file"):
        Store(tmp_path).load(4)


def test_every_flipped_bit_is_noticed() -> None:
    content = b"".join(packed({"rows": torch.randn(2, 2)}, {"round": 2}))
    unpacked(content)
    for at in range(len(content)):
        for bit in range(8):
            changed = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            with pytest.raises(ValueError, match=r"not a checkpoint|of format|checksum"):
                unpacked(changed)


def flipped(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 4]) + content[-4:]


def older(content: bytes) -> bytes:
    return content.replace(b"%s %d " % (MAGIC, FORMAT), b"%s %d " % (MAGIC, FORMAT - 1), 1)


def newer(content: bytes) -> bytes:
    return content.replace(b"%s %d " % (MAGIC, FORMAT), b"%s %d " % (MAGIC, FORMAT + 1), 1)


DAMAGE: list[tuple[Callable[[bytes], bytes], str]] = [
    (flipped, "its checksum is wrong: the file was damaged or changed"),
    (older, f"a checkpoint of format {FORMAT - 1}, this version of fedkge reads {FORMAT}"),
    (newer, f"a checkpoint of format {FORMAT + 1}, this version of fedkge reads {FORMAT}"),
    (lambda content: content[:-9], "its checksum is wrong"),
    (lambda content: content[: content.index(b"\n") + 1], "its checksum is wrong"),
    (lambda content: content[:20], "not a checkpoint"),
    (lambda content: b"", "not a checkpoint"),
    (lambda content: b"not safetensors", "not a checkpoint"),
    (lambda content: content[content.index(b"\n") + 1 :], "not a checkpoint"),  # as of the format before
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_a_damaged_checkpoint_is_an_error_that_names_it(
    tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    store = Store(tmp_path)
    store.save(3, TENSORS, PLAIN)
    (path,) = (tmp_path / "checkpoints").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"^{path}: {says}.*; restore the file, or delete the run's folder"):
        store.load(3)


class Stopped(Exception):
    pass


def stopped(path: Path, after: int, **options: Any) -> None:
    """A run that is killed when some rounds are done."""

    def stop(progress: Progress) -> None:
        if progress.round > after:
            raise Stopped

    with pytest.raises(Stopped):
        federated(path, how=Simulation(save_every=0), watch=stop, **options).play()


@pytest.mark.parametrize("node", ["hub", "sites/b"])
@pytest.mark.parametrize(("damage", "says"), DAMAGE[:2] + DAMAGE[3:4])
def test_a_run_does_not_go_on_from_a_damaged_checkpoint(
    tmp_path: Path, node: str, damage: Callable[[bytes], bytes], says: str
) -> None:
    options: dict[str, Any] = {"federation": small_federation(), "method": {"name": "fede"}}
    stopped(tmp_path, 2, **options)
    (path,) = (tmp_path / node / "checkpoints").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with pytest.raises(DataError, match=f"^{path}: {says}"):
        federated(tmp_path, **options)
    path.write_bytes(whole)
    assert federated(tmp_path, **options).round == 2


def test_a_run_that_is_killed_while_it_saves_goes_on_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are saved one after another; what some have of a round that others have not is of no use."""
    options: dict[str, Any] = {"federation": small_federation(), "method": {"name": "fede"}}
    save, saved = Store.save, []

    def killed(self: Store, round: int, *state: Any, sync: bool = True) -> None:
        saved.append(round)
        if saved.count(3) == 3:
            raise Stopped
        save(self, round, *state)

    monkeypatch.setattr(Store, "save", killed)
    with pytest.raises(Stopped):
        played(tmp_path / "killed", how=Simulation(save_every=0), **options)
    monkeypatch.undo()
    rounds = [Store(home).rounds() for home in (tmp_path / "killed").glob("sites/*")]
    assert sorted(map(len, rounds)) == [1, 1, 2]
    resumed = federated(tmp_path / "killed", **options)
    assert resumed.round == 2
    resumed.play()
    assert_same(resumed, played(tmp_path / "whole", **options))


def test_results_can_be_all_that_is_kept(tmp_path: Path) -> None:
    """What a sweep needs, on a machine that has no safetensors either."""
    options: dict[str, Any] = {"method": {"name": "fede"}, "privacy": STRICT}
    run = played(tmp_path, MARKED, how=Simulation(tables=False, save_every=0), **options)
    kept = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"metrics.json", "journal.jsonl", "ledger.jsonl", "run.jsonl"} <= kept
    assert not [name for name in kept if name.endswith((".checkpoint", ".safetensors"))]
    assert result(run).metrics["test"].keys() == MARKED.keys()


# No room


def no_room(path: str | Path) -> SimpleNamespace:
    return SimpleNamespace(f_bavail=3, f_frsize=512)


def test_too_little_room_is_said_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", no_room)
    with pytest.raises(DataError, match=r"sites/a: 0 MB are free, and .* needs .*: nothing was spent"):
        played(tmp_path / "run", MARKED, method={"name": "fede"}, privacy=STRICT)
    assert not list((tmp_path / "run").rglob(ledger_at(Path()).name))
    assert run_entries(tmp_path / "run") == []


def test_room_that_is_gone_later_leaves_ledgers_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"federation": MARKED, "method": {"name": "fede"}, "privacy": STRICT}
    stopped(tmp_path, 2, **options)
    before = {site: ledger_at(tmp_path / "sites" / site).read_bytes() for site in MARKED}
    assert all(before.values())
    monkeypatch.setattr(os, "statvfs", no_room)
    with pytest.raises(DataError, match=r"MB are free, .*; make room, then resume: nothing was spent"):
        played(tmp_path, **options)
    assert {site: ledger_at(tmp_path / "sites" / site).read_bytes() for site in MARKED} == before
    monkeypatch.undo()
    resumed = played(tmp_path, **options)
    assert resumed.hub.round == 4
    for site in MARKED:
        ledger = open_ledger(tmp_path / "sites" / site)
        assert ledger_at(tmp_path / "sites" / site).read_bytes().startswith(before[site])
        assert ledger.total > 0


def test_without_privacy_room_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost there but time: the file that cannot be written says so."""
    monkeypatch.setattr(os, "statvfs", no_room)
    assert played(tmp_path, small_federation()).hub.phase == "done"


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.save(1, TENSORS, PLAIN)

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DataError, match=r"000002\.checkpoint: cannot be written: No space left on device"):
        store.save(2, TENSORS, PLAIN)
    assert store.rounds() == [1]
    assert store.load(1)[1] == PLAIN


# Runs of earlier versions


def as_before(run: Path) -> None:
    """A run's folder as it was when one checkpoint held all parties, and one journal everything."""
    whole = list(events(run))
    for path in ("run.json", "hub"):
        target = run / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    for site in (run / "sites").iterdir():
        for name in ("journal.jsonl", "metrics.json", "config.toml", "ledger.jsonl"):
            (site / name).unlink(missing_ok=True)
        shutil.rmtree(site / "checkpoints")
    kinds = ("start", "links", "round", "evaluate", "end")
    (run / "run.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in whole if e["event"] in kinds))
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "federation.safetensors").write_bytes(b"as it was")


def test_a_run_of_an_earlier_version_is_read_and_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "old"
    line = ("run", "tiny.toml", "--set", "method.name=fede", "--out", run)
    assert fedkge(*line).exit_code == 0
    asked = (
        ("evaluate", run, "--json"),
        ("predict", run, "--site", "north", "--head", "e1", "--relation", "a", "--json"),
    )
    before = [fedkge(*line).stdout for line in asked]
    as_before(run)
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    says = refused(*line, "--resume")
    assert "a run of an earlier version of fedkge, which this one can read but not go on with" in says
    assert str(run) in says
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == files
    page = tmp_path / "page.html"
    shown = fedkge("report", run, "--out", page)
    assert shown.exit_code == 0, shown.output
    assert "Training loss" in page.read_text(encoding="utf-8")
    assert all(json.loads(text) for text in before)
    assert [fedkge(*line).stdout for line in asked] == before
    (run / "summary.json").unlink()
    assert "earlier version" in refused(*line, "--resume")
