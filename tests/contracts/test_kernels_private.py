"""Bounds of norms are those of the reference and above what is really added; shares cut by them."""

from __future__ import annotations

from math import hypot

import pytest
import torch
from torch import Tensor

from fedkge.kernels import Backend, Contribution, Similarity, backend, reference, rounding

#: triples, terms of each, rows, units
SHAPES = [(1, 1, 3, 1), (9, 2, 5, 4), (40, 33, 12, 40), (5, 200, 4000, 2), (0, 4, 5, 3), (64, 7, 9, 3)]


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


def grouped(b: int, units: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Triples dealt out to units, some of which are empty."""
    owner = torch.randint(units, (b,), generator=random)
    sizes = torch.bincount(owner, minlength=units)
    return torch.argsort(owner, stable=True), torch.cat((sizes.new_zeros(1), sizes.cumsum(0)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (7, 33), (300, 100), (2, 1030)])
def test_lengths_of_rows(
    kernels: Backend, device: torch.device, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    """Also of rows whose squares are no numbers of float32."""
    rows = torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    rows *= torch.tensor([1e-40, 1e-30, 1.0, 1e30], dtype=dtype).repeat(len(rows))[: len(rows), None]
    rows[::5] = 0
    found = kernels.lengths(rows.to(device)).cpu()
    assert found.dtype == dtype
    assert torch.allclose(found, reference.lengths(rows), rtol=4 * torch.finfo(dtype).eps, atol=0)
    for own, length in zip(rows.tolist(), found.tolist(), strict=True):  # once more, slowly
        assert length == pytest.approx(hypot(*own), rel=4 * torch.finfo(dtype).eps, abs=1e-44)
    strange = rows.new_tensor([[1.0, torch.nan], [torch.inf, 0.0]]).to(device)
    assert kernels.lengths(strange).cpu().isfinite().tolist() == [False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_terms_that_meet_in_a_row_add_up(
    kernels: Backend, device: torch.device, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    b, k, count, units = shape
    random = torch.Generator().manual_seed(0)
    rows, lengths = (
        torch.randint(count, (b, k), generator=random),
        torch.rand(b, k, dtype=dtype, generator=random),
    )
    order, starts = grouped(b, units, random)
    found = kernels.squares(*(x.to(device) for x in (rows, lengths, order, starts))).cpu()
    assert found.dtype == dtype
    close = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.allclose(found, reference.squares(rows, lengths, order, starts), rtol=close)
    for u in range(units):  # once more, slowly
        sums: dict[int, float] = {}
        for i in order[starts[u] : starts[u + 1]].tolist():
            for row, length in zip(rows[i].tolist(), lengths[i].tolist(), strict=True):
                sums[row] = sums.get(row, 0.0) + length
        assert float(found[u]) == pytest.approx(sum(x * x for x in sums.values()), rel=close)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e-21, 1e-12, 1.0, 1e9])
@pytest.mark.parametrize("kind", Similarity)
def test_no_term_is_longer_than_it_is_said_to_be(
    kernels: Backend, device: torch.device, kind: Similarity, scale: float
) -> None:
    """One candidate each, a row of its own, also at nearly no distance."""
    b, width = 300, 8
    random = torch.Generator().manual_seed(5)
    table = scale * torch.randn(b, width, generator=random)
    near = 10.0 ** -torch.arange(b).remainder(8)[:, None]
    query, index = table + near * scale * torch.randn(b, width, generator=random), torch.arange(b)[:, None]
    scores = kernels.forward(kind, query.to(device), table.to(device), index.to(device)).cpu()
    part = Contribution(
        kind, query, index, scores, torch.randn(b, 1, generator=random), index[:0, 0], table[:0]
    )
    released = Contribution(kind, query, index, scores, rounding.directed(part), index[:0, 0], table[:0])
    formed = torch.zeros(b, width, device=device)
    names = ("query", "index", "scores", "d_scores", "ids", "values")
    kernels.accumulate_(
        formed, table.to(device), Contribution(kind, *(getattr(released, n).to(device) for n in names))
    )
    lengths = (rounding.directed(part).abs() * rounding.reach(part))[:, 0]
    bound = lengths.double() * (1 + 2 * rounding.relative(table, 1))
    assert (formed.cpu().double().norm(dim=-1) <= bound + 1e-40).all()


@pytest.mark.parametrize("square", [float("inf"), float("nan")])
def test_what_is_not_finite_has_no_share(kernels: Backend, device: torch.device, square: float) -> None:
    squares = torch.tensor([[1.0, square, 4.0], [0.0, 1.0, 0.0]], device=device)
    losses, clip, there = torch.tensor([1.0, square, 5.0]), torch.ones(1), torch.tensor([3, 3])
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
    arguments = (squares, losses, torch.tensor([0.7], dtype=dtype), torch.tensor([there, there]))
    factors, loss = kernels.clip_factors(*(tensor.to(device) for tensor in arguments), 32.0)
    assert (factors.dtype, loss.dtype, loss.shape) == (dtype, torch.float64, (1,))
    norms = squares.sum(0).sqrt().tolist()
    expected = [min(1, 0.7 / norm) / 32 if norm else 1 / 32 for norm in norms[:there]]
    assert factors[:there].tolist() == pytest.approx(expected, rel=1e-6)
    assert not factors[there:].any()
    assert loss.item() == pytest.approx(losses[:there].double().mean().item() if there else 0.0)
