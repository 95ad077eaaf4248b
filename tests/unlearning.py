"""Small federations that are trained, and asked to forget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedkge.graphs.writing import write_federation
from fedkge.methods.unlearn import Unlearn
from fedkge.runs.folder import RunFolder
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure, Named, Request
from fedkge.runtimes.run import run
from fedkge.runtimes.unlearning import Unlearned, unlearn
from small_federations import experiment, small_federation

QUICK = Unlearn(rounds=2, epochs=3)


def trained(path: Path, relations_in_common: bool = False, **changes: Any) -> Holdings:
    """A finished run on files, as `fedkge run` leaves it."""
    data = path.with_name(f"{path.name}-data")
    if not data.exists():
        write_federation(small_federation(relations_in_common), data)
    one = experiment(**{"data": {"name": None, "path": str(data)}, "rounds": 2, **changes})
    run(one, RunFolder.create(path, one, resume=False), torch.device("cpu"))
    return Holdings.open(path)


def some(held: Holdings, site: str, count: int = 3, start: int = 0) -> list[Named]:
    """Training triples of a site, in words, that leave every name another triple."""
    graph = held.sources.named[site]
    left = graph.all().tolist()
    found: list[Named] = []
    for h, r, t in graph.train[start:].tolist():
        rest = [triple for triple in left if triple != [h, r, t]]
        ends = {e for a, _, b in rest for e in (a, b)}
        if h in ends and t in ends and any(b == r for _, b, _ in rest):
            left = rest
            found.append((graph.entities[h], graph.relations[r], graph.entities[t]))
        if len(found) == count:
            break
    return found


def forgetting(
    held: Holdings,
    out: Path,
    triples: Sequence[Named],
    site: str = "a",
    how: Unlearn = QUICK,
    **options: Any,
) -> Unlearned:
    erasure = Erasure.of(held.sources.named, [Request(site, triples)])
    return unlearn(held, out, erasure, how, **options)
