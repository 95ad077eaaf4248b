"""Every kernel in plain torch: slow, obvious, on any device; what the fast ones are tested against."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.kernels.base import ADAGRAD_EPSILON, Adam, Contribution, Draw, Similarity, Tie, Turn
from fedkge.randomness import MULTIPLIERS, ROUNDS, WEYL

LOW = 0xFFFFFFFF


def compare(kind: Similarity, query: Tensor, rows: Tensor) -> Tensor:
    """The similarity of rows `[..., w]` that broadcast against each other."""
    if kind is Similarity.DOT:
        return (query * rows).sum(-1)
    difference = query - rows
    if kind is Similarity.L1:
        return -difference.abs().sum(-1)
    if kind is Similarity.L2:
        return -torch.linalg.vector_norm(difference, dim=-1)
    pairs = torch.stack(difference.chunk(2, -1), -1)
    return -torch.linalg.vector_norm(pairs, dim=-1).sum(-1)


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
    return rows, gradient.index_add(0, where[part.index.numel() :], part.values)


def accumulate_(gradient: Tensor, table: Tensor, part: Contribution) -> None:
    """Add `part` to a dense gradient."""
    rows, values = touched(table, part)
    gradient.index_add_(0, rows, values)


def squares(table: Tensor, part: Contribution) -> Tensor:
    """The squared norm [b] of each statement's own gradient, repeated rows merged.

    Statement i has row i of the queries and candidates, and where there are `ids` [b] the i-th of the values.
    A coordinate in which query and candidate are equal has no gradient; a backend may count it as if it had
    one, unless all are equal: what is clipped by the norm is then clipped a little more.
    """
    found = [torch.stack([touched(table, _one(part, i))[1].square().sum()]) for i in range(len(part.query))]
    return torch.cat([table.new_empty(0), *found])


def _one(part: Contribution, i: int) -> Contribution:
    own = slice(i, i + 1)
    pairs = (part.query[own], part.index[own], part.scores[own], part.d_scores[own])
    return Contribution(part.kind, *pairs, part.ids[own], part.values[own])


def contrast(scores: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Losses [b] of positives scores[:, 0] against their negatives, and d losses / d scores [b, 1 + n].

    (softplus(-s_0) + sum_j w_j softplus(s_j)) / 2, `w = softmax(temperature s_j)` taken as constant:
    the self-adversarial loss of Sun et al. (2019), and the plain logistic one at temperature 0.
    """
    positive, negative = scores[:, 0], scores[:, 1:]
    weight = (temperature * negative).softmax(-1)
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


def distil(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """What two models teach each other by scores [b, n]: KL(q || p) [b], KL(p || q) [b], and a gradient.

    p and q are the softmaxes of `first / temperature` and `second / temperature`. The gradient [b, n] is
    `(p - q) / temperature`: of KL(q || p) in `first` with q taken as constant, and, negated, of KL(p || q)
    in `second` with p taken as constant.
    """
    log_p, log_q = ((scores / temperature).log_softmax(-1) for scores in (first, second))
    p, q = log_p.exp(), log_q.exp()
    to_first, to_second = (q * (log_q - log_p)).sum(-1), (p * (log_p - log_q)).sum(-1)
    return to_first, to_second, (p - q) / temperature


def philox(key: Tensor, counter: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Philox4x32-10 in int64 arithmetic; `key` is a uint64 held in an int64, everything broadcasts."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    k0, k1 = key & LOW, (key >> 32) & LOW
    for _ in range(ROUNDS):
        (high_a, low_a), (high_b, low_b) = _multiply(c0, MULTIPLIERS[0]), _multiply(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def _multiply(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a 32-bit product, without overflowing int64."""
    low, high = x * (factor & 0xFFFF), x * (factor >> 16)
    total = low + ((high & 0xFFFF) << 16)
    return (total >> 32) + (high >> 16), total & LOW


def uniform(key: int, keys: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1) `[n, width]`, made of 24 bits each; row i depends on keys[i] alone."""
    block = torch.arange((width + 3) // 4, device=keys.device)
    rows = keys[:, None]
    counter = (block, torch.zeros_like(block), rows & LOW, (rows >> 32) & LOW)
    bits = torch.stack(philox(_signed(key, keys), counter), -1).flatten(-2)[:, :width]
    return (bits >> 8).to(dtype) * 2.0**-24


def add_noise_(out: Tensor, key: Tensor, rows: Tensor, scale: Tensor) -> None:
    """Add `scale[i]` times standard normal numbers to row i of `out` [n, w]; they depend on rows[i] alone.

    Box and Muller (1958) on Philox's bits at counters (j // 4, 0, rows[i]) of the `key` (uint64 as int64
    [1]).
    """
    width = out.shape[1]
    block, ids = torch.arange((width + 3) // 4, device=out.device), rows[:, None]
    counter = (block, torch.zeros_like(block), ids & LOW, (ids >> 32) & LOW)
    first, second = [], []
    for size, turn in (bits := philox(key, counter))[:2], bits[2:]:
        radius = ((size.double() + 0.5) * 2.0**-32).log().mul(-2).sqrt()
        angle = turn.double() * (2.0**-31 * pi)
        first.append(radius * angle.cos())
        second.append(radius * angle.sin())
    normal = torch.stack((first[0], second[0], first[1], second[1]), -1).flatten(-2)[:, :width]
    out += scale[:, None] * normal.to(out.dtype)


def _signed(key: int, like: Tensor) -> Tensor:
    """A 64-bit key as an int64 on the device of `like`."""
    return torch.tensor(key - (1 << 64) if key >> 63 else key, device=like.device)


def order_keys(keys: Tensor, site: Tensor, local: Tensor, clock: tuple[int, int]) -> Tensor:
    """Numbers whose order shuffles each site's items: the site in the high bits, 48 random bits below."""
    zero = torch.zeros_like(local)
    b0, b1, _, _ = philox(keys[site], (local, zero, zero + clock[0], zero + clock[1]))
    return (site << 48) | ((b1 & 0xFFFF) << 32) | b0


def negatives_(index: Tensor, draw: Draw, clock: Tensor) -> None:
    """Fill index[:, 1:] with negatives, drawn at the counter `clock` [2]."""
    n = index.shape[1] - 1
    block = torch.arange((n + 3) // 4, device=index.device)
    counter = (block, draw.position[:, None], clock[0], clock[1])
    bits = torch.stack(philox(draw.keys[draw.site][:, None], counter), -1).flatten(-2)[:, :n]
    answers, size = draw.hi - draw.lo, draw.size[draw.site]
    free = torch.where(answers < size, answers, 0)  # nothing but answers: filtering is impossible
    u = bits * (size - free)[:, None] >> 32
    for i, (lo, count) in enumerate(zip(draw.lo.tolist(), free.tolist(), strict=True)):
        u[i] += torch.searchsorted(draw.known[lo : lo + count], u[i].clone(), right=True)
    index[:, 1:] = draw.first[draw.site][:, None] + u


def _ranges(turn: Turn) -> list[tuple[slice, int]]:
    """The row ranges of the active sites, and the steps each has taken."""
    ends = turn.ends.tolist()
    starts = [0, *ends[:-1]]
    sites = zip(starts, ends, turn.steps.tolist(), turn.active.tolist(), strict=True)
    return [(slice(start, end), steps) for start, end, steps, active in sites if active]


def adam_(table: Tensor, gradient: Tensor, m: Tensor, v: Tensor, turn: Turn, adam: Adam) -> None:
    """Step every row of the active sites; clear the gradient of all."""
    for rows, step in _ranges(turn):
        _adam_rows(table, gradient[rows], m, v, rows, step, adam)
    gradient.zero_()


def adam_touched_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, turn: Turn, adam: Adam) -> None:
    """Step the touched rows of the active sites alone."""
    rows, gradient = touched(table, part)
    site = torch.searchsorted(turn.ends, rows, right=True)
    for s in turn.active.nonzero()[:, 0].tolist():
        mine = site == s
        _adam_rows(table, gradient[mine], m, v, rows[mine], int(turn.steps[s]), adam)


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


def adam_whole_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, turn: Turn, adam: Adam) -> None:
    """`adam_` of the gradient that `part` stands for."""
    gradient = torch.zeros_like(table) if part.tie is None else tied(table, part.tie)
    accumulate_(gradient, table, part)
    adam_(table, gradient, m, v, turn, adam)


def adagrad_(table: Tensor, gradient: Tensor, squares: Tensor, turn: Turn, rate: float) -> None:
    for rows, _ in _ranges(turn):
        squares[rows] += gradient[rows] ** 2
        table[rows] -= rate * gradient[rows] / (squares[rows].sqrt() + ADAGRAD_EPSILON)
    gradient.zero_()


def sgd_(table: Tensor, gradient: Tensor, turn: Turn, rate: float) -> None:
    for rows, _ in _ranges(turn):
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
    """Float32 rows [n, width] of what `quantise` made."""
    base = 2 * most + 1
    digits = torch.stack([packed // base**place % base for place in range(per_byte)], -1).flatten(1)
    return digits[:, :width].float().sub_(most).mul_(scale[:, None])
