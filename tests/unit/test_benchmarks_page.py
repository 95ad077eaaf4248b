"""docs/benchmarks.md is what docs/benchmarks.json makes, and says how rows were measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def bench(benchmark: Callable[[str], ModuleType]) -> Any:
    return benchmark("run")


def test_the_page_is_what_its_results_make(bench: Any) -> None:
    kept = json.loads((DOCS / "benchmarks.json").read_text())
    assert bench.page(kept) == (DOCS / "benchmarks.md").read_text()


def test_ranks_say_whether_they_were_measured_in_turns(bench: Any) -> None:
    once, turns = {"ours_s": 1.0}, {"ours_s": 1.0, "turns": 7}
    assert "one measurement each" in bench.ranked({"rank-transe": turns, "rank-rotate": once})[0]
    assert "in turns with us" in bench.ranked({"rank-transe": turns, "train-transe": once})[0]
