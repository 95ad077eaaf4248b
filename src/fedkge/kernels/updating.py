"""Optimizer steps in plain torch: over whole tables, over touched rows, and of rows that wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedkge.kernels.base import ADAGRAD_EPSILON, Adam, Contribution, Pace, Tie, Until
from fedkge.kernels.touching import accumulate_, touched


def _ranges(pace: Pace) -> list[tuple[slice, int]]:
    """The row ranges of the active sites, and the steps each has taken."""
    ends = pace.ends.tolist()
    starts = [0, *ends[:-1]]
    sites = zip(starts, ends, pace.steps.tolist(), pace.active.tolist(), strict=True)
    return [(slice(start, end), steps) for start, end, steps, active in sites if active]


def rates(pace: Pace, adam: Adam, dtype: torch.dtype) -> Tensor:
    """Each site's bias-corrected rate, and what corrects the root of its second moment [2, s]."""
    steps = pace.steps.clamp_min(1).double()
    rate, inverse = adam.rate / (1 - adam.beta1**steps), (1 - adam.beta2**steps).rsqrt()
    return torch.stack((rate, inverse)).to(dtype)


def all_rates(adam: Adam, like: Tensor) -> Tensor | None:
    """What a backend wants to have at hand where rows catch up, for as long as they do."""
    return None


def adam_(table: Tensor, gradient: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    """Step every row of the active sites; clear the gradient of all."""
    for rows, step in _ranges(pace):
        _adam_rows(table, gradient[rows], m, v, rows, step, adam)
    gradient.zero_()


def adam_touched_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    """Step the touched rows of the active sites alone; where rows may be late, they have taken it.

    Rows that were promised the step take it in any case.
    """
    until = pace.until
    more = pace.promised if until is None else (until.ids,)
    part = (part if more is None else part.reaching(more)).joined()
    rows, gradient = touched(table, part)
    site = torch.searchsorted(pace.ends, rows, right=True)
    for s in pace.active.nonzero()[:, 0].tolist():
        mine = site == s
        _adam_rows(table, gradient[mine], m, v, rows[mine], int(pace.steps[s]), adam)
        if pace.taken is not None:
            pace.taken[rows[mine]] = pace.taken[rows[mine]].clamp_min(int(pace.steps[s]))
    if until is not None:
        for row, last in dict(zip(until.ids.tolist(), until.steps.tolist(), strict=True)).items():
            _go_on(table, m, v, pace, adam, row, last)


def _go_on(table: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam, row: int, last: int) -> None:
    """Let one row take its steps up to the last, without a gradient."""
    assert pace.taken is not None
    for step in range(int(pace.taken[row]) + 1, last + 1):
        _adam_rows(table, torch.zeros_like(table[row]), m, v, slice(row, row + 1), step, adam)
        pace.taken[row] = step


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
    """How far rows may go after each of the next steps: given are the rows that it reads, and who takes it.

    Rows are made ready for their first reading. `rooms` are int32 [e] each: the first holds -1, before and
    after. To be used by `adam_touched_`, in turn.
    """
    counts = [pace.steps, *(pace.steps + torch.stack(list(active[: k + 1])).sum(0) for k in range(len(read)))]
    rows = [torch.cat(list(some)) for some in read]
    due: dict[int, int] = {}  # the steps that a row must have taken before its next reading
    found = []
    for k, ids in reversed(list(enumerate(rows))):
        site = torch.searchsorted(pace.ends, ids, right=True)
        alone = counts[k + 1][site].tolist()  # that far a row goes which is not read again
        steps = [due.get(row, last) for row, last in zip(ids.tolist(), alone, strict=True)]
        found.append(Until(ids, torch.tensor(steps, dtype=torch.int32), len(ids.unique()), rooms[1]))
        due |= zip(ids.tolist(), counts[k][site].tolist(), strict=True)
    for row, steps_before in due.items():
        _go_on(table, m, v, pace, adam, row, steps_before)
    return found[::-1]


def catch_up_(
    table: Tensor,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    ids: Sequence[Tensor] | None = None,
    promised: bool = False,
) -> None:
    """Let rows (None: all) take the steps of their site that they have missed: their gradient was 0.

    They end as rows that took every step in its turn: on a CPU bit by bit, on a GPU but for rounding.
    With `promised` they count their site's next step as taken too: `adam_touched_` must let them take it.
    Until it has, they are ready for the step after that only where somebody promises them that one.
    """
    taken = pace.taken
    assert taken is not None
    asked = torch.arange(len(table), device=table.device) if ids is None else torch.cat(list(ids)).unique()
    due = pace.steps[torch.searchsorted(pace.ends, asked, right=True)]
    while (late := asked[taken[asked] < due]).numel():
        step = int(taken[late].min()) + 1
        rows = late[taken[late] == step - 1]
        _adam_rows(table, torch.zeros_like(table[rows]), m, v, rows, step, adam)
        taken[rows] = step
    if promised:
        taken[asked] = taken[asked].maximum(due.int() + 1)


def _adam_rows(
    table: Tensor, g: Tensor, m: Tensor, v: Tensor, rows: Tensor | slice, step: int, adam: Adam
) -> None:
    m[rows] = adam.beta1 * m[rows] + (1 - adam.beta1) * g
    v[rows] = adam.beta2 * v[rows] + (1 - adam.beta2) * g * g
    root = (1 - adam.beta2**step) ** 0.5
    rate = adam.rate / (1 - adam.beta1**step)
    table[rows] -= rate * m[rows] / (v[rows].sqrt() / root + adam.epsilon)


def moments(table: Tensor, kept: Tensor) -> Tensor:
    """Of each row x of a table and the one kept beside it: |x - kept|^2, |x|^2, x . kept as [e, 3]."""
    return torch.stack(((table - kept).square().sum(-1), table.square().sum(-1), (table * kept).sum(-1)), -1)


def tied(table: Tensor, tie: Tie) -> Tensor:
    """The gradient [e, w] that a tie stands for."""
    gap, square, product = tie.factors[:, :, None].unbind(1)
    return gap * (table - tie.kept) + square * table + product * tie.kept


def adam_whole_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    """`adam_` of the gradient that `part` stands for."""
    part = part.joined()
    gradient = torch.zeros_like(table) if part.tie is None else tied(table, part.tie)
    accumulate_(gradient, table, part)
    adam_(table, gradient, m, v, pace, adam)


def adagrad_(table: Tensor, gradient: Tensor, squares: Tensor, pace: Pace, rate: float) -> None:
    for rows, _ in _ranges(pace):
        squares[rows] += gradient[rows] ** 2
        table[rows] -= rate * gradient[rows] / (squares[rows].sqrt() + ADAGRAD_EPSILON)
    gradient.zero_()


def sgd_(table: Tensor, gradient: Tensor, pace: Pace, rate: float) -> None:
    for rows, _ in _ranges(pace):
        table[rows] -= rate * gradient[rows]
    gradient.zero_()
