"""Fetch files over HTTP: resumable, checked, and under their final name only when whole."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fedkge.errors import DataError

TIMEOUT = 60.0  #: seconds without an answer, or without further data, after which a download is given up
CHUNK = 1 << 18


def fetch(url: str, path: Path, checksum: str = "", timeout: float = TIMEOUT) -> None:
    """Download `url` to `path`, going on from `path.part` where an earlier attempt stopped.

    `checksum` is `sha256:<hex>` or `md5:<hex>`, empty when none is known. Content that does not fit is
    removed; a partial download stays as `path.part` and is never given the final name.
    """
    part = path.with_name(path.name + ".part")
    with _explained(url):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _continue(url, part, timeout):
            _continue(url, part, timeout)  # from the start
    _check(url, part, checksum)
    part.replace(path)


def extract(archive: Path, files: Mapping[Path, str]) -> None:
    """Write members of a tar.gz or zip archive to the given paths, and nothing else.

    Paths inside the archive only choose what to read, so they cannot lead anywhere; links are refused.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as pack:
                _copy_members(files, {_plain(name): name for name in pack.namelist()}, pack.open)
        else:
            with tarfile.open(archive, "r:gz") as tar:
                members = {_plain(member.name): member.name for member in tar if member.isfile()}
                _copy_members(files, members, tar.extractfile)
    except KeyError as error:
        raise DataError(f"{archive.name}: holds no file {error}") from None
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{archive.name}: no archive, or a damaged one: {error}") from None


def _continue(url: str, part: Path, timeout: float) -> bool:
    """Append what is missing to `part`; false when `part` cannot be continued and was thrown away."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fedkge", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return True  # all of it had arrived before
        part.unlink()
        return False
    with response:
        resumed = have > 0 and response.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            return False
        start = have if resumed else 0  # a server that knows no ranges sends the whole again
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        with part.open("ab" if resumed else "wb") as out, _progress(url, start, total) as advance:
            while chunk := response.read(CHUNK):
                out.write(chunk)
                advance(len(chunk))
            if total is not None and out.tell() != total:
                raise http.client.IncompleteRead(b"", total - out.tell())
    return True


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turn what can go wrong on the way into errors that say what to do."""
    try:
        yield
    except urllib.error.HTTPError as error:
        raise DataError(f"{url}: the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise DataError(f"{url}: cannot be reached ({error.reason}); check the network") from None
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{url}: the download was interrupted ({reason}); run it again to go on") from None
    except OSError as error:
        raise DataError(f"{error.filename or url}: cannot be written: {error.strerror}") from None


def _check(url: str, part: Path, checksum: str) -> None:
    if not checksum:
        return
    algorithm, _, expected = checksum.partition(":")
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    if found != expected:
        part.unlink()
        raise DataError(f"{url}: wrong content: {algorithm} {found}, expected {expected}; it was removed")


@contextmanager
def _progress(url: str, start: int, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, when that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.progress import TransferSpeedColumn as Speed

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        Speed(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(re.sub(r".*/", "", url), total=total, completed=start)
        yield lambda done: bar.advance(task, done)


def _copy_members(
    files: Mapping[Path, str], members: Mapping[str, str], read: Callable[[str], IO[bytes] | None]
) -> None:
    for path, wanted in files.items():
        source = read(members[wanted])
        assert source is not None, "only regular files are listed"
        with source, path.open("wb") as out:
            shutil.copyfileobj(source, out, CHUNK)


def _plain(name: str) -> str:
    return name.removeprefix("./")
