"""Training steps as CUDA graphs: launched whole, so that a step costs what its kernels cost."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

from fedkge.models import Side

Size: TypeAlias = tuple[int, int]  #: how many triples a step takes, and how many chunks these make
Step: TypeAlias = Callable[[Size, Side], None]


class Steps:
    """Calls a step; from the second call with the same arguments on, replays it.

    The first call runs as it is, on a stream of its own, and compiles kernels on the way. The step must be
    the same each time and read everything that changes (clock, schedule, tables) from the same memory. It is
    not kept: who owns both would be part of a cycle, and graphs must not be destroyed at any odd moment.
    """

    def __init__(self) -> None:
        self._graphs: dict[tuple[Size, Side], torch.cuda.CUDAGraph] = {}
        self._seen: set[tuple[Size, Side]] = set()
        self._pool = None  # graphs share their memory: no two of them run at once

    def __call__(self, step: Step, size: Size, side: Side) -> None:
        shape = size, side
        if shape in self._graphs:
            self._graphs[shape].replay()
        elif shape in self._seen:
            self._graphs[shape] = self._capture(step, size, side)
            self._graphs[shape].replay()
        else:
            self._seen.add(shape)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step(size, side)
            torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, step: Step, size: Size, side: Side) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, pool=self._pool):
            step(size, side)
        self._pool = self._pool or graph.pool()  # type: ignore[assignment]
        return graph


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from collecting garbage: destroying somebody else's graph would spoil a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
