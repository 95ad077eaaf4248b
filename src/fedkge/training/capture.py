"""Training steps as CUDA graphs: launched whole, so that a step costs what its kernels cost."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedkge.models import Side


class Steps:
    """Calls a step; from the second call with the same arguments on, replays it.

    The first call runs as it is, on a stream of its own, and compiles kernels on the way. The step must read
    everything that changes (clock, schedule, tables) from the same memory each time.
    """

    def __init__(self, step: Callable[[int, Side], None]) -> None:
        self._step = step
        self._graphs: dict[tuple[int, Side], torch.cuda.CUDAGraph] = {}
        self._seen: set[tuple[int, Side]] = set()
        self._pool = None  # graphs share their memory: no two of them run at once

    def __call__(self, count: int, side: Side) -> None:
        shape = count, side
        if shape in self._graphs:
            self._graphs[shape].replay()
        elif shape in self._seen:
            self._graphs[shape] = self._capture(count, side)
            self._graphs[shape].replay()
        else:
            self._seen.add(shape)
            self._aside(count, side)

    def _aside(self, count: int, side: Side) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(count, side)
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, count: int, side: Side) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(count, side)
        self._pool = self._pool or graph.pool()  # type: ignore[assignment]
        return graph
