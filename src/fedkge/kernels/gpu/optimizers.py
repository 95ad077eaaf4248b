"""Optimizer steps over whole tables on the GPU, from gradients that are summed up already.

They are one pass that clears the gradient on the way. What a turn says is read on the device.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedkge.kernels.base import ADAGRAD_EPSILON, Adam, Pace, Similarity
from fedkge.kernels.gpu.launch import Tiles, launch

DENSE = Tiles(2048)
STEPS = 40_000  #: steps after which Adam's corrections are 1, to the last bit of float64
EPSILON_OF_ADAGRAD = tl.constexpr(ADAGRAD_EPSILON)


@triton.jit
def _corrections(
    out, steps, rate: tl.float64, sites, LOG1: tl.constexpr, LOG2: tl.constexpr, BLOCK: tl.constexpr
):
    """out[0] = rate / (1 - beta1^steps), out[1] = 1 / sqrt(1 - beta2^steps); logarithms to base 2."""
    s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    taken = tl.maximum(tl.load(steps + s, mask=s < sites, other=1), 1).to(tl.float64)
    tl.store(out + s, rate / (1.0 - tl.exp2(taken * LOG1)), mask=s < sites)
    tl.store(out + sites + s, 1.0 / tl.sqrt(1.0 - tl.exp2(taken * LOG2)), mask=s < sites)


def corrections(pace: Pace, adam: Adam, dtype: torch.dtype) -> Tensor:
    """Each site's bias-corrected rate, and what corrects the root of its second moment `[2, s]`."""
    if pace.rates is not None:
        return pace.rates
    sites = len(pace.steps)
    out = pace.steps.new_empty((2, sites), dtype=dtype)
    logs = [math.log2(beta) if beta else -math.inf for beta in (adam.beta1, adam.beta2)]
    grid = (triton.cdiv(sites, 32),)
    launch(_corrections, grid, out, pace.steps, adam.rate, sites, *logs, BLOCK=32, num_warps=1)
    return out


def all_corrections(adam: Adam, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Those of all steps `[2, STEPS]`, from the last of which on they stay; of step 0 they are not used."""
    steps = torch.arange(STEPS, device=device)
    return corrections(Pace(steps, steps, steps), adam, dtype)


@triton.jit
def site_of(rows, ends, sites, SEARCH: tl.constexpr):
    """The site that owns each row: the number of ends at most the row, by bisection in SEARCH steps."""
    low = rows * 0
    high = low + sites
    for _ in tl.static_range(SEARCH):
        middle = (low + high) >> 1
        searching = low < high
        past = searching & (tl.load(ends + tl.minimum(middle, sites - 1)) <= rows)
        low = tl.where(past, middle + 1, low)
        high = tl.where(past, high, middle)
    return low


@triton.jit
def steps_now(site, active, sites):
    """Whether a site takes a step; rows beyond the last site's end take none."""
    return (site < sites) & (tl.load(active + tl.minimum(site, sites - 1)) != 0)


@triton.jit
def adam_step(value, g, m, v, rate, inverse, BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr):
    """One step of Adam (Kingma & Ba, 2015) as torch.optim.Adam takes it; `inverse` corrects the root of v."""
    m = BETA1 * m + (1 - BETA1) * g
    v = BETA2 * v + (1 - BETA2) * g * g
    return value - rate * m / (tl.sqrt(v) * inverse + EPSILON), m, v


@triton.jit
def _take(gradient, ends, active, height, sites, SEARCH, WIDTH, BLOCK, CHUNK):
    """A tile's gradient, which is cleared, with its offsets, the sites of its rows, and what takes a step."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)[None, :]
    inside = (rows < height)[:, None] & (d < WIDTH)
    at = rows[:, None] * WIDTH + d
    g = tl.load(gradient + at, mask=inside, other=0.0)
    tl.store(gradient + at, tl.zeros_like(g), mask=inside)
    site = site_of(rows, ends, sites, SEARCH)
    return g, at, site, inside & steps_now(site, active, sites)[:, None]


@triton.jit
def _adam(
    table,
    gradient,
    m,
    v,
    ends,
    active,
    corrections,  # [2, sites]
    height,
    sites,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    SEARCH: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    g, at, site, mask = _take(gradient, ends, active, height, sites, SEARCH, WIDTH, BLOCK, CHUNK)
    rate = tl.load(corrections + site, mask=site < sites, other=0.0)[:, None]
    inverse = tl.load(corrections + sites + site, mask=site < sites, other=1.0)[:, None]
    value = tl.load(table + at, mask=mask, other=0.0)
    first = tl.load(m + at, mask=mask, other=0.0)
    second = tl.load(v + at, mask=mask, other=0.0)
    value, first, second = adam_step(value, g, first, second, rate, inverse, BETA1, BETA2, EPSILON)
    tl.store(table + at, value, mask=mask)
    tl.store(m + at, first, mask=mask)
    tl.store(v + at, second, mask=mask)


@triton.jit
def _adagrad(
    table,
    gradient,
    squares,
    ends,
    active,
    rate: tl.float64,
    height,
    sites,
    SEARCH: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    g, at, _, mask = _take(gradient, ends, active, height, sites, SEARCH, WIDTH, BLOCK, CHUNK)
    square = tl.load(squares + at, mask=mask, other=0.0) + g * g
    step = tl.cast(rate, g.dtype) * g / (tl.sqrt(square) + EPSILON_OF_ADAGRAD)
    tl.store(table + at, tl.load(table + at, mask=mask, other=0.0) - step, mask=mask)
    tl.store(squares + at, square, mask=mask)


@triton.jit
def _sgd(
    table,
    gradient,
    ends,
    active,
    rate: tl.float64,
    height,
    sites,
    SEARCH: tl.constexpr,
    KIND: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    g, at, _, mask = _take(gradient, ends, active, height, sites, SEARCH, WIDTH, BLOCK, CHUNK)
    value = tl.load(table + at, mask=mask, other=0.0) - tl.cast(rate, g.dtype) * g
    tl.store(table + at, value, mask=mask)


def sites_of(pace: Pace) -> tuple[Tensor, Tensor]:
    return pace.ends.contiguous(), pace.active.contiguous().view(torch.uint8)


def _dense(kernel, tables: tuple[Tensor, ...], pace: Pace, *constants, tiles: Tiles, **meta) -> None:
    """Run `kernel` over all tiles of tables that are shaped alike."""
    height, width = tables[0].shape
    sites = len(pace.ends)
    shape = tiles.fit(Similarity.DOT, width, height)  # rows of plain numbers
    grid = (triton.cdiv(height, shape["BLOCK"]), triton.cdiv(width, shape["CHUNK"]))
    arguments = (*tables, *sites_of(pace), *constants, height, sites)
    launch(kernel, grid, *arguments, SEARCH=sites.bit_length(), **meta, **shape)


def constants_of(adam: Adam) -> dict[str, float]:
    return {"BETA1": adam.beta1, "BETA2": adam.beta2, "EPSILON": adam.epsilon}


def adam(
    table: Tensor, gradient: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam, tiles: Tiles = DENSE
) -> None:
    corrected = corrections(pace, adam, table.dtype)
    _dense(_adam, (table, gradient, m, v), pace, corrected, tiles=tiles, **constants_of(adam))


def adagrad(
    table: Tensor, gradient: Tensor, squares: Tensor, pace: Pace, rate: float, tiles: Tiles = DENSE
) -> None:
    _dense(_adagrad, (table, gradient, squares), pace, rate, tiles=tiles)


def sgd(table: Tensor, gradient: Tensor, pace: Pace, rate: float, tiles: Tiles = DENSE) -> None:
    _dense(_sgd, (table, gradient), pace, rate, tiles=tiles)
