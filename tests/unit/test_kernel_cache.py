"""Compiled kernels are kept on disk, and forgotten when any kernel's source changes."""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

from fedkge.kernels.cpu import compile, optimizers, sampling, similarity


def test_kept_until_a_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("def double(x):\n    return x + x\n")
    spec = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kernel", module)  # where a kept kernel looks for its globals
    spec.loader.exec_module(module)

    def hits() -> int:
        gc.collect()  # of the kernel before, only what is on disk is left
        kernel = compile.serial()(module.double)
        assert kernel(2) == 4
        return sum(kernel.stats.cache_hits.values())

    assert [hits(), hits()] == [0, 1]
    monkeypatch.setattr(compile, "sources", lambda: "another source")
    assert [hits(), hits()] == [0, 1]


def test_every_kernel_is_stamped() -> None:
    """`adam_touched` calls what stands in another file: its own file's date would not tell."""
    for kernel in (optimizers.adam_touched, similarity.forward, sampling.negatives):
        assert kernel._cache._cache_file._source_stamp == compile.sources()


TRAINED = """
import hashlib, sys, numpy, torch
from fedkge.graphs.datasets import load
from fedkge.models import MODELS, Tables
from fedkge.randomness import name_keys
from fedkge.training import Corpus, Trainer, Training

graph = load("atlas")["government"]
keys = [torch.from_numpy(name_keys(names).view(numpy.int64)) for names in (graph.entities, graph.relations)]
for model in ("transe", "rotate", "complex"):
    for chunk in (1, 64):
        tables = Tables.create(MODELS[model](dim=48), *keys, 0, "cpu")
        trainer = Trainer(batch_size=256, negatives=70, chunk=chunk)
        Training(trainer, tables, Corpus.of({"a": graph}, 0, "cpu")).run(0, 1)
        print(model, chunk, hashlib.sha256(tables.entities.detach().numpy().tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_kept_kernels_give_the_bits_of_fresh_ones(tmp_path: Path) -> None:
    """numba optimises once to run and once more to keep: sums must not be free to be reordered."""
    around = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_NUM_THREADS": "1"}
    asked = [sys.executable, "-c", TRAINED]
    fresh, kept = (
        subprocess.run(asked, check=True, capture_output=True, text=True, env=around).stdout for _ in range(2)
    )
    assert len(fresh.splitlines()) == 6
    assert kept == fresh
