"""docs/results.md: runs stand in their protocol's section, beside its paper's rows, and nowhere else."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedkge.config import read_toml, variants
from fedkge.errors import DataError
from fedkge.reports.compared.reference import each_reference_rows
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.options import flat
from fedkge.runs.experiment import Experiment
from run_folders import write_run

ROOT = Path(__file__).parents[2]
PRESETS = {
    f"{path.stem}-{name}": options
    for pattern in ("fedlu-2023-*", "feds-2024-*", "pfedeg-2024-*")
    for path in sorted((ROOT / "examples").glob(pattern))
    for name, options in variants(read_toml(path)).items()
}  #: as FILE-VARIANT


@pytest.fixture(scope="module")
def papers() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("papers")


def preset_run(folder: Path, preset: str, *, options: Sequence[str] = (), **made: Any) -> Path:
    """A folder as a run of the preset would leave it."""
    config = Experiment.parse(PRESETS[preset]).config()
    asked = [f"{key}={json.dumps(value)}" for key, value in flat(config).items() if key != "seed"]
    return write_run(
        folder,
        config["method"]["name"],
        model=config["model"]["name"],
        data=config["data"]["name"],
        options=[*asked, *options],
        **made,
    )


def added(papers: ModuleType, folders: Sequence[Path], kept: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = papers.add(kept or {}, load_runs(folders), papers.read_protocols())
    return found


def cells(papers: ModuleType, results: dict[str, Any], *start: str) -> list[list[str]]:
    """The page's lines, cell by cell, that begin so."""
    text: str = papers.page(results.values(), papers.read_protocols())
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if line[: len(start)] == list(start)]


# Protocols


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_follows_its_own_protocol_alone(papers: ModuleType, preset: str) -> None:
    config = Experiment.parse(PRESETS[preset]).config()
    protocols = papers.read_protocols().values()
    followed = [of.key for of in protocols if of.alike(config) and not of.differences(config)]
    assert followed == ["-".join(preset.split("-")[:2])]


def test_one_method_under_three_protocols_has_three_rows(papers: ModuleType, tmp_path: Path) -> None:
    names = {"fedlu-2023": "fedep", "feds-2024": "fedep", "pfedeg-2024": "fedep"}
    folders = [preset_run(tmp_path / key, f"{key}-fb15k237-r10-transe-{name}") for key, name in names.items()]
    assert list(added(papers, folders)) == [f"{key}/fb15k-237-R10/transe/fedep/0" for key in names]


def test_affinities_and_codecs_have_rows_of_their_own(papers: ModuleType, tmp_path: Path) -> None:
    pfedeg, svd = "pfedeg-2024-fb15k237-r3-transe-pfedeg", "feds-2024-fb15k237-r3-transe-svd"
    found = added(
        papers,
        [
            preset_run(tmp_path / "cosine", pfedeg),
            preset_run(tmp_path / "jaccard", pfedeg, options=["method.affinity=jaccard"]),
            preset_run(tmp_path / "strong", pfedeg, options=["method.beta=0.01"]),
            preset_run(tmp_path / "svd", svd),
            preset_run(tmp_path / "fedep", svd.replace("svd", "fedep")),
        ],
    )
    assert [result["method"] for result in found.values()] == [
        "pfedeg affinity=cosine",
        "pfedeg affinity=jaccard",
        "pfedeg affinity=cosine beta=0.01",
        "fedep svd",
        "fedep",
    ]
    rows = [papers.read_protocols()[of["protocol"]].row(*subject(of)) for of in found.values()]
    assert [row.get("named") for row in rows] == ["PFedEG+", "PFedEG*", None, "FedE-SVD", "FedEP"]


def subject(result: dict[str, Any]) -> tuple[str, str, str]:
    return result["dataset"], result["model"], result["method"]


def test_an_unknown_run_is_refused(papers: ModuleType, tmp_path: Path) -> None:
    preset = "fedlu-2023-fb15k237-c3-transe-fedep"
    other = preset_run(tmp_path / "other", preset, options=["trainer.batch_size=512"])
    with pytest.raises(DataError, match=r"fedlu-2023.* has trainer.batch_size 1024 and not 512;"):
        added(papers, [other])
    with pytest.raises(DataError, match=r"no preset has atlas transe; expected one of fb15k-237-C10 complex"):
        added(papers, [write_run(tmp_path / "atlas")])


def test_a_row_given_twice_is_refused(papers: ModuleType, tmp_path: Path) -> None:
    preset = "fedlu-2023-fb15k237-c3-transe-fedep"
    folders = [preset_run(tmp_path / name, preset) for name in ("a", "b")]
    with pytest.raises(DataError, match=r"b, a: both are fedlu-2023/fb15k-237-C3/transe/fedep/0"):
        added(papers, folders)


def test_a_run_that_goes_on_is_refused(papers: ModuleType, tmp_path: Path) -> None:
    folder = preset_run(tmp_path / "run", "fedlu-2023-fb15k237-c3-transe-fedep", ended=False)
    with pytest.raises(DataError, match="has no summary"):
        added(papers, [folder])


# Numbers


def test_pfedeg_is_judged_by_tails_and_the_others_by_both(papers: ModuleType, tmp_path: Path) -> None:
    tail = preset_run(tmp_path / "tail", "pfedeg-2024-fb15k237-r10-transe-fede")
    both = preset_run(tmp_path / "both", "fedlu-2023-fb15k237-r10-transe-fedep")
    results = added(papers, [tail, both])
    for folder, split, method, paper in (
        (tail, "test_tail", "fede", "40.50"),
        (both, "test", "fedep", "32.10"),
    ):
        mrr = json.loads((folder / "summary.json").read_text())["metrics"][split]["mrr"]
        (line,) = cells(papers, results, "fb15k-237-R10", "transe", method)
        assert line[4:6] == [f"{100 * mrr:.2f}", paper]


def test_seeds_of_a_row_are_followed_by_their_mean(papers: ModuleType, tmp_path: Path) -> None:
    preset = "fedlu-2023-fb15k237-c3-transe-fedep"
    results = added(papers, [preset_run(tmp_path / f"{seed}", preset, seed=seed) for seed in (2, 10)])
    for result, mrr in zip(results.values(), (0.30, 0.34), strict=True):
        result["metrics"]["fedep"]["mrr"] = mrr
    lines = cells(papers, results, "fb15k-237-C3", "transe", "fedep")
    assert [line[3:6] for line in lines] == [
        ["2", "30.00", "32.66"],
        ["10", "34.00", "32.66"],
        ["mean of 2", "32.00 ± 2.83", "32.66"],
    ]


def test_costs_are_those_of_the_reports(papers: ModuleType, tmp_path: Path) -> None:
    fedep = preset_run(tmp_path / "fedep", "feds-2024-fb15k237-r3-transe-fedep")
    feds = preset_run(tmp_path / "feds", "feds-2024-fb15k237-r3-transe-feds", width=50, level=0.296)
    results = added(papers, [fedep, feds])
    row = each_reference_rows(load_runs([fedep, feds]), "fedep")[1]
    *_, line = cells(papers, results, "fb15k-237-R3", "transe", "feds")
    (titles,) = (line for line in cells(papers, results, "data") if "P@98" in line)
    told = dict(zip(titles, line, strict=True))
    assert row["P@99"] == told["P@99"] == told["R@99"] == "never"
    for name in ("P@CG", "B@CG", "P@98", "B@98"):
        assert told[name] == f"{row[name]:.4f}"
    assert told["R@98"] == str(row["R@98"])
    assert told["MB@98"] == f"{row['bytes@98'] / 1e6:.1f}"
    assert line[titles.index("P@98") + 1] == "0.6983"


def test_costs_need_their_reference(papers: ModuleType, tmp_path: Path) -> None:
    fedep, feds = (f"feds-2024-fb15k237-r3-transe-{name}" for name in ("fedep", "feds"))
    first = [preset_run(tmp_path / "fedep", fedep), preset_run(tmp_path / "feds", feds)]
    with pytest.raises(DataError, match=r"feds: told in units of feds-2024/.*/fedep/0, which is not there"):
        added(papers, first[1:])
    kept = added(papers, first)
    assert added(papers, first[1:], added(papers, first[:1])) == kept
    again = preset_run(tmp_path / "again", fedep, level=0.31)
    with pytest.raises(DataError, match=r"transe/feds/0: told in units of a fedep run that was replaced"):
        added(papers, [again], kept)
    wide = preset_run(tmp_path / "wide", fedep, width=50)  # as good, and sends less
    with pytest.raises(DataError, match=r"transe/feds/0: told in units of a fedep run that was replaced"):
        added(papers, [wide], kept)


def test_the_page_is_what_its_numbers_give(papers: ModuleType) -> None:
    results = json.loads((ROOT / "docs" / "results.json").read_text(encoding="utf-8"))
    assert papers.page(results.values(), papers.read_protocols()) == (ROOT / "docs" / "results.md").read_text(
        encoding="utf-8"
    )
