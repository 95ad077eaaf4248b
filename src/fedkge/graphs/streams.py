"""Files as bytes, plain or gzipped by their suffix, with failures that name the file."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from fedkge.durable import PRIVATE
from fedkge.errors import DataError

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  #: characters that steer terminals and break lines
UNPACKED = 1 << 28  #: bytes that any gzip file may unpack to
RATIO = 100  #: times its size that a larger one may


def most(path: Path) -> int:
    """Bytes that the file may become, of text or of names."""
    return max(UNPACKED, RATIO * path.stat().st_size)


class _Unpacked(gzip.GzipFile):
    """Unpacked data, of which there may be so much and no more."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self.left = most(path)

    def read(self, size: int | None = -1) -> bytes:
        return self._counted(super().read(self.left if size is None or size < 0 else size))

    def read1(self, size: int = -1) -> bytes:
        return self._counted(super().read1(size))

    def readline(self, size: int | None = -1) -> bytes:
        return self._counted(super().readline(self.left if size is None or size < 0 else size))

    def _counted(self, data: bytes) -> bytes:
        self.left -= len(data)
        if self.left <= 0:
            raise _TooMuchError
        return data


class _TooMuchError(Exception):
    """More was unpacked than an honest file has."""


def check_regular(path: Path) -> None:
    """An error unless it is a file with an end: a pipe or a device could be read for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, device or socket"
        raise DataError(f"{path}: expected a regular file, found {kind}; write the data to a file first")


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of `path`, unpacked if it ends in `.gz`; what goes wrong in the body is told of this file."""
    try:
        check_regular(path)
        with _Unpacked(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield stream
    except _TooMuchError:
        raise DataError(
            f"{path}: {path.stat().st_size:,} bytes unpack to more than {RATIO} times as many, as no honest "
            "graph does; if this one does, unpack it yourself"
        ) from None
    except EOFError:
        raise DataError(
            f"{path}: the gzip data ends too early; the file is truncated, copy it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: expected gzip data, found something else ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


@contextmanager
def created(path: Path) -> Iterator[BufferedIOBase]:
    """A new file to write, packed if it ends in `.gz`; the same content gives the same bytes at any time.

    Only its owner can read it: a graph may have confidential triples.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
            yield packed
