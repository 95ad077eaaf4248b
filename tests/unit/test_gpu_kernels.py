"""What the general contracts do not ask of the GPU kernels: odd shapes, captured graphs, repeatable sums.

Without a CUDA device most of it also runs under Triton's interpreter: TRITON_INTERPRET=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from fedkge.kernels import reference, rounding
from fedkge.kernels.base import Adam, Contribution, Draw, Pace, Room, Similarity, Tie
from fedkge.kernels.cipher import GRID
from fedkge.kernels.poisson import samples
from fedkge.training import clipping

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not CUDA and not INTERPRETED:
    pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1", allow_module_level=True)
pytest.importorskip("triton", reason="the GPU kernels need triton")

from fedkge.kernels.gpu import backend, contrasting, norms, poisson, ranking, shelving, similarity  # noqa: E402
from fedkge.kernels.gpu.launch import LONGEST, Tiles  # noqa: E402

pytestmark = pytest.mark.gpu
on_device = pytest.mark.skipif(INTERPRETED, reason="the interpreter captures no graphs")

DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPES = (torch.float32, torch.float64)
#: b, n, e, w: single, odd, no power of two, and wider than a program's tile
SHAPES = ((1, 1, 1, 2), (2, 18, 30, 100), (3, 4, 5, 2 * LONGEST + 6))
#: the float64 arithmetic of both differs by rounding alone; in float32 the reference itself is off by 1e-6
TOLERANCE = {torch.float32: {"rtol": 2e-5, "atol": 2e-5}, torch.float64: {"rtol": 1e-7, "atol": 1e-9}}
#: an epsilon that keeps Adam from making steps out of the rounding of sums that are nearly zero
STEADY = Adam(0.01, epsilon=1e-3)
RATE = 0.125 if INTERPRETED else 0.1  # the interpreter rounds scalars to float32


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def integers(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def contribution(
    kind: Similarity, b: int, n: int, table: Tensor, m: int = 0, skewed: bool = False
) -> Contribution:
    """Candidates and `m` further rows of `table`, one query equal to its first candidate."""
    e, w = table.shape
    query, index = normal(b, w, dtype=table.dtype, seed=1), integers(e, b, n, seed=2)
    if skewed:
        index[:, ::2] = e // 2
    if index.numel():
        query[0] = table[index[0, 0]]
    scores = reference.forward(kind, query, table, index)
    d_scores = normal(b, n, dtype=table.dtype, seed=3)
    return Contribution(
        kind, query, index, scores, d_scores, integers(e, m, seed=4), normal(m, w, dtype=table.dtype, seed=5)
    )


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, **TOLERANCE[expected.dtype])


def gradient_of(part: Contribution, table: Tensor) -> Tensor:
    gradient = torch.zeros_like(table)
    reference.accumulate_(gradient, table, part)
    return gradient


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("shape", "dtype"), [*((shape, torch.float32) for shape in SHAPES), ((3, 5, 4, 6), torch.float64)]
)
@pytest.mark.parametrize("kind", Similarity)
def test_similarity_and_gradients_at_odd_shapes(
    kind: Similarity, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    b, n, e, w = shape
    table = normal(e, w, dtype=dtype)
    part = contribution(kind, b, n, table, m=3)
    factors = (kind, part.query, table, part.index)
    close(backend.forward(*factors), part.scores)
    d_query = reference.backward_query(*factors, part.scores, part.d_scores)
    close(backend.backward_query(*factors, part.scores, part.d_scores), d_query)
    gradient = torch.ones_like(table)
    backend.accumulate_(gradient, table, part)
    close(gradient, 1 + gradient_of(part, table))
    for temperature in (0.0, 2.0):
        contrasted = zip(
            *(kernels.contrast_rows(*factors, 1.5, temperature) for kernels in (backend, reference)),
            strict=True,
        )
        for found, expected in contrasted:
            close(found, expected)


@pytest.mark.parametrize("width", [1, 7])
@pytest.mark.parametrize("kind", [Similarity.L1, Similarity.L2, Similarity.DOT])
def test_odd_widths(kind: Similarity, width: int) -> None:
    table = normal(9, width)
    part = contribution(kind, 4, 6, table, m=2)
    close(backend.forward(kind, part.query, table, part.index), part.scores)
    gradient = torch.zeros_like(table)
    backend.accumulate_(gradient, table, part)
    close(gradient, gradient_of(part, table))
    close(backend.all_scores(kind, part.query, table), reference.all_scores(kind, part.query, table))


@pytest.mark.parametrize("tiles", [Tiles(64, 1), Tiles(512, 2), Tiles(8192, 8)])
@pytest.mark.parametrize("kind", Similarity)
def test_tiles_change_nothing(kind: Similarity, tiles: Tiles) -> None:
    table = normal(20, 36)
    part = contribution(kind, 3, 17, table)
    scores, gradient = torch.full_like(part.scores, torch.nan), torch.zeros_like(table)
    similarity.forward(scores, kind, part.query, table, part.index, tiles=tiles)
    factors = (part.query, table, part.index, part.scores, part.d_scores)
    d_query = torch.full_like(part.query, torch.nan)
    similarity.backward_query(d_query, kind, *factors, tiles=tiles)
    shelving.add(gradient, table, part, tiles=tiles)
    close(scores, part.scores)
    close(d_query, reference.backward_query(kind, *factors))
    close(gradient, gradient_of(part, table))


@pytest.mark.parametrize("programs", [1, 6, 1 << 20])
@pytest.mark.parametrize("n", [1, 2, 23])
@pytest.mark.parametrize("kind", Similarity)
def test_parts_of_candidates_change_nothing(kind: Similarity, n: int, programs: int) -> None:
    table = normal(20, 36)
    part = contribution(kind, 3, n, table)
    factors = (kind, part.query, table, part.index, 2.0, 1.5)
    scores, d_query = torch.full_like(part.scores, torch.nan), torch.full_like(part.query, torch.nan)
    contrasting.contrast_rows(scores, d_query, *factors, programs=programs)
    _, expected, _, expected_d_query = reference.contrast_rows(*factors)
    close(scores, expected)
    close(d_query, expected_d_query)


@pytest.mark.parametrize("kind", Similarity)
def test_inputs_need_not_be_contiguous(kind: Similarity) -> None:
    wide = normal(10, 16)
    part = contribution(kind, 3, 4, wide[:, ::2], m=5)
    table = wide[:, ::2]
    spread = Contribution(kind, *(_spread(t) for t in (part.query, part.index, part.scores, part.d_scores)),
                          _spread(part.ids), _spread(part.values))  # fmt: skip
    close(backend.forward(kind, spread.query, table, spread.index), part.scores)
    expected = reference.touched(table, part)
    for actual, right in zip(backend.touched(table, spread), expected, strict=True):
        close(actual.to(wide.dtype), right.to(wide.dtype))
    for gradient in (torch.zeros(table.shape, device=DEVICE), torch.zeros_like(wide)[:, ::2]):
        backend.accumulate_(gradient, table, spread)
        close(gradient, gradient_of(part, table))
    with pytest.raises(ValueError, match="in place"):
        backend.sgd_(table, gradient, _pace(torch.tensor([10])), 0.1)


def _spread(tensor: Tensor) -> Tensor:
    """The same numbers, every second place in memory."""
    return torch.stack((tensor, tensor), -1)[..., 0]


@pytest.mark.parametrize("kind", Similarity)
def test_no_distance_gives_no_gradient(kind: Similarity) -> None:
    table = normal(1, 8).repeat(3, 1)
    index = torch.tensor([[0, 1, 2]], device=DEVICE)
    query = table[:1].clone()
    if kind is not Similarity.DOT:
        query[0, 0] += 1e-22  # a square that float32 cannot hold
    scores, d_scores = backend.forward(kind, query, table, index), torch.ones(1, 3, device=DEVICE)
    d_query = backend.backward_query(kind, query, table, index, scores, d_scores)
    assert d_query.isfinite().all()
    close(d_query, reference.backward_query(kind, query, table, index, scores, d_scores))


@pytest.mark.parametrize(("b", "n", "m"), [(0, 0, 4), (3, 0, 4), (3, 2, 0), (3, 0, 0)])
@pytest.mark.parametrize("route", ["counted", "deterministic", "touched", "adam_touched_", "adam_whole_"])
def test_parts_may_be_empty(b: int, n: int, m: int, route: str, request: pytest.FixtureRequest) -> None:
    table = normal(6, 8)
    part = contribution(Similarity.MODULUS, b, n, table, m=m)
    if route == "deterministic":
        request.getfixturevalue("deterministic")
    gradient = torch.zeros_like(table)
    if route == "touched":
        rows, values = backend.touched(table, part)
        gradient[rows] = values
    elif route.startswith("adam"):
        _steps_agree(route, table, part, torch.tensor([6]))
        return
    else:
        backend.accumulate_(gradient, table, part)
    close(gradient, gradient_of(part, table))


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", Similarity)
def test_sums_without_atomics(
    kind: Similarity, shape: tuple[int, ...], skewed: bool, deterministic: None
) -> None:
    b, n, e, w = shape
    table = normal(e, w)
    part = contribution(kind, b, n, table, m=7, skewed=skewed)
    runs = [torch.zeros_like(table) for _ in range(2)]
    for gradient in runs:
        backend.accumulate_(gradient, table, part)
    close(runs[0], gradient_of(part, table))
    assert torch.equal(*runs)


def test_touched_rows_of_a_table_too_high_for_16_bits() -> None:
    table = normal(40_000, 2)
    part = contribution(Similarity.L1, 2, 40, table, m=30)
    rows, values = backend.touched(table, part)
    expected_rows, expected = reference.touched(table, part)
    assert torch.equal(rows, expected_rows)
    close(values, expected)


@on_device
def test_offsets_beyond_32_bits() -> None:
    table = torch.zeros(2**31 // 256 + 8, 256, device=DEVICE)  # 8 GiB
    table[-8:] = normal(8, 256)
    part = contribution(Similarity.L1, 4, 5, table[-8:], m=3)
    far = replace(part, index=part.index + len(table) - 8, ids=part.ids + len(table) - 8)
    close(backend.forward(far.kind, far.query, table, far.index), part.scores)
    rows, values = backend.touched(table, far)
    expected_rows, expected = reference.touched(table[-8:], part)
    assert torch.equal(rows, expected_rows + len(table) - 8)
    close(values, expected)


def _pace(ends: Tensor, active: list[bool] | None = None) -> Pace:
    steps = torch.arange(1, len(ends) + 1) ** 3
    flags = torch.ones(len(ends), dtype=torch.bool) if active is None else torch.tensor(active)
    return Pace(*(tensor.to(DEVICE) for tensor in (ends, steps, flags)))


def _steps_agree(
    step: str, table: Tensor, part: Contribution, ends: Tensor, active: list[bool] | None = None
) -> None:
    """Three steps of an Adam that gets factors, against the reference."""
    states = [[table.clone(), torch.zeros_like(table), torch.zeros_like(table)] for _ in range(2)]
    for _ in range(3):
        for (own, m, v), kernels in zip(states, (backend, reference), strict=True):
            now = replace(part, scores=reference.forward(part.kind, part.query, own, part.index))
            getattr(kernels, step)(own, now, m, v, _pace(ends, active), STEADY)
    for actual, expected in zip(*states, strict=True):
        close(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("ends", "active"), [([30], [True]), ([7, 7, 20, 30], [True, False, False, True]), ([25], [True])]
)
@pytest.mark.parametrize("step", ["adam_touched_", "adam_whole_"])
@pytest.mark.parametrize("kind", Similarity)
def test_adam_computes_gradients_where_it_steps(
    kind: Similarity, step: str, ends: list[int], active: list[bool], dtype: torch.dtype
) -> None:
    table = normal(30, 10, dtype=dtype)
    part = contribution(kind, 4, 19, table, m=6, skewed=True)
    _steps_agree(step, table, part, torch.tensor(ends), active)
    if step == "adam_whole_":
        kept, factors = normal(30, 10, dtype=dtype, seed=6), normal(30, 3, dtype=dtype, seed=7)
        close(backend.moments(table, kept), reference.moments(table, kept))
        _steps_agree(step, table, replace(part, tie=Tie(kept, factors)), torch.tensor(ends), active)


@dataclass(frozen=True)
class Rule:
    """An optimizer: how many tables of state it keeps, and its step."""

    states: int
    step: Callable[..., None]


RULES = {
    "adam": Rule(2, lambda kernels, *t, pace: kernels.adam_(*t, pace, Adam(0.01, 0.8, 0.99, 1e-6))),
    "adagrad": Rule(1, lambda kernels, *t, pace: kernels.adagrad_(*t, pace, RATE)),
    "sgd": Rule(0, lambda kernels, *t, pace: kernels.sgd_(*t, pace, RATE)),
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("front", [0, 30])
@pytest.mark.parametrize("width", [7, 64, LONGEST + 3])
def test_adam_from_rows_that_are_added_up(width: int, front: int, tied: bool) -> None:
    ids, values = integers(25, 90), normal(90, width)
    table, m, v = normal(40, width, seed=1), normal(40, width, seed=2), normal(40, width, seed=3).square()
    tie = Tie(normal(40, width, seed=4), normal(40, 3, seed=5)) if tied else None
    none = values.new_empty(0, 0)
    whole = Contribution(Similarity.DOT, values[:0], ids.new_empty(0, 0), none, none, ids, values, tie=tie)
    room = Room(torch.zeros_like(table), torch.zeros(40, dtype=torch.uint8, device=DEVICE))
    part = replace(whole, ahead=values[:front] if front else None, values=values[front:], room=room)
    pace = Pace(*(torch.tensor(x, device=DEVICE) for x in ([10, 31, 38], [3, 4, 2], [True, False, True])))
    expected = [x.clone() for x in (table, m, v)]
    reference.adam_whole_(expected[0], whole, *expected[1:], pace, STEADY)
    for _ in range(2):  # the room is as it was
        found = [x.clone() for x in (table, m, v)]
        backend.adam_whole_(found[0], part, *found[1:], pace, STEADY)
        assert not room.sums.any()
        assert not room.touched.any()
        for one, right in zip(found, expected, strict=True):
            torch.testing.assert_close(one, right, **TOLERANCE[torch.float32])


@pytest.mark.parametrize("width", [256, 512])
@pytest.mark.parametrize("late", [False, True])
def test_every_warp_sees_which_rows_are_touched(width: int, late: bool) -> None:
    """A row is spread over several warps, and its mark is cleared when all of them have read it."""
    height, turns = (4000, 8) if CUDA else (40, 2)
    table, m, v = normal(height, width), torch.zeros(height, width), torch.zeros(height, width)
    found = [x.to(DEVICE, copy=True) for x in (table, m, v)]
    expected = [x.clone() for x in found]
    room = Room(torch.zeros_like(found[0]), torch.zeros(height, dtype=torch.uint8, device=DEVICE))
    empty = table.new_empty(0, 0)
    taken = torch.zeros(height, dtype=torch.int32, device=DEVICE)
    for turn in range(turns):
        ids = torch.randperm(height, generator=torch.Generator().manual_seed(turn))[: height - 30].to(DEVICE)
        values = normal(len(ids), width, seed=turn)
        nothing = table.new_empty(0, width), empty.long(), empty, empty
        part = Contribution(Similarity.DOT, *nothing, ids, values, room=room)
        gradient = torch.zeros_like(table).index_add_(0, ids, values)
        pace = _pace(torch.tensor([height]))
        if late:
            before = [x.clone() for x in expected]
            backend.adam_touched_(found[0], part, *found[1:], replace(pace, taken=taken), STEADY)
        else:
            backend.adam_whole_(found[0], part, *found[1:], pace, STEADY)
        reference.adam_(expected[0], gradient, *expected[1:], pace, STEADY)
        if late:  # the others stay
            others = torch.ones(height, dtype=torch.bool, device=DEVICE)
            others[ids] = False
            for own, old in zip(expected, before, strict=True):
                own[others] = old[others]
        for actual, right in zip(found, expected, strict=True):
            close(actual, right)
        assert not room.sums.any()
        assert not room.touched.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("ends", "active"),
    [([33], [True]), ([33], [False]), ([5, 5, 20, 33], [True, True, False, True]), ([20], [True])],
)
@pytest.mark.parametrize("width", [5, 64, LONGEST + 3])
@pytest.mark.parametrize("name", RULES)
def test_optimizers_step_active_sites_and_clear_gradients(
    name: str, width: int, ends: list[int], active: list[bool], dtype: torch.dtype
) -> None:
    rule, pace = RULES[name], _pace(torch.tensor(ends), active)
    tables = [normal(33, width, dtype=dtype, seed=seed) for seed in range(2)]
    tables += [normal(33, width, dtype=dtype, seed=2 + seed).abs() for seed in range(rule.states)]
    expected = [table.clone() for table in tables]
    for kernels, state in ((backend, tables), (reference, expected)):
        rule.step(kernels, *state, pace=pace)
    assert not tables[1].any()
    for actual, right in zip(tables, expected, strict=True):
        close(actual, right)


@pytest.mark.parametrize("square", [ranking.SQUARE, ranking.Square(16, 32, 1, 1)])
@pytest.mark.parametrize(("b", "e", "w"), [(1, 1, 2), (3, 70, 6), (65, 130, 14)])
@pytest.mark.parametrize("kind", Similarity)
def test_all_scores(kind: Similarity, b: int, e: int, w: int, square: ranking.Square) -> None:
    query, table = normal(b, w), normal(e, w, seed=1)
    expected = reference.all_scores(kind, query, table)
    close(backend.all_scores(kind, query, table), expected)
    if kind is not Similarity.DOT:
        scores = torch.full_like(expected, torch.nan)
        ranking.all_scores(scores, kind, query, table, square)
        close(scores, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("n", [0, 1, 7, 256, 2500])
def test_contrast(n: int, temperature: float, dtype: torch.dtype) -> None:
    scores = 20 * normal(3, n + 1, dtype=dtype)
    scores[0] = 1000 * scores[0].sign()  # exp overflows
    losses, gradient = backend.contrast(_spread(scores), temperature)
    expected, expected_gradient = reference.contrast(scores, temperature)
    close(losses, expected)
    close(gradient, expected_gradient)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("n", [1, 7, 257, 2500])
def test_distil(n: int, temperature: float, dtype: torch.dtype) -> None:
    first, second = (20 * normal(3, n, seed=seed, dtype=dtype) for seed in (0, 1))
    first[0] = 1000 * first[0].sign()  # exp overflows
    found = backend.distil(_spread(first), _spread(second), temperature)
    for value, expected in zip(found, reference.distil(first, second, temperature), strict=True):
        close(value, expected)


def draw(b: int) -> Draw:
    """Two sites; queries with no answer to leave out, with some, and with nothing but answers."""
    first, size = torch.tensor([0, 1000]), torch.tensor([1000, 7])
    answers = [sorted({(i * 37 + k * k) % 1000 for k in range(i % 40)}) for i in range(b)]
    site = torch.tensor([1 if i % 5 == 4 else 0 for i in range(b)])
    answers = [list(range(7)) if site[i] else row for i, row in enumerate(answers)]
    ends = torch.tensor([len(row) for row in answers]).cumsum(0)
    known = torch.tensor([answer - j for row in answers for j, answer in enumerate(row)], dtype=torch.int64)
    lo = torch.cat((torch.zeros(1, dtype=torch.int64), ends[:-1]))
    keys = torch.tensor([-3, 0x0123456789ABCDEF])
    parts = (keys, first, size, known, site, torch.arange(b) * 3, lo, ends)
    return Draw(*(tensor.to(DEVICE) for tensor in parts))


@pytest.mark.parametrize("n", [0, 1, 5, 64, 1030])
def test_negatives_are_the_references_bit_by_bit(n: int) -> None:
    where, clock = draw(11), torch.tensor([2**32 - 1, 5], device=DEVICE)
    drawn = [torch.full((11, n + 1), -7, device=DEVICE) for _ in range(2)]
    backend.negatives_(drawn[0], where, clock)
    reference.negatives_(drawn[1], where, clock)
    assert torch.equal(*drawn)
    transposed = torch.full((n + 1, 11), -7, device=DEVICE).T
    backend.negatives_(transposed, where, clock)
    assert torch.equal(transposed, drawn[1])


@pytest.mark.parametrize("key", [0, 3, 2**63 + 11, 2**64 - 1])
@pytest.mark.parametrize("width", [1, 6, 1100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_rows_are_the_references_bit_by_bit(key: int, width: int, dtype: torch.dtype) -> None:
    keys = torch.tensor([0, -1, 77, 1 << 40, -(1 << 63)], device=DEVICE)
    rows = (kernels.uniform(key, keys, width, dtype) for kernels in (backend, reference))
    assert torch.equal(*rows)


@pytest.mark.parametrize("clock", [(0, 0), (1, 16), (2**32 - 1, 2**31)])
def test_order_keys_are_the_references_bit_by_bit(clock: tuple[int, int]) -> None:
    keys = torch.tensor([-5, 9, 1 << 50], device=DEVICE)
    site, local = integers(3, 700), integers(10_000, 700, seed=1)
    epoch = torch.tensor(clock[1], device=DEVICE)
    both = (kernels.order_keys(keys, site, local, clock[0], epoch) for kernels in (backend, reference))
    assert torch.equal(*both)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("b", "k", "held"), [(1, 1, 64), (9, 2, 64), (12, 21, 4), (20, 70, 64), (3, 90, 16)])
def test_bounds_of_norms(b: int, k: int, held: int, dtype: torch.dtype) -> None:
    rows, lengths = integers(7, b, k), normal(b, k, dtype=dtype).abs()
    order, starts = torch.randperm(b).to(DEVICE), torch.tensor([0, b // 2, b // 2, b]).to(DEVICE)
    terms = (rows, lengths, order, starts)
    close(norms.squares(*terms, held), reference.squares(*terms))
    every = torch.arange(b + 1).to(DEVICE)
    single = (rows, lengths, every[:-1], every)
    close(norms.squares(*single, held), reference.squares(*single))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 3), (5, 1), (3, 700), (2, 3, 9)])
def test_lengths(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows = normal(*shape, dtype=dtype)
    rows[:1] *= 1e-44 if dtype == torch.float32 else 1.0
    close(norms.lengths(rows), torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("times", [True, False])
@pytest.mark.parametrize("each", [1, 4])
def test_scaled_rows(each: int, times: bool) -> None:
    rows, factors = normal(5 * each, 600), normal(5, seed=1)
    factors[2], rows[2 * each] = 0.0, torch.nan
    expected = rounding.scaled(rows.cpu(), factors.cpu(), times)
    assert not expected[2 * each : 3 * each].any()
    close(norms.scaled(rows, factors, times).cpu(), expected)


@pytest.mark.parametrize("width", [1, 50, 600])
def test_vectors_of_a_unit_that_meet(width: int) -> None:
    b, m = 9, 2
    ids, vectors = integers(4, b, m), normal(b, m, width)
    order, starts = (
        torch.tensor([3, 0, 8, 1, 5, 2, 4, 6, 7]).to(DEVICE),
        torch.tensor([0, 3, 3, 7, 7]).to(DEVICE),
    )
    unit = torch.full((b,), 3).to(DEVICE)  # the last two are padding
    unit[order[:3]], unit[order[3:7]] = 0, 2
    units = (order, starts, unit)
    found = norms.merged(ids, vectors, *units, 1e-3)
    expected = clipping._merged(ids.cpu(), vectors.cpu(), clipping.Grouping(*(x.cpu() for x in units), 4), 4)
    error = 1e-3 - 2 * rounding.relative(vectors[0], b * m)
    expected = expected + error * reference.lengths(vectors.cpu())
    there = unit.cpu() != 3
    close(found.cpu()[there], expected[there])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("there", [(0, 0), (3, 2), (1100, 300)])
def test_shares(there: tuple[int, int], dtype: torch.dtype) -> None:
    squares, losses = normal(2, 300, dtype=dtype).square(), normal(1100, dtype=dtype, seed=1)
    squares[:, 1] = 0
    arguments = (squares, losses, normal(1, dtype=dtype).abs(), torch.tensor(there).to(DEVICE), 64.0)
    for actual, expected in zip(
        backend.clip_factors(*arguments), reference.clip_factors(*arguments), strict=True
    ):
        close(actual, expected)


@pytest.mark.parametrize("stream", [0, 1])
def test_words(stream: int) -> None:
    key = integers(1 << 62, 4) * -3
    assert torch.equal(backend.keystream(key, 5000, stream), reference.keystream(key, 5000, stream))


def test_words_of_several_keys() -> None:
    keys = integers(1 << 62, 3, 4) * -3
    found = backend.keystream(keys, 700, 1)
    assert torch.equal(found, torch.stack([reference.keystream(key, 700, 1) for key in keys]))


@pytest.mark.parametrize("room", [1, 700, 9000])
def test_packed(room: int) -> None:
    flags = normal(3, 9000) > 1.5
    flags[1] = False
    flags[2, 5000:] = True
    found, counts = poisson.packed(flags[:, :8990], room)
    for row, own, count in zip(flags[:, :8990], found, counts, strict=True):
        places = row.nonzero()[:, 0]
        assert count == len(places)
        assert torch.equal(own[:count], places[:room])


@pytest.mark.parametrize("rate", [0.0, 1e-4, 0.0038, 0.3, 1.0])
def test_samples_are_the_cpus(rate: float) -> None:
    pytest.importorskip("numba")
    keys, count = integers(1 << 62, 3, 4) * -3, 5000
    expected = samples(keys.cpu().numpy(), count, rate, torch.device("cpu"))
    chosen, counts, short = poisson.drawn(keys, count, rate, 6.0)
    assert not short
    for own, size, sample in zip(chosen.cpu(), counts.tolist(), expected, strict=True):
        assert own[:size].tolist() == sample.tolist()
    if rate == 0.3:
        assert poisson.drawn(keys, count, rate, -2.0)[2], "room for less than the mean"
    if CUDA:
        found = poisson.samples(keys.cpu().numpy(), count, rate, torch.device("cuda"))
        assert [own.tolist() for own in found] == [own.tolist() for own in expected]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 50), (60, 257)])
def test_noise(shape: tuple[int, int], dtype: torch.dtype) -> None:
    key, scale = integers(1 << 62, 4), torch.tensor([0.7], dtype=dtype, device=DEVICE)
    found, expected = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)
    for kernels, sums in ((backend, found), (reference, expected)):
        kernels.add_noise_(sums, key, scale)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=3 * 0.7 / GRID)


@pytest.mark.parametrize("n", [1, 17, 300])
def test_secret_negatives(n: int) -> None:
    zero, key = integers(1, 9), integers(1 << 62, 1, 4)
    answers = torch.tensor([0, 2, 2], device=DEVICE)
    where = (zero[:1], zero[:1] + 20, answers, zero, integers(99, 9), zero, zero + 3)
    found, expected = (torch.zeros(9, 1 + n, dtype=torch.int64, device=DEVICE) for _ in range(2))
    for kernels, index in ((backend, found), (reference, expected)):
        kernels.negatives_(index, Draw(key, *where), torch.tensor([4, 5], device=DEVICE))
    assert torch.equal(found, expected)


@dataclass
class Step:
    """A whole training step on buffers that stay where they are, as a CUDA graph needs it."""

    kind: Similarity
    sparse: bool

    def __post_init__(self) -> None:
        self.where, self.clock = draw(24), torch.zeros(2, dtype=torch.int64, device=DEVICE)
        self.table = normal(1007, 12)
        self.gradient, self.m, self.v = (torch.zeros_like(self.table) for _ in range(3))
        self.pace = _pace(torch.tensor([1000, 1007]))
        self.query = normal(24, 12, seed=1)
        self.index = integers(1007, 24, 34, seed=2)

    def __call__(self) -> None:
        self.clock[1] += 1
        self.pace.steps.add_(1)
        backend.negatives_(self.index, self.where, self.clock)
        scores = backend.forward(self.kind, self.query, self.table, self.index)
        d_scores = torch.tanh(scores)
        d_query = backend.backward_query(self.kind, self.query, self.table, self.index, scores, d_scores)
        part = Contribution(
            self.kind, self.query, self.index, scores, d_scores, self.index[:, 0].contiguous(), d_query
        )
        if self.sparse:
            backend.adam_touched_(self.table, part, self.m, self.v, self.pace, STEADY)
        else:
            backend.accumulate_(self.gradient, self.table, part)
            backend.adam_(self.table, self.gradient, self.m, self.v, self.pace, STEADY)


@on_device
@pytest.mark.parametrize("route", ["counted", "deterministic", "touched"])
@pytest.mark.parametrize("kind", Similarity)
def test_a_captured_step_replays_what_it_does_eagerly(
    kind: Similarity, route: str, request: pytest.FixtureRequest
) -> None:
    if route == "deterministic":
        request.getfixturevalue("deterministic")
    eager, captured = Step(kind, route == "touched"), Step(kind, route == "touched")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        Step(kind, route == "touched")()  # compile
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured()
    for _ in range(5):
        eager()
        graph.replay()
    assert torch.equal(captured.index, eager.index)
    assert int(captured.clock[1]) == 5
    if route == "counted":
        torch.testing.assert_close(captured.table, eager.table, rtol=1e-3, atol=1e-4)
    else:
        assert torch.equal(captured.table, eager.table)
    assert not torch.equal(captured.table, normal(1007, 12))


def test_a_step_follows_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = Step(Similarity.MODULUS, False), Step(Similarity.MODULUS, False)
    fast()
    monkeypatch.setitem(globals(), "backend", reference)
    slow()
    assert torch.equal(fast.index, slow.index)
    close(fast.table, slow.table)
