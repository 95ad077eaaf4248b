"""Compiled kernels are kept on disk, and forgotten when any kernel's source changes."""

from __future__ import annotations

import gc
import importlib.util
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
