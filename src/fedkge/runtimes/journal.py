"""The run's journal: one JSON event per line, only ever appended to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedkge.errors import DataError


class Journal:
    """Appends events to a file; each line reaches the disk before `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, **values: Any) -> None:
        line = json.dumps({"event": event, "time": round(time.time(), 3), **values}) + "\n"
        try:
            with self.path.open("ab+") as file:
                if file.tell() and not self._ends_whole():
                    line = "\n" + line  # a torn last line stays, on a line of its own
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror}") from None

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The events in order; torn lines, which a killed run leaves, are passed over."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a run folder with a journal")
    with path.open("rb") as file:
        for line in file:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
