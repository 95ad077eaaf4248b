"""Every kernel in plain torch: slow, obvious, on any device; what the fast ones are tested against.

Where a kernel's last arguments are other kernels, a backend may give it faster ones.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.kernels import cipher, composing, sampling, sharing, touching, updating
from fedkge.kernels.base import Composed, Laid, Room, Shared, Similarity

philox, uniform = sampling.philox, sampling.uniform
keystream, add_noise_ = cipher.keystream, cipher.add_noise_
order_keys, deal, negatives_ = sampling.order_keys, sampling.deal, sampling.negatives_
compose, decompose, turn = composing.compose, composing.decompose, composing.turn
left_out, shared_scores, shared_gradients = sharing.left_out, sharing.scores, sharing.gradients
forward, all_scores, backward_query = touching.forward, touching.all_scores, touching.backward_query
touched, accumulate_ = touching.touched, touching.accumulate_
cubes, cube_gradients = touching.cubes, touching.cube_gradients
adam_, adam_touched_, adam_whole_ = updating.adam_, updating.adam_touched_, updating.adam_whole_
adagrad_, sgd_, rates, all_rates = updating.adagrad_, updating.sgd_, updating.rates, updating.all_rates
foresee, catch_up_ = updating.foresee, updating.catch_up_
moments, tied = updating.moments, updating.tied


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
