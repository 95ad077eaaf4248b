"""Cubes of rows (L3): equal to autograd, and stepped as if their gradients were written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedkge.kernels import Adam, Backend, Contribution, Pace, Similarity, backend, reference
from fedkge.models import Gradient

CLOSE = {torch.float64: {"rtol": 1e-11, "atol": 1e-13}, torch.float32: {"rtol": 2e-5, "atol": 1e-6}}
ROWS = 13


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def numbers(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("width", [1, 7, 16, 50])
def test_cubes_and_their_gradients_equal_autograd(
    device: torch.device, dtype: torch.dtype, width: int
) -> None:
    table, ids = numbers(dtype, ROWS, width), torch.tensor([12, 3, 3, 0])
    slopes = numbers(dtype, 4, seed=1)
    rows = table[ids].requires_grad_()
    expected = (rows.abs() ** 3).sum(-1)
    expected.backward(slopes)
    kernels, there = backend(device), (table.to(device), ids.to(device))
    torch.testing.assert_close(kernels.cubes(*there).cpu(), expected.detach(), **CLOSE[dtype])
    found = kernels.cube_gradients(*there, slopes.to(device)).cpu()
    torch.testing.assert_close(found, rows.grad, **CLOSE[dtype])


def part_of(table: Tensor, pairs: bool, ahead: bool) -> Contribution:
    """Candidates or none, rows, and rows that are cubed; some of these have nothing else."""
    dtype, width = table.dtype, table.shape[1]
    index = torch.tensor([[0, 2, 5], [5, 5, 8]] if pairs else [], dtype=torch.int64).view(-1, 3)
    query = numbers(dtype, len(index), width, seed=2)
    scores = reference.forward(Similarity.DOT, query, table, index)
    values = numbers(dtype, 5, width, seed=3)
    return Contribution(
        Similarity.DOT,
        query,
        index,
        scores,
        numbers(dtype, *scores.shape, seed=4),
        ids=torch.tensor([12, 3, 3, 0, 9, 3, 7, 5, 3]),
        values=values[2:] if ahead else values,
        ahead=values[:2] if ahead else None,
        cubed=numbers(dtype, 4, seed=5),
    )


def written(table: Tensor, part: Contribution) -> Contribution:
    """The same with the gradients of cubes as rows."""
    assert part.cubed is not None
    part = part.joined()
    more = reference.cube_gradients(table, part.ids[len(part.values) :], part.cubed)
    return replace(part, values=torch.cat((part.values, more)), cubed=None)


@pytest.mark.parametrize("whole", [False, True], ids=["touched", "whole"])
@pytest.mark.parametrize("ahead", [False, True], ids=["", "ahead"])
@pytest.mark.parametrize("pairs", [False, True], ids=["rows", "pairs"])
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_cubed_rows_step_as_if_their_gradients_were_written_out(
    name: str, pairs: bool, ahead: bool, whole: bool, dtype: torch.dtype
) -> None:
    kernels: Backend = reference if name == "reference" else backend(torch.device("cpu"))  # type: ignore[assignment]
    pace = Pace(torch.tensor([4, ROWS]), torch.tensor([3, 7]), torch.tensor([True, True]))
    found, expected = ([numbers(dtype, ROWS, 7), *torch.zeros(2, ROWS, 7, dtype=dtype)] for _ in range(2))
    part = part_of(found[0], pairs, ahead)
    step = kernels.adam_whole_ if whole else kernels.adam_touched_
    step(found[0], part, *found[1:], pace, Adam(rate=0.1))
    right = reference.adam_whole_ if whole else reference.adam_touched_
    right(expected[0], written(expected[0], part), *expected[1:], pace, Adam(rate=0.1))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, **CLOSE[dtype])
    assert (found[0][7] != numbers(dtype, ROWS, 7)[7]).all()  # this row is cubed, and nothing else


def test_a_gradient_hands_over_cubes_last_in_whatever_order_they_came(dtype: torch.dtype) -> None:
    table = numbers(dtype, ROWS, 7)
    gradient = Gradient(table, factors=True)
    slopes = torch.ones(1, dtype=dtype)
    gradient.add_cubes(torch.tensor([5]), slopes)
    gradient.add_rows(torch.tensor([3, 5]), numbers(dtype, 2, 7, seed=6))
    gradient.add_cubes(torch.tensor([7]), 2 * slopes)
    gradient.add_rows(torch.tensor([1]), numbers(dtype, 1, 7, seed=7))
    part = gradient.take()
    assert part.ids.tolist() == [3, 5, 1, 5, 7]
    assert part.cubed is not None
    assert part.cubed.tolist() == [1, 2]
    rows, found = reference.touched(table, part.joined())
    assert rows.tolist() == [1, 3, 5, 7]
    torch.testing.assert_close(found[3], 6 * table[7].abs() * table[7], **CLOSE[dtype])
    assert gradient.take().cubed is None
