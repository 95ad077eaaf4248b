"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

KINDS = ("train", "evaluate", "exchange", "checkpoint")


class Clock:
    """Seconds per kind of work. What is not spent on another kind is exchange."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self._lap = time.perf_counter()

    def load(self, seconds: Mapping[str, float]) -> None:
        self.seconds |= seconds

    @contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        self.lap()
        try:
            yield
        finally:
            self.lap(kind)

    def lap(self, kind: str = "exchange") -> None:
        """The time since the last lap was spent on `kind`."""
        now = time.perf_counter()
        self.seconds[kind] += now - self._lap
        self._lap = now
