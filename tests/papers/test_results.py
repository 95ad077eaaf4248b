"""What docs/results.md says of presets comes out again, on a GPU: of all whose own seed is kept there."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.config import read_toml, variants
from fedkge.reports.folders.load import load_run
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run

ROOT = Path(__file__).parents[2]
NEAR = 0.4  #: points of MRR; the seeds of a row that is kept differ by at most 0.27


def kept() -> dict[str, tuple[dict[str, Any], Mapping[str, Any]]]:
    """Variants of presets, as FILE-VARIANT: their options, and what docs/results.json has of them."""
    results = json.loads((ROOT / "docs" / "results.json").read_text(encoding="utf-8"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        protocols = importlib.import_module("papers_protocols").read_protocols()
    found = {}
    for protocol in protocols.values():
        for pattern in protocol.presets:
            every = (
                (f"{path.stem}-{name}", options)
                for path in (ROOT / "examples").glob(pattern)
                for name, options in variants(read_toml(path)).items()
            )
            for name, options in every:
                config = Experiment.parse(options).config()
                subject = config["data"]["name"], config["model"]["name"], protocol.name(config)
                result = results.get("/".join(map(str, (protocol.key, *subject, config["seed"]))))
                if result is not None:
                    found[name] = options, result
    return found


KEPT = kept()


def test_presets_of_every_protocol_are_kept() -> None:
    families = {name.partition("-fb15k237")[0] for name in KEPT}
    assert families == {"fedlu-2023", "fedkge-l3", "fedkge-sa", "feds-2024", "pfedeg-2024"}


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: a CPU takes hours")
@pytest.mark.skipif("FEDKGE_DATA" not in os.environ, reason="FEDKGE_DATA is not set: no real graphs here")
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
@pytest.mark.parametrize("preset", sorted(KEPT))
def test_a_preset_repeats_its_row(preset: str, tmp_path: Path) -> None:
    options, result = KEPT[preset]
    experiment = Experiment.parse(options)
    folder = RunFolder.create(tmp_path / "run", experiment, resume=False)
    run(experiment, folder, torch.device("cuda"))
    found = load_run(folder.path)
    for row, metrics in result["metrics"].items():
        view = row.removeprefix(result["method"]).strip()
        now = found.summary["metrics"][found.headline(view)]
        assert 100 * abs(now["mrr"] - metrics["mrr"]) <= NEAR, row
