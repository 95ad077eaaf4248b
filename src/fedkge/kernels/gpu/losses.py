"""Losses of scores on the GPU with their gradients, contrast and distillation: one program per row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.gpu.launch import launch

LONGEST = 1024  #: scores that a program holds at once; a longer row is read three times


@triton.jit
def soften(x):
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
        s = tl.load(negatives + j, mask=j < n, other=float("-inf"))
        top = tl.maximum(top, tl.where(s != float("-inf"), scale * s, float("-inf")))
    highest = tl.max(top, 0)
    total = tl.zeros((BLOCK,), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        s = tl.load(negatives + j, mask=j < n, other=float("-inf"))  # what is left out is -inf
        total += tl.where(s != float("-inf"), tl.exp(scale * s - highest), 0.0)
    sum_of_weights = tl.sum(total, 0)
    loss = tl.zeros((BLOCK,), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        s = tl.load(negatives + j, mask=j < n, other=float("-inf"))
        weight = tl.where(s != float("-inf"), tl.exp(scale * s - highest) / sum_of_weights, 0.0)
        value, slope = soften(s)
        loss += weight * value
        tl.store(d_negatives + j, 0.5 * weight * slope, mask=j < n)
    value, slope = soften(-tl.load(negatives - 1))
    tl.store(losses + i, 0.5 * (value + tl.sum(loss, 0)))
    tl.store(d_negatives - 1, -0.5 * slope)


def contrast(losses: Tensor, gradient: Tensor, scores: Tensor, temperature: float) -> None:
    b, n = scores.shape[0], scores.shape[1] - 1
    block = min(triton.next_power_of_2(max(n, 1)), LONGEST)
    launch(_contrast, (b,), losses, gradient, scores, temperature, n, BLOCK=block, num_warps=2)


@triton.jit
def _distil(to_first, to_second, gradient, first, second, temperature: tl.float64, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    a, b, g = first + i * n, second + i * n, gradient + i * n
    dtype: tl.constexpr = first.dtype.element_ty
    scale = tl.cast(1.0 / temperature, dtype)
    highest_a = tl.full((BLOCK,), float("-inf"), dtype)
    highest_b = tl.full((BLOCK,), float("-inf"), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        highest_a = tl.maximum(highest_a, tl.load(a + j, mask=j < n, other=float("-inf")))
        highest_b = tl.maximum(highest_b, tl.load(b + j, mask=j < n, other=float("-inf")))
    top_a, top_b = tl.max(highest_a, 0), tl.max(highest_b, 0)
    sum_p = tl.zeros((BLOCK,), dtype)
    sum_q = tl.zeros((BLOCK,), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = (tl.load(a + j, mask=j < n, other=0.0) - top_a) * scale
        y = (tl.load(b + j, mask=j < n, other=0.0) - top_b) * scale
        sum_p += tl.where(j < n, tl.exp(x), 0.0)
        sum_q += tl.where(j < n, tl.exp(y), 0.0)
    total_p, total_q = tl.sum(sum_p, 0), tl.sum(sum_q, 0)
    shift = tl.log(total_p) - tl.log(total_q)
    taught_a = tl.zeros((BLOCK,), dtype)
    taught_b = tl.zeros((BLOCK,), dtype)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = (tl.load(a + j, mask=j < n, other=0.0) - top_a) * scale
        y = (tl.load(b + j, mask=j < n, other=0.0) - top_b) * scale
        p = tl.where(j < n, tl.exp(x) / total_p, 0.0)
        q = tl.where(j < n, tl.exp(y) / total_q, 0.0)
        gap = tl.where(x != float("-inf"), y - x + shift, 0.0)  # log q - log p; -inf is left out
        taught_a += q * gap
        taught_b -= p * gap
        tl.store(g + j, (p - q) * scale, mask=j < n)
    tl.store(to_first + i, tl.sum(taught_a, 0))
    tl.store(to_second + i, tl.sum(taught_b, 0))


def distil(
    to_first: Tensor, to_second: Tensor, gradient: Tensor, first: Tensor, second: Tensor, temperature: float
) -> None:
    b, n = first.shape
    block = min(triton.next_power_of_2(max(n, 1)), LONGEST)
    launch(
        _distil, (b,), to_first, to_second, gradient, first, second, temperature, n, BLOCK=block, num_warps=2
    )
