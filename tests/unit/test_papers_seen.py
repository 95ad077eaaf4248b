"""Values that were chosen with test figures in view are marked in every row that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedkge.errors import ConfigError
from fedkge.papers.catalogue import CATALOGUE, jobs, read_tables
from fedkge.papers.pages import page
from fedkge.papers.seen import IN_VIEW, departures, read_seen
from paper_rows import PROTOCOLS, ROOT, TABLES, by_place, job_of, made

MARKED = [
    ("fedlu-table1:c3-transe/fedprox", "mu=0.001 (paper: 0.1; chosen with test figures in view)"),
    ("fedlu-table1:c3-complex/fedprox", "mu=0.0001 (paper: 0.1; chosen with test figures in view)"),
    ("fedlu-table1:c10-complex/fedec", "mu=0.03 (paper: 0.3; chosen with test figures in view)"),
    ("fedkge-l3:c3-complex/fedec", "mu=0.03 (paper: 0.3; chosen with test figures in view)"),
    ("fedlu-table4:r10-rotate/fedlu", "mu=4 (paper: 2; chosen with test figures in view)"),
    ("fedlu-table4:r3-rotate/fedlu", "mu=4 (paper: 2; chosen with test figures in view)"),
    ("feds-others:r10-transe/fedprox", "mu=0.001 (chosen with test figures in view)"),
]
PLAIN = [
    "fedlu-table1:c3-transe/fedec",
    "fedlu-table1:c10-rotate/fedlu",
    "fedlu-table4:r10-rotate/fedlu mu=2",
    "fedlu-table4:r3-transe/fedlu",
    "fedlu-table1:c3-transe/fedep",
]


def told(row: str) -> list[str]:
    table, _, pattern = row.partition(":")
    return departures(PROTOCOLS[TABLES[table].protocol], job_of(table, pattern).experiment().config())


@pytest.mark.parametrize(("row", "mark"), MARKED)
def test_a_row_says_which_value_was_chosen_with_test_in_view(row: str, mark: str) -> None:
    assert mark in told(row)
    assert sum(IN_VIEW in one for one in told(row)) == 1


@pytest.mark.parametrize("row", PLAIN)
def test_other_rows_do_not(row: str) -> None:
    assert not any(IN_VIEW in one for one in told(row))


def test_every_entry_is_for_some_row() -> None:
    """An entry whose value no preset has any more is to be deleted."""
    every = [
        job.experiment().config()
        for table in TABLES.values()
        for job in (jobs(table, PROTOCOLS[table.protocol], [0]) if table.runs else [])
    ]
    for entry in read_seen(ROOT):
        assert any(entry.holds(config) for config in every), entry


def test_the_page_explains_the_mark(tmp_path: Path) -> None:
    def text(row: str) -> str:
        return page(TABLES["fedlu-table1"], PROTOCOLS["fedlu-2023"], by_place(made(tmp_path, row, 0.3)))

    assert "- Chosen with test figures in view:" in text("fedlu-table1:c3-transe/fedprox")
    assert "test figures in view" not in text("fedlu-table1:c3-transe/fedec")


def test_a_wrong_entry_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / CATALOGUE
    path.parent.mkdir()
    path.write_text('[[seen]]\nmethod = "fedlu"\noption = "method.mu"\nvalue = [4.0]\n')
    with pytest.raises(ConfigError, match=r"seen\[0\].value: no such option; did you mean 'values'"):
        read_seen(tmp_path)
    assert read_tables(tmp_path) == {}
    other = tmp_path / "other"
    (other / CATALOGUE).parent.mkdir(parents=True)
    (other / CATALOGUE).write_text('[seen]\nmethod = "fedlu"\n')
    with pytest.raises(ConfigError, match="seen: expected a list"):
        read_seen(other)
