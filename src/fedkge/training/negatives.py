"""Who a batch's negatives are: drawn for each positive, or once for every chunk of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedkge.kernels import Draw, Shared, backend


@dataclass(frozen=True, slots=True)
class Chunks:
    """Positives of a batch that share negatives: from starts[k] to starts[k + 1] - 1.

    What a chunk draws depends on its site and its position in that site's own batch.
    """

    starts: Tensor  # int64 [c + 1]
    site: Tensor  # int64 [c]
    position: Tensor  # int64 [c]
    longest: int  #: no chunk has more positives


def own(true: Tensor, draw: Draw, negatives: int, clock: Tensor) -> Tensor:
    """Candidates [b, 1 + negatives]: what is true [b], and what each positive draws for itself."""
    index = true.new_empty(len(true), 1 + negatives)
    index[:, 0] = true
    backend(index.device).negatives_(index, draw, clock)
    return index


def shared(true: Tensor, draw: Draw, chunks: Chunks, negatives: int, clock: Tensor) -> Shared:
    """The same law for a whole chunk: drawn from all entities, answers left out for who they answer."""
    index = true.new_empty(len(chunks.site), 1 + negatives)
    where = {"site": chunks.site, "position": chunks.position}
    everyone = replace(draw, **where, lo=chunks.position, hi=chunks.position)  # equal: nothing is left out
    kernels = backend(index.device)
    kernels.negatives_(index, everyone, clock)
    drawn = index[:, 1:].contiguous()
    left_out = kernels.left_out(drawn, chunks.starts, draw)
    return Shared(true, drawn, chunks.starts, left_out, chunks.longest)
