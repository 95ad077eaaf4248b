"""The GPU kernels as functions of torch tensors, with the names and meanings of `kernels.reference`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedkge.kernels import reference
from fedkge.kernels.base import Adam, Composed, Contribution, Laid, Pace, Room, Shared, Similarity
from fedkge.kernels.gpu import (
    between,
    cipher,
    composing,
    contrasting,
    dealing,
    filtering,
    grouping,
    heaping,
    losses,
    meeting,
    noise,
    norms,
    optimizers,
    products,
    pulling,
    ranking,
    sampling,
    settling,
    sharing,
    shelving,
    similarity,
    sloping,
    stepping,
    waiting,
)
from fedkge.kernels.gpu.grouping import Groups

quantise, restored = reference.quantise, reference.restored
cubes, cube_gradients = reference.cubes, reference.cube_gradients
uniform = sampling.uniform
lengths, squares, clip_factors = norms.lengths, norms.squares, norms.clip_factors
keystream = cipher.keystream
order_keys = sampling.order_keys
negatives_ = sampling.negatives_
left_out, deal = filtering.left_out, dealing.deal


def _in(tensor: Tensor) -> Tensor:
    """A tensor that a kernel reads: its rows side by side in memory."""
    return tensor.detach().contiguous()


def _own(tensor: Tensor) -> Tensor:
    """A tensor that a kernel changes in place."""
    if not tensor.is_contiguous():
        found = f"shape {list(tensor.shape)}, strides {list(tensor.stride())}"
        raise ValueError(f"{found}: only a contiguous tensor can be changed in place")
    return tensor.detach()


def forward(kind: Similarity, query: Tensor, table: Tensor, index: Tensor) -> Tensor:
    scores = table.new_empty(index.shape)
    similarity.forward(scores, kind, _in(query), _in(table), _in(index))
    return scores


def all_scores(kind: Similarity, query: Tensor, table: Tensor) -> Tensor:
    if kind is Similarity.DOT:
        return query @ table.T
    scores = table.new_empty((len(query), len(table)))
    ranking.all_scores(scores, kind, _in(query), _in(table))
    return scores


def backward_query(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor
) -> Tensor:
    gradient = table.new_empty(query.shape)
    factors = (_in(query), _in(table), _in(index), _in(scores), _in(d_scores))
    similarity.backward_query(gradient, kind, *factors)
    return gradient


def touched(table: Tensor, part: Contribution) -> tuple[Tensor, Tensor]:
    groups = Groups.of(part, len(table))
    head = torch.ones_like(groups.rows, dtype=torch.bool)
    head[1:] = groups.rows[1:] != groups.rows[:-1]
    rows = groups.rows[head].to(torch.int64)
    values = table.new_zeros((len(rows), table.shape[1]))
    grouping.add(values, _in(table), part, groups, head.cumsum(0) - 1)
    return rows, values


def accumulate_(gradient: Tensor, table: Tensor, part: Contribution) -> None:
    total = _in(gradient)
    if heaping.of_rows(part):
        heaping.heap(part, total)
    else:
        shelving.add(total, _in(table), part)
    if not gradient.is_contiguous():
        gradient.copy_(total)


def contrast(scores: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    values, gradient = scores.new_empty(len(scores)), scores.new_empty(scores.shape)
    losses.contrast(values, gradient, _in(scores), temperature)
    return values, gradient


def contrast_rows(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, d_query = table.new_empty(index.shape), table.new_empty(query.shape)
    factors = (_in(query), _in(table), _in(index))
    contrasting.contrast_rows(scores, d_query, kind, *factors, margin, temperature)
    values, d_scores = contrast(scores + margin, temperature)
    return values, scores, d_scores, d_query


def _all_in(shared: Shared) -> Shared:
    """The same, of tensors that a kernel reads."""
    names = ("true", "negatives", "starts", "left_out")
    return replace(shared, **{name: getattr(shared, name).contiguous() for name in names})


def shared_scores(kind: Similarity, query: Tensor, table: Tensor, shared: Shared) -> tuple[Tensor, Laid]:
    _, scores, _, layout = sharing.scores(kind, _in(query), _in(table), _all_in(shared), None)
    return scores, (layout,)


def contrast_shared(
    kind: Similarity, query: Tensor, table: Tensor, shared: Shared, margin: float, temperature: float
) -> tuple[Tensor, Tensor, Tensor, Laid]:
    rows = (_in(query), _in(table), _all_in(shared))
    values, scores, d_scores, layout = sharing.scores(kind, *rows, (margin, temperature))
    return values, scores, d_scores, (layout,)


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
    (layout,) = laid
    shared = _all_in(shared)
    slopes = sloping.slopes_of(kind, shared, layout, _in(scores), _in(d_scores), _in(each))
    return pulling.gradients(kind, _in(table), shared, layout, slopes)


def contrast_composed(
    kind: Similarity, entities: Tensor, made: Composed, shared: Shared, margin: float, temperature: float
) -> tuple[Tensor, Laid]:
    made = composing.with_factors(made)
    losses, *laid = sharing.contrasted(kind, made, _in(entities), _all_in(shared), (margin, temperature))
    return losses, (*laid, made)


def heap_composed_(
    kind: Similarity,
    entities: Tensor,
    made: Composed,
    shared: Shared,
    laid: Laid,
    each: Tensor,
    rooms: tuple[Room, Room],
) -> None:
    (slopes, layout, made), shared = laid, _all_in(shared)
    table, pairs = _in(entities), (shared, layout, slopes, _in(each))
    if meeting.multiplied(kind, table):
        products.heap(table, made, *pairs, rooms)
        return
    if kind in between.TILES:
        fused = between.finishes(kind, made)
        found = between.heap(kind, table, made, *pairs, rooms, fused)
        if fused:
            return
    else:
        found = pulling.gradients(kind, table, *pairs)
    settling.settle(rooms, table, made, shared, *found)


def turn(phases: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    return composing.turn(_in(phases), scale, out)


def compose(entities: Tensor, made: Composed) -> Tensor:
    query = entities.new_empty(len(made.anchor), entities.shape[1])
    composing.compose(query, _in(entities), made)
    return query


def decompose(entities: Tensor, made: Composed, d_query: Tensor, width: int) -> tuple[Tensor, Tensor]:
    d_anchor, d_relation = torch.empty_like(d_query), d_query.new_zeros(len(d_query), width)
    composing.decompose(d_anchor, d_relation, _in(entities), made, _in(d_query))
    return d_anchor, d_relation


def distil(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    to_first, to_second = first.new_empty(len(first)), first.new_empty(len(first))
    gradient = first.new_empty(first.shape)
    losses.distil(to_first, to_second, gradient, _in(first), _in(second), temperature)
    return to_first, to_second, gradient


def moments(table: Tensor, kept: Tensor) -> Tensor:
    out = table.new_empty(len(table), 3)
    similarity.moments(out, _in(table), _in(kept))
    return out


def rates(pace: Pace, adam: Adam, dtype: torch.dtype) -> Tensor:
    return optimizers.corrections(replace(pace, rates=None), adam, dtype)


def all_rates(adam: Adam, like: Tensor) -> Tensor:
    return optimizers.all_corrections(adam, like.dtype, like.device)


def adam_(table: Tensor, gradient: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    optimizers.adam(_own(table), _own(gradient), _own(m), _own(v), pace, adam)


def adam_touched_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    if pace.taken is not None and heaping.fits(part):
        step = heaping.adam_heaped if pace.promised is None else waiting.adam_promised
        step(_own(table), part, _own(m), _own(v), pace, adam)
        return
    part = part if pace.promised is None else part.reaching(pace.promised)
    groups = Groups.of(part, len(table))
    stepping.adam_touched(_own(table), part, groups, _own(m), _own(v), pace, adam)
    if pace.taken is not None:
        ids = torch.cat((part.index.flatten(), part.ids))
        site = torch.searchsorted(pace.ends, ids, right=True)
        steps = torch.where(pace.active[site], pace.steps[site].int(), 0)
        pace.taken[ids] = torch.maximum(pace.taken[ids], steps)


def catch_up_(
    table: Tensor,
    m: Tensor,
    v: Tensor,
    pace: Pace,
    adam: Adam,
    ids: Sequence[Tensor] | None = None,
    promised: bool = False,
) -> None:
    waiting.catch_up(_own(table), _own(m), _own(v), pace, adam, ids, promised)


def adam_whole_(table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam) -> None:
    if heaping.fits(part):
        heaping.adam_heaped(_own(table), part, _own(m), _own(v), pace, adam)
        return
    stepping.adam_whole(_own(table), part, _own(m), _own(v), pace, adam)


def adagrad_(table: Tensor, gradient: Tensor, squares: Tensor, pace: Pace, rate: float) -> None:
    optimizers.adagrad(_own(table), _own(gradient), _own(squares), pace, rate)


def sgd_(table: Tensor, gradient: Tensor, pace: Pace, rate: float) -> None:
    optimizers.sgd(_own(table), _own(gradient), pace, rate)


def add_noise_(sums: Tensor, key: Tensor, scale: Tensor) -> None:
    noise.add_noise_(_own(sums), key, scale)
