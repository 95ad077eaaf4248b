"""The ledger: written before, never forgotten; torn lines are passed over, damage is not."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedkge.errors import ConfigError, DataError
from fedkge.privacy import Ledger, Release, read_ledger, whole_ledger
from fedkge.privacy.releases import Everything, Gaussian, Poisson, Shuffled, TouchedRows

STEPS = Release(Gaussian(1.1), Poisson(0.01), 20)
UPLOAD = Release(Gaussian(8.0), Everything(), purpose="upload")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.mark.parametrize(
    "release",
    [
        STEPS,
        UPLOAD,
        Release(TouchedRows(0.7, 20.0), Shuffled(0.1), 3),
        Release(TouchedRows(0.7), Everything()),
    ],
)
def test_a_release_is_read_as_it_was_written(path: Path, release: Release) -> None:
    assert Release.read(json.loads(json.dumps(release.plain()))) == release
    entry = Ledger(path).record("a", 1, release)
    assert read_ledger(path) == [entry]


def test_holds_mechanism_unit_sampling_and_noise(path: Path) -> None:
    Ledger(path).record("hospital ü", 3, STEPS)
    line = json.loads(path.read_text())
    assert line.pop("time") > 1e9
    assert line == {
        "site": "hospital ü",
        "epoch": 3,
        "first": 0,
        "triples": None,
        "mechanism": {"name": "gaussian", "noise": 1.1},
        "sampling": {"name": "poisson", "rate": 0.01},
        "count": 20,
        "purpose": "training",
        "unit": "triple",
        "neighbours": "zero-out-one",
        "after": "",
    }


def test_what_earlier_versions_called_statements_are_triples(path: Path) -> None:
    line = {
        "site": "a",
        "epoch": 3,
        "first": 0,
        "statements": 134,
        "mechanism": {"name": "gaussian", "noise": 1.1},
        "sampling": {"name": "poisson", "rate": 0.01},
        "count": 20,
        "purpose": "training",
        "unit": "statement",
        "neighbours": "zero-out-one",
        "time": 1.0,
        "after": "",
    }
    path.write_text(json.dumps(line) + "\n")
    (entry,) = read_ledger(path)
    assert (entry.release, entry.triples) == (STEPS, 134)
    Ledger(path).record("a", 4, STEPS, 134)
    assert [entry.first for entry in read_ledger(path)] == [0, 20]


def test_sites_have_sums_of_their_own(path: Path) -> None:
    ledger = Ledger(path)
    numbers = [ledger.record(site, 1, STEPS).numbers for site in "aba"]
    assert numbers == [range(20), range(20), range(20, 40)]
    ledger.record("b", 2, UPLOAD)
    assert ledger.releases("a") == [STEPS, STEPS]
    assert ledger.releases("b") == [STEPS, UPLOAD]
    assert (ledger.count("a"), ledger.count("b"), ledger.count("c")) == (40, 21, 0)


def test_a_restarted_run_goes_on(path: Path) -> None:
    Ledger(path).record("a", 1, STEPS)
    again = Ledger(path)
    assert again.record("a", 1, STEPS).first == 20, "numbers, and with them noise, are never used twice"
    assert Ledger(path).releases("a") == [STEPS, STEPS]


def test_only_appends(path: Path) -> None:
    before = b""
    for epoch in range(4):
        Ledger(path).record("a", epoch, STEPS)
        assert path.read_bytes().startswith(before)
        before = path.read_bytes()


def test_is_on_the_disk_before_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def sync(handle: int) -> None:
        synced.append(path.read_bytes())  # what the file holds at this moment

    monkeypatch.setattr(os, "fsync", sync)
    Ledger(path).record("a", 1, STEPS)
    assert len(synced) == 2, "the line, and the new file's name in its folder"
    assert synced[0] == path.read_bytes()


# Torn lines


@pytest.mark.parametrize("keep", [1, 20, -2])
def test_a_torn_last_line_was_never_released(path: Path, keep: int) -> None:
    ledger = Ledger(path)
    ledger.record("a", 1, STEPS)
    whole = path.read_bytes()
    ledger.record("a", 2, STEPS)
    torn = path.read_bytes()[len(whole) :][:keep]
    path.write_bytes(whole + torn)
    again = Ledger(path)
    assert again.count("a") == 20
    again.record("a", 2, UPLOAD)
    again.record("a", 3, STEPS)
    assert path.read_bytes().startswith(whole + torn + b"\n")
    assert [entry.release for entry in read_ledger(path)] == [STEPS, UPLOAD, STEPS]


def test_a_line_that_lacks_its_end_alone_counts(path: Path) -> None:
    Ledger(path).record("a", 1, STEPS)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert Ledger(path).record("a", 2, STEPS).first == 20
    assert len(read_ledger(path)) == 2


# Damage


@pytest.mark.parametrize("damage", ["removed", "changed", "garbled", "swapped"])
def test_damage_is_an_error(path: Path, damage: str) -> None:
    ledger = Ledger(path)
    for epoch in range(1, 5):
        ledger.record("a", epoch, STEPS)
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "removed":
        del lines[1]
    elif damage == "changed":
        lines[1] = lines[1].replace(b'"noise": 1.1', b'"noise": 9.1')
    elif damage == "garbled":
        lines[1] = lines[1][:30] + b"\n"
    else:
        lines[1:3] = lines[2:0:-1]
    path.write_bytes(b"".join(lines))
    for read in (read_ledger, Ledger):
        with pytest.raises(DataError, match=r"ledger\.jsonl:[23]: lines were removed or changed here"):
            read(path)


def test_a_checkpoint_knows_a_ledger_that_lost_its_end(path: Path) -> None:
    ledger = Ledger(path)
    early = ledger.head
    ledger.record("a", 1, STEPS)
    before = path.read_bytes()
    middle = ledger.head
    ledger.record("a", 2, STEPS)
    for head, total in ((early, 0), (middle, 20), (ledger.head, 40)):
        Ledger(path).check(head, total)
    path.write_bytes(before)
    Ledger(path).check(middle, 20)
    with pytest.raises(
        DataError, match="its 20 releases are not, or not all of, the 40 that the run has made"
    ):
        Ledger(path).check(ledger.head, ledger.total)
    path.unlink()
    with pytest.raises(DataError, match="its 0 releases are not, or not all of, the 20"):
        Ledger(path).check(middle, 20)


def test_a_seal_is_checked_wherever_it_is_kept(path: Path) -> None:
    ledger = Ledger(path)
    ledger.record("a", 1, STEPS)
    summary = {"metrics": {}, **ledger.seal}
    assert whole_ledger(path, None, {"hub": 1}, summary).entries == ledger.entries
    path.write_bytes(path.read_bytes().replace(b'"noise": 1.', b'"noise": 9.'))
    assert whole_ledger(path, None, {"hub": 1}).total == 20, "older folders have nothing to check against"
    for known in ((None, summary), (summary, None)):
        with pytest.raises(DataError, match="its 20 releases are not, or not all of, the 20"):
            whole_ledger(path, *known)


def test_knows_how_many_triples_there_are(path: Path) -> None:
    """Without being told, no fewer than the rate says: a batch is of one or more in the mean."""
    ledger = Ledger(path)
    for release, triples in ((STEPS, 5112), (STEPS, None), (UPLOAD, None)):
        ledger.record("a", 1, release, triples)
    assert [entry.least for entry in read_ledger(path)] == [5112, 100, 1]
    path.write_text(path.read_text().replace('"triples": 5112', '"triples": "many"', 1))
    with pytest.raises(DataError, match=r":1: not a release .*triples: expected a number above 0"):
        read_ledger(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"gaussian"', '"laplace"', "mechanism.name: no mechanism is named 'laplace'"),
        ('"poisson"', '"poison"', "sampling.name: no sampling is named 'poison'; did you mean 'poisson'"),
        ('"noise": 1.1', '"noise": -1.1', "mechanism.noise: expected a number of at least 0, got -1.1"),
        ('"rate": 0.01', '"rate": 1.01', "sampling.rate: expected above 0 and at most 1, got 1.01"),
        ('"triple"', '"site"', "unit: expected one of 'triple', 'person', 'row', got 'site'"),
        ('"zero-out-one"', '"add-one"', "neighbours: expected one of"),
        ('"count": 20', '"count": 0', "count: expected at least 1, got 0"),
        ('"epoch": 1', '"epoch": "one"', "epoch: expected int, got 'one'"),
        ('"purpose"', '"porpoise"', "porpoise: no such option; did you mean 'purpose'"),
        ('"sampling": {', '"dampling": {', "sampling: expected a name and its numbers, got None"),
    ],
)
def test_what_is_not_known_is_refused(path: Path, old: str, new: str, message: str) -> None:
    """A single line has no successor that would notice the change; its content must."""
    Ledger(path).record("a", 1, STEPS)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(
        DataError, match=rf"ledger\.jsonl:1: not a release that this version knows: .*{message}"
    ):
        read_ledger(path)


@pytest.mark.parametrize(
    ("rate", "noise", "count"), [(0.0, 1.0, 1), (1.1, 1.0, 1), (0.1, float("nan"), 1), (0.1, 1.0, 0)]
)
def test_releases_that_cannot_be(rate: float, noise: float, count: int) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Release(Gaussian(noise), Poisson(rate), count)


# Disks and other processes


def test_no_file_is_an_empty_ledger(path: Path) -> None:
    assert read_ledger(path) == []
    assert Ledger(path).entries == ()
    assert Ledger(path).head == ""


def test_two_writers_notice_each_other(path: Path) -> None:
    first, second = Ledger(path), Ledger(path)
    first.record("a", 1, STEPS)
    with pytest.raises(DataError, match="changed while it was in use; one process writes at a time"):
        second.record("a", 1, STEPS)
    assert len(read_ledger(path)) == 1


def test_what_cannot_be_recorded_is_not_released(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger(path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device; nothing is released that is not recorded"):
        ledger.record("a", 1, STEPS)


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        Ledger(tmp_path)
    with pytest.raises(DataError, match="cannot be written: No such file"):
        Ledger(tmp_path / "nowhere" / "ledger.jsonl").record("a", 1, STEPS)


# Killed

PROGRAM = """
import sys
from pathlib import Path
from fedkge.privacy import Ledger, Release
from fedkge.privacy.releases import Gaussian, Poisson

ledger = Ledger(Path(sys.argv[1]))
while True:
    entry = ledger.record("a", 1, Release(Gaussian(1.1), Poisson(0.01), 7))
    print(entry.first, flush=True)  # the release: seen by others as soon as it is made
"""


def test_killed_again_and_again_nothing_released_is_forgotten(path: Path) -> None:
    chance = random.Random(7)
    seen: list[int] = []
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        seen.append(int(process.stdout.readline()))
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL
        whole = rest[: rest.rfind(b"\n") + 1]
        seen += map(int, whole.split())
        with path.open("ab") as file:
            file.write(b'{"site": "a", "epo')  # torn, as a kill may leave it
    entries = read_ledger(path)
    recorded = [entry.first for entry in entries]
    assert set(seen) <= set(recorded)
    assert len(seen) > 4
    assert recorded == [7 * i for i in range(len(entries))], "numbers are given out once, without gaps"
