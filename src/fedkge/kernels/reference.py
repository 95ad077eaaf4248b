"""Every kernel in plain torch: slow, obvious, on any device; what the fast ones are tested against.

Where a kernel's last arguments are other kernels, a backend may give it faster ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.kernels import cipher, composing, sampling, sharing
from fedkge.kernels.base import (
    ADAGRAD_EPSILON,
    Adam,
    Composed,
    Contribution,
    Laid,
    Pace,
    Room,
    Shared,
    Similarity,
    Tie,
    Until,
)
from fedkge.kernels.comparing import compare

philox, uniform = sampling.philox, sampling.uniform
keystream, add_noise_ = cipher.keystream, cipher.add_noise_
order_keys, deal, negatives_ = sampling.order_keys, sampling.deal, sampling.negatives_
compose, decompose, turn = composing.compose, composing.decompose, composing.turn
left_out, shared_scores, shared_gradients = sharing.left_out, sharing.scores, sharing.gradients


def forward(kind: Similarity, query: Tensor, table: Tensor, index: Tensor) -> Tensor:
    return compare(kind, query[:, None], table[index])


def all_scores(kind: Similarity, query: Tensor, table: Tensor) -> Tensor:
    """Similarities `[b, e]` of every row."""
    if kind is Similarity.DOT:
        return query @ table.T
    return compare(kind, query[:, None], table[None])


def backward_query(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor
) -> Tensor:
    with torch.enable_grad():
        leaf = query.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(forward(kind, leaf, table.detach(), index), leaf, d_scores)
    return gradient


def touched(table: Tensor, part: Contribution) -> tuple[Tensor, Tensor]:
    """The distinct rows that `part` touches, ascending, and their gradients."""
    rows, where = torch.cat((part.index.flatten(), part.ids)).unique(return_inverse=True)
    with torch.enable_grad():
        leaf = table[rows].detach().requires_grad_()
        places = where[: part.index.numel()].view_as(part.index)
        scores = forward(part.kind, part.query.detach(), leaf, places)
        (gradient,) = torch.autograd.grad(scores, leaf, part.d_scores)
    where = where[part.index.numel() :]
    gradient = gradient.index_add(0, where[: len(part.values)], part.values)
    if part.cubed is not None:
        slopes = part.cubed.new_zeros(len(rows)).index_add(0, where[len(part.values) :], part.cubed)
        gradient = gradient + cube_gradients(table, rows, slopes)
    return rows, gradient


def accumulate_(gradient: Tensor, table: Tensor, part: Contribution) -> None:
    """Add `part` to a dense gradient."""
    rows, values = touched(table, part)
    gradient.index_add_(0, rows, values)


def cubes(table: Tensor, ids: Tensor) -> Tensor:
    """|x|^3 summed over the numbers of rows [b]: what L3 keeps small."""
    rows = table[ids]
    return (rows.abs() * rows * rows).sum(-1)


def cube_gradients(table: Tensor, ids: Tensor, slopes: Tensor) -> Tensor:
    """The gradients [b, w] of `cubes`, times slopes [b]."""
    rows = table[ids]
    return (3 * slopes)[:, None] * rows.abs() * rows


def lengths(rows: Tensor) -> Tensor:
    """The norms [n] of rows [n, w]; squares of float32 neither overflow nor underflow."""
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).to(rows.dtype)


def squares(rows: Tensor, lengths: Tensor, order: Tensor, starts: Tensor) -> Tensor:
    """An upper bound of the squared norm [units] of what each unit of a batch adds to one table.

    Triple i adds terms of lengths[i] [k] to rows[i] [k], and unit u has order[starts[u]:starts[u + 1]]. Terms
    that meet in a row are together at most as long as their lengths add up to; rows are orthogonal.
    """
    found = []
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        own = order[first:last]
        distinct, place = rows[own].flatten().unique(return_inverse=True)
        total = lengths.new_zeros(len(distinct)).index_add_(0, place, lengths[own].flatten())
        found.append(total.square().sum())
    return torch.stack([lengths.new_zeros(()), *found])[1:]


def cut(norms: Tensor, clip: Tensor | float) -> Tensor:
    """Factors [b] that make each norm at most `clip`: min(1, clip / norm), and 0 of what is not finite."""
    factors = (clip / norms.clamp_min(torch.finfo(norms.dtype).tiny)).clamp_max(1.0)
    return torch.where(norms.isfinite(), factors, 0.0)


def clip_factors(
    squares: Tensor, losses: Tensor, clip: Tensor, there: Tensor, expected: float
) -> tuple[Tensor, Tensor]:
    """What a private step multiplies units' gradients by [units], and the mean of the triples' losses [1].

    Each norm, whose square is the sum of squares [tables, units], is cut to clip [1], and the sum of
    gradients divided by the expected number of units. `there` [2] are how many triples and how many units
    there are: places after them are padding and count nothing. Losses that are not finite count nothing
    either: a training that ends for one tells of the triple.
    """
    triples, units = (
        torch.arange(n, device=there.device) < k
        for n, k in zip((len(losses), squares.shape[1]), there, strict=True)
    )
    factors = torch.where(units, cut(squares.sum(0).sqrt(), clip), 0.0) / expected
    told = torch.where(triples & losses.isfinite(), losses, 0.0)
    return factors, told.double().sum()[None] / there[0].clamp_min(1)


def contrast(scores: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Losses [b] of positives scores[:, 0] against their negatives, and d losses / d scores [b, 1 + n].

    (softplus(-s_0) + sum_j w_j softplus(s_j)) / 2, `w = softmax(temperature s_j)` taken as constant:
    the self-adversarial loss of Sun et al. (2019), and the plain logistic one at temperature 0. A negative
    with a score of -inf is left out: its weight is 0.
    """
    positive, negative = scores[:, 0], scores[:, 1:]
    there = negative != -torch.inf
    weight = torch.where(there, temperature * negative, -torch.inf).softmax(-1)
    weight = torch.where(there, weight, 0.0)  # where all are left out, the softmax is not a number
    losses = (F.softplus(-positive) + (weight * F.softplus(negative)).sum(-1)) / 2
    d_positive, d_negative = -torch.sigmoid(-positive), weight * torch.sigmoid(negative)
    return losses, torch.cat((d_positive[:, None], d_negative), -1) / 2


def contrast_rows(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`contrast` of margin + similarity [b, n], the first candidate true: losses [b], similarities [b, n],
    and the losses' gradients by similarities [b, n] and by queries [b, w]."""
    scores = forward(kind, query, table, index)
    losses, d_scores = contrast(scores + margin, temperature)
    return losses, scores, d_scores, backward_query(kind, query, table, index, scores, d_scores)


def contrast_shared(
    kind: Similarity, query: Tensor, table: Tensor, shared: Shared, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Laid]:
    """`contrast` of margin + similarity, without what is left out: losses [b], similarities [b, 1 + n], and
    the losses' gradients by similarities [b, 1 + n]."""
    scores, laid = shared_scores(kind, query, table, shared)
    losses, d_scores = contrast(shared.masked(scores + margin), temperature)
    return losses, scores, d_scores, laid


def contrast_composed(
    kind: Similarity, entities: Tensor, made: Composed, shared: Shared, margin: float, temperature: float
) -> tuple[Tensor, Laid]:
    """Losses [b] of `contrast_shared` for queries made of rows; factors of a rotation are its phases.

    Together with `heap_composed_` it is a whole pass, of backends that have room for gradients.
    """
    query = compose(entities, composing.turned(made))
    losses, *factors = contrast_shared(kind, query, entities, shared, margin, temperature)
    return losses, (query, *factors)


def heap_composed_(
    kind: Similarity,
    entities: Tensor,
    made: Composed,
    shared: Shared,
    laid: Laid,
    each: Tensor,
    rooms: tuple[Room, Room],
) -> None:
    """Add the gradients of entities' and relations' rows where there is room; losses count each [b]."""
    query, scores, d_scores, laid = laid
    d_query, values = shared_gradients(kind, query, entities, shared, laid, scores, d_scores, each)
    width = made.factors.shape[1]
    d_anchor, d_relation = decompose(entities, composing.turned(made), d_query, width)
    ids = torch.cat((made.anchor, shared.ids())), made.relation
    for room, rows, found in zip(rooms, ids, (torch.cat((d_anchor, values)), d_relation), strict=True):
        room.sums.index_add_(0, rows, found)
        room.touched[rows] = 1


def distil(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """What two models teach each other by scores [b, n]: KL(q || p) [b], KL(p || q) [b], and a gradient.

    p and q are the softmaxes of `first / temperature` and `second / temperature`. The gradient [b, n] is
    `(p - q) / temperature`: of KL(q || p) in `first` with q taken as constant, and, negated, of KL(p || q)
    in `second` with p taken as constant. A candidate whose scores are -inf is left out.
    """
    log_p, log_q = ((scores / temperature).log_softmax(-1) for scores in (first, second))
    p, q = log_p.exp(), log_q.exp()
    log_p, log_q = (torch.where(scores == -torch.inf, 0.0, scores) for scores in (log_p, log_q))
    to_first, to_second = (q * (log_q - log_p)).sum(-1), (p * (log_p - log_q)).sum(-1)
    return to_first, to_second, (p - q) / temperature


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


def quantise(values: Tensor, scale: Tensor, most: int, per_byte: int) -> Tensor:
    """Rows [n, w] as whole multiples of their scale [n], at most `most` of it: uint8 [n, ⌈w / per_byte⌉].

    A byte holds the digits `q + most` of so many numbers in base `2 most + 1`, the first as the lowest.
    """
    digits = values.div(scale[:, None]).round_().nan_to_num_(most).clamp_(-most, most).add_(most)
    digits = F.pad(digits.to(torch.uint8), (0, -values.shape[1] % per_byte)).unflatten(1, (-1, per_byte))
    packed = digits[..., -1]
    for place in range(per_byte - 2, -1, -1):
        packed = packed * (2 * most + 1) + digits[..., place]
    return packed


def restored(packed: Tensor, scale: Tensor, most: int, per_byte: int, width: int) -> Tensor:
    """Float32 rows [n, width] of what `quantise` made; bytes that it never makes are NaN."""
    base = 2 * most + 1
    digits = torch.stack([packed // base**place % base for place in range(per_byte)], -1).float().sub_(most)
    digits.masked_fill_((packed >= base**per_byte)[..., None], torch.nan)
    return digits.flatten(1)[:, :width] * scale[:, None]
