"""The CPU kernels as functions of torch tensors, with the names and meanings of `kernels.reference`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkge.kernels import reference
from fedkge.kernels.base import (
    ADAGRAD_EPSILON,
    Adam,
    Composed,
    Contribution,
    Dealt,
    Deck,
    Draw,
    Laid,
    Pace,
    Shared,
    Similarity,
    Until,
)
from fedkge.kernels.cipher import GRID, MOST
from fedkge.kernels.cpu import (
    cipher,
    coding,
    composing,
    dealing,
    filtering,
    grouping,
    laying,
    losses,
    noise,
    norms,
    optimizers,
    pulling,
    sampling,
    sharing,
    similarity,
    together,
)

steps_together = together.run
clip_factors, turn = reference.clip_factors, reference.turn

KINDS = {torch.float32: np.float32, torch.float64: np.float64}
PIECES = 256  #: parts that an optimizer's rows are dealt out in
STEPS = 1 << 16  #: steps after which Adam's corrections are 1, to the last bit of float64
NOWHERE = (np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32))  #: no row goes further


def _rows(tensor: Tensor) -> NDArray[np.float32]:
    """A matrix whose rows are contiguous."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    array: NDArray[np.float32] = (tensor if tensor.is_contiguous() else tensor.contiguous()).numpy()
    return array


def _room(like: Tensor, *shape: int) -> Tensor:
    """A matrix for one step, not written.

    Torch may lay large tensors on pages of 2 MB each, which leaves gaps between those of every step.
    """
    return torch.from_numpy(laying.aligned(shape, KINDS[like.dtype]))


def forward(kind: Similarity, query: Tensor, table: Tensor, index: Tensor) -> Tensor:
    scores = torch.empty(index.shape, dtype=table.dtype)
    similarity.forward(int(kind), _rows(query), _rows(table), _rows(index), scores.numpy())
    return scores


def all_scores(kind: Similarity, query: Tensor, table: Tensor) -> Tensor:
    scores = torch.empty(len(query), len(table), dtype=table.dtype)
    similarity.all_scores(int(kind), _rows(query), _rows(table), scores.numpy())
    return scores


def backward_query(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor
) -> Tensor:
    gradient = torch.empty(query.shape, dtype=table.dtype)
    similarity.backward_query(
        int(kind), *map(_rows, (query, table, index, scores, d_scores)), gradient.numpy()
    )
    return gradient


def _groups(table: Tensor, part: Contribution) -> tuple[NDArray[np.int64], ...]:
    """Distinct rows, where their positions start, and the positions, as `grouping.group` gives them."""
    index, ids, rows = _rows(part.index), _rows(part.ids), table.shape[0]
    if max(rows, index.size + ids.size) >= 1 << 31:
        raise ValueError(f"{rows} rows, {index.size} candidates: expected fewer than 2^31")
    groups: tuple[NDArray[np.int64], ...] = grouping.group(index, ids, rows)
    return groups


def touched(table: Tensor, part: Contribution) -> tuple[Tensor, Tensor]:
    groups = _groups(table, part)
    values = torch.empty(len(groups[0]), table.shape[1], dtype=table.dtype)
    similarity.backward_table(*_factors(table, part), *groups, values.numpy(), False)
    return torch.from_numpy(groups[0]), values


def accumulate_(gradient: Tensor, table: Tensor, part: Contribution) -> None:
    groups = _groups(table, part)
    similarity.backward_table(*_factors(table, part), *groups, gradient.numpy(), True)


def _factors(table: Tensor, part: Contribution) -> tuple[object, ...]:
    ahead = part.values[:0] if part.ahead is None else part.ahead
    arrays = map(_rows, (part.scores, part.d_scores, ahead, part.values))
    return int(part.kind), _rows(part.query), table.detach().numpy(), part.index.shape[1], *arrays


def squares(rows: Tensor, lengths: Tensor, order: Tensor, starts: Tensor) -> Tensor:
    out = lengths.new_empty(len(starts) - 1)
    norms.squares(_rows(rows), _rows(lengths), order.numpy(), starts.numpy(), out.numpy())
    return out


def contrast(scores: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    loss, gradient = scores.new_empty(len(scores)), torch.empty(scores.shape, dtype=scores.dtype)
    array = _rows(scores)
    losses.contrast(array, array.dtype.type(temperature), loss.numpy(), gradient.numpy())
    return loss, gradient


def contrast_rows(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, d_scores = (torch.empty(index.shape, dtype=table.dtype) for _ in range(2))
    loss, d_query = table.new_empty(len(query)), torch.empty(query.shape, dtype=table.dtype)
    rows = _rows(table)
    options = rows.dtype.type(margin), rows.dtype.type(temperature)
    out = (x.numpy() for x in (loss, scores, d_scores, d_query))
    similarity.contrast_rows(int(kind), _rows(query), rows, _rows(index), *options, *out)
    return loss, scores, d_scores, d_query


def left_out(negatives: Tensor, starts: Tensor, draw: Draw) -> Tensor:
    out = torch.empty(len(draw.site), negatives.shape[1], dtype=torch.bool)
    where = (negatives, starts, draw.site, draw.first, draw.size, draw.known, draw.lo, draw.hi)
    filtering.left_out(*(tensor.numpy() for tensor in where), out.numpy())
    return out


def _laid(kind: Similarity, query: Tensor, table: Tensor, shared: Shared) -> Laid:
    """What kernels of shared negatives begin with: rows, and where and how they are laid out."""
    q, rows, starts, negatives = map(_rows, (query, table, shared.starts, shared.negatives))
    placed, queries, packed = laying.room(int(kind), q, rows, negatives, starts)
    laying.pack(int(kind), q, rows, negatives, starts, placed, queries, packed)
    return q, rows, _rows(shared.true), starts, placed, queries, packed, np.ones(1, rows.dtype)


def _shared_scores(
    kind: Similarity, query: Tensor, table: Tensor, shared: Shared, contrast: tuple[float, float] | None
) -> tuple[Tensor, Tensor, Tensor, Laid]:
    laid = _laid(kind, query, table, shared)
    shapes = (shared.shape, *((shared.shape[:1], shared.shape) if contrast else ((0,), (0, 0))))
    scores, loss, slopes = (torch.empty(shape, dtype=table.dtype) for shape in shapes)
    options = np.array(contrast or (0, 0), laid[1].dtype)
    out = (x.numpy() for x in (scores, loss, slopes))
    sharing.scores(int(kind), *laid, _rows(shared.left_out), options, *out)
    return loss, scores, slopes, laid


def shared_scores(kind: Similarity, query: Tensor, table: Tensor, shared: Shared) -> tuple[Tensor, Laid]:
    _, scores, _, laid = _shared_scores(kind, query, table, shared, None)
    return scores, laid


def contrast_shared(
    kind: Similarity, query: Tensor, table: Tensor, shared: Shared, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Laid]:
    return _shared_scores(kind, query, table, shared, (margin, temperature))


def shared_gradients(
    kind: Similarity,
    query: Tensor,
    table: Tensor,
    shared: Shared,
    laid: Laid,
    scores: Tensor,
    d_scores: Tensor,
    each: Tensor,
) -> tuple[Tensor, Tensor]:
    d_query = _room(table, *query.shape)
    values = _room(table, len(query) + shared.negatives.numel(), table.shape[1])
    factors = map(_rows, (scores, d_scores, each))
    pulling.gradients(int(kind), *laid, *factors, d_query.numpy(), values.numpy())
    return d_query, values


def compose(entities: Tensor, made: Composed) -> Tensor:
    query = _room(entities, len(made.anchor), entities.shape[1])
    composing.compose(*_made(entities, made), query.numpy())
    return query


def decompose(entities: Tensor, made: Composed, d_query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    d_anchor, d_relation = _room(entities, *d_query.shape), _room(entities, len(d_query), width)
    scale = _rows(entities).dtype.type(made.scale)
    out = (d_anchor.numpy(), d_relation.numpy())
    composing.decompose(*_made(entities, made), scale, _rows(d_query), *out)
    return d_anchor, d_relation


def _made(entities: Tensor, made: Composed) -> tuple[object, ...]:
    rows = _rows(entities)
    parts = (rows, _rows(made.anchor), _rows(made.factors), _rows(made.relation))
    return int(made.kind), *parts, rows.dtype.type(made.sign)


def distil(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    arrays = _rows(first), _rows(second)
    taught = first.new_empty(2, len(first))
    gradient = torch.empty(first.shape, dtype=first.dtype)
    losses.distil(*arrays, arrays[0].dtype.type(temperature), *taught.numpy(), gradient.numpy())
    return taught[0], taught[1], gradient


def uniform(key: int, keys: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    out = torch.empty(len(keys), width, dtype=dtype)
    sampling.uniform(np.uint64(key), keys.numpy().view(np.uint64), out.numpy())
    return out


def _words(keys: Tensor) -> NDArray[np.uint32]:
    """Keys of ChaCha20 [..., 4] as 32-bit words [..., 8]."""
    words: NDArray[np.uint32] = keys.contiguous().numpy().view(np.uint32)
    return words


def keystream(key: Tensor, count: int, stream: int = 0) -> Tensor:
    if count > MOST:
        raise ValueError(f"{count:,} words of one stream, expected at most {MOST:,}")
    out = np.empty(count, np.uint32)
    cipher.keystream(_words(key), stream, out)
    return torch.from_numpy(out.astype(np.int64))


def add_noise_(sums: Tensor, key: Tensor, scale: Tensor) -> None:
    if sums.numel() > MOST:
        raise ValueError(f"noise for {sums.numel():,} numbers, expected at most {MOST:,}")
    if float(scale):
        flat = sums.detach().view(-1).numpy()
        noise.add_noise(flat, _words(key), flat.dtype.type(float(scale) / GRID))


def order_keys(keys: Tensor, site: Tensor, local: Tensor, visit: int, epoch: Tensor) -> Tensor:
    out = torch.empty_like(local)
    inputs = keys.numpy().view(np.uint64), site.numpy(), local.numpy()
    sampling.order_keys(*inputs, visit, int(epoch), out.numpy())
    return out


def deal(
    deck: Deck,
    order: Tensor,
    triples: Tensor,
    answers: tuple[Tensor, Tensor],
    clock: Tensor,
    visits: int,
    size: tuple[int, int],
) -> Dealt:
    (b, c), number = size, int(clock[0]) // visits
    found, chunks = order.new_empty(8, b), order.new_empty(3, c + 1)
    where = (order, triples, *answers, deck.starts, deck.site, deck.position, deck.heads, deck.first_heads)
    slot = dealing.deal(number, *(one.numpy() for one in (*where, found, chunks)))
    triple, h, r, t, lo, hi, site, position = found.unbind()
    starts, *chunk = chunks.unbind()
    share, (chunk_site, chunk_position) = deck.share[slot : slot + b], (one[:c] for one in chunk)
    return Dealt(triple, h, r, t, lo, hi, site, position, share, starts, chunk_site, chunk_position)


def negatives_(index: Tensor, draw: Draw, clock: Tensor) -> None:
    a, b = clock.tolist()
    where = (draw.site, draw.position, draw.first, draw.size, draw.known, draw.lo, draw.hi)
    rest = (a, b, *(tensor.numpy() for tensor in where), index.numpy())
    if draw.keys.ndim == 2:
        sampling.secret_negatives(_words(draw.keys), *rest)
    else:
        sampling.negatives(draw.keys.numpy().view(np.uint64), *rest)


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
    similarity.moments(_rows(table), _rows(kept), out.numpy())
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
    groups = _groups(table, part)
    if until is not None and len(groups[0]) < until.distinct:  # some get no gradient, and step all the same
        part = part.reaching((until.ids,))
        groups = _groups(table, part)
    site = np.searchsorted(pace.ends.numpy(), groups[0], side="right")
    state, steps, active = (m.numpy(), v.numpy()), pace.steps.numpy(), pace.active.numpy()
    far = NOWHERE if until is None else tuple(map(_rows, (until.ids, until.steps, until.by_row)))
    most = int(steps.max() if until is None else max(steps.max(), until.steps.max()))
    rates = adam_rates(adam, state[0].dtype, most)
    sites = (site, active, steps)
    optimizers.adam_touched(*_factors(table, part), *groups, *state, *sites, *far, *rates)
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
    ids = np.concatenate([_rows(one) for some in read for one in some])
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
    every = np.arange(len(table)) if ids is None else np.concatenate([_rows(one) for one in ids])
    late, steps = np.empty((len(every), 3), np.int64), pace.steps.numpy()
    taken, ends = pace.taken.numpy(), pace.ends.numpy()
    late = late[: optimizers.late(every, taken, ends, steps, late)]
    if promised:
        taken[every] = np.maximum(taken[every], steps[np.searchsorted(ends, every, side="right")] + 1)
    arrays = [tensor.detach().numpy() for tensor in (table, m, v)]
    optimizers.catch_up(*arrays, late, *adam_rates(adam, arrays[0].dtype, steps.max()))


def adam_whole_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    groups = _groups(table, part)
    state = [tensor.detach().numpy() for tensor in (m, v)]
    dtype, steps = state[0].dtype, pace.steps.numpy()
    none = state[0][:0], np.empty((0, 3), dtype)
    tie = none if part.tie is None else map(_rows, (part.tie.kept, part.tie.factors))
    factors = _factors(table, part)
    rates = adam_rates(adam, dtype, steps.max())
    optimizers.adam_whole(*factors, *groups, *tie, *state, _pieces(pace), steps, *rates)


def adagrad_(table: Tensor, gradient: Tensor, squares: Tensor, pace: Pace, rate: float) -> None:
    arrays = [tensor.detach().numpy() for tensor in (table, gradient, squares)]
    scalar = arrays[0].dtype.type
    optimizers.adagrad(*arrays, _pieces(pace), scalar(rate), scalar(ADAGRAD_EPSILON))
    _clear_inactive(arrays[1], pace)


def sgd_(table: Tensor, gradient: Tensor, pace: Pace, rate: float) -> None:
    arrays = [tensor.detach().numpy() for tensor in (table, gradient)]
    optimizers.sgd(*arrays, _pieces(pace), arrays[0].dtype.type(rate))
    _clear_inactive(arrays[1], pace)


def quantise(values: Tensor, scale: Tensor, most: int, per_byte: int) -> Tensor:
    packed = torch.empty(len(values), -(-values.shape[1] // per_byte), dtype=torch.uint8)
    coding.quantise(_rows(values), scale.numpy(), most, per_byte, packed.numpy())
    return packed


def restored(packed: Tensor, scale: Tensor, most: int, per_byte: int, width: int) -> Tensor:
    values = torch.empty(len(packed), width)
    coding.restored(_rows(packed), scale.numpy(), most, per_byte, values.numpy())
    return values
