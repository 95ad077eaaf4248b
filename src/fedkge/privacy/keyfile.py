"""A secret in a file: random bytes, made once, that only their owner may read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from fedkge.errors import DataError

BYTES = 32


def key_in(path: Path, first: Callable[[bytes], None] | None = None) -> bytes:
    """The key of a file, which is made when it is first asked for; two processes that ask get the same.

    `first` is done with a new key before the file is there; then one process may ask at a time.
    """
    try:
        if not path.exists():
            _make(path, first)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: no key can be kept here: {error.strerror}") from None
    if len(content) != BYTES:
        raise DataError(f"{path}: {len(content)} bytes, expected {BYTES}; restore the file")
    return content


def _make(path: Path, first: Callable[[bytes], None] | None) -> None:
    """Written whole under another name first: a name that is there has all of its bytes."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft, key = path.with_name(f"{path.name}.{secrets.token_hex(8)}"), os.urandom(BYTES)
    if first is not None:
        first(key)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        draft.unlink()
