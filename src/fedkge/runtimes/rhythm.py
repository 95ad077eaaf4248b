"""When the nodes of a run are saved together: every so often, and less often where saving takes long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

QUICK = 1.5  #: seconds; after a save that takes longer, the next one waits longer in proportion


class Rhythm:
    """Says when a save is due. With one every 30 seconds, a long run spends at most a twentieth on them."""

    def __init__(self, every: float) -> None:
        self.every = every
        self._pause, self._last = every, time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._last >= self._pause

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Around a save."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._pause = self.every * max(1.0, (self._last - began) / QUICK)
