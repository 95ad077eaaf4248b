"""Losses against their formulas, one triple and one negative at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedkge.training.losses import LOSSES

SCORES = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


def logistic(row: list[float], temperature: float) -> float:
    true, *false = row
    raw = [math.exp(temperature * s) for s in false]
    weights = [w / sum(raw) for w in raw]
    return -(log_sigmoid(true) + sum(w * log_sigmoid(-s) for w, s in zip(weights, false, strict=True))) / 2


def margin(row: list[float], option: float) -> float:
    true, *false = row
    return sum(max(0.0, option - true + s) for s in false) / len(false)


@pytest.mark.parametrize(
    ("name", "option", "slow"),
    [
        ("self-adversarial", 1.0, logistic),
        ("self-adversarial", 0.3, logistic),
        ("self-adversarial", 0.0, logistic),
        ("margin", 1.0, margin),
        ("margin", 4.5, margin),
    ],
)
def test_formula(name: str, option: float, slow: object) -> None:
    expected = [slow(row, option) for row in SCORES.tolist()]
    assert LOSSES[name](SCORES, option).tolist() == pytest.approx(expected, rel=1e-12)


def test_logistic_weighs_negatives_alike_at_any_temperature() -> None:
    expected = [logistic(row, 0.0) for row in SCORES.tolist()]
    assert LOSSES["logistic"](SCORES, 5.0).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", list(LOSSES))
def test_gradient(name: str) -> None:
    """Central differences; the self-adversarial weights are constants, so they are taken at the middle."""
    scores = SCORES.clone().requires_grad_()
    LOSSES[name](scores, 0.7).sum().backward()

    def at(point: Tensor) -> Tensor:
        if name == "margin":
            return torch.tensor([margin(row, 0.7) for row in point.tolist()], dtype=torch.float64)
        temperature = 0.7 if name == "self-adversarial" else 0.0
        weight = torch.softmax(temperature * SCORES[:, 1:], 1)
        terms = weight * torch.nn.functional.logsigmoid(-point[:, 1:])
        return -(torch.nn.functional.logsigmoid(point[:, 0]) + terms.sum(1)) / 2

    step = 1e-6
    for column in range(SCORES.shape[1]):
        move = torch.zeros_like(SCORES)
        move[:, column] = step
        slope = (at(SCORES + move) - at(SCORES - move)) / (2 * step)
        torch.testing.assert_close(scores.grad[:, column], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_huge_scores_stay_finite(name: str, size: float) -> None:
    scores = torch.tensor([[size, -size, size, 0.0]], requires_grad=True)
    loss = LOSSES[name](scores, 1.0)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", list(LOSSES))
def test_better_separation_costs_less(name: str) -> None:
    far, near = (torch.tensor([[gap, -gap, -gap]]) for gap in (4.0, 0.1))
    assert LOSSES[name](far, 1.0) < LOSSES[name](near, 1.0)
