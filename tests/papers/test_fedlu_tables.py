"""FedLU (2023), Tables 1 and 4: every preset reaches the paper's MRR; docs/results.md has the figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from fedkge.config import read_toml
from fedkge.methods import METHODS
from fedkge.models import MODELS
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.folder import RunFolder
from fedkge.runtimes.inprocess import run

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "examples").glob("fedlu-2023-*.toml"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: a CPU takes hours"),
    pytest.mark.skipif("FEDKGE_DATA" not in os.environ, reason="FEDKGE_DATA is not set: no real graphs here"),
    pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning"),
]


def reported(experiment: Experiment) -> dict[str, float]:
    """The paper's MRR in per cent by method, from the rows that docs/results.md is made with."""
    papers = json.loads((ROOT / "benchmarks" / "papers.json").read_text(encoding="utf-8"))
    subject = str(experiment.data), MODELS.name_of(experiment.model)
    rows = {
        row["method"]: row["mrr"]
        for row in papers["fedlu-2023"]["rows"]
        if (row["data"], row["model"]) == subject
    }
    assert rows, subject
    return rows


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_reaches_its_row(preset: Path, tmp_path: Path) -> None:
    experiment = Experiment.parse(read_toml(preset))
    folder = RunFolder.create(tmp_path / "run", experiment, resume=False)
    summary = run(experiment, folder, torch.device("cuda"))
    rows, name = reported(experiment), METHODS.name_of(experiment.method)
    for split, of in {"test": name, "test_global": f"{name} global"}.items():
        if of in rows:
            assert 100 * summary["metrics"][split]["mrr"] >= rows[of], of
