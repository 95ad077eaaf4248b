"""Benchmarks take turns with PyKEEN in a process of its own, which knows nothing of us."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fedkge.machine import SETTINGS, THREADS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def turns(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("turns")


def test_nothing_of_ours_is_imported() -> None:
    """Not by the program, nor by what of ours it imports."""
    for file in ("pykeen_alone.py", "peak.py"):
        tree = ast.parse((BENCHMARKS / file).read_text(encoding="utf-8"))
        found = {
            name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
        }
        assert "fedkge" not in found
        assert found & {path.stem for path in BENCHMARKS.glob("*.py")} <= {"peak"}


def test_turns_are_asked_for_one_by_one_and_without_our_settings(
    turns: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "alone.py"
    script.write_text(
        "import json, os, sys\n"
        "for n, _ in enumerate(sys.stdin):\n"
        "    print(json.dumps({'n': n, 'asked': sys.argv[1:], 'env': list(os.environ)}), flush=True)\n"
    )
    monkeypatch.setattr(turns, "ALONE", script)
    for name in (*SETTINGS, *THREADS):
        monkeypatch.setenv(name, "1")
    with turns.pykeen("train", "transe", tmp_path, "--dim", 8) as beside:
        first, second = beside.turn(), beside.turn()
    assert [first["n"], second["n"]] == [0, 1]
    assert first["asked"] == ["train", "transe", str(tmp_path), "--dim", "8"]
    assert not {*SETTINGS, *THREADS} & set(first["env"])


def test_a_process_that_ends_is_told(
    turns: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "alone.py"
    script.write_text("import sys\nsys.stdin.readline()\nsys.exit(3)\n")
    monkeypatch.setattr(turns, "ALONE", script)
    with pytest.raises(SystemExit, match="exit code 3"), turns.pykeen("rank", "transe", tmp_path) as beside:
        beside.turn()


def test_medians_with_their_spread(turns: ModuleType) -> None:
    assert turns.TURNS >= 7
    assert turns.told("x", [3.14159, 1.0, 9.0], 2) == {"x": 3.14, "x_from_to": [1.0, 9.0]}
    assert turns.told("x", [3.6]) == {"x": 4, "x_from_to": [4, 4]}
    assert turns.load()["load_before"] >= 0
