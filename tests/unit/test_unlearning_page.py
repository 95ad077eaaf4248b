"""docs/erasure.md is what docs/erasure.json makes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_its_results_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    page = importlib.import_module("unlearning_page").page
    kept = json.loads((ROOT / "docs" / "erasure.json").read_text())
    assert page(kept) == (ROOT / "docs" / "erasure.md").read_text()
