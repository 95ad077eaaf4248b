"""Files that outlive a process: written whole or not at all, readable by their owner only, and locked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from fedkge.errors import DataError

PRIVATE = 0o600  #: the mode of all that must stay where it is


@contextmanager
def locked(path: Path, wait: float = 0.0) -> Iterator[bool]:
    """Hold a file's lock, if it is free within so many seconds; it is gone with the process."""
    import fcntl

    until = time.monotonic() + wait
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE), "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(0.05)
                    continue
                yield False
            else:
                yield True
            return


def write_whole(path: Path, content: bytes | Sequence[bytes], sync: bool = True) -> None:
    """Write a file so that it holds the old content or the new, never a part of it; only its owner reads it.

    Large content may come in parts, which need not be joined. Without `sync`, a machine that loses power may
    lose it; a process that is killed does not.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(
            f"{path}: cannot be written: {error.strerror}; what was there before is kept"
        ) from None


def keep_private(path: Path) -> None:
    """Make sure that a file is there and only its owner can read it, before anything is written to it."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE))
    path.chmod(PRIVATE)


@contextmanager
def privately() -> Iterator[None]:
    """Whatever is created in here, also by other packages, only its owner can read."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def sync_folder(folder: Path) -> None:
    """A new file's name must be on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_text(value: Any, indent: int | None = None, ascii: bool = True) -> str:
    """JSON as its standard has it: a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=ascii, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def state_folder() -> Path:
    """`$XDG_STATE_HOME/fedkge`, or `~/.local/state/fedkge` (XDG Base Directory Specification)."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state") / "fedkge"
