"""Losses of scores, and of rows in one go: equal to plain torch on every backend."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedkge.kernels import Similarity, backend, contrast, reference
from fedkge.kernels.comparing import compare

CLOSE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 2e-6}}


def contrasted(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    weight = (temperature * scores.detach()[:, 1:]).softmax(-1)
    return (F.softplus(-scores[:, 0]) + (weight * F.softplus(scores[:, 1:])).sum(-1)) / 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(1, 2), (5, 8), (3, 258), (33, 17)], ids=str)
def test_contrast_equals_the_formula_and_its_autograd(
    device: torch.device, shape: tuple[int, int], temperature: float, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(0)
    plain = (4 * torch.randn(shape, generator=random, dtype=torch.float64)).to(dtype).requires_grad_()
    losses = contrasted(plain, temperature)
    factor = torch.randn(len(plain), generator=random, dtype=torch.float64).to(dtype)
    (losses * factor).sum().backward()
    scores = plain.detach().to(device).requires_grad_()
    found = contrast(scores, temperature)
    (found * factor.to(device)).sum().backward()
    torch.testing.assert_close(found.detach().cpu(), losses.detach(), **CLOSE[dtype])
    torch.testing.assert_close(scores.grad.cpu(), plain.grad, **CLOSE[dtype])


def test_contrast_of_huge_scores_is_finite(device: torch.device) -> None:
    scores = torch.tensor([[1e4, -1e4, 1e4], [-1e4, 1e4, 1e4], [0.0, 0.0, 0.0]], device=device)
    losses, gradient = backend(device).contrast(scores, 1.0)
    assert torch.isfinite(losses).all()
    assert torch.isfinite(gradient).all()
    torch.testing.assert_close(losses.cpu(), torch.tensor([5e3, 1e4, 0.6931472]))


def test_contrast_of_far_negatives_is_finite(device: torch.device) -> None:
    """However many there are: a program of the GPU has place for a power of two."""
    scores = torch.full((1, 4), -1000.0, device=device)
    losses, gradient = backend(device).contrast(scores, 1.0)
    torch.testing.assert_close(losses.cpu(), torch.tensor([500.0]))
    torch.testing.assert_close(gradient.cpu(), torch.tensor([[-0.5, 0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("n", [1, 2, 6, 70])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("kind", Similarity)
def test_rows_are_contrasted_as_their_scores_are(
    device: torch.device, kind: Similarity, temperature: float, n: int
) -> None:
    random = torch.Generator().manual_seed(1)
    table, query = (torch.randn(k, 6, generator=random, dtype=torch.float64) for k in (11, 4))
    index = torch.randint(11, (4, n), generator=random)
    query[0] = table[index[0, 0]]  # at no distance from its answer
    leaves = query.clone().requires_grad_()
    scores = compare(kind, leaves[:, None], table[index])
    scores.retain_grad()
    expected = contrasted(scores + 2.5, temperature)
    expected.sum().backward()
    there = (x.to(device) for x in (query, table, index))
    losses, found, d_scores, d_query = backend(device).contrast_rows(kind, *there, 2.5, temperature)
    close = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(losses.cpu(), expected.detach(), **close)
    torch.testing.assert_close(found.cpu(), scores.detach(), **close)
    torch.testing.assert_close(d_scores.cpu(), scores.grad, **close)
    assert leaves.grad is not None
    torch.testing.assert_close(d_query.cpu(), leaves.grad.nan_to_num(), **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_what_is_left_out_has_no_gradient_beside_a_score_that_is_no_number(
    device: torch.device, score: float, dtype: torch.dtype
) -> None:
    scores = torch.tensor([[0.0, score, -torch.inf, 1.0]], dtype=dtype, device=device)
    _, gradient = backend(device).contrast(scores, 1.0)
    assert float(gradient[0, 2]) == 0
    assert float(reference.contrast(scores, 1.0)[1][0, 2]) == 0
