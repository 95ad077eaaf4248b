"""Whether an adversarial game finds a rotation that is known: `Y = X Q^T` and a little noise.

    python benchmarks/recovery.py [--width 16,64] [--batches 30000] [--seeds 0,1,2] [--jobs 2] [--out FILE]
    python benchmarks/recovery.py --table FILE

The rows are skewed and differ in spread along every axis, so that only one rotation makes both clouds
alike. A ladder of games leads from Conneau et al. (2018), which is known to align word vectors, to PPAT,
one change at a time. These are written down plainly, by autograd, and share nothing with
`fedkge.methods.ppat`; the last rungs are that module itself. Each game starts from a random rotation
("far"), and once more from the nearest rotation to Q plus a random matrix ("near"). A line of the output has
the mean cosine of a translated row and its partner: at the start, at points between, and at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from os import environ
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

ROWS, NOISE, POINTS = 5000, 0.02, 8
NEAR = 1.0  #: how much of a random matrix is added to the truth before it is made a rotation again


@dataclass(frozen=True)
class Rules:
    """A game. The defaults are those of Conneau et al. (2018), with a smaller network."""

    teachers: int = 1  #: networks, each with its own part of the host's rows
    signal: Literal["teachers", "probabilities", "votes"] = (
        "teachers"  #: who teaches the generator, or a student
    )
    honest: bool = False  #: the student sees the host's rows too, as "real": this breaks PATE
    rounds: int = 2  #: batches of the networks per batch of the generator
    lr: float = 0.1
    step: float = 0.02
    momentum: float = 0.0
    orthogonal: float = 0.01
    smooth: float = 0.1  #: labels are this far from 0 and 1
    dropped: float = 0.1  #: of the inputs of a network
    saturating: bool = False
    scale: float = 0.0  #: Gaussian noise on votes
    hidden: int = 256
    batch: int = 32


MUSE = Rules()
FOUR = replace(MUSE, teachers=4)
STUDENT = replace(FOUR, signal="probabilities")
VOTES = replace(STUDENT, signal="votes")
PAPER: dict[str, Any] = {
    "lr": 0.02,
    "step": 0.02,
    "momentum": 0.9,
    "smooth": 0.0,
    "dropped": 0.0,
    "rounds": 1,
}
LADDER: dict[str, Rules] = {
    "one discriminator": MUSE,
    "four teachers, no student": FOUR,
    "student, teachers' probabilities": STUDENT,
    "student, votes": VOTES,
    "student, votes, step 0.002": replace(VOTES, step=0.002),
    "student, votes with noise 1, step 0.002": replace(VOTES, scale=1.0, step=0.002),
    "student, votes, sees host rows": replace(VOTES, honest=True),
    "student, votes, the paper's settings": replace(VOTES, **PAPER, saturating=True, orthogonal=0.0),
}
OURS: dict[str, dict[str, Any]] = {
    "PPAT, the paper's settings": {},
    "PPAT, step 0.002, orthogonal 0.01": {"step": 0.002, "orthogonal": 0.01},
    "PPAT, not saturating": {"step": 0.002, "orthogonal": 0.01, "saturating": False},
    "PPAT, 20 teachers": {"step": 0.002, "orthogonal": 0.01, "teachers": 20},
    "PPAT, 1 teacher": {"step": 0.002, "orthogonal": 0.01, "teachers": 1},
}


def cloud(width: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """X, Y [n, width] and Q: exponential along every axis, with spreads from 1 to 0.1, turned at random."""
    random = np.random.default_rng([seed, width])
    raw = (random.exponential(size=(ROWS, width)) - 1) * np.logspace(0, -1, width)
    x = raw @ rotation(width, random)
    x /= np.sqrt((x**2).mean())
    q = rotation(width, random)
    y = x @ q.T + NOISE * random.normal(size=x.shape)
    return tuple(torch.from_numpy(one).float() for one in (x, y, q))  # type: ignore[return-value]


def rotation(width: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    q, r = np.linalg.qr(random.normal(size=(width, width)))
    return np.asarray(q * np.sign(np.diag(r)))


def first(q: Tensor, start: str, seed: int) -> Tensor:
    random = np.random.default_rng([seed, 77])
    if start == "far":
        return torch.from_numpy(rotation(len(q), random)).float()
    u, _, v = np.linalg.svd(q.numpy() + NEAR * random.normal(size=q.shape) / len(q) ** 0.5)
    return torch.from_numpy(u @ v).float()


class Networks(nn.Module):
    """k networks side by side: rows [k, b, width] or [b, width] to logits [k, b]."""

    def __init__(self, k: int, width: int, hidden: int, dropped: float) -> None:
        super().__init__()
        self.first = nn.Parameter((torch.rand(k, width, hidden) * 2 - 1) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(k, 1, hidden))
        self.last = nn.Parameter((torch.rand(k, hidden, 1) * 2 - 1) / hidden**0.5)
        self.end = nn.Parameter(torch.zeros(k, 1, 1))
        self.drop = nn.Dropout(dropped)

    def forward(self, rows: Tensor) -> Tensor:
        rows = self.drop(rows).expand(len(self.first), -1, -1) if rows.ndim == 2 else self.drop(rows)
        hidden = nn.functional.leaky_relu(rows @ self.first + self.bias, 0.2)
        return (hidden @ self.last + self.end)[..., 0]


def plain(rules: Rules, x: Tensor, y: Tensor, w: Tensor, batches: int, watch: Any) -> None:
    """The game of a rung, by autograd; `w` is changed."""
    bce, b, k = nn.functional.binary_cross_entropy_with_logits, rules.batch, rules.teachers
    parts = y[torch.randperm(len(y))[: len(y) // k * k]].reshape(k, -1, y.shape[1])  # disjoint, for good
    teachers = Networks(k, x.shape[1], rules.hidden, rules.dropped)
    student = Networks(1, x.shape[1], rules.hidden, rules.dropped)
    w.requires_grad_()
    teaching, learning = (
        torch.optim.SGD(one.parameters(), rules.lr, rules.momentum) for one in (teachers, student)
    )
    turning = torch.optim.SGD([w], rules.step, rules.momentum)
    target = torch.cat((torch.full((k, b), rules.smooth), torch.full((k, b), 1 - rules.smooth)), 1)

    def made() -> Tensor:
        return x[torch.randint(len(x), (b,))] @ w.T

    for number in range(batches):
        for _ in range(rules.rounds):
            with torch.no_grad():
                fake = made()
            real = parts[torch.arange(k)[:, None], torch.randint(parts.shape[1], (k, b))]
            logits = teachers(torch.cat((fake.expand(k, -1, -1), real), 1))
            teaching.zero_grad()
            (2 * k * bce(logits, target)).backward()  # the sum over teachers of both means
            if rules.signal != "teachers":
                said = logits[:, :b].detach()
                votes = (said > 0).float().sum(0)
                noise = rules.scale * torch.randn(2, b)
                label = (votes + noise[1] > k - votes + noise[0]).float()
                if rules.signal == "probabilities":
                    label = said.sigmoid().mean(0)
                loss = bce(student(fake)[0], label)
                if rules.honest:
                    loss = loss + bce(student(y[torch.randint(len(y), (b,))])[0], torch.ones(b))
                learning.zero_grad()
                loss.backward()
                learning.step()
            teaching.step()
        logits = (teachers if rules.signal == "teachers" else student)(made())
        soft = nn.functional.softplus
        turning.zero_grad()
        (-soft(logits).mean() if rules.saturating else soft(-logits).mean()).backward()
        turning.step()
        with torch.no_grad():
            if beta := rules.orthogonal:
                w.copy_((1 + beta) * w - beta * w @ w.T @ w)
            watch(number, w.detach())


def ours(options: dict[str, Any], x: Tensor, y: Tensor, w: Tensor, batches: int, watch: Any) -> None:
    """The module that the product uses; `w` is changed."""
    from fedkge.methods.ppat import ClientHalf, Game, HostHalf, Votes

    pull = options.get("orthogonal", 0.0)
    game = Game(**{name: value for name, value in options.items() if name != "orthogonal"})
    seeds = (np.random.default_rng(1), np.random.default_rng(2))
    host = HostHalf(game, y, torch.arange(len(y)) % game.teachers, Votes("gaussian", 0.0), seeds)
    client = ClientHalf(game, y.shape[1], x.shape[1], np.random.default_rng(3), pull)
    client.w.copy_(w)
    for number in range(batches):
        rows = x[torch.randint(len(x), (game.batch,))]
        client.learn(rows, host.answer(client.generate(rows)))
        watch(number, client.w)


def one(rung: str, start: str, width: int, seed: int, batches: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, q = cloud(width, seed)
    w, curve, began = first(q, start, seed), list[float](), time.perf_counter()

    def watch(number: int, now: Tensor) -> None:
        if number == -1 or (number + 1) % (batches // POINTS) == 0:
            curve.append(round(float(nn.functional.cosine_similarity(x @ now.T, y).mean()), 4))

    watch(-1, w)
    if rung in LADDER:
        plain(LADDER[rung], x, y, w, batches, watch)
    else:
        ours(OURS[rung], x, y, w, batches, watch)
    told = {"rung": rung, "start": start, "width": width, "seed": seed, "batches": batches}
    return {**told, "curve": curve, "seconds": time.perf_counter() - began}


def table(lines: list[dict[str, Any]]) -> None:
    """Means over seeds at the start, half way, and at the end; and the least and the most at the end."""
    by: dict[tuple[int, str, str], list[list[float]]] = defaultdict(list)
    for line in lines:
        by[line["width"], line["start"], line["rung"]].append(line["curve"])
    order = [*LADDER, *OURS]
    print("| width | start | game | cosine at the start | half way | at the end | of single seeds |")
    print("|---" * 7 + "|")
    for (width, start, rung), found in sorted(by.items(), key=lambda at: (*at[0][:2], order.index(at[0][2]))):
        means = [mean(curve[at] for curve in found) for at in (0, POINTS // 2, -1)]
        each = ", ".join(f"{curve[-1]:.2f}" for curve in found)
        print(f"| {width} | {start} | {rung} | {' | '.join(f'{v:.2f}' for v in means)} | {each} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--width", default="16", help="one or more, with commas")
    parser.add_argument("--batches", type=int, default=30_000, help="of the generator")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--starts", default="far,near")
    parser.add_argument("--rungs", default="", help="with semicolons; all, if not given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("recovery.jsonl"))
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table is not None:
        table([json.loads(line) for line in given.table.read_text().splitlines()])
        return
    environ.update(OMP_NUM_THREADS="1")
    rungs = [rung.strip() for rung in given.rungs.split(";")] if given.rungs else [*LADDER, *OURS]
    jobs = [
        (rung, start, int(width), int(seed), given.batches)
        for seed in given.seeds.split(",")
        for width in given.width.split(",")
        for start in given.starts.split(",")
        for rung in rungs
    ]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool, given.out.open("a") as out:
        for done in as_completed([pool.submit(one, *job) for job in jobs]):
            line = done.result()
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(line, flush=True)


if __name__ == "__main__":
    main()
