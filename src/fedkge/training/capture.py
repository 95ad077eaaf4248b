"""Training steps as CUDA graphs: launched whole, so that a step costs what its kernels cost."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

Size: TypeAlias = tuple[int, int]  #: how many triples a step takes, and how many chunks these make
Shape: TypeAlias = tuple[Hashable, ...]  #: what a step is called with: it says all about what is launched


class Steps:
    """Calls a step; from the second call with the same arguments on, replays it.

    The first call runs as it is, on a stream of its own, and compiles kernels on the way. The step must be
    the same each time and read everything that changes (clock, schedule, tables) from the same memory. It is
    not kept: who owns both would be part of a cycle, and graphs must not be destroyed at any odd moment.
    """

    def __init__(self) -> None:
        self._graphs: dict[Shape, torch.cuda.CUDAGraph] = {}
        self._seen: set[Shape] = set()
        self._pool = None  # graphs share their memory: no two of them run at once

    def __call__(self, step: Callable[..., None], *shape: Hashable) -> None:
        if shape in self._graphs:
            self._graphs[shape].replay()
        elif shape in self._seen:
            self._graphs[shape] = self._capture(step, shape)
            self._graphs[shape].replay()
        else:
            self._seen.add(shape)
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                step(*shape)
            torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, step: Callable[..., None], shape: Shape) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, pool=self._pool):
            step(*shape)
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
