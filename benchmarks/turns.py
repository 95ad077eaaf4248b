"""Turns with a program in a process of its own, and what is told of them: medians, spread, load."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedkge.machine import SETTINGS, THREADS

TURNS = 7  #: at least
ALONE = Path(__file__).with_name("pykeen_alone.py")


class Beside:
    """PyKEEN, waiting to be asked for a turn."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def turn(self) -> dict[str, float]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("turn\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"PyKEEN's process ended with exit code {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found


@contextmanager
def pykeen(what: str, model: str, folder: Path, *options: object) -> Iterator[Beside]:
    """PyKEEN as its users run it: without our settings of the allocator and of threads."""
    line = [sys.executable, str(ALONE), what, model, str(folder), *map(str, options)]
    dropped = {*SETTINGS, *THREADS}
    around = {name: value for name, value in os.environ.items() if name not in dropped}
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=around)
    try:
        yield Beside(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def told(name: str, values: Sequence[float], digits: int | None = None) -> dict[str, Any]:
    """The median, and in brackets the lowest and the highest."""
    low, high = min(values), max(values)
    return {
        name: round(statistics.median(values), digits),
        f"{name}_from_to": [round(low, digits), round(high, digits)],
    }


def load() -> dict[str, float]:
    """How busy the machine was with other things, over the last minute: to be called before measuring."""
    return {"load_before": round(os.getloadavg()[0], 2)}
