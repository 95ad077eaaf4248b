"""docs/joining.md is what docs/joining.json makes; the benchmark's stages are those of the example."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedkge.config import following, read_toml, variant
from fedkge.runs.experiment import Experiment

ROOT = Path(__file__).parents[2]


@pytest.fixture
def joining(benchmark: Callable[[str], ModuleType]) -> Any:
    return benchmark("joining")


def test_the_page_is_what_its_results_make(joining: Any) -> None:
    kept = json.loads((ROOT / "docs" / "joining.json").read_text())
    assert joining.page(kept) == (ROOT / "docs" / "joining.md").read_text()


def test_a_star_and_bold_are_beyond_chance(joining: Any) -> None:
    assert joining.cell({"gain": 0.012, "low": 0.001, "high": 0.02}) == "+1.20*"
    assert joining.cell({"gain": 0.012, "low": -0.001, "high": 0.02}) == "+1.20"
    assert joining.cell({"gain": -0.012, "low": -0.02, "high": -0.001}) == "**−1.20**"


def test_stages_are_those_of_the_example(joining: Any) -> None:
    example = read_toml(ROOT / "examples" / "joining.toml")
    made = joining.compared("atlas", "transe", 0, 5e-3, Path("runs"))
    for name in ("joined", "recipe"):
        own = Experiment.parse(made[name])
        shown = Experiment.parse(following(variant(example, name), Path("runs")))
        for part in ("method", "codec", "select", "aggregate", "participation"):
            assert getattr(own, part) == getattr(shown, part), part
        assert (own.evaluate.keep, own.evaluate.sure, own.start) == (
            shown.evaluate.keep,
            shown.evaluate.sure,
            shown.start and Path("runs") / shown.start.name,
        )
    for data in joining.FEDERATIONS:
        for model in joining.MODELS:
            for options in joining.compared(data, model, 0, 1e-3, Path("runs")).values():
                Experiment.parse(options)
