"""docs/erasure.md is what docs/erasure.json makes; what it says of all sections holds in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def written(benchmark: Callable[[str], ModuleType]) -> Any:
    return benchmark("unlearning_page")


@pytest.fixture
def kept() -> Any:
    return json.loads((DOCS / "erasure.json").read_text())


def test_the_page_is_what_its_results_make(written: Any, kept: Any) -> None:
    assert written.page(kept) == (DOCS / "erasure.md").read_text()


def test_a_lower_bound_is_rounded_down(written: Any) -> None:
    assert [written.at_least(share) for share in (0.99885, 0.9999, 0.97, 1.0)] == [
        "99.8%",
        "99.9%",
        "97.0%",
        "100.0%",
    ]


def test_membership_is_as_the_page_says(written: Any, kept: Any) -> None:
    """Mode target is within 0.05 everywhere, mode paper only with RotatE on C3."""
    within: dict[str, set[str]] = {"target": set(), "paper": set()}
    beyond: dict[str, set[str]] = {"target": set(), "paper": set()}
    values = []
    for label, one in kept.items():
        for mode, views in one["membership"].items():
            reached = all(low >= -0.05 and high <= 0.05 for _, low, high in views.values())
            (within if reached else beyond)[mode].add(label)
            values += [] if reached else list(views.values())
    assert (beyond["target"], within["paper"]) == (set(), {"FB15k-237-C3, RotatE"})
    told = [min(v[0] for v in values), max(v[0] for v in values)]
    told += [min(v[1] for v in values), max(v[2] for v in values)]
    words = " ".join(written.HEAD.split())
    assert "between {:+.3f} and {:+.3f}, with intervals from {:+.3f} to {:+.3f}.".format(*told) in words
