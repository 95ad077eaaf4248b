"""benchmarks/same_tables.py: what counts as the same, and runs that the command line takes."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedkge.graphs.files import read_federation
from fedkge.runs.experiment import Experiment

ROOT = Path(__file__).parents[2]
ROWS = torch.tensor([[1.0, torch.nan], [0.0, 3.0]])


@pytest.fixture(scope="module")
def script(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("same_tables")


def write_run(folder: Path, rows: Tensor, rounds: int = 6, view: str = "global") -> Path:
    """A run of one site, with the parts that are compared."""
    site = folder / "sites" / "north"
    (site / view).mkdir(parents=True)
    save_file({"rows": ROWS}, site / "entities.safetensors")
    save_file({"rows": rows}, site / view / "entities.safetensors")
    (folder / "summary.json").write_text(json.dumps({"rounds": rounds, "metrics": {"mrr": float("nan")}}))
    return folder


def test_nan_is_nan_and_every_bit_counts(script: ModuleType) -> None:
    zero = torch.zeros(3)
    assert script.difference(ROWS, ROWS.clone()) is None
    assert script.difference(ROWS[:0], ROWS[:0]) is None
    assert script.difference(zero, -zero) == "3 of 3 rows, largest difference 0"
    assert script.difference(ROWS[1:], ROWS[1:] + 0.5) == "1 of 1 rows, largest difference 0.5"
    assert script.difference(ROWS, ROWS[:1]) == "torch.float32 [1, 2], was torch.float32 [2, 2]"
    assert script.difference(ROWS, ROWS.double()) == "torch.float64 [2, 2], was torch.float32 [2, 2]"


def test_what_only_the_new_run_has_does_not_count(script: ModuleType, tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "old", ROWS), write_run(tmp_path / "new", ROWS)
    save_file({"rows": ROWS}, new / "sites" / "north" / "relations.safetensors")
    summary = json.loads((new / "summary.json").read_text())
    summary["metrics"]["more"] = 1.0
    (new / "summary.json").write_text(json.dumps(summary))
    fine = {"old": None, "new": None}
    assert script.compared(fine, old, new) == "same"
    file = Path("sites/north/relations.safetensors")
    assert script.compared(fine, new, old) == f"DIFFERENT: {file} is missing (and 1 more)"


def test_differences_are_named(script: ModuleType, tmp_path: Path) -> None:
    old, new = write_run(tmp_path / "old", ROWS), write_run(tmp_path / "new", ROWS + 1, rounds=4)
    assert script.differences(old, new) == [
        "sites/north/global/entities.safetensors: 2 of 2 rows, largest difference nan",
        "summary.json: rounds 4, was 6",
    ]
    (new / "summary.json").unlink()
    assert script.compared({"old": None, "new": None}, old, new).startswith("DIFFERENT: FileNotFoundError")
    assert script.compared({"old": None, "new": "error: no"}, old, new) == "failed: new: error: no"


def test_the_command_line_takes_every_run(script: ModuleType) -> None:
    runs = script.matrix()
    for name, options in runs.items():
        given = {
            script.RENAMED.get(option, option): value for option, value in (script.BASE | options).items()
        }
        Experiment.parse(tomllib.loads(script.toml(given)))
        assert options.get("start", name) in runs
    assert set(script.chosen(runs, ["single-after-*"])) >= {"single", "fedlu", "single-after-fedlu"}


def test_entities_are_at_one_to_four_sites(script: ModuleType, tmp_path: Path) -> None:
    script.write_data(tmp_path)
    sites = read_federation(tmp_path / "federation")
    owners = Counter(name for graph in sites.values() for name in graph.entities)
    assert set(Counter(owners.values())) == {1, 2, 3, 4}
    assert 10 * len(sites["west"].train) < len(sites["east"].train)
    assert max(Counter(name for graph in sites.values() for name in graph.relations).values()) == 4
