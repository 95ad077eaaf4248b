"""The CPU kernels as functions of torch tensors, with the names and meanings of `kernels.reference`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedkge.kernels import reference
from fedkge.kernels.base import (
    Composed,
    Contribution,
    Dealt,
    Deck,
    Draw,
    Laid,
    Shared,
    Similarity,
)
from fedkge.kernels.cipher import GRID, MOST
from fedkge.kernels.cpu import (
    cipher,
    coding,
    composing,
    dealing,
    filtering,
    laying,
    losses,
    noise,
    norms,
    pulling,
    sampling,
    sharing,
    similarity,
    together,
    updating,
)
from fedkge.kernels.cpu.arrays import factors_of, grouped, matrix, room, words_of

steps_together = together.run
adam_, adam_touched_, adam_whole_ = updating.adam_, updating.adam_touched_, updating.adam_whole_
adagrad_, sgd_ = updating.adagrad_, updating.sgd_
adam_rates, all_rates, moments = updating.adam_rates, updating.all_rates, updating.moments
foresee, catch_up_ = updating.foresee, updating.catch_up_
clip_factors, turn = reference.clip_factors, reference.turn
cube_gradients = reference.cube_gradients


def forward(kind: Similarity, query: Tensor, table: Tensor, index: Tensor) -> Tensor:
    scores = torch.empty(index.shape, dtype=table.dtype)
    similarity.forward(int(kind), matrix(query), matrix(table), matrix(index), scores.numpy())
    return scores


def all_scores(kind: Similarity, query: Tensor, table: Tensor) -> Tensor:
    scores = torch.empty(len(query), len(table), dtype=table.dtype)
    similarity.all_scores(int(kind), matrix(query), matrix(table), scores.numpy())
    return scores


def backward_query(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor
) -> Tensor:
    gradient = torch.empty(query.shape, dtype=table.dtype)
    similarity.backward_query(
        int(kind), *map(matrix, (query, table, index, scores, d_scores)), gradient.numpy()
    )
    return gradient


def touched(table: Tensor, part: Contribution) -> tuple[Tensor, Tensor]:
    groups = grouped(table, part)
    values = torch.empty(len(groups[0]), table.shape[1], dtype=table.dtype)
    similarity.backward_table(*factors_of(table, part), *groups, values.numpy(), False)
    return torch.from_numpy(groups[0]), values


def accumulate_(gradient: Tensor, table: Tensor, part: Contribution) -> None:
    groups = grouped(table, part)
    similarity.backward_table(*factors_of(table, part), *groups, gradient.numpy(), True)


def cubes(table: Tensor, ids: Tensor) -> Tensor:
    out = table.new_empty(len(ids))
    norms.cubes(matrix(table), matrix(ids), out.numpy())
    return out


def lengths(rows: Tensor) -> Tensor:
    out = rows.new_empty(len(rows))
    norms.lengths(matrix(rows), out.numpy())
    return out


def squares(rows: Tensor, lengths: Tensor, order: Tensor, starts: Tensor) -> Tensor:
    out = lengths.new_empty(len(starts) - 1)
    norms.squares(matrix(rows), matrix(lengths), order.numpy(), starts.numpy(), out.numpy())
    return out


def contrast(scores: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    loss, gradient = scores.new_empty(len(scores)), torch.empty(scores.shape, dtype=scores.dtype)
    array = matrix(scores)
    losses.contrast(array, array.dtype.type(temperature), loss.numpy(), gradient.numpy())
    return loss, gradient


def contrast_rows(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, d_scores = (torch.empty(index.shape, dtype=table.dtype) for _ in range(2))
    loss, d_query = table.new_empty(len(query)), torch.empty(query.shape, dtype=table.dtype)
    rows = matrix(table)
    options = rows.dtype.type(margin), rows.dtype.type(temperature)
    out = (x.numpy() for x in (loss, scores, d_scores, d_query))
    similarity.contrast_rows(int(kind), matrix(query), rows, matrix(index), *options, *out)
    return loss, scores, d_scores, d_query


def left_out(negatives: Tensor, starts: Tensor, draw: Draw) -> Tensor:
    out = torch.empty(len(draw.site), negatives.shape[1], dtype=torch.bool)
    where = (negatives, starts, draw.site, draw.first, draw.size, draw.known, draw.lo, draw.hi)
    filtering.left_out(*(tensor.numpy() for tensor in where), out.numpy())
    return out


def _laid(kind: Similarity, query: Tensor, table: Tensor, shared: Shared) -> Laid:
    """What kernels of shared negatives begin with: rows, and where and how they are laid out."""
    q, rows, starts, negatives = map(matrix, (query, table, shared.starts, shared.negatives))
    placed, queries, packed = laying.room(int(kind), q, rows, negatives, starts)
    laying.pack(int(kind), q, rows, negatives, starts, placed, queries, packed)
    return q, rows, matrix(shared.true), starts, placed, queries, packed, np.ones(1, rows.dtype)


def _shared_scores(
    kind: Similarity, query: Tensor, table: Tensor, shared: Shared, contrast: tuple[float, float] | None
) -> tuple[Tensor, Tensor, Tensor, Laid]:
    laid = _laid(kind, query, table, shared)
    shapes = (shared.shape, *((shared.shape[:1], shared.shape) if contrast else ((0,), (0, 0))))
    scores, loss, slopes = (torch.empty(shape, dtype=table.dtype) for shape in shapes)
    options = np.array(contrast or (0, 0), laid[1].dtype)
    out = (x.numpy() for x in (scores, loss, slopes))
    sharing.scores(int(kind), *laid, matrix(shared.left_out), options, *out)
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
    d_query = room(table, *query.shape)
    values = room(table, len(query) + shared.negatives.numel(), table.shape[1])
    factors = map(matrix, (scores, d_scores, each))
    pulling.gradients(int(kind), *laid, *factors, d_query.numpy(), values.numpy())
    return d_query, values


def compose(entities: Tensor, made: Composed) -> Tensor:
    query = room(entities, len(made.anchor), entities.shape[1])
    composing.compose(*_made(entities, made), query.numpy())
    return query


def decompose(entities: Tensor, made: Composed, d_query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    d_anchor, d_relation = room(entities, *d_query.shape), room(entities, len(d_query), width)
    scale = matrix(entities).dtype.type(made.scale)
    out = (d_anchor.numpy(), d_relation.numpy())
    composing.decompose(*_made(entities, made), scale, matrix(d_query), *out)
    return d_anchor, d_relation


def _made(entities: Tensor, made: Composed) -> tuple[object, ...]:
    rows = matrix(entities)
    parts = (rows, matrix(made.anchor), matrix(made.factors), matrix(made.relation))
    return int(made.kind), *parts, rows.dtype.type(made.sign)


def distil(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    arrays = matrix(first), matrix(second)
    taught = first.new_empty(2, len(first))
    gradient = torch.empty(first.shape, dtype=first.dtype)
    losses.distil(*arrays, arrays[0].dtype.type(temperature), *taught.numpy(), gradient.numpy())
    return taught[0], taught[1], gradient


def uniform(key: int, keys: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    out = torch.empty(len(keys), width, dtype=dtype)
    sampling.uniform(np.uint64(key), keys.numpy().view(np.uint64), out.numpy())
    return out


def keystream(key: Tensor, count: int, stream: int = 0) -> Tensor:
    if count > MOST:
        raise ValueError(f"{count:,} words of one stream, expected at most {MOST:,}")
    out = np.empty(count, np.uint32)
    cipher.keystream(words_of(key), stream, out)
    return torch.from_numpy(out.astype(np.int64))


def add_noise_(sums: Tensor, key: Tensor, scale: Tensor) -> None:
    if sums.numel() > MOST:
        raise ValueError(f"noise for {sums.numel():,} numbers, expected at most {MOST:,}")
    if float(scale):
        flat = sums.detach().view(-1).numpy()
        noise.add_noise(flat, words_of(key), flat.dtype.type(float(scale) / GRID))


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
        sampling.secret_negatives(words_of(draw.keys), *rest)
    else:
        sampling.negatives(draw.keys.numpy().view(np.uint64), *rest)


def quantise(values: Tensor, scale: Tensor, most: int, per_byte: int) -> Tensor:
    packed = torch.empty(len(values), -(-values.shape[1] // per_byte), dtype=torch.uint8)
    coding.quantise(matrix(values), scale.numpy(), most, per_byte, packed.numpy())
    return packed


def restored(packed: Tensor, scale: Tensor, most: int, per_byte: int, width: int) -> Tensor:
    values = torch.empty(len(packed), width)
    coding.restored(matrix(packed), scale.numpy(), most, per_byte, values.numpy())
    return values
