"""How kernels are launched: the tile one program holds, and the device it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from fedkge.kernels.base import Similarity

LONGEST = 512  #: numbers of a row that one program holds at once


@dataclass(frozen=True, slots=True)
class Tiles:
    """The size of a program's tile of rows; the constants beside the kernels suit an H200."""

    elements: int  #: numbers in a tile
    warps: int = 4
    rows: int = 1 << 10  #: most rows in a tile, however short they are
    longest: int = LONGEST  #: most numbers of a row in a tile

    def fit(self, kind: Similarity, width: int, rows: int) -> dict[str, int]:
        """The shape of the tiles, as arguments of a kernel: BLOCK rows by CHUNK coordinates of the SPAN.

        A coordinate is one number, or a complex one stored as two: SPAN is the width or half of it.
        """
        halves = 2 if kind is Similarity.MODULUS else 1
        span = width // halves
        chunk = min(triton.next_power_of_2(span), self.longest // halves)
        block = min(
            max(1, self.elements // (chunk * halves)), triton.next_power_of_2(max(1, rows)), self.rows
        )
        shape = {"WIDTH": width, "SPAN": span, "BLOCK": block, "CHUNK": chunk}
        warps = min(max(self.warps, block * chunk * halves // 2048), 16)
        return {"KIND": int(kind), **shape, "num_warps": warps}


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **meta: Any) -> None:
    """Run `grid` programs on the device of the first argument; an empty grid is no work."""
    if 0 in grid:
        return
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **meta)
