"""Who is left out of shared negatives on the GPU: each query's known answers are searched for them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import Draw
from fedkge.kernels.gpu.launch import launch
from fedkge.kernels.gpu.optimizers import site_of


@triton.jit
def _left_out(
    out,  # bool [b, n]
    negatives,  # [c, n]
    starts,  # [c + 1]
    site,
    first,
    size,
    known,
    lo,
    hi,
    n,
    chunks,
    SEARCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    chunk = site_of(i, starts + 1, chunks, SEARCH)
    s, begin = tl.load(site + i), tl.load(lo + i)
    answers = tl.load(hi + i) - begin
    answers = tl.where(
        answers < tl.load(size + s), answers, 0
    )  # nothing but answers: filtering is impossible
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    u = tl.load(negatives + chunk * n + j, mask=j < n, other=-1) - tl.load(first + s)
    low = tl.zeros_like(u)  # grows to the first answer that is not below u
    high = low + answers
    rest = answers
    while rest > 0:
        middle = (low + high) >> 1
        searching = low < high
        below = searching & (tl.load(known + begin + middle, mask=searching, other=0) + middle < u)
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
        rest = rest >> 1
    found = (low < answers) & (tl.load(known + begin + low, mask=low < answers, other=-1) + low == u)
    tl.store(out + i * n + j, found, mask=j < n)


def left_out(negatives: Tensor, starts: Tensor, draw: Draw) -> Tensor:
    b, (c, n) = len(draw.site), negatives.shape
    out = torch.empty(b, n, dtype=torch.bool, device=negatives.device)
    where = (draw.site, draw.first, draw.size, draw.known, draw.lo, draw.hi)
    parts = (tensor.contiguous() for tensor in (negatives, starts, *where))
    block = min(triton.next_power_of_2(n), 256)
    meta = {"SEARCH": max(c, 1).bit_length(), "BLOCK": block, "num_warps": 2}
    launch(_left_out, (b, triton.cdiv(n, block)), out, *parts, n, c, **meta)
    return out
