"""Optimizers on a CPU as functions of torch tensors: rows that are stepped now, and rows that wait."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkge.kernels.base import ADAGRAD_EPSILON, Adam, Contribution, Pace, Until
from fedkge.kernels.cpu import optimizers, similarity
from fedkge.kernels.cpu.arrays import factors_of, grouped, matrix, slopes_of

PIECES = 256  #: parts that an optimizer's rows are dealt out in
STEPS = 1 << 16  #: steps after which Adam's corrections are 1, to the last bit of float64
NOWHERE = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))  #: no row goes further


def _ranges(pace: Pace) -> NDArray[np.int64]:
    """The row ranges [s, 2] of the sites."""
    ends = pace.ends.numpy()
    return np.stack((np.concatenate(([0], ends[:-1])), ends), 1)


def _pieces(pace: Pace) -> NDArray[np.int64]:
    """The rows of the active sites cut into PIECES parts, or as many as there are sites, of like sizes."""
    found: NDArray[np.int64] = optimizers.pieces(pace.ends.numpy(), pace.active.numpy(), PIECES)
    return found


def _clear_inactive(gradient: NDArray[np.floating], pace: Pace) -> None:
    for start, end in _ranges(pace)[~pace.active.numpy()]:
        gradient[start:end] = 0


def adam_rates(adam: Adam, dtype: np.dtype[np.floating], step: int) -> tuple[object, object]:
    """Adam's `numbers`, and its `rates` of all steps up to that one, as `stepping.adam_row` has them."""
    return _rates_below(adam, dtype, min(1 << int(step).bit_length(), STEPS))


@lru_cache(8)
def _rates_below(adam: Adam, dtype: np.dtype[np.floating], count: int) -> tuple[object, object]:
    beta1, beta2 = adam.beta1, adam.beta2
    steps = np.maximum(np.arange(count), 1)  # step 0 is not used
    rates = np.stack((adam.rate / (1 - beta1**steps), 0.5 / np.sqrt(1 - beta2**steps)), 1)
    return np.array((beta1, beta2, 1 - beta1, 1 - beta2, adam.epsilon), dtype), rates.astype(dtype)


def all_rates(adam: Adam, like: Tensor) -> Tensor | None:
    return None  # they are cheap here


def moments(table: Tensor, kept: Tensor) -> Tensor:
    out = table.new_empty(len(table), 3)
    similarity.moments(matrix(table), matrix(kept), out.numpy())
    return out


def adam_(table: Tensor, gradient: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    arrays = [tensor.detach().numpy() for tensor in (table, gradient, m, v)]
    dtype = arrays[0].dtype
    steps = pace.steps.numpy()
    optimizers.adam(*arrays, _pieces(pace), steps, *adam_rates(adam, dtype, steps.max()))
    _clear_inactive(arrays[1], pace)


def adam_touched_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    until = pace.until
    part = part if pace.promised is None else part.reaching(pace.promised)
    groups = grouped(table, part)
    if until is not None and len(groups[0]) < until.distinct:  # some get no gradient, and step all the same
        part = part.reaching((until.ids,))
        groups = grouped(table, part)
    site = np.searchsorted(pace.ends.numpy(), groups[0], side="right")
    state, steps, active = (m.numpy(), v.numpy()), pace.steps.numpy(), pace.active.numpy()
    far = NOWHERE if until is None else tuple(map(matrix, (until.ids, until.steps, until.by_row)))
    most = int(steps.max() if until is None else max(steps.max(), until.steps.max()))
    rates = adam_rates(adam, state[0].dtype, most)
    sites = (site, active, steps)
    optimizers.adam_touched(*factors_of(table, part), slopes_of(part), *groups, *state, *sites, *far, *rates)
    if pace.taken is not None:
        stepped, taken = active[site], pace.taken.numpy()
        rows = groups[0][stepped]
        reached = steps[site[stepped]] if until is None else far[2][rows]
        taken[rows] = np.maximum(taken[rows], reached)


def foresee(
    table: Tensor,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    read: Sequence[Sequence[Tensor]],
    active: Sequence[Tensor],
    rooms: tuple[Tensor, Tensor],
) -> list[Until]:
    assert pace.taken is not None
    due, by_row = rooms
    ids = np.concatenate([matrix(one) for some in read for one in some])
    bounds = np.cumsum([0, *(sum(one.numel() for one in some) for some in read)])
    taking = np.stack([one.numpy() for one in active]).astype(np.int64)
    counts = pace.steps.numpy() + np.concatenate((np.zeros_like(taking[:1]), taking.cumsum(0)))
    until, distinct = np.empty(len(ids), np.int32), np.empty(len(read), np.int64)
    late = np.empty((min(len(ids), len(table)), 3), np.int64)
    where = (ids, bounds, pace.ends.numpy(), counts, pace.taken.numpy(), due.numpy())
    late = late[: optimizers.foresee(*where, until, distinct, late)]
    arrays = [tensor.detach().numpy() for tensor in (table, m, v)]
    optimizers.catch_up(*arrays, late, *adam_rates(adam, arrays[0].dtype, counts.max()))
    rows, last = torch.from_numpy(ids), torch.from_numpy(until)
    parts = (slice(a, b) for a, b in pairwise(bounds.tolist()))
    return [Until(rows[own], last[own], int(n), by_row) for own, n in zip(parts, distinct, strict=True)]


def catch_up_(
    table: Tensor,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    ids: Sequence[Tensor] | None = None,
    promised: bool = False,
) -> None:
    assert pace.taken is not None
    every = np.arange(len(table)) if ids is None else np.concatenate([matrix(one) for one in ids])
    late, steps = np.empty((len(every), 3), np.int64), pace.steps.numpy()
    taken, ends = pace.taken.numpy(), pace.ends.numpy()
    late = late[: optimizers.late(every, taken, ends, steps, late)]
    if promised:
        taken[every] = np.maximum(taken[every], steps[np.searchsorted(ends, every, side="right")] + 1)
    arrays = [tensor.detach().numpy() for tensor in (table, m, v)]
    optimizers.catch_up(*arrays, late, *adam_rates(adam, arrays[0].dtype, steps.max()))


def adam_whole_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    groups = grouped(table, part)
    state = [tensor.detach().numpy() for tensor in (m, v)]
    dtype, steps = state[0].dtype, pace.steps.numpy()
    none = state[0][:0], np.empty((0, 3), dtype)
    tie = none if part.tie is None else map(matrix, (part.tie.kept, part.tie.factors))
    factors = factors_of(table, part)
    rates = adam_rates(adam, dtype, steps.max())
    optimizers.adam_whole(*factors, slopes_of(part), *groups, *tie, *state, _pieces(pace), steps, *rates)


def adagrad_(table: Tensor, gradient: Tensor, squares: Tensor, pace: Pace, rate: float) -> None:
    arrays = [tensor.detach().numpy() for tensor in (table, gradient, squares)]
    scalar = arrays[0].dtype.type
    optimizers.adagrad(*arrays, _pieces(pace), scalar(rate), scalar(ADAGRAD_EPSILON))
    _clear_inactive(arrays[1], pace)


def sgd_(table: Tensor, gradient: Tensor, pace: Pace, rate: float) -> None:
    arrays = [tensor.detach().numpy() for tensor in (table, gradient)]
    optimizers.sgd(*arrays, _pieces(pace), arrays[0].dtype.type(rate))
    _clear_inactive(arrays[1], pace)
