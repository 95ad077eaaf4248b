"""How much a step's gradient varies with the negatives that are drawn, for own and for shared negatives.

    FEDKGE_DATA=... python benchmarks/variance.py

One batch of TransE on C3's site 2, after some epochs of training: its gradient is computed for many draws. A
line per way has the variance, summed over the entities' rows, divided by that of own negatives; and how far
the mean is from that of own negatives, in units of its error (1 is chance).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

import train
from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Axis
from fedkge.kernels import Draw, Shared, backend
from fedkge.models import Side
from fedkge.training import Corpus, Trainer, Training
from fedkge.training.loop import one_thread
from fedkge.training.negatives import Chunks, own, shared
from fedkge.training.trainer import Batch

NEGATIVES, SIDE, EPOCH = 256, Side.TAIL, 99


class Step:
    """One batch of a training, whose negatives are drawn in one way or another."""

    def __init__(self, epochs: int) -> None:
        train.DIM = 64
        graph = read_graph(Path(os.environ["FEDKGE_DATA"]) / "fb15k-237-C3" / "2")
        self.corpus, self.tables = Corpus.of({"2": graph}, 0), train.first_tables("transe", graph, "cpu")
        how = Trainer(batch_size=1024, negatives=NEGATIVES, chunk=128, lr=1e-3)
        self.training = Training(how, self.tables, self.corpus)
        self.training.run(0, epochs)
        self.training._shuffle(EPOCH)
        answers = self.corpus.answers[SIDE]
        self.dealt = backend(self.tables.device).deal(
            self.training.deck,
            self.training.schedule[SIDE],
            self.corpus.triples,
            (answers.lo, answers.hi),
            torch.tensor([1, EPOCH]),
            2,
            (self.training.counts[0], self.training.chunks[0]),
        )
        self.draw = Draw(
            self.corpus.negative_keys,
            *self.training.owned,
            answers.known,
            self.dealt.site,
            self.dealt.position,
            self.dealt.lo,
            self.dealt.hi,
        )

    def own(self, clock: Tensor) -> Tensor:
        return own(self.dealt.tail, self.draw, NEGATIVES, clock)

    def alike(self, clock: Tensor, size: int) -> Tensor:
        """Equal draws for positives of a chunk, each by rank among its own non-answers."""
        draw = replace(self.draw, position=self.dealt.position // size * size)
        return own(self.dealt.tail, draw, NEGATIVES, clock)

    def shared(self, clock: Tensor, size: int) -> Shared:
        starts = torch.arange(0, len(self.dealt.tail) + 1, size)
        at = self.dealt.site[starts[:-1]], self.dealt.position[starts[:-1]]
        return shared(self.dealt.tail, self.draw, Chunks(starts, *at, size), NEGATIVES, clock)

    def apart(self, clock: Tensor, size: int) -> Shared:
        """Shared by chunks; no two chunks of the batch have a negative in common."""
        starts = torch.arange(0, len(self.dealt.tail) + 1, size)
        chance = torch.Generator().manual_seed(int(clock[0]))
        every = torch.randperm(len(self.tables.entities), generator=chance)
        drawn = every[: (len(starts) - 1) * NEGATIVES].view(-1, NEGATIVES).contiguous()
        left = backend(self.tables.device).left_out(drawn, starts, self.draw)
        return Shared(self.dealt.tail, drawn, starts, left, size)

    def gradient(self, index: Tensor | Shared) -> Tensor:
        dealt = self.dealt
        batch = Batch(SIDE, dealt.head, dealt.relation, index, dealt.site, dealt.share)
        with torch.enable_grad(), one_thread():
            self.training.objective(self.tables, batch).backward(batch.weight)
        found = torch.zeros_like(self.tables.entities)
        part = self.tables.gradients[Axis.ENTITY].take()
        backend(self.tables.device).accumulate_(found, self.tables.entities.detach(), part)
        self.tables.gradients[Axis.RELATION].take()
        return found.double()


def moments(step: Step, draws: int, way: Callable[[Tensor], Tensor | Shared]) -> tuple[Tensor, Tensor]:
    """Mean and variance of the gradient."""
    found = [step.gradient(way(torch.tensor([1000 + 2 * number, EPOCH]))) for number in range(draws)]
    mean = sum(found[1:], found[0]) / draws
    return mean, sum(((one - mean) ** 2 for one in found[1:]), (found[0] - mean) ** 2) / (draws - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=12, help="trained before")
    asked = parser.parse_args()
    step = Step(asked.epochs)
    ways: dict[str, Callable[[Tensor], Tensor | Shared]] = {
        "own": step.own,
        **{f"shared by {n}": lambda clock, n=n: step.shared(clock, n) for n in (1, 32, 128)},
        "shared by 128, none twice": lambda clock: step.apart(clock, 128),
        "alike in 128": lambda clock: step.alike(clock, 128),
    }
    first, spread = moments(step, asked.draws, step.own)
    for name, way in ways.items():
        mean, variance = moments(step, asked.draws, way)
        error = (variance + spread).sum() / asked.draws
        off = 0.0 if name == "own" else float(((mean - first) ** 2).sum() / error)
        print(
            json.dumps({"way": name, "variance": float(variance.sum() / spread.sum()), "mean": off}),
            flush=True,
        )


if __name__ == "__main__":
    main()
