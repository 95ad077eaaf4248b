"""The ledger: every release, on the disk before it is made; only ever appended to, and never forgotten."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedkge.durable import keep_private, sync_folder
from fedkge.errors import ConfigError, DataError
from fedkge.privacy.releases import Batches, Release
from fedkge.privacy.seal import Head, is_genuine, signature, signed


@dataclass(frozen=True)
class Entry:
    """One line: whose release, when in training, and which numbers its applications have."""

    site: str
    epoch: int  #: of the site, from 1; 0 before training
    release: Release
    first: int  #: number of the first application, counted per site from 0 and over resumed runs
    triples: int | None = None  #: confidential ones, or persons, of the site, which is public; None: not said
    run: str | None = None  #: whose release it is, in a ledger of several runs

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.release.count)

    @property
    def least(self) -> int:
        """Confidential triples that there are, or if it is not said at least: a batch is of 1 or more."""
        if self.triples is not None:
            return self.triples
        sampling = self.release.sampling
        return int(1 / sampling.rate) if isinstance(sampling, Batches) else 1


class Ledger:
    """A file that releases are recorded in, each before it is made.

    What is recorded is spent, whether or not a killed run got to use it. A torn last line was never acted
    on, since `record` had not returned. Each line holds a digest of the one before it, so that lines that
    were removed or changed are noticed; checkpoint and summary keep its `seal`, for its end. With a site's
    `key` each line and the end are signed besides (`privacy.seal`).
    """

    def __init__(self, path: Path, key: bytes | None = None) -> None:
        self.path, self.key = path, key
        self._size = -1
        self.refresh()

    def refresh(self) -> None:
        """Read what others have written since; nothing is done where the file is as it was."""
        content = _content(self.path) if self._size < 0 or _size(self.path) != self._size else None
        if content is None:
            return
        found = list(_parsed(self.path, content, self.key))
        if self._size >= 0 and self.head not in ("", *(digest for _, digest in found)):
            raise DataError(
                f"{self.path}: lost lines while it was in use; restore the file, as what was spent cannot be "
                "forgotten"
            )
        self._size = len(content)
        self._entries = [entry for entry, _ in found]
        self._heads = ["", *(digest for _, digest in found)]
        self.sealed = _check_end(self.path, content, self._heads, self.key)

    def record(
        self, site: str, epoch: int, release: Release, triples: int | None = None, run: str | None = None
    ) -> Entry:
        """Write down a release that is about to be made; when this returns, the disk has it.

        The entry's numbers are given out once: noise computed from them and a site's key is never used twice.
        """
        entry = Entry(site, epoch, release, self.count(site), triples, run)
        line = json.dumps(
            {"site": site, "epoch": epoch, "first": entry.first, "triples": triples}
            | ({} if run is None else {"run": run})
            | release.plain()
            | {"time": round(time.time(), 3), "after": self.head}
        ).encode()
        if self.sealed and self.key is None:
            raise DataError(f"{self.path}: signed by its site, whose key is needed to write to it")
        if self.key is not None:
            if not self._entries:  # killed after the first line, it has a head all the same
                Head(0, "", 0).write(self.path, self.key)
            line = signed(line, self.key)
        self._append(line)
        self._entries.append(entry)
        self._heads.append(_digest(line))
        if self.key is not None:
            Head(len(self._entries), self.head, self.total).write(self.path, self.key)
            self.sealed = True
        return entry

    def _append(self, line: bytes) -> None:
        try:
            new = not self.path.exists()
            if new:
                keep_private(self.path)
            with self.path.open("ab+") as file:
                if file.seek(0, os.SEEK_END) != self._size:
                    raise DataError(f"{self.path}: changed while it was in use; one process writes at a time")
                torn = self._size and not _ends_whole(self.path)
                file.write(b"\n" * bool(torn) + line + b"\n")  # a torn line stays, on a line of its own
                file.flush()
                os.fsync(file.fileno())
                self._size = file.tell()
            if new:
                sync_folder(self.path.parent)
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be written: {error.strerror}; nothing is released that is not recorded"
            ) from None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def releases(self, site: str) -> list[Release]:
        """All that a site has spent."""
        return [entry.release for entry in self._entries if entry.site == site]

    def count(self, site: str) -> int:
        """How many applications a site has recorded: the number of the next one."""
        return max((entry.numbers.stop for entry in self._entries if entry.site == site), default=0)

    def made(self, run: str) -> int:
        """How many of the applications are of this run."""
        return sum(entry.release.count for entry in self._entries if entry.run == run)

    @property
    def head(self) -> str:
        """Names the ledger as it is now; empty without entries."""
        return self._heads[-1]

    @property
    def total(self) -> int:
        """How many applications all sites have recorded."""
        return sum(entry.release.count for entry in self._entries)

    @property
    def seal(self) -> dict[str, str | int]:
        """What checkpoint and summary keep of it, for `whole_ledger`."""
        return {"ledger": self.head, "releases": self.total}

    def check(self, head: str, total: int) -> None:
        """An error unless this ledger is the one that had `head` and `total` releases, or went on from it."""
        if head not in self._heads:
            raise DataError(
                f"{self.path}: its {self.total:,} releases are not, or not all of, the {total:,} that the "
                "run has made: lines are missing or changed at the end; restore the file, as what was spent "
                "cannot be forgotten"
            )

    def check_begun(self, journal: Path) -> None:
        """An error if it has no entries; to be asked where the journal tells of rounds with noise."""
        if not self._entries:
            raise DataError(
                f"{self.path}: no releases, while {journal} has rounds that made some: what was spent is "
                "not known; restore the file, as it cannot be forgotten"
            )


def whole_ledger(path: Path, *known: Mapping[str, Any] | None, key: bytes | None = None) -> Ledger:
    """A run's ledger; an error if it lacks anything that the run's summary or checkpoint know of.

    One that keeps no `seal`, as of a run without noise, has nothing to check against.
    """
    ledger = Ledger(path, key)
    for one in known:
        if one is not None and "ledger" in one:
            ledger.check(one["ledger"], one["releases"])
    return ledger


def read_ledger(path: Path) -> list[Entry]:
    """The entries in order; none without a file. A gap is an error; so is a cut end, where it is signed."""
    return list(Ledger(path).entries)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def _parsed(path: Path, content: bytes, key: bytes | None = None) -> Iterator[tuple[Entry, str]]:
    """Entries and the digests of their lines; torn pieces, which no later line continues, are left out."""
    head, torn = "", 0
    for number, line in enumerate(content.split(b"\n"), 1):
        plain = _plain(line)
        if plain is None:
            torn = number if line.strip() else torn
            continue
        if plain.pop("after", None) != head:
            where = f"{path}:{torn or number}"
            raise DataError(
                f"{where}: lines were removed or changed here, so that what was spent is not known; restore "
                "the file from a copy"
            )
        if key is not None and not is_genuine(line, key):
            raise DataError(f"{path}:{number}: not signed by this site's key; restore the file from a copy")
        plain.pop("mac", None)
        head, torn = _digest(line), 0
        try:
            yield _entry(plain), head
        except ConfigError as error:
            raise DataError(f"{path}:{number}: not a release that this version knows: {error}") from None


def _check_end(path: Path, content: bytes, heads: Sequence[str], key: bytes | None) -> bool:
    """Whether a ledger is signed; an error where it does not end as its head says, or lacks its head."""
    head = Head.read(path, key)
    if head is None:
        if any(signature(line) is not None for line in content.split(b"\n")):
            raise DataError(f"{Head.at(path)}: missing; it says where {path.name} ends. Restore it")
        return False
    if head.lines >= len(heads) or heads[head.lines] != head.ledger:
        raise DataError(
            f"{path}: has {len(heads) - 1:,} lines, and its head knows of {head.lines:,} with "
            f"{head.releases:,} releases: lines are missing or changed at the end; restore the file, as what "
            "was spent cannot be forgotten"
        )
    return True


def _plain(line: bytes) -> dict[str, Any] | None:
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None


def _entry(plain: dict[str, Any]) -> Entry:
    kinds = {"site": str, "epoch": int, "first": int}
    own = {name: plain.pop(name, None) for name in kinds}
    triples = plain.pop("triples", plain.pop("statements", None))  # as earlier versions called them
    if plain.get("unit") == "statement":
        plain["unit"] = "triple"
    plain.pop("time", None)
    run = plain.pop("run", None)
    if run is not None and not isinstance(run, str):
        raise ConfigError(f"run: expected a text, got {run!r}")
    for name, kind in kinds.items():
        if not isinstance(own[name], kind):
            raise ConfigError(f"{name}: expected {kind.__name__}, got {own[name]!r}")
    if triples is not None and not (isinstance(triples, int) and triples > 0):
        raise ConfigError(f"triples: expected a number above 0, got {triples!r}")
    return Entry(release=Release.read(plain), triples=triples, run=run, **own)


def _digest(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=12).hexdigest()


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"
