"""A journal, of a run or of one node: one JSON event per line, only ever appended to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkge.durable import json_text, keep_private
from fedkge.errors import DataError


class Journal:
    """Appends events to a file; each line reaches the disk before `append` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, **values: Any) -> None:
        self.append([dated({"event": event, **values})])

    def append(self, events: Sequence[Mapping[str, Any]], sync: bool = True) -> None:
        """Several events at once; without `sync`, a machine that loses power may lose them."""
        if not events:
            return
        lines = "".join(json_text(event) + "\n" for event in events)
        try:
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                keep_private(self.path)
            with self.path.open("ab+") as file:
                if file.tell() and not self._ends_whole():
                    lines = "\n" + lines  # a torn last line stays, on a line of its own
                file.write(lines.encode())
                file.flush()
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror}") from None

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() == b"\n"


def dated(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event with the time of now, after its name."""
    return {"event": event["event"], "time": round(time.time(), 3), **event}


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
