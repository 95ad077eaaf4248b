"""PPAT against slow and obvious versions of Eqs. 3 to 7, by autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.methods.ppat import (
    SLOPE,
    ClientHalf,
    Game,
    HostHalf,
    Votes,
    csls,
    dealt,
    noisy_labels,
    procrustes,
    random_orthogonal,
)

N, W, V = 24, 5, 7  # rows, the host's width, the client's


def halves(scale: float = 0.0, **options: object) -> tuple[HostHalf, ClientHalf, Tensor, Tensor]:
    game = Game(teachers=3, hidden=6, batch=8, **options)  # type: ignore[arg-type]
    random = np.random.default_rng(3)
    y, x = (torch.from_numpy(random.normal(size=(N, w)).astype(np.float32)) for w in (W, V))
    host = HostHalf(game, y, torch.arange(N) % 3, Votes("gaussian", scale), (random, random))
    return host, ClientHalf(game, W, V, random), x, y


def network(parameters: list[Tensor], i: int, rows: Tensor) -> Tensor:
    first, bias, last, end = (p[i] for p in parameters)
    return torch.sigmoid(torch.nn.functional.leaky_relu(rows @ first + bias, SLOPE) @ last + end)[:, 0]


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("parts", [True, False])
@pytest.mark.parametrize("saturating", [True, False])
def test_one_step_is_the_equations(
    monkeypatch: pytest.MonkeyPatch, balanced: bool, parts: bool, saturating: bool
) -> None:
    host, client, x, y = halves(balanced=balanced, parts=parts, saturating=saturating)
    b, k = 8, 3
    real = torch.stack([y[torch.arange(N) % 3 == i][: b if balanced else -(-b // k)] for i in range(k)])
    monkeypatch.setattr(host, "_own", lambda count: real[:, :count])
    teachers = [p.clone().requires_grad_() for p in host.teachers.parameters]
    student = [p.clone().requires_grad_() for p in host.student.parameters]
    w = client.w.clone().requires_grad_()
    rows = x[:b]
    made = rows @ w.T
    votes = sum((network(teachers, i, made) > 0.5).float() for i in range(k))
    labels = (votes > k - votes).float()  # Eqs. 5 and 6 without noise; ties are "generated"
    loss_t = torch.zeros(())
    for i in range(k):  # Eq. 4
        mine = made.detach()[torch.arange(b) % k == i] if parts else made.detach()
        fake = torch.log(1 - network(teachers, i, mine)).mean()
        true = torch.log(network(teachers, i, real[i])).sum() / (len(real[i]) if balanced else b)
        loss_t = loss_t - fake - true
    s = network(student, 0, made.detach())
    loss_s = -(labels * torch.log(s) + (1 - labels) * torch.log(1 - s)).mean()  # Eq. 7, with its minus sign
    s = network([p.detach() for p in student], 0, made)
    loss_g = torch.log(1 - s).mean() if saturating else -torch.log(s).mean()  # Eq. 3
    (loss_t + loss_s + loss_g).backward()

    gradient = host.answer(client.generate(rows))
    client.learn(rows, gradient)
    for before, now in zip(
        teachers + student, host.teachers.parameters + host.student.parameters, strict=True
    ):
        torch.testing.assert_close(now, before.detach() - 0.02 * before.grad, rtol=1e-4, atol=1e-6)
    assert 0 < labels.sum() < b
    torch.testing.assert_close(client.w, w.detach() - 0.02 * w.grad, rtol=1e-4, atol=1e-6)


def test_momentum_is_torch_sgd() -> None:
    from fedkge.methods.ppat import Momentum

    ours, theirs = torch.ones(4), torch.ones(4, requires_grad=True)
    mine, sgd = Momentum([ours], 0.02, 0.9), torch.optim.SGD([theirs], 0.02, 0.9)
    for step in range(5):
        gradient = torch.arange(4.0) + step
        mine.step([gradient])
        theirs.grad = gradient
        sgd.step()
    torch.testing.assert_close(ours, theirs.detach())


def test_an_even_vote_is_generated_and_noise_can_turn_labels() -> None:
    votes = torch.tensor([0, 1, 2, 3, 4])
    assert noisy_labels(votes, 4, torch.zeros(2, 5)).tolist() == [0, 0, 0, 1, 1]
    assert noisy_labels(votes, 4, torch.tensor([[0.0], [5.0]]).expand(2, 5)).tolist() == [1] * 5


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_the_scale_of_the_noise_is_a_scale(law: str) -> None:
    """Ten times the scale is ten times the noise; the flip of a 4-0 vote is rare with little noise."""
    random = np.random.default_rng(0)
    small, large = (Votes(law, s).draw(200_000, random) for s in (1.0, 10.0))  # type: ignore[arg-type]
    assert float(large.std() / small.std()) == pytest.approx(10, rel=0.02)
    expected = 1.0 if law == "gaussian" else 2**0.5
    assert float(small.std()) == pytest.approx(expected, rel=0.02)
    assert float(Votes(law, 0.0).draw(5, random).abs().sum()) == 0.0  # type: ignore[arg-type]


def test_the_student_learns_from_noisy_labels_only() -> None:
    """With labels that noise has decided, the rows of the host change nothing that leaves it."""
    answers = []
    for shift in (0.0, 5.0):
        host, client, x, y = halves(scale=0.0)
        host.rows = [rows + shift for rows in host.rows]
        host.votes = Votes("gaussian", 1e9)
        host.noise = np.random.default_rng(9)
        answers.append(torch.stack([host.answer(client.generate(x[:8])) for _ in range(4)]))
        assert not torch.equal(host.rows[0], y[torch.arange(N) % 3 == 0]) or shift == 0
    assert torch.equal(*answers)


@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (5, 7), (7, 5)])
def test_the_start_is_orthogonal_and_no_identity(rows: int, columns: int) -> None:
    w = random_orthogonal(rows, columns, np.random.default_rng(1))
    small = w @ w.T if rows <= columns else w.T @ w
    torch.testing.assert_close(small, torch.eye(min(rows, columns)), rtol=0, atol=1e-5)
    assert not torch.allclose(w.abs(), torch.eye(rows, columns), atol=0.1)


def test_procrustes_finds_the_rotation() -> None:
    random = np.random.default_rng(2)
    x, turn = torch.from_numpy(random.normal(size=(40, 6))).float(), random_orthogonal(6, 6, random)
    torch.testing.assert_close(procrustes(x, x @ turn.T), turn, rtol=0, atol=1e-4)


def test_csls_prefers_the_right_rotation() -> None:
    random = np.random.default_rng(4)
    y = torch.from_numpy(random.normal(size=(60, 6))).float()
    turned = y @ random_orthogonal(6, 6, random).T
    assert csls(y, y) > csls(turned, y) + 0.5


def test_an_adversarial_game_moves_the_generator_towards_the_host() -> None:
    """The host's rows lie around another point; the generator's rows must come nearer, from every start."""
    nearer = []
    for seed in range(1, 5):
        random = np.random.default_rng(seed)
        x, y = (torch.from_numpy(random.normal(size=(256, 4))).float() for _ in range(2))
        x[:, 0], y = 1.0, y + torch.tensor([1.5, 0.0, 0.0, 0.0])
        game = Game(teachers=4, hidden=32, step=0.001)
        host = HostHalf(game, y, torch.arange(256) % 4, Votes("gaussian", 1.0), (random, random))
        client = ClientHalf(game, 4, 4, random)
        far = float((client.generate(x).mean(0) - y.mean(0)).norm())
        for _ in range(40):
            for part in x.split(32):
                client.learn(part, host.answer(client.generate(part)))
        nearer.append(float((client.generate(x).mean(0) - y.mean(0)).norm()) < far - 0.1)
    assert all(nearer)


def test_labels_of_one_class_tell_the_generator_nothing() -> None:
    host, client, x, _ = halves()
    host.votes = Votes("gaussian", 1.0)

    class Sure:
        def normal(self, *_: object) -> np.ndarray:
            return np.stack((np.full(8, 100.0), np.zeros(8)))  # all are "generated"

    host.noise = Sure()  # type: ignore[assignment]
    assert float(host.answer(client.generate(x[:8])).abs().sum()) == 0.0


def test_a_row_has_one_teacher_whoever_the_partner_is() -> None:
    every = dealt(torch.arange(50), 50, 4, key=7)
    assert torch.equal(dealt(torch.tensor([3, 9, 40]), 50, 4, key=7), every[torch.tensor([3, 9, 40])])
    assert torch.bincount(every, minlength=4).tolist() == [13, 13, 12, 12]
