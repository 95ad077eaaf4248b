"""Where a command writes: a folder that is new, or replaced on request, and untouched by a failure."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkge.errors import DataError

OURS = re.compile(r"(train|valid|test|forget)\.(tsv|nt)(\.gz)?")


@contextmanager
def destination(out: Path, overwrite: bool) -> Iterator[Path]:
    """The name of a folder to make; it becomes `out` if the body succeeds and is removed if it fails."""
    given, out = out, out.absolute()
    _check(out, overwrite)
    try:
        above = next(parent for parent in out.parents if parent.is_dir())
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=above) as temporary:
            fresh = Path(temporary) / "new"
            try:
                yield fresh
            except DataError as error:  # name the folder that the user knows, not the hidden one
                hidden = re.escape(temporary) + r"[/\\]\w+"
                raise DataError(re.sub(hidden, lambda _: str(given), str(error))) from None
            if out.exists():
                out.rename(Path(temporary) / "old")
            out.parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(out)
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error.strerror or error}") from None


def _check(out: Path, overwrite: bool) -> None:
    """Refuse what is in use; even on request, replace nothing but graphs as these commands write them."""
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out}: expected a folder to write to, found a file")
    if any(out.iterdir()) and not overwrite:
        raise DataError(f"{out}: the folder is not empty; choose another, or replace it with --overwrite")
    for path in sorted(out.glob("**/*")):
        if path.is_file() and not OURS.fullmatch(path.name):
            raise DataError(f"{path}: not a file that this command writes, so --overwrite will not remove it")
