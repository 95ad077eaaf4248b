"""Several steps of the usual kind in one call: drawn, contrasted with shared negatives, stepped by Adam.

The kernels and their order are those of single steps, and so are the bits. Python's calls between kernels
took time, because kernels leave nothing else in the caches.
"""

from __future__ import annotations

import numpy as np

from fedkge.kernels.cpu.compile import inline, written
from fedkge.kernels.cpu.composing import compose, decompose
from fedkge.kernels.cpu.dealing import deal
from fedkge.kernels.cpu.filtering import left_out
from fedkge.kernels.cpu.grouping import group
from fedkge.kernels.cpu.laying import address, pack, places_of, sizes_of
from fedkge.kernels.cpu.norms import cubes
from fedkge.kernels.cpu.optimizers import adam_touched, adam_whole, catch_up, foresee, pieces
from fedkge.kernels.cpu.pulling import gradients
from fedkge.kernels.cpu.sampling import negatives
from fedkge.kernels.cpu.sharing import scores
from fedkge.kernels.cpu.similarity import DOT
from fedkge.kernels.cpu.vectors import BYTES

PIECES = 256  #: parts that an optimizer's rows are dealt out in
TAIL = 1  #: the side that is asked for, in a plan; else the head


@inline()
def _room(size, like):
    """Numbers that begin at a whole vector, not written."""
    raw = np.empty(size + BYTES // like.itemsize, like.dtype)
    skip = -address(raw) % BYTES // like.itemsize
    return raw[skip : skip + size]


@written()
def _draw(step, plan, clock, deck, head, tail, owned, weights, ids, relation, site, weight, starts, gone):
    """One step's triples, negatives, and who is left out.

    `ids` are the rows that it reads: what is true, negatives of each chunk, anchors.
    """
    number, side, b, c = plan
    order, lo, hi, known = tail if side == TAIL else head
    triples, first_slots, sites, positions, heads, first_heads, share = deck
    keys, first, size = owned
    n = gone.shape[1]
    found, chunks = np.empty((8, b), np.int64), np.empty((3, c + 1), np.int64)
    slot = deal(
        number, order, triples, lo, hi, first_slots, sites, positions, heads, first_heads, found, chunks
    )
    true, anchor = (found[3], found[1]) if side == TAIL else (found[1], found[3])
    ids[:b], ids[b + c * n :] = true, anchor
    relation[:], site[:], starts[:] = found[2], found[6], chunks[0]
    drawn = np.empty((c, 1 + n), np.int64)
    chunk_site, position = chunks[1, :c].copy(), chunks[2, :c].copy()
    negatives(keys, step, clock, chunk_site, position, first, size, known, position, position, drawn)
    shared = ids[b : b + c * n].reshape((c, n))
    shared[:] = drawn[:, 1:]
    left_out(shared, starts, site, first, size, known, found[4], found[5], gone)
    if weights.shape[0] > 0:
        sums = np.zeros(size.shape[0], weight.dtype)
        for i in range(b):
            sums[site[i]] += weights[found[0, i]]
        for i in range(b):
            weight[i] = weights[found[0, i]] / sums[site[i]]
    else:
        weight[:] = share[slot : slot + b]


@written()
def _pull(
    kind,
    made,
    side,
    entities,
    relations,
    ids,
    relation,
    site,
    weight,
    starts,
    gone,
    options,
    losses,
    cubed,
    d_anchor,
    d_relation,
    values,
):
    """One step's losses, added to those of sites, and gradients: of anchors, relations, candidates.

    With L3, `cubed` [b] is what it multiplies the gradients of rows' cubes with.
    """
    b, n, c, w = relation.shape[0], gone.shape[1], starts.shape[0] - 1, entities.shape[1]
    true, shared, anchor = ids[:b], ids[b : b + c * n].reshape((c, n)), ids[b + c * n :]
    one, lanes = entities.dtype.type(1), BYTES // entities.itemsize
    sign = one if side == TAIL else -one
    query = _room(b * w, entities).reshape((b, w))
    compose(made, entities, anchor, relations, relation, sign, query)
    places = places_of(starts)
    wide, rows = sizes_of(kind, w, n, lanes)
    queries = query
    if places[-1] != b or wide != w:
        queries = _room(places[-1] * wide, entities).reshape((places[-1], wide))
    blocks = wide // lanes
    packed = _room(c * blocks * rows * lanes, entities).reshape((c, blocks, rows, lanes))
    pack(kind, query, entities, shared, starts, places, queries, packed)
    ones = np.ones(1, entities.dtype)
    found, slopes = np.empty((b, 1 + n), entities.dtype), np.empty((b, 1 + n), entities.dtype)
    loss = np.empty(b, entities.dtype)
    scores(
        kind, query, entities, true, starts, places, queries, packed, ones, gone, options, found, loss, slopes
    )
    if cubed.shape[0] > 0:
        cubed[:] = weight * options[2]
        of_anchors, of_true = np.empty(b, entities.dtype), np.empty(b, entities.dtype)
        of_relations = np.empty(b, entities.dtype)
        cubes(relations, relation, of_relations)
        cubes(entities, anchor, of_anchors)
        cubes(entities, true, of_true)
        for i in range(b):
            loss[i] += options[2] * (of_relations[i] + of_anchors[i] + of_true[i])
    for i in range(b):
        losses[site[i]] += np.float64(loss[i] * weight[i])
    d_query = _room(b * w, entities).reshape((b, w))
    gradients(
        kind,
        query,
        entities,
        true,
        starts,
        places,
        queries,
        packed,
        ones,
        found,
        slopes,
        weight,
        d_query,
        values,
    )
    decompose(made, entities, anchor, relations, relation, sign, one, d_query, d_anchor, d_relation)


@written()
def _bounds(plan, n):
    """Where each step's positives begin, its chunks' starts, and the rows that it reads [3, k + 1]."""
    bounds = np.zeros((3, plan.shape[0] + 1), np.int64)
    for k in range(plan.shape[0]):
        b, c = plan[k, 2], plan[k, 3]
        bounds[0, k + 1] = bounds[0, k] + b
        bounds[1, k + 1] = bounds[1, k] + c + 1
        bounds[2, k + 1] = bounds[2, k] + 2 * b + c * n
    return bounds


@written()
def _of(bounds, k, drawn):
    """What is drawn for step k."""
    relation, site, weight, gone, starts, ids = drawn
    own, chunks = slice(bounds[0, k], bounds[0, k + 1]), slice(bounds[1, k], bounds[1, k + 1])
    some = slice(bounds[2, k], bounds[2, k + 1])
    return relation[own], site[own], weight[own], gone[own], starts[chunks], ids[some]


@written()
def _make_ready(ids, bounds, ends, active, steps, waiting, entities, numbers, rates):
    """Let late rows catch up; how far each row may go at each of its places in `ids`."""
    table, m, v = entities
    taken, due, _ = waiting
    if taken.shape[0] == 0:
        return np.empty(0, np.int32)
    count = bounds.shape[0] - 1
    last, distinct = np.empty(ids.shape[0], np.int32), np.empty(count, np.int64)
    counts = np.empty((count + 1, steps.shape[0]), np.int64)
    counts[0] = steps
    for k in range(count):
        counts[k + 1] = counts[k] + active[k]
    late = np.empty((min(ids.shape[0], table.shape[0]), 3), np.int64)
    late = late[: foresee(ids, bounds, ends, counts, taken, due, last, distinct, late)]
    catch_up(table, m, v, late, numbers, rates)
    return last


@written()
def _step_all(state, ends, active, steps, found, values, ahead, cubed, numbers, rates):
    """Every row takes a step; `found` says which of the `values`, and of those `ahead`, are its gradient.

    The last places that it names are of `cubed`.
    """
    table, m, v = state
    no_scores, no_rows = np.empty((0, 0), table.dtype), np.empty((0, table.shape[1]), table.dtype)
    no_tie = np.empty((0, 3), table.dtype)
    adam_whole(
        DOT, no_rows, table, 0, no_scores, no_scores, values, ahead, cubed, found[0], found[1], found[2],
        no_rows, no_tie, m, v, pieces(ends, active, PIECES), steps, numbers, rates,
    )  # fmt: skip


@written()
def _step_read(state, ends, active, steps, found, values, ahead, cubed, ids, last, waiting, numbers, rates):
    """The same for the rows that were read, which go on up to their next reading."""
    table, m, v = state
    taken, _, until = waiting
    no_scores, no_rows = np.empty((0, 0), table.dtype), np.empty((0, table.shape[1]), table.dtype)
    owner = np.searchsorted(ends, found[0], side="right")
    adam_touched(
        DOT, no_rows, table, 0, no_scores, no_scores, values, ahead, cubed, found[0], found[1], found[2],
        m, v, owner, active, steps, ids, last, until, numbers, rates,
    )  # fmt: skip
    for i in found[0]:
        taken[i] = max(taken[i], until[i])


@written()
def run(
    kind,
    made,
    plan,  # int64 [k, 4]: the number of the batch, its side, positives and chunks
    clock,  # the first step's, and the epoch
    n,
    deck,  # triples, and a `Deck`
    head,  # order, lo, hi, known
    tail,
    owned,  # keys, first, size
    weights,  # [m], or none: triples weigh the same
    options,  # margin, temperature, weight of L3
    entities,  # table, moments
    relations,
    entity_ends,
    relation_ends,
    active,  # bool [k, s]
    steps,  # int64 [s], counted on
    waiting,  # taken, due and until, int32 [e] each, or none: every row steps in every step
    numbers,
    rates,
    losses,  # float64 [s], added to
):
    """Take k steps, all of them drawn before the first."""
    table, rows = entities[0], relations[0]
    width, factors = table.shape[1], rows.shape[1]
    bounds = _bounds(plan, n)
    total, chunks, read = bounds[:, -1]
    drawn = (
        np.empty(total, np.int64),
        np.empty(total, np.int64),
        np.empty(total, table.dtype),
        np.empty((total, n), np.bool_),
        np.empty(chunks, np.int64),
        np.empty(read, np.int64),
    )
    for k in range(plan.shape[0]):
        relation, site, weight, gone, starts, ids = _of(bounds, k, drawn)
        where = (clock[0] + k, plan[k], clock[1], deck, head, tail, owned, weights)
        _draw(*where, ids, relation, site, weight, starts, gone)
    last = _make_ready(drawn[5], bounds[2], entity_ends, active, steps, waiting, entities, numbers, rates)
    none = np.empty((0, 0), np.int64)
    for k in range(plan.shape[0]):
        relation, site, weight, gone, starts, ids = _of(bounds, k, drawn)
        b, c = plan[k, 2], plan[k, 3]
        d_anchor = _room(b * width, table).reshape((b, width))
        d_relation = _room(b * factors, table).reshape((b, factors))
        values = _room((b + c * n) * width, table).reshape((b + c * n, width))
        read_by = (ids, relation, site, weight, starts, gone)
        slopes, twice = np.empty(b if options[2] > 0 else 0, table.dtype), np.empty(0, table.dtype)
        out = (slopes, d_anchor, d_relation, values)
        _pull(kind, made, plan[k, 1], table, rows, *read_by, options, losses, *out)
        steps += active[k]
        pace = (active[k], steps)
        named, touched = relation, ids
        if slopes.shape[0] > 0:
            twice = np.concatenate((slopes, slopes))
            named = np.concatenate((relation, relation))
            touched = np.concatenate((ids, ids[:b], ids[b + c * n :]))
        found = group(none, named, rows.shape[0])
        _step_all(relations, relation_ends, *pace, found, rows[:0], d_relation, slopes, numbers, rates)
        found = group(none, touched, table.shape[0])
        if last.shape[0] > 0:
            far = (ids, last[bounds[2, k] : bounds[2, k + 1]], waiting)
            _step_read(entities, entity_ends, *pace, found, values, d_anchor, twice, *far, numbers, rates)
        else:
            _step_all(entities, entity_ends, *pace, found, values, d_anchor, twice, numbers, rates)
