"""Files that may hold names, rows or triples of a site can be read by their owner only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fedkge.durable import PRIVATE
from fedkge.exports.files import Format, save_embeddings
from fedkge.exports.pykeen_files import save_pykeen
from fedkge.graphs.files import write_federation
from fedkge.models import MODELS, Tables
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.questions import protected
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.drawing.tsne import planes
from fedkge.reports.files.sheets import write_tables
from fedkge.reports.files.tracking import Tracking
from fedkge.reports.folders.load import load_run, load_runs
from run_folders import write_run
from small_federations import small_federation


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:
    """As most machines have it: files that are made may be read by all."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def exported(format: str) -> Callable[[Path], object]:
    def write(out: Path) -> object:
        graph = small_federation()["a"]
        ids = (torch.arange(graph.n_entities), torch.arange(graph.n_relations))
        tables = Tables.create(MODELS["transe"](dim=4), *ids, 0)
        if format == "pykeen":
            return save_pykeen(tables, graph, out)
        return save_embeddings(tables, graph, out, format)

    return write


def tracked(tracker: str) -> Callable[[Path], object]:
    def write(out: Path) -> object:
        tracking = Tracking(write_run(out.parent / "run", "fedep"), tracker, out)
        tracking.read()
        return tracking.tracker.close()

    return write


def reported(form: str) -> Callable[[Path], object]:
    return lambda out: write_tables(load_runs([write_run(out.parent / "run", "fedep")]), out, form)


def graphs(compress: bool) -> Callable[[Path], object]:
    return lambda out: write_federation(small_federation(), out, "tsv", compress)


@pytest.mark.parametrize(
    "write",
    [
        *(pytest.param(exported(form), id=form) for form in (*Format, "pykeen")),
        *(pytest.param(tracked(name), id=name) for name in ("tensorboard", "mlflow")),
        *(pytest.param(reported(form), id=form) for form in ("csv", "latex", "markdown", "svg")),
        *(pytest.param(graphs(packed), id=f"graphs{'-packed' * packed}") for packed in (False, True)),
    ],
)
def test_only_their_owner_can_read_files(write: Callable[[Path], object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out)
    modes = {str(path): path.stat().st_mode & 0o777 for path in out.rglob("*") if path.is_file()}
    assert modes
    assert set(modes.values()) == {PRIVATE}, modes


def test_no_plane_of_persons_and_no_examples_of_confidential_triples(tmp_path: Path) -> None:
    plain, persons = (write_run(tmp_path / name, "fedep") for name in ("plain", "persons"))
    config = persons / "config.toml"
    config.write_text(config.read_text() + '\n[persons]\nprefixes = ["patient/"]\n')
    page = Canvas()
    assert "some entities are persons" in planes(page, experiments(load_runs([persons])))
    assert not page.figures
    assert not protected(load_run(plain))
    assert protected(load_run(persons))
    summary = json.loads((plain / "summary.json").read_text())
    summary["sites"]["airline"]["confidential"] = 3  # as the data itself may say
    (plain / "summary.json").write_text(json.dumps(summary))
    assert protected(load_run(plain))
