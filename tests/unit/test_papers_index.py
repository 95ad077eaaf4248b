"""docs/results.md counts runs as `fedkge paper list` does, and the same cells in both of its columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import answer
from fedkge.papers.index import INDEX, row
from fedkge.papers.missing import Asked, missing
from fedkge.papers.pages import page
from fedkge.papers.records import Record
from paper_rows import PROTOCOLS, ROOT, TABLES, by_place, made

OWN, SA = "fedlu-table1:c3-transe/fedlu", "fedkge-sa:c3-transe/fedlu"
PRINTED = "fedlu-table1:c3-transe/fedlu relations=local"


def counted(table: str, *records: Record) -> list[str]:
    """Of a table's line: runs, cells, and cells with what validates best."""
    return row(TABLES[table], PROTOCOLS[TABLES[table].protocol], by_place(*records))[3:6]


def shown() -> dict[str, list[str]]:
    """The lines of the page, by the tables' names."""
    lines = (ROOT / INDEX).read_text(encoding="utf-8").splitlines()
    every = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert {len(cells) for cells in every} == {7}
    return {cells[0]: cells for cells in every[2:]}


def test_runs_are_those_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    listed = {entry["name"]: entry["seed 0"] for entry in answer("paper", "list")}
    assert listed.keys() == TABLES.keys() == shown().keys()
    for name, cells in shown().items():
        assert cells[3] == listed[name].replace("–", ""), name


def test_pages_that_stand_for_tables_are_linked() -> None:
    assert "python benchmarks/degrees.py, [degrees.md](degrees.md) (a report" in shown()["fedlu-figure3"][-1]


def test_each_run_is_counted_by_seed_0(tmp_path: Path) -> None:
    """Every margin that the paper tried is a run; other seeds count only in cells."""
    first = [made(tmp_path, OWN, 0.3), made(tmp_path, PRINTED, 0.2)]
    assert counted("fedlu-table1", *first)[0] == "2 of 54"
    assert counted("fedlu-table1", *first, made(tmp_path, OWN, 0.3, seed=1))[0] == "2 of 54"


def test_both_columns_count_the_same_cells(tmp_path: Path) -> None:
    own, beside = made(tmp_path, OWN, 0.30, 0.2), made(tmp_path, SA, 0.33, 0.2)
    for metric in ("hits@1", "hits@3", "hits@10"):
        own["metrics"]["fedlu"][metric] = beside["metrics"]["fedlu"][metric] = 0.1
    beside["metrics"]["fedlu"]["mrr"] = 0.9
    other = made(tmp_path, "fedkge-sa:c3-transe/single", 0.3)
    records = [own, beside, other, made(tmp_path, PRINTED, 0.1)]
    for record in records:
        record["metrics"] = {name: of for name, of in record["metrics"].items() if "global" not in name}
    assert counted("fedlu-table1", *records)[1:] == ["0 of 4", "1 of 4"]
    assert counted("fedlu-table1", *records[1:])[1:] == ["", ""], "the table's own row was not run"


def test_all_tables_count_as_many_cells_in_both_columns() -> None:
    both = [cells[4:6] for cells in shown().values() if cells[5]]
    assert both
    assert all(one.split()[-1] == other.split()[-1] for one, other in both)


def test_a_table_that_draws_curves_misses_runs_without(tmp_path: Path) -> None:
    record = made(tmp_path, "fedlu-table1:c3-transe/fedprox", None)
    curve = record["curve"]

    def lacking(table: str) -> set[str]:
        found = missing(ROOT, PROTOCOLS, by_place(record), Asked([table], ["c3-transe/fedprox"]))
        return {job.name for job in found.jobs}

    assert (counted("fedlu-figure4", record)[0], lacking("fedlu-figure4")) == ("1 of 10", set())
    del record["curve"]
    assert (counted("fedlu-figure4", record)[0], lacking("fedlu-figure4")) == ("0 of 10", {"fedprox"})
    assert (counted("fedlu-table1", record)[0], lacking("fedlu-table1")) == ("1 of 54", set())
    text = page(TABLES["fedlu-figure4"], PROTOCOLS["fedlu-2023"], by_place(record))
    assert "missing here:\n\n- fb15k-237-C3, transe: fedprox\n" in text
    shared = {**record, "curve": curve, "config": {**record["config"]}}
    shared["config"]["trainer"] = {**record["config"]["trainer"], "chunk": 128}
    assert counted("fedlu-figure4", record, shared)[0] == "1 of 10", "that of shared negatives is drawn"
    record["spent"] = {}
    assert (counted("fedlu-figure4", record)[0], lacking("fedlu-figure4")) == ("1 of 10", set())
