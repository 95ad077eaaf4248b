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


def test_rates_at_the_end_of_those_tried_are_named(joining: Any) -> None:
    kept = json.loads((ROOT / "docs" / "joining.json").read_text())
    short = joining.page(kept).partition("## In short")[2]
    assert "fb15k-237-R3 (transe) and of fb15k-237-R10 (transe) is the lowest of those tried" in short
    assert "highest" not in joining.page(kept)
    kept[0]["rate"] = max(kept[0]["tried"])
    assert "of atlas (transe) is the highest of those tried" in joining.page(kept)


def test_what_is_said_of_c3_and_c10_follows_from_the_table(joining: Any) -> None:
    for one in json.loads((ROOT / "docs" / "joining.json").read_text()):
        if one["data"] in ("fb15k-237-C3", "fb15k-237-C10"):
            assert {of["gain"] for of in one["methods"]["joined"]["sites"].values()} == {0.0}
            assert "alone" not in one["methods"]


def test_the_mu_is_one_that_was_seen(joining: Any) -> None:
    catalogue = read_toml(ROOT / "papers" / "catalogue.toml")
    seen = [one for one in catalogue["seen"] if one["method"] == "fedprox"]
    assert joining.METHODS["fedprox"]["mu"] == 0.001
    assert any(one["option"] == "method.mu" and 0.001 in one["values"] for one in seen)


def test_a_star_and_bold_are_beyond_chance(joining: Any) -> None:
    assert joining.cell({"gain": 0.012, "low": 0.001, "high": 0.02}) == "+1.20* (+0.10 to +2.00)"
    assert joining.cell({"gain": 0.012, "low": -0.001, "high": 0.02}) == "+1.20 (−0.10 to +2.00)"
    assert joining.cell({"gain": -0.012, "low": -0.02, "high": -0.001}) == "**−1.20** (−2.00 to −0.10)"


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
