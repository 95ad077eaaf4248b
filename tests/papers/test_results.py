"""What the records say of presets comes out again, on a GPU: of all that are recorded with seed 0."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedkge.papers.catalogue import Job, jobs, read_tables
from fedkge.papers.protocols import read_protocols
from fedkge.papers.records import Record, of_key, read_records, shared_by
from fedkge.reports.folders.load import load_run
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run

ROOT = Path(__file__).parents[2]
NEAR = 0.4  #: points of MRR; the seeds of a row that is kept differ by at most 0.27


def kept() -> dict[str, tuple[Job, Record]]:
    """Runs of all tables with seed 0, as FILE/ROW, and what the records have of them."""
    records, protocols = read_records(ROOT), read_protocols(ROOT)
    every = (
        job
        for table in read_tables(ROOT).values()
        if table.runs
        for job in jobs(table, protocols[table.protocol], [0])
    )
    return {
        job.row: (replace(job, chunk=shared_by(found[0])), found[0])
        for job in every
        if (found := of_key(records, job.key))
    }


KEPT = kept()


def test_presets_of_every_protocol_are_kept() -> None:
    families = {name.partition("-fb15k237")[0] for name in KEPT}
    assert families == {"dpkge-2022", "fedkge-l3", "fedkge-sa", "fedlu-2023", "feds-2024", "pfedeg-2024"}


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: a CPU takes hours")
@pytest.mark.skipif("FEDKGE_DATA" not in os.environ, reason="FEDKGE_DATA is not set: no real graphs here")
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
@pytest.mark.parametrize("preset", sorted(KEPT))
def test_a_preset_repeats_its_row(preset: str, tmp_path: Path) -> None:
    job, result = KEPT[preset]
    experiment = job.experiment()
    folder = RunFolder.create(tmp_path / "run", experiment, resume=False)
    run(experiment, folder, torch.device("cuda"))
    found = load_run(folder.path)
    for row, metrics in result["metrics"].items():
        view = row.removeprefix(result["method"]).strip()
        now = found.summary["metrics"][found.headline(view)]
        assert 100 * abs(now["mrr"] - metrics["mrr"]) <= NEAR, row
