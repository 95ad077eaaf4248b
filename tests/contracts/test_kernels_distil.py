"""Distillation: two divergences and their gradients, equal to plain torch on every backend."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fedkge.kernels import backend, distil

CLOSE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 2e-6}}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("shape", [(1, 1), (5, 8), (3, 257), (33, 17), (2, 1500)], ids=str)
def test_distil_is_two_divergences_that_move_the_pupil_alone(
    device: torch.device, shape: tuple[int, int], temperature: float, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(0)
    plain = [3 * torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(2)]
    plain = [scores.to(dtype).requires_grad_() for scores in plain]
    factors = torch.randn(2, shape[0], generator=random, dtype=torch.float64).to(dtype)
    expected = []
    for pupil, teacher in (plain, plain[::-1]):
        taught = (teacher.detach() / temperature).softmax(-1)
        expected.append(F.kl_div((pupil / temperature).log_softmax(-1), taught, reduction="none").sum(-1))
    sum((kl * factor).sum() for kl, factor in zip(expected, factors, strict=True)).backward()
    scores = [one.detach().to(device).requires_grad_() for one in plain]
    found = distil(*scores, temperature)
    sum((kl * factor).sum() for kl, factor in zip(found, factors.to(device), strict=True)).backward()
    for kl, right in zip(found, expected, strict=True):
        torch.testing.assert_close(kl.detach().cpu(), right.detach(), **CLOSE[dtype])
    for one, right in zip(scores, plain, strict=True):
        torch.testing.assert_close(one.grad.cpu(), right.grad, **CLOSE[dtype])


def test_one_divergence_leaves_its_teacher_where_it_is(device: torch.device) -> None:
    first, second = torch.randn(2, 3, 4, device=device).unbind()
    for moved in (0, 1):
        scores = [one.clone().requires_grad_() for one in (first, second)]
        distil(*scores)[moved].sum().backward()
        assert scores[moved].grad.any()
        assert not scores[1 - moved].grad.any()


def test_models_that_agree_teach_each_other_nothing(device: torch.device) -> None:
    scores = 5 * torch.randn(7, 300, device=device)
    most = 0.0 if device.type == "cpu" else 1e-6
    for found in backend(device).distil(scores, scores.clone(), 0.7):
        assert found.abs().max() <= most


def test_distil_of_huge_scores_is_finite(device: torch.device) -> None:
    first = torch.tensor([[1e4, -1e4, 1e4], [0.0, 0.0, 0.0]], device=device)
    second = torch.tensor([[-1e4, 1e4, 1e4], [-1e4, 1e4, 0.0]], device=device)
    to_first, to_second, gradient = backend(device).distil(first, second, 1.0)
    assert torch.isfinite(gradient).all()
    torch.testing.assert_close(to_first.cpu(), torch.tensor([1e4, 1.0986123]))
    torch.testing.assert_close(to_second.cpu(), torch.tensor([1e4, 1e4 - 1.0986123]))


def test_candidates_are_the_same_for_both() -> None:
    with pytest.raises(ValueError, match=r"scores \[2, 3\] and \[2, 4\] of unlike candidates"):
        distil(torch.zeros(2, 3), torch.zeros(2, 4))
