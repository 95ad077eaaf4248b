"""The logistic loss and the joint backward pass: equal to plain torch on every backend."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedkge.kernels import Contribution, Similarity, backend, contrast, reference

CLOSE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 2e-6}}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(1, 2), (5, 8), (3, 258), (33, 17)], ids=str)
def test_contrast_equals_the_formula_and_its_autograd(
    device: torch.device, shape: tuple[int, int], temperature: float, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(0)
    plain = (4 * torch.randn(shape, generator=random, dtype=torch.float64)).to(dtype).requires_grad_()
    weight = (temperature * plain.detach()[:, 1:]).softmax(-1)
    losses = (F.softplus(-plain[:, 0]) + (weight * F.softplus(plain[:, 1:])).sum(-1)) / 2
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


@pytest.mark.parametrize("kind", Similarity)
def test_both_gradients_in_one_pass_equal_two(device: torch.device, kind: Similarity) -> None:
    random = torch.Generator().manual_seed(1)
    table, query = (torch.randn(n, 6, generator=random, dtype=torch.float64) for n in (11, 4))
    index = torch.randint(11, (4, 5), generator=random)
    ids, values = torch.randint(11, (3,), generator=random), torch.randn(3, 6, generator=random).double()
    scores = reference.forward(kind, query, table, index)
    d_scores = torch.randn(4, 5, generator=random, dtype=torch.float64)
    part = Contribution(kind, query, index, scores, d_scores, ids, values)
    expected = torch.zeros_like(table)
    reference.accumulate_(expected, table, part)
    d_query = reference.backward_query(kind, query, table, index, scores, d_scores)
    there = Contribution(kind, *(x.to(device) for x in (query, index, scores, d_scores, ids, values)))
    gradient = torch.zeros_like(table, device=device)
    found = backend(device).backward_both_(gradient, table.to(device), there)
    torch.testing.assert_close(found.cpu(), d_query, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradient.cpu(), expected, rtol=1e-10, atol=1e-12)
