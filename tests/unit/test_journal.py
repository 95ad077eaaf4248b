"""The journal: appended to, never rewritten; what a killed run tore stays apart."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from fedkge.errors import DataError
from fedkge.nodes.journal import Journal, read_journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def events(path: Path) -> list[str]:
    return [event["event"] for event in read_journal(path)]


def test_one_line_per_event(path: Path) -> None:
    Journal(path).write("start", sites=["a", "ü"])
    Journal(path).write("round", round=1, loss=0.5)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "round"]
    assert lines[0]["sites"] == ["a", "ü"]
    assert lines[1]["loss"] == 0.5
    assert lines[0]["time"] <= lines[1]["time"]
    assert list(read_journal(path)) == lines


def test_only_appends(path: Path) -> None:
    before = b""
    for number in range(4):
        Journal(path).write("round", round=number)
        after = path.read_bytes()
        assert after.startswith(before)
        assert len(after) > len(before)
        before = after


@pytest.mark.parametrize("torn", [b'{"event": "rou', b"{", b'{"event": "\xc3', b'"text"', b"3"])
def test_a_torn_last_line(path: Path, torn: bytes) -> None:
    Journal(path).write("start")
    path.write_bytes(whole := path.read_bytes() + torn)
    assert events(path) == ["start"]
    Journal(path).write("resumed")
    Journal(path).write("end")
    assert events(path) == ["start", "resumed", "end"]
    assert path.read_bytes().startswith(whole + b"\n")


def test_no_journal(path: Path) -> None:
    with pytest.raises(DataError, match=r"run\.jsonl: no such file; expected a run folder with a journal$"):
        list(read_journal(path))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for bad in (tmp_path, tmp_path / "file" / "run.jsonl"):
        with pytest.raises(DataError, match=f"^{bad}: cannot be written: "):
            Journal(bad).write("start")


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    """A node's folder need not be there before something happens at the node."""
    Journal(tmp_path / "sites" / "a" / "journal.jsonl").write("trained", round=1)
    assert events(tmp_path / "sites" / "a" / "journal.jsonl") == ["trained"]


def test_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"run\.jsonl: cannot be written: No space left on device$"):
        Journal(path).write("start")
