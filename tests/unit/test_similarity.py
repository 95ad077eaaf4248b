"""What the differentiable similarity refuses, and that it is no more differentiable than it says."""

from __future__ import annotations

import pytest
import torch

from fedkge.kernels import Similarity, contrast, similarity

pytest.importorskip("numba")

QUERY, TABLE = torch.ones(2, 4), torch.zeros(3, 4)


@pytest.mark.parametrize("bad", [-1, 3])
def test_index_outside_the_table(bad: int) -> None:
    with pytest.raises(IndexError, match=r"^index from .* to .*, but the table has 3 rows$"):
        similarity(Similarity.L1, QUERY, TABLE, torch.tensor([[0, bad], [1, 2]]))


@pytest.mark.parametrize("index", [torch.tensor([0, 1]), torch.zeros(2, 1, 1, dtype=torch.int64)])
def test_index_that_is_no_matrix(index: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="index"):
        similarity(Similarity.L1, QUERY, TABLE, index)


def test_no_candidates() -> None:
    assert similarity(Similarity.L1, QUERY, TABLE, torch.empty(2, 0, dtype=torch.int64)).shape == (2, 0)


def test_only_once_differentiable() -> None:
    query = QUERY.clone().requires_grad_()
    for scores in (
        similarity(Similarity.L2, query, TABLE, torch.tensor([[0, 1], [1, 2]])),
        contrast(query, 1.0)[:, None],
    ):
        (gradient,) = torch.autograd.grad(scores.square().sum(), query, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            gradient.sum().backward()
