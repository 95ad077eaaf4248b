"""Losses of one positive against its negatives: scores in, one number per triple out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from fedkge.kernels import contrast
from fedkge.registry import claim

Loss: TypeAlias = Callable[[Tensor, float], Tensor]  #: scores [b, 1 + n], the true one first; option -> [b]


def self_adversarial(scores: Tensor, temperature: float) -> Tensor:
    """Sun et al. (2019): `-(log sigmoid(s+) + sum_j w_j log sigmoid(-s_j)) / 2`.

    The weights `w = softmax(temperature s_j)` are detached.
    """
    return contrast(scores, temperature)


def logistic(scores: Tensor, temperature: float) -> Tensor:
    """The same with equal weights 1 / n."""
    return contrast(scores, 0.0)


def margin_ranking(scores: Tensor, margin: float) -> Tensor:
    """Bordes et al. (2013): the mean over negatives of `max(0, margin - s+ + s_j)`.

    Of those that are not left out: these have a score of -inf, and add 0 to a mean over all.
    """
    negatives = scores[:, 1:]
    there = (negatives != -torch.inf).sum(-1).clamp_min(1)
    return (margin - scores[:, :1] + negatives).clamp_min(0).mean(-1) * (negatives.shape[1] / there)


class Losses(dict[str, Loss]):
    """Losses by name. One of a plugin gets `trainer.temperature` for its option."""

    def register(self, name: str) -> Callable[[Loss], Loss]:
        def add(loss: Loss) -> Loss:
            claim("loss", "fedkge.training", self, name, loss)
            return loss

        return add


LOSSES = Losses({"self-adversarial": self_adversarial, "logistic": logistic, "margin": margin_ranking})
CONTRASTS = ("self-adversarial", "logistic")  #: those that the kernels compute by themselves
