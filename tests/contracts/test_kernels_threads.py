"""CPU results are the same bits from one, two and three threads, freshly compiled or from numba's cache."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedkge.kernels import Adam, Contribution, Draw, Pace, Shared, Similarity, backend

pytest.importorskip("numba")


B, N, ROWS = 67, 33, 401  # enough work for several threads
TURN = Pace(torch.tensor([150, ROWS]), torch.tensor([3, 8]), torch.tensor([True, True]))


def similarities(width: int) -> Iterator[tuple[str, list[Tensor]]]:
    kernels, random = backend(torch.device("cpu")), torch.Generator().manual_seed(width)
    query, table, values = (torch.randn(k, width, generator=random) for k in (B, ROWS, 9))
    index, ids = torch.randint(ROWS, (B, N), generator=random), torch.randint(ROWS, (9,), generator=random)
    d_scores = torch.randn(B, N, generator=random)
    starts, gone = torch.tensor([0, 40, 40, B]), torch.rand(B, N, generator=random) < 0.1
    shared = Shared(index[:, 0].contiguous(), index[:3].contiguous(), starts, gone, 40)
    for kind in Similarity:
        *contrasted, laid = kernels.contrast_shared(kind, query, table, shared, 9.0, 0.7)
        slopes = (*contrasted[1:], values[0, :1].expand(B).contiguous())
        scores = kernels.forward(kind, query, table, index)
        part = Contribution(kind, query, index, scores, d_scores, ids, values)
        dense, state = torch.zeros_like(table), [table.clone(), table.clone(), table.abs()]
        kernels.accumulate_(dense, table, part)
        kernels.adam_touched_(state[0], part, *state[1:], TURN, Adam(rate=0.1))
        whole = [table.clone(), table.clone(), table.abs()]
        kernels.adam_whole_(whole[0], part, *whole[1:], TURN, Adam(rate=0.1))
        found = {
            "forward": [scores],
            "all_scores": [kernels.all_scores(kind, query, table)],
            "backward_query": [kernels.backward_query(kind, query, table, index, scores, d_scores)],
            "contrast_rows": list(kernels.contrast_rows(kind, query, table, index, 9.0, 0.7)),
            "contrast_shared": contrasted,
            "shared_gradients": list(kernels.shared_gradients(kind, query, table, shared, laid, *slopes)),
            "touched": list(kernels.touched(table, part)),
            "accumulate_": [dense],
            "adam_touched_": state,
            "adam_whole_": whole,
        }
        yield from ((f"{name} {kind.name} {width}", tensors) for name, tensors in found.items())


def others() -> Iterator[tuple[str, list[Tensor]]]:
    kernels, random = backend(torch.device("cpu")), torch.Generator().manual_seed(0)
    start = [torch.randn(ROWS, 50, generator=random).abs() for _ in range(4)]
    steps = {
        "adam_": lambda table, g, m, v: kernels.adam_(table, g, m, v, TURN, Adam(rate=0.1)),
        "adagrad_": lambda table, g, m, v: kernels.adagrad_(table, g, v, TURN, 0.1),
        "sgd_": lambda table, g, m, v: kernels.sgd_(table, g, TURN, 0.1),
    }
    for name, step in steps.items():
        state = [x.clone() for x in start]
        step(*state)
        yield name, state
    scores = torch.randn(2, B, N, generator=random)
    yield "contrast", list(kernels.contrast(scores[0], 1.0))
    yield "distil", list(kernels.distil(scores[0], scores[1], 0.7))
    yield "lengths", [kernels.lengths(scores[0])]
    keys, site, local = torch.tensor([5, -6]), torch.arange(500) % 2, torch.arange(500) // 2
    yield "uniform", [kernels.uniform(7, local - 100, 50, torch.float32)]
    yield "order_keys", [kernels.order_keys(keys, site, local, 2, torch.tensor(3))]
    first, size, lo = torch.tensor([0, 300]), torch.tensor([300, 101]), torch.zeros_like(site)
    negatives = torch.zeros(500, 12, dtype=torch.int64)
    draw = Draw(keys, first, size, torch.tensor([3, 3, 90]), site, local, lo, lo + 3)
    kernels.negatives_(negatives, draw, torch.tensor([2, 3]))
    yield "negatives_", [negatives]


def fingerprints() -> dict[str, str]:
    """Every kernel once; widths below, at and beyond what vectorised loops take in one go."""
    results = itertools.chain(*map(similarities, (6, 50, 256)), others())
    return {
        name: hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in tensors)).hexdigest()
        for name, tensors in results
    }


@pytest.fixture(scope="module")
def one_thread() -> Iterator[dict[str, str]]:
    with threads(1):
        yield fingerprints()


class threads:
    """Run a block with so many threads in numba and in torch."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> None:
        import numba

        self.before = numba.get_num_threads(), torch.get_num_threads()
        numba.set_num_threads(self.count)
        torch.set_num_threads(self.count)

    def __exit__(self, *_: object) -> None:
        import numba

        numba.set_num_threads(self.before[0])
        torch.set_num_threads(self.before[1])


def test_two_threads(one_thread: dict[str, str]) -> None:
    with threads(2):
        assert fingerprints() == one_thread


def elsewhere(**environment: str) -> tuple[int, dict[str, str]]:
    """The number of threads, and the fingerprints, of another process."""
    child = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert child.returncode == 0, child.stderr
    used, found = json.loads(child.stdout)
    return used, found


def test_three_threads_in_another_process(one_thread: dict[str, str]) -> None:
    assert elsewhere(NUMBA_NUM_THREADS="3", OMP_NUM_THREADS="3") == (3, one_thread)


@pytest.mark.slow
def test_compiled_now_or_read_from_the_cache(one_thread: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        assert elsewhere(NUMBA_CACHE_DIR=str(tmp_path))[1] == one_thread


if __name__ == "__main__":
    import numba

    print(json.dumps((numba.get_num_threads(), fingerprints())))
