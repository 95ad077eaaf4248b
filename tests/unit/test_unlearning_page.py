"""docs/erasure.md is what docs/erasure.json makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_its_results_make(benchmark: Callable[[str], ModuleType]) -> None:
    page = benchmark("unlearning_page").page
    kept = json.loads((ROOT / "docs" / "erasure.json").read_text())
    assert page(kept) == (ROOT / "docs" / "erasure.md").read_text()
