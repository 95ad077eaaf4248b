"""PPAT (Peng et al., CIKM 2021): a client's rows are translated into a host's space by an adversarial game.

The client has the generator `G(x) = W x`. The host has teachers, each with a part of the host's rows that is
its own for good, and a student. Teachers learn to tell generated rows from their own (Eq. 4). They vote
on every generated row, noise is added to the counts (Eqs. 5, 6), and the student learns from these labels
and from nothing else (Eq. 7). The generator learns from the student only (Eq. 3).

The host cannot compute a gradient with respect to W, as it has no x. It sends the gradient with respect to
the generated rows, and the client makes `dL/dW = sum g x^T` of it. Gradients are written out by hand: the
networks are so small that most of the time would go into autograd.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedkge.training.secret import CipherNoise

SLOPE = 0.2  #: of the leaky rectifier below 0
Random: TypeAlias = np.random.Generator


class Momentum:
    """Gradient descent with momentum: `v = momentum v + g`, `parameter -= lr v`."""

    def __init__(self, parameters: list[Tensor], lr: float, momentum: float) -> None:
        self.parameters, self.lr, self.momentum = parameters, lr, momentum
        self.velocity = [torch.zeros_like(one) for one in parameters]

    def step(self, gradients: list[Tensor]) -> None:
        for parameter, velocity, gradient in zip(self.parameters, self.velocity, gradients, strict=True):
            velocity.mul_(self.momentum).add_(gradient)
            parameter.sub_(velocity, alpha=self.lr)


class Discriminators:
    """k networks of one hidden layer each, side by side: rows [k, b, width] to logits [k, b]."""

    def __init__(self, k: int, width: int, hidden: int, random: Random) -> None:
        def uniform(*shape: int, fan: int) -> Tensor:
            return torch.from_numpy(random.uniform(-1, 1, shape).astype(np.float32)) / fan**0.5

        self.first = uniform(k, width, hidden, fan=width)
        self.first_bias = torch.zeros(k, 1, hidden)
        self.last = uniform(k, hidden, 1, fan=hidden)
        self.last_bias = torch.zeros(k, 1, 1)

    @property
    def parameters(self) -> list[Tensor]:
        return [self.first, self.first_bias, self.last, self.last_bias]

    def hidden(self, rows: Tensor) -> Tensor:
        """Before the rectifier: [k, b, hidden]."""
        return torch.baddbmm(self.first_bias, rows, self.first)

    def logits(self, hidden: Tensor) -> Tensor:
        active = torch.where(hidden > 0, hidden, SLOPE * hidden)
        return torch.baddbmm(self.last_bias, active, self.last)[..., 0]

    def gradients(self, rows: Tensor, hidden: Tensor, slope: Tensor) -> list[Tensor]:
        """Of a loss with respect to the parameters; `slope` [k, b] is its derivative by the logits."""
        active = torch.where(hidden > 0, hidden, SLOPE * hidden)
        back = self._back(hidden, slope)
        return [
            rows.mT @ back,
            back.sum(1, keepdim=True),
            active.mT @ slope[..., None],
            slope.sum(1)[:, None, None],
        ]

    def by_rows(self, hidden: Tensor, slope: Tensor) -> Tensor:
        """The same with respect to the rows: [k, b, width]."""
        return self._back(hidden, slope) @ self.first.mT

    def _back(self, hidden: Tensor, slope: Tensor) -> Tensor:
        """With respect to `hidden`."""
        back = slope[..., None] * self.last.mT
        return torch.where(hidden > 0, back, SLOPE * back)


def noisy_labels(votes: Tensor, teachers: int, noise: Tensor) -> Tensor:
    """Eqs. 5 and 6: `argmax_j n_j + V_j` [b], where `votes` [b] are n_1 and `noise` [2, b] is V.

    Equal sums are 0, "generated": without noise an even vote must not tell the generator that it has won.
    """
    return (votes + noise[1] > teachers - votes + noise[0]).float()


@dataclass(frozen=True)
class Votes:
    """The noise on teachers' votes. `scale` is what the noise is multiplied by: more is more private.

    PATE writes its inverse, gamma = 1 / scale; this program has no option that is an inverse.
    """

    law: Literal["gaussian", "laplace"]
    scale: float  #: standard deviation of Gaussian noise, b of Laplace noise; 0: none

    def draw(self, count: int, random: Random | CipherNoise) -> Tensor:
        """V_0 and V_1 for each vote: [2, count]."""
        if self.scale == 0:
            return torch.zeros(2, count)
        draw = random.normal if self.law == "gaussian" else random.laplace
        return torch.from_numpy(draw(0.0, self.scale, (2, count)))  # float64: no vote is decided by rounding


@dataclass(frozen=True)
class Game:
    """The options of both halves that the two ends must agree on, or that the host decides."""

    teachers: int = 4
    hidden: int = 256
    batch: int = 32
    lr: float = 0.02
    momentum: float = 0.9
    step: float = 0.02  #: learning rate of the generator
    parts: bool = False  #: each teacher sees a part of the generated rows; false: every teacher sees all
    balanced: bool = True  #: a batch has as many host rows per teacher as generated ones; false: as in Eq. 4
    saturating: bool = True  #: Eq. 3 as printed, which vanishes where S is sure; false: -log S


class HostHalf:
    """Teachers and student. One row of `own` is in one teacher's part, in every conversation.

    `parts` [n] says in which one: it must not change from pass to pass or from partner to partner.
    """

    def __init__(
        self, game: Game, own: Tensor, parts: Tensor, votes: Votes, seeds: tuple[Random, Random | CipherNoise]
    ) -> None:
        networks, self.noise = seeds  # the first is drawn by the seed, the second by a secret
        self.game, self.votes = game, votes
        self.rows = [own[parts == i] for i in range(game.teachers)]  # each [n_i, width]
        self.teachers = Discriminators(game.teachers, own.shape[1], game.hidden, networks)
        self.student = Discriminators(1, own.shape[1], game.hidden, networks)
        self._teaching = Momentum(self.teachers.parameters, game.lr, game.momentum)
        self._learning = Momentum(self.student.parameters, game.lr, game.momentum)
        self._order = networks
        self.gaps: Counter[int] = Counter()  # votes by |n_0 - n_1|, which is private
        self.labels, self.seen = 0.0, 0  #: noisy labels that said "real", and votes taken

    @torch.no_grad()
    def answer(self, rows: Tensor) -> Tensor:
        """A batch of generated rows [b, width] is voted on and learnt from; `dL_G / drows` [b, width].

        As Algorithm 2 has it, all gradients are taken before any network moves. Where all labels of a batch
        are alike, the student learns and the generator is told nothing: a student that has seen one class
        only has no slope that means anything.
        """
        game, k = self.game, self.game.teachers
        own = self._own(len(rows) if game.balanced else -(-len(rows) // k))
        seen = rows.expand(k, -1, -1)
        hidden = self.teachers.hidden(torch.cat((seen, own), 1))
        logits = self.teachers.logits(hidden)
        b, m = len(rows), own.shape[1]
        votes = (logits[:, :b] > 0).sum(0)
        self.gaps.update((2 * votes - k).abs().tolist())
        labels = noisy_labels(votes, k, self.votes.draw(b, self.noise))
        self.labels, self.seen = self.labels + float(labels.sum()), self.seen + b
        slope = logits.sigmoid()  # of -log(1 - T) by the logit; of -log T it is that minus 1
        slope[:, b:] -= 1
        slope[:, :b] *= self._mine(b) / b
        slope[:, b:] /= m if game.balanced else b
        student = self.student.hidden(rows[None])
        logit = self.student.logits(student)
        teaching = self.teachers.gradients(torch.cat((seen, own), 1), hidden, slope)
        learning = self.student.gradients(rows[None], student, (logit.sigmoid() - labels) / b)
        pull = -logit.sigmoid() if game.saturating else logit.sigmoid() - 1
        gradient = self.student.by_rows(student, pull / b)[0]
        self._teaching.step(teaching)
        self._learning.step(learning)
        alike = float(labels.sum()) in (0.0, float(b))
        return torch.zeros_like(gradient) if alike else gradient

    def _own(self, count: int) -> Tensor:
        """So many rows of each teacher's part, at random: [k, count, width]."""
        picks = [self._order.integers(0, len(rows), count) for rows in self.rows]
        return torch.stack(
            [rows[torch.from_numpy(pick)] for rows, pick in zip(self.rows, picks, strict=True)]
        )

    def _mine(self, b: int) -> Tensor:
        """Which generated rows of a batch each teacher learns from: [k, b] of 0 and weights that sum to b."""
        k = self.game.teachers
        if not self.game.parts:
            return torch.ones(k, b)
        mine = (torch.arange(b) % k == torch.arange(k)[:, None]).float()
        return mine * (b / mine.sum(1, keepdim=True).clamp_min(1))

    def reset(self) -> float:
        """The share of noisy labels that said "real" since the last call."""
        share = self.labels / max(1, self.seen)
        self.labels, self.seen = 0.0, 0
        return share


class ClientHalf:
    """The generator `G(x) = W x`, W [host's width, own width], from a random orthogonal start."""

    def __init__(self, game: Game, width: int, own: int, random: Random, orthogonal: float = 0.0) -> None:
        self.w = random_orthogonal(width, own, random)
        self.orthogonal = orthogonal
        self._learning = Momentum([self.w], game.step, game.momentum)

    def generate(self, rows: Tensor) -> Tensor:
        return rows @ self.w.T

    @torch.no_grad()
    def learn(self, rows: Tensor, gradient: Tensor) -> None:
        """`dL/dW = sum over the batch of g x^T`; with `orthogonal`, W is pulled to the nearest rotation."""
        self._learning.step([gradient.T @ rows])
        if self.orthogonal:
            w, beta = self.w, self.orthogonal  # Conneau et al. (2018): W <- (1 + beta) W - beta W W^T W
            w.copy_((1 + beta) * w - beta * (w @ w.T @ w))


def random_orthogonal(rows: int, columns: int, random: Random) -> Tensor:
    """Uniformly among matrices with orthonormal columns, or rows where there are fewer of these."""
    most, least = max(rows, columns), min(rows, columns)
    q, r = np.linalg.qr(random.normal(size=(most, least)))
    q = q * np.sign(np.diag(r))  # else the factorisation would prefer some
    return torch.from_numpy((q if rows >= columns else q.T).astype(np.float32).copy())


def procrustes(x: Tensor, y: Tensor) -> Tensor:
    """The W with orthonormal columns or rows that minimises `|X W^T - Y|` over paired rows (a control)."""
    u, _, vt = torch.linalg.svd(y.double().T @ x.double(), full_matrices=False)
    return (u @ vt).float()


def csls(x: Tensor, y: Tensor, neighbours: int = 10) -> float:
    """The mean of `2 cos(x, y) - r(x) - r(y)` over pairs; r is the mean cosine to the nearest rows."""
    x, y = torch.nn.functional.normalize(x), torch.nn.functional.normalize(y)
    near = min(neighbours, len(x))
    to_y = torch.cat([(part @ y.T).topk(near).values.mean(1) for part in x.split(1024)])
    to_x = torch.cat([(part @ x.T).topk(near).values.mean(1) for part in y.split(1024)])
    return float((2 * (x * y).sum(1) - to_y - to_x).mean())


def dealt(ids: Tensor, total: int, teachers: int, key: int) -> Tensor:
    """The teacher [n] of each of a host's rows, of which there are `total`: the same for every partner."""
    place = np.random.Generator(np.random.Philox(key=key)).permutation(total)
    return torch.from_numpy(place)[ids] % teachers
