"""One DP-SGD step of TransE by Opacus's per-sample gradients of embedding tables.

python private_opacus.py DEVICE ENTITIES RELATIONS DIM BATCH NEGATIVES
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.nn import functional as F

STEPS = 3


class TransE(nn.Module):
    """Scores of candidates."""

    def __init__(self, entities: int, relations: int, dim: int) -> None:
        super().__init__()
        self.entities, self.relations = nn.Embedding(entities, dim), nn.Embedding(relations, dim)

    def forward(self, batch: Tensor) -> Tensor:  # [b, 2 + 1 + n]: anchor, relation, candidates
        everyone = self.entities(torch.cat((batch[:, :1], batch[:, 2:]), 1))
        query = everyone[:, :1] + self.relations(batch[:, 1:2])
        return 10.0 - (query - everyone[:, 1:]).abs().sum(-1)


def main() -> None:
    if sys.argv[1] == "cpu":  # an error of this process, and not the end of another one
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        resource.setrlimit(resource.RLIMIT_AS, (half, half))
    device, (entities, relations, dim, size, negatives) = sys.argv[1], map(int, sys.argv[2:])
    torch.manual_seed(0)
    model = GradSampleModule(TransE(entities, relations, dim).to(device))
    inner = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=size)
    seconds = []
    for _ in range(STEPS):
        batch = torch.randint(relations, (size, 3 + negatives), device=device)
        batch[:, 0] = torch.randint(entities, (size,), device=device)
        batch[:, 2:] = torch.randint(entities, (size, 1 + negatives), device=device)
        start = time.perf_counter()
        scores = model(batch)
        weights = scores[:, 1:].detach().softmax(-1)
        losses = -(F.logsigmoid(scores[:, 0]) + (weights * F.logsigmoid(-scores[:, 1:])).sum(-1)) / 2
        losses.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": statistics.median(seconds[1:])}))


if __name__ == "__main__":
    main()
