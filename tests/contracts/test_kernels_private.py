"""Norms of single triples equal those of gradients formed one by one; noise is normal and repeatable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.kernels import (
    Adam,
    Backend,
    Contribution,
    Debt,
    Pace,
    Similarity,
    Tie,
    backend,
    reference,
    rounding,
)

SHAPES = [(1, 1, 3, 2), (9, 2, 5, 6), (40, 33, 12, 10), (5, 200, 4000, 14), (0, 4, 5, 6)]  # b, n, rows, width


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


def part_of(
    kind: Similarity, shape: tuple[int, ...], dtype: torch.dtype, anchors: bool = True, seed: int = 0
) -> tuple[Tensor, Contribution]:
    """A table, and triples some of whose candidates repeat or are their anchor."""
    b, n, rows, width = shape
    random = torch.Generator().manual_seed(seed)
    table, query, values = (torch.randn(k, width, generator=random, dtype=dtype) for k in (rows, b, b))
    index, ids = (torch.randint(rows, size, generator=random) for size in ((b, n), (b,)))
    index[::3, 0] = ids[::3]
    index[::2] = torch.where(index[::2] % 2 == 0, index[::2], index[::2, :1])  # many repeat
    query[1::4] = table[index[1::4, 0]]  # at zero distance
    d_scores = torch.randn(b, n, generator=random, dtype=dtype)
    scores = reference.forward(kind, query, table, index)
    own = (ids, values) if anchors else (ids[:0], values[:0])
    return table, Contribution(kind, query, index, scores, d_scores, *own)


def moved(part: Contribution, device: torch.device) -> Contribution:
    names = ("query", "index", "scores", "d_scores", "ids", "values")
    return Contribution(part.kind, *(getattr(part, name).to(device) for name in names))


@pytest.mark.parametrize("anchors", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", Similarity)
def test_squares_equal_gradients_formed_one_by_one(
    kernels: Backend,
    device: torch.device,
    kind: Similarity,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    anchors: bool,
) -> None:
    table, part = part_of(kind, shape, dtype, anchors)
    expected = reference.squares(table, part)
    found = kernels.squares(table.to(device), moved(part, device)).cpu()
    close = {"rtol": 2e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    assert found.dtype == dtype
    assert torch.allclose(found, expected, **close)


@pytest.mark.parametrize("kind", [Similarity.L1, Similarity.MODULUS])
def test_equal_coordinates_never_make_a_norm_too_small(
    kernels: Backend, device: torch.device, kind: Similarity
) -> None:
    table, part = part_of(kind, (30, 9, 12, 8), torch.float32)
    part.query[:, :3] = table[part.index[:, 1], :3]
    part.query[:, 4:7] = table[part.index[:, 1], 4:7]
    part.scores.copy_(reference.forward(kind, part.query, table, part.index))
    found = kernels.squares(table.to(device), moved(part, device)).cpu()
    assert (found >= reference.squares(table, part) * (1 - 1e-5)).all()


@pytest.mark.parametrize("left", [None, 0.0, 5e-5])
@pytest.mark.parametrize("kind", Similarity)
def test_a_norm_bounds_what_is_left_of_terms_that_cancel(
    kernels: Backend, device: torch.device, kind: Similarity, left: float | None
) -> None:
    b, n, width = 40, 65, 8
    random = torch.Generator().manual_seed(5)
    table = 1e4 * torch.randn(b, width, generator=random)
    query, own = 1e4 * torch.randn(b, width, generator=random), torch.arange(b)
    index = own[:, None].expand(b, n).contiguous()  # all candidates are one row, and the anchor
    d_scores = torch.randn(b, n, generator=random)
    if left is None:  # candidates cancel each other, else the anchor cancels them, but for a part
        d_scores[:, -1] -= d_scores.sum(-1)
    scores = reference.forward(kind, query, table, index)
    part = Contribution(kind, query, index, scores, d_scores, own, torch.zeros(b, width))
    exact = reference.touched(table.double(), doubled(part))[1]
    if left is not None:
        part = replace(part, values=((left - 1) * exact).float())
        exact = exact + part.values
    formed = torch.zeros(b, width, device=device)
    kernels.accumulate_(formed, table.to(device), moved(part, device))
    norms = kernels.squares(table.to(device), moved(part, device)).sqrt()
    terms = rounding.lengths(part) + part.values.norm(dim=-1)
    assert (norms >= formed.norm(dim=-1)).all()
    assert (norms.cpu() <= exact.norm(dim=-1) + 2e-5 * terms).all(), "and is not much longer"


def doubled(part: Contribution) -> Contribution:
    query, scores, d_scores, values = (
        x.double() for x in (part.query, part.scores, part.d_scores, part.values)
    )
    return Contribution(part.kind, query, part.index, scores, d_scores, part.ids, values)


@pytest.mark.parametrize("square", [float("inf"), float("nan")])
def test_what_is_not_finite_has_no_share(kernels: Backend, device: torch.device, square: float) -> None:
    squares = torch.tensor([[1.0, square, 4.0], [0.0, 1.0, 0.0]], device=device)
    losses, clip, there = torch.tensor([1.0, square, 5.0]), torch.ones(1), torch.tensor([3])
    factors, loss = kernels.clip_factors(squares, *(x.to(device) for x in (losses, clip, there)), 1.0)
    assert factors.tolist() == pytest.approx([1.0, 0.0, 0.5])
    assert loss.item() == pytest.approx(2.0), "nor is it in the loss, which ends a training that diverges"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("tables", "b", "there"), [(1, 1, 1), (2, 7, 5), (4, 1500, 1300), (2, 3, 0)])
def test_shares_cut_norms_and_leave_padding_out(
    kernels: Backend, device: torch.device, tables: int, b: int, there: int, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(0)
    squares = torch.rand(tables, b, generator=random, dtype=dtype)
    losses = torch.rand(b, generator=random, dtype=dtype)
    squares[:, ::3] = 0  # a triple without a gradient is left as it is
    arguments = (squares, losses, torch.tensor([0.7], dtype=dtype), torch.tensor([there]))
    factors, loss = kernels.clip_factors(*(tensor.to(device) for tensor in arguments), 32.0)
    assert (factors.dtype, loss.dtype, loss.shape) == (dtype, torch.float64, (1,))
    norms = squares.sum(0).sqrt().tolist()
    expected = [min(1, 0.7 / norm) / 32 if norm else 1 / 32 for norm in norms[:there]]
    assert factors[:there].tolist() == pytest.approx(expected, rel=1e-6)
    assert not factors[there:].any()
    assert loss.item() == pytest.approx(losses[:there].double().mean().item() if there else 0.0)


def debt_of(rows: int, width: int) -> Debt:
    """Steps that row i lacks i % 4 of; columns 0, 3, 6, ... do not move."""
    key, taken = torch.tensor([-5]), torch.tensor([9])
    moves = torch.arange(width) % 3 > 0
    return Debt(key, torch.tensor([0.3]), 0.5, taken, 9 - torch.arange(rows) % 4, moves)


def owned(debt: Debt, device: torch.device) -> Debt:
    tensors = (debt.key, debt.scale, debt.taken, debt.given, debt.moves)
    key, scale, taken, given, moves = (tensor.clone().to(device) for tensor in tensors)
    return Debt(key, scale, debt.rate, taken, given, moves)


@pytest.mark.parametrize("width", [1, 7, 64, 600])
@pytest.mark.parametrize("some", [True, False])
def test_debts_are_settled_once(kernels: Backend, device: torch.device, width: int, some: bool) -> None:
    before, debt = torch.randn(30, width), debt_of(30, width)
    rows = torch.tensor([3, 3, 9, 17, 3, 10, 12, 9]) if some else None
    table, own = before.clone().to(device), owned(debt, device)
    for _ in range(2):  # who has nothing left to get gets nothing
        kernels.settle_(table, own, None if rows is None else rows.to(device))
    expected, given = before.clone(), debt.given.clone()
    for row in range(30) if rows is None else set(rows.tolist()):
        normal = torch.zeros(1, width)
        reference.add_noise_(normal, debt.key, torch.tensor([row]), torch.ones(1))
        size = -0.5 * 0.3 * float(9 - debt.given[row]) ** 0.5
        expected[row] += torch.where(debt.moves, size * normal[0], 0.0)
        given[row] = 9
    assert torch.allclose(table.cpu(), expected, rtol=1e-5, atol=5e-6)
    assert torch.equal(own.given.cpu(), given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [2, 14, 40])
@pytest.mark.parametrize("kind", Similarity)
def test_noise_and_steps_from_factors(
    kernels: Backend, device: torch.device, kind: Similarity, width: int, dtype: torch.dtype
) -> None:
    table, part = part_of(kind, (12, 9, 20, width), dtype)
    kept, ties = torch.randn(20, width, dtype=dtype), torch.randn(20, 3, dtype=dtype)
    key, scale = torch.tensor([-3]), torch.tensor([0.4], dtype=dtype)
    gradient = torch.zeros_like(table)
    reference.accumulate_(gradient, table, part)

    stepped = table.clone().to(device)
    kernels.sgd_touched_(stepped, moved(part, device), 0.5)
    assert torch.allclose(stepped.cpu(), table - 0.5 * gradient, rtol=1e-5, atol=1e-4)

    for tie in (None, Tie(kept, ties)):
        total = gradient + (0 if tie is None else reference.tied(table, tie))
        reference.add_noise_(total, key, torch.arange(20), scale.expand(20))
        own = [tensor.to(device) for tensor in (table.clone(), torch.zeros_like(table), total * 0)]
        theirs = replace(
            moved(part, device), tie=None if tie is None else Tie(kept.to(device), ties.to(device))
        )
        pace = [torch.tensor(x) for x in ([20], [3], [True])]
        adam = Adam(0.1, epsilon=1e-2)
        arguments = (Pace(*(x.to(device) for x in pace)), adam, (key.to(device), scale.to(device)))
        kernels.adam_whole_(own[0], theirs, *own[1:], *arguments)
        expected = [table.clone(), torch.zeros_like(table), torch.zeros_like(table)]
        reference.adam_(expected[0], total, *expected[1:], Pace(*pace), adam)
        for actual, right in zip(own, expected, strict=True):
            assert torch.allclose(actual.cpu(), right, rtol=1e-4, atol=1e-4)


def noise(kernels: Backend, device: torch.device, rows: Tensor, width: int, key: int = 7) -> Tensor:
    out = torch.zeros(len(rows), width, device=device)
    kernels.add_noise_(out, torch.tensor([key], device=device), rows.to(device), out.new_ones(len(rows)))
    return out.cpu()


@pytest.mark.parametrize("width", [1, 4, 7, 600])
@pytest.mark.parametrize("key", [0, 5, -(2**63), -1])
def test_noise_is_what_the_reference_says(
    kernels: Backend, device: torch.device, width: int, key: int
) -> None:
    rows = torch.tensor([0, 3, 3, 2**33 + 1, 17])
    scale = torch.tensor([1.0, 2.0, 2.0, 0.0, 0.5])
    start = torch.randn(5, width)
    expected, found = start.clone(), start.clone().to(device)
    reference.add_noise_(expected, torch.tensor([key]), rows, scale)
    kernels.add_noise_(found, torch.tensor([key], device=device), rows.to(device), scale.to(device))
    assert torch.allclose(found.cpu(), expected, rtol=1e-5, atol=5e-6)
    assert torch.equal(found[3].cpu(), start[3])


def test_noise_has_the_moments_of_a_normal_distribution(kernels: Backend, device: torch.device) -> None:
    z = noise(kernels, device, torch.arange(4000), 128).double()
    count = z.numel()
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}.items():
        assert abs(z.pow(power).mean() - mean) < 5 * (variance / count) ** 0.5
    for low, high in ((-1.0, 0.0), (1.0, 2.0), (2.0, 3.0), (3.0, 9.0)):
        share = torch.special.ndtr(torch.tensor(high)) - torch.special.ndtr(torch.tensor(low))
        found = ((z > low) & (z <= high)).double().mean()
        assert abs(found - share) < 5 * (share / count) ** 0.5


def test_noise_of_rows_keys_and_neighbours_is_independent(kernels: Backend, device: torch.device) -> None:
    z, other = (noise(kernels, device, torch.arange(4000), 64, key).double() for key in (7, 8))
    limit = 5 / z.numel() ** 0.5
    pairs = [(z, other), (z[1:], z[:-1]), *((z[:, k:], z[:, :-k]) for k in (1, 2, 3, 4))]
    for first, second in pairs:
        assert abs((first * second).mean()) < limit
        assert abs(((first**2 - 1) * (second**2 - 1)).mean()) < 2 * limit


def test_a_rows_noise_depends_on_its_number_alone(kernels: Backend, device: torch.device) -> None:
    whole = noise(kernels, device, torch.arange(50), 20)
    some = torch.from_numpy(np.random.default_rng(0).permutation(50)[:13].copy())
    assert torch.equal(noise(kernels, device, some, 20), whole[some])
