"""Files as bytes, plain or gzipped by their suffix, with failures that name the file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

from fedkge.errors import DataError


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of `path`, unpacked if it ends in `.gz`; what goes wrong in the body is told of this file."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            yield stream
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
    """A new file to write, packed if it ends in `.gz`; the same content gives the same bytes at any time."""
    with path.open("xb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
            yield packed
