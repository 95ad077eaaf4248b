"""Negatives that queries share: every backend scores and differentiates them as plain torch does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import (
    Backend,
    Composed,
    Dealt,
    Deck,
    Draw,
    Room,
    Shared,
    Similarity,
    backend,
    reference,
)
from fedkge.models import MODELS, Side

CLOSE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 2e-4, "atol": 3e-5}}
CASES = [  # lengths of the chunks, negatives, rows of the table, width (odd unless rows are complex)
    ((1,), 1, 3, 2),
    ((4,), 3, 9, 6),
    ((9, 0, 3), 5, 20, 34),
    ((0, 2, 17, 0), 70, 40, 10),
    ((130, 7), 33, 50, 66),
    ((40, 40), 260, 300, 32),
]


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(params=list(Similarity), ids=lambda kind: kind.name.lower())
def kind(request: pytest.FixtureRequest) -> Similarity:
    return request.param


def make(
    kind: Similarity, dtype: torch.dtype, case: tuple[tuple[int, ...], int, int, int]
) -> tuple[Tensor, Tensor, Shared]:
    """Queries [b, w], a table, and candidates of which a tenth is left out, and all of the first query's."""
    lengths, n, rows, width = case
    width -= kind is not Similarity.MODULUS and width % 32 != 0
    random, b = torch.Generator().manual_seed(n), sum(lengths)
    query, table = (
        torch.randn(size, width, generator=random, dtype=torch.float64).to(dtype) for size in (b, rows)
    )
    true, negatives = (torch.randint(rows, size, generator=random) for size in ((b,), (len(lengths), n)))
    left_out = torch.rand(b, n, generator=random) < 0.1
    left_out[0] = True
    starts = torch.tensor([0, *lengths]).cumsum(0)
    return query, table, Shared(true, negatives, starts, left_out, max(lengths))


def there(shared: Shared, device: torch.device) -> Shared:
    names = ("true", "negatives", "starts", "left_out")
    return Shared(*(getattr(shared, name).to(device) for name in names), shared.longest)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.cpu(), expected, **CLOSE[expected.dtype])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scores_and_gradients(
    kernels: Backend, device: torch.device, kind: Similarity, dtype: torch.dtype, case: tuple
) -> None:
    query, table, shared = make(kind, dtype, case)
    here = (query.to(device), table.to(device), there(shared, device))
    scores, _ = reference.shared_scores(kind, query, table, shared)
    torch.testing.assert_close(scores, reference.forward(kind, query, table, shared.index()))
    found_scores, laid = kernels.shared_scores(kind, *here)
    close(found_scores, scores)
    d_scores = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    each = torch.rand(len(query), generator=torch.Generator().manual_seed(2)).to(dtype)
    expected = reference.shared_gradients(kind, query, table, shared, (), scores, d_scores, each)
    factors = (scores.to(device), d_scores.to(device), each.to(device))
    found = kernels.shared_gradients(kind, *here, laid, *factors)
    for one, right in zip(found, expected, strict=True):
        close(one, right)


@pytest.mark.parametrize("temperature", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_contrast(
    kernels: Backend,
    device: torch.device,
    kind: Similarity,
    dtype: torch.dtype,
    case: tuple,
    temperature: float,
) -> None:
    query, table, shared = make(kind, dtype, case)
    *expected, _ = reference.contrast_shared(kind, query, table, shared, 3.0, temperature)
    here = (query.to(device), table.to(device), there(shared, device))
    *found, _ = kernels.contrast_shared(kind, *here, 3.0, temperature)
    for one, right in zip(found, expected, strict=True):
        close(one, right)
    assert not expected[2][0, 1:].any(), "all negatives of the first query are left out"
    assert torch.isfinite(expected[0]).all()


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_negative_that_is_left_out_is_as_if_it_was_not_there(
    kernels: Backend, device: torch.device, dtype: torch.dtype, temperature: float
) -> None:
    scores = 4 * torch.randn(9, 6, generator=torch.Generator().manual_seed(3)).to(dtype)
    gone = scores.clone()
    gone[:, 2::3] = -torch.inf
    left = [k for k in range(6) if k not in (2, 5)]
    losses, slopes = kernels.contrast(gone.to(device), temperature)
    right, right_slopes = reference.contrast(scores[:, left], temperature)
    close(losses, right)
    close(slopes[:, left], right_slopes)
    assert not slopes[:, 2::3].any()
    taught = kernels.distil(gone.to(device), (2 * gone).to(device), 1.5)
    for one, expected in zip(
        taught, reference.distil(scores[:, left], 2 * scores[:, left], 1.5), strict=True
    ):
        close(one if one.ndim == 1 else one[:, left], expected)
    assert not taught[2][:, 2::3].any()


@pytest.mark.parametrize("kind", [Similarity.L1, Similarity.L2, Similarity.MODULUS])
def test_equal_rows_have_no_gradient(kernels: Backend, device: torch.device, kind: Similarity) -> None:
    table = torch.randn(5, 38, generator=torch.Generator().manual_seed(0)).to(device)
    query = table[[2, 2, 2]]
    starts = torch.tensor([0, 3], device=device)
    shared = Shared(
        torch.full((3,), 2, device=device),
        torch.full((1, 7), 2, device=device),
        starts,
        torch.zeros(3, 7, dtype=torch.bool, device=device),
        3,
    )
    scores, laid = kernels.shared_scores(kind, query, table, shared)
    slopes = torch.ones_like(scores)
    assert scores.abs().max() < 1e-15
    for found in kernels.shared_gradients(kind, query, table, shared, laid, scores, slopes, slopes[:, 0]):
        assert not found.any()


def test_not_a_number_is_a_loss_that_is_none(kernels: Backend, device: torch.device) -> None:
    query, table, shared = make(Similarity.DOT, torch.float32, CASES[2])
    table[shared.negatives[0, 1]] = torch.nan
    here = (query.to(device), table.to(device), there(shared, device))
    assert kernels.contrast_shared(Similarity.DOT, *here, 0.0, 1.0)[0][1:].isnan().any()


def test_who_is_left_out(kernels: Backend, device: torch.device) -> None:
    """Against sets: queries with no, few, many and only answers, of two sites."""
    random = torch.Generator().manual_seed(5)
    size, first = torch.tensor([300, 9]), torch.tensor([0, 300])
    counts = [0, 3, 60, 250, 299, 300, 4, 9, 8]
    site = torch.tensor([0] * 6 + [1] * 3)
    answers = [
        torch.randperm(int(size[s]), generator=random)[:count].sort().values
        for s, count in zip(site, counts, strict=True)
    ]
    known = torch.cat([a - torch.arange(len(a)) for a in answers])
    hi = torch.tensor(counts).cumsum(0)
    lo = hi - torch.tensor(counts)
    starts = torch.tensor([0, 2, 2, 6, 9])
    negatives = torch.randint(300, (4, 21), generator=random)
    negatives[3] = torch.randint(300, 309, (21,), generator=random)
    draw = Draw(torch.zeros(2, dtype=torch.int64), first, size, known, site, torch.arange(9), lo, hi)
    chunk = [0, 0, 2, 2, 2, 2, 3, 3, 3]
    expected = [
        [
            len(answers[i]) < size[site[i]] and int(e - first[site[i]]) in answers[i].tolist()
            for e in negatives[k]
        ]
        for i, k in enumerate(chunk)
    ]
    assert any(map(any, expected))
    here = Draw(*(getattr(draw, name).to(device) for name in Draw.__slots__))
    found = kernels.left_out(negatives.to(device), starts.to(device), here)
    assert found.dtype == torch.bool
    assert found.tolist() == expected
    assert reference.left_out(negatives, starts, draw).tolist() == expected


def test_few_negatives_are_searched_in_many_answers(kernels: Backend, device: torch.device) -> None:
    known = torch.arange(0, 200, 2) - torch.arange(100)
    zero, one = torch.zeros(3, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    draw = Draw(one, 0 * one, 200 * one, known, zero, zero, zero, zero + 100)
    negatives = torch.tensor([[0, 1, 198, 199]])
    here = Draw(*(getattr(draw, name).to(device) for name in Draw.__slots__))
    found = kernels.left_out(negatives.to(device), torch.tensor([0, 3], device=device), here)
    assert found.tolist() == [[True, False, True, False]] * 3


def test_some_of_the_queries() -> None:
    query, table, shared = make(Similarity.L1, torch.float64, CASES[2])
    scores, _ = reference.shared_scores(Similarity.L1, query, table, shared)
    for own in (slice(0, 5), slice(5, 11), slice(10, 12), slice(11, 40)):
        part = shared.some(own)
        torch.testing.assert_close(
            reference.shared_scores(Similarity.L1, query[own], table, part)[0], scores[own]
        )
        assert torch.equal(part.left_out, shared.left_out[own])


def test_factors_that_phases_stand_for(kernels: Backend, device: torch.device, dtype: torch.dtype) -> None:
    phases = torch.linspace(-4, 4, 5 * 71).view(5, 71).to(dtype)
    expected = torch.polar(torch.ones_like(phases), 1.5 * phases)
    expected = torch.cat((expected.real, expected.imag), 1)
    found = kernels.turn(phases.to(device), 1.5)
    torch.testing.assert_close(found.cpu(), expected, **CLOSE[dtype])
    again = torch.full_like(found, torch.nan)
    assert kernels.turn(phases.to(device), 1.5, again) is again
    assert torch.equal(again, found)


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name]().composition is not None])
@pytest.mark.parametrize("side", list(Side))
def test_queries_are_composed_as_the_model_says(
    kernels: Backend, device: torch.device, dtype: torch.dtype, name: str, side: Side
) -> None:
    model, random = MODELS[name](dim=7), torch.Generator().manual_seed(0)
    entities, relations = (
        torch.randn(9, model.width(axis), generator=random, dtype=torch.float64).to(dtype) for axis in Axis
    )
    anchor, relation = torch.randint(9, (2, 40), generator=random)
    leaves = [rows[ids].requires_grad_() for rows, ids in ((entities, anchor), (relations, relation))]
    query = model.query(*leaves, side)
    d_query = torch.randn(query.shape, generator=random, dtype=torch.float64).to(dtype)
    query.backward(d_query)
    sign = 1.0 if side is Side.TAIL else -1.0
    here = [x.to(device) for x in (anchor, model.factors(relations), relation)]
    made = Composed(model.composition, *here, sign, model.scale)
    close(kernels.compose(entities.to(device), made), query.detach())
    width = relations.shape[1]
    found = kernels.decompose(entities.to(device), made, d_query.to(device), width)
    for one, leaf in zip(found, leaves, strict=True):
        close(one, leaf.grad)


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name]().composition is not None])
def test_a_pass_from_rows_to_gradients_that_are_added_up(
    device: torch.device, dtype: torch.dtype, name: str, case: tuple
) -> None:
    """Only backends that have room for gradients are asked for it."""
    if device.type == "cpu":
        pytest.skip("gradients are added up at once on a GPU")
    kernels, model, rows = backend(device), MODELS[name](dim=max(1, case[3] // 2)), case[2]
    _, table, shared = make(Similarity.MODULUS, dtype, (*case[:3], model.width(Axis.ENTITY)))
    random = torch.Generator().manual_seed(5)
    relations = torch.randn(7, model.width(Axis.RELATION), generator=random).to(dtype)
    each = torch.rand(len(shared.true), generator=random).to(dtype)
    anchor, relation = (torch.randint(high, (len(each),), generator=random) for high in (rows, 7))
    kind = model.composition
    assert kind is not None
    results = []
    for way, where in ((reference, torch.device("cpu")), (kernels, device)):
        entities, others, weights = (x.to(where) for x in (table, relations, each))
        made = Composed(kind, anchor.to(where), others, relation.to(where), -1.0, 0.7)
        arguments = (model.similarity, entities, made, there(shared, where))
        losses, laid = way.contrast_composed(*arguments, 3.0, 1.5)
        rooms = tuple(
            Room(torch.zeros_like(x), torch.zeros(len(x), dtype=torch.uint8, device=where))
            for x in (entities, others)
        )
        for _ in range(2):  # it is added, not written
            way.heap_composed_(*arguments, laid, weights, rooms)
        results.append([losses, *(x for room in rooms for x in (room.sums, room.touched))])
    far = {"rtol": CLOSE[dtype]["rtol"], "atol": 3 * CLOSE[dtype]["atol"]}
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found.cpu(), expected, **far)


def test_a_batch_is_dealt_as_the_deck_says(kernels: Backend, device: torch.device) -> None:
    random = torch.Generator().manual_seed(4)
    slots, batches = 300, (180, 120)
    deck = Deck(
        torch.tensor([0, 180]),
        torch.randint(5, (slots,), generator=random),
        torch.randint(99, (slots,), generator=random),
        torch.rand(slots, generator=random),
        torch.tensor([0, 100, 150, 180, 220]),
        torch.tensor([0, 3]),
    )
    order, triples = torch.randperm(slots, generator=random), torch.randint(50, (slots, 3), generator=random)
    lo = torch.randint(9, (slots,), generator=random)
    here = Deck(*(getattr(deck, name).to(device) for name in Deck.__slots__))
    for step in range(4):
        clock, size = torch.tensor([step, 7]), (batches[step // 2], (3, 2)[step // 2])
        expected = reference.deal(deck, order, triples, (lo, lo + 2), clock, 2, size)
        there = [x.to(device) for x in (order, triples, lo, lo + 2, clock)]
        found = kernels.deal(here, *there[:2], (there[2], there[3]), there[4], 2, size)
        for name in Dealt.__slots__:
            assert torch.equal(getattr(found, name).cpu(), getattr(expected, name)), name
    assert expected.starts.tolist() == [0, 40, 120]
    assert torch.equal(expected.head, triples[order[180:], 0])
    assert torch.equal(expected.chunk_site, deck.site[[180, 220]])


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 16, "generic"])
def test_narrower_vectors_agree_up_to_rounding(width: int | str, tmp_path: Path) -> None:
    """As on processors without AVX-512 (32 bytes: AVX2), in a process and a cache of its own.

    Or for any processor, whatever this one has.
    """
    pytest.importorskip("numba")
    code = """
import sys, torch
import fedkge.kernels.cpu.vectors as vectors
if sys.argv[1] == "generic":
    assert vectors.BYTES == 16
else:
    vectors.BYTES = int(sys.argv[1])
import test_kernels_optimizers as optimizers
import test_kernels_shared as tests
from fedkge.kernels import Similarity, backend
cpu = torch.device("cpu")
for kind in Similarity:
    for dtype in (torch.float32, torch.float64):
        for case in tests.CASES:
            tests.test_scores_and_gradients(backend(cpu), cpu, kind, dtype, case)
            tests.test_contrast(backend(cpu), cpu, kind, dtype, case, 1.0)
for dtype in (torch.float32, torch.float64):
    optimizers.test_moments_of_all_sizes(backend(cpu), cpu, dtype)
    optimizers.test_late_rows_after_many_steps(backend(cpu), cpu, dtype, 39_995)
    for now in optimizers.TURNS:
        optimizers.test_step_equals_reference(backend(cpu), cpu, dtype, optimizers.adam, now)
    for width in (6, 600):
        of = backend(cpu), cpu, dtype, [4, 4, 9, optimizers.ROWS], width
        optimizers.test_rows_are_stepped_up_to_their_next_reading(*of)
"""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    if width == "generic":
        environment["NUMBA_CPU_NAME"] = "generic"
    done = subprocess.run(
        [sys.executable, "-c", code, str(width)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
