"""The logistic loss of a positive and its negatives on the GPU, with its gradient: one program per row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.gpu.launch import launch

LONGEST = 1024  #: negatives that a program holds at once; a longer row is read three times


@triton.jit
def _soften(x):
    """softplus(x) = log(1 + exp(x)) and its derivative sigmoid(x), without overflow."""
    e = tl.exp(-tl.abs(x))
    return tl.maximum(x, 0.0) + tl.log(1.0 + e), tl.where(x > 0, 1.0, e) / (1.0 + e)


@triton.jit
def _contrast(losses, gradient, scores, temperature: tl.float64, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    negatives, d_negatives = scores + i * (n + 1) + 1, gradient + i * (n + 1) + 1
    dtype: tl.constexpr = scores.dtype.element_ty
    scale = tl.cast(temperature, dtype)
    top = tl.full((BLOCK,), float("-inf"), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, scale * tl.load(negatives + j, mask=j < n, other=0.0))
    highest = tl.max(top, 0)
    total = tl.zeros((BLOCK,), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        weight = tl.exp(scale * tl.load(negatives + j, mask=j < n, other=0.0) - highest)
        total += tl.where(j < n, weight, 0.0)
    sum_of_weights = tl.sum(total, 0)
    loss = tl.zeros((BLOCK,), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        s = tl.load(negatives + j, mask=j < n, other=0.0)
        weight = tl.where(j < n, tl.exp(scale * s - highest) / sum_of_weights, 0.0)
        value, slope = _soften(s)
        loss += weight * value
        tl.store(d_negatives + j, 0.5 * weight * slope, mask=j < n)
    value, slope = _soften(-tl.load(negatives - 1))
    tl.store(losses + i, 0.5 * (value + tl.sum(loss, 0)))
    tl.store(d_negatives - 1, -0.5 * slope)


def contrast(losses: Tensor, gradient: Tensor, scores: Tensor, temperature: float) -> None:
    b, n = scores.shape[0], scores.shape[1] - 1
    block = min(triton.next_power_of_2(max(n, 1)), LONGEST)
    launch(_contrast, (b,), losses, gradient, scores, temperature, n, BLOCK=block, num_warps=2)
