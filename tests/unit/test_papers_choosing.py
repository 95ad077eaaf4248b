"""Of several rows for one of a paper's, validation chooses; where it cannot, the page says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedkge.papers.choosing import best_lines
from fedkge.papers.comparing import best_of
from fedkge.papers.lines import Line
from fedkge.papers.pages import page
from fedkge.papers.records import Record
from paper_rows import PROTOCOLS, TABLES, by_place, made, rows

TABLE, PROTOCOL = TABLES["fedlu-table1"], PROTOCOLS["fedlu-2023"]
OWN, SA = "fedlu-table1:c3-transe/fedlu", "fedkge-sa:c3-transe/fedlu"
PRINTED = "fedlu-table1:c3-transe/fedlu relations=local"


def chosen(*records: Record) -> dict[str, Line]:
    return {line.asked: line for line in best_lines(TABLE, PROTOCOL, by_place(*records))}


def cells(text: str, row: str) -> list[list[str]]:
    """The lines of a page that are about one row of the paper."""
    return [line.strip("| ").split(" | ") for line in text.splitlines() if f"| {row}, Table 1 |" in line]


def test_of_all_rows_of_one_of_the_papers_validation_chooses(tmp_path: Path) -> None:
    """Test figures decide nothing."""
    records = [made(tmp_path, OWN, 0.30, 0.40), made(tmp_path, SA, 0.33, 0.37)]
    records.append(made(tmp_path, PRINTED, 0.32, 0.41))
    best = chosen(*records)["fedlu"]
    assert (best.name, best.note, best.choice) == ("fedlu", "fedkge-sa", "best of 3 on validation")
    assert best.paper["named"] == "FedLU (local)"
    assert "loss=self-adversarial (paper: logistic)" in best.departures, "of the paper that it stands beside"
    _, _, told = page(TABLE, PROTOCOL, by_place(*records)).partition("## What validates best")
    (line,) = cells(told, "FedLU (local)")
    assert line[2] == "fedlu (fedkge-sa)"
    assert line[-4:] == ["33.71", "37.00", "+3.29", "best of 3 on validation"]


@pytest.mark.parametrize("without", [(OWN,), (SA,), (OWN, SA), (SA, PRINTED), (OWN, SA, PRINTED)])
def test_no_row_is_dropped_where_a_rival_has_no_validation(tmp_path: Path, without: Sequence[str]) -> None:
    """The table's own row stands, whichever of them lacks it."""
    records = [made(tmp_path, row, None if row in without else 0.3) for row in (OWN, SA, PRINTED)]
    best = chosen(*records)["fedlu"]
    assert (best.name, best.note) == ("fedlu", "")
    have = "has" if len(without) == 1 else "have"
    assert best.choice == f"not chosen: {len(without)} of 3 {have} no validation"


def test_a_row_of_one_run_needs_no_validation(tmp_path: Path) -> None:
    best = chosen(made(tmp_path, "fedlu-table1:c3-transe/fedec", None), made(tmp_path, SA, None))
    assert {name: (line.note, line.choice) for name, line in best.items()} == {
        "fedec": ("", "the only one run"),
        "fedlu": ("fedkge-sa", "the only one run"),
    }


def test_of_equals_the_first_stands_and_none_is_lost(tmp_path: Path) -> None:
    own, printed, beside = (made(tmp_path, row, 0.3) for row in (OWN, PRINTED, SA))
    for records in ((own, printed, beside), (beside, printed, own)):
        best = chosen(*records)["fedlu"]
        assert (best.note, best.choice) == ("", "best of 3 on validation")
    best = chosen(printed, beside)["fedlu"]
    assert (best.note, best.choice) == ("as printed, 1 of 3 margins run", "best of 2 on validation")


def test_rivals_are_compared_by_the_seeds_that_all_have(tmp_path: Path) -> None:
    own = [made(tmp_path, OWN, valid, seed=seed) for seed, valid in enumerate((0.30, 0.90))]
    beside, printed = made(tmp_path, SA, 0.50), made(tmp_path, PRINTED, 0.40)
    best = chosen(*own, beside, printed)["fedlu"]
    assert (best.note, best.choice) == ("fedkge-sa", "best of 3 on validation with seed 0")
    best = chosen(*own, beside, made(tmp_path, SA, 0.40, seed=1))["fedlu"]
    assert (best.note, best.choice) == ("", "best of 2 on validation")
    best = chosen(own[0], made(tmp_path / "more", OWN, None, seed=1), beside)["fedlu"]
    assert (best.note, best.choice) == ("fedkge-sa", "best of 2 on validation with seed 0")


def test_other_seeds_are_no_rivals(tmp_path: Path) -> None:
    own, beside = made(tmp_path, OWN, 0.30, seed=1), made(tmp_path, SA, 0.50)
    best = chosen(own, beside, made(tmp_path / "one", PRINTED, 0.60))["fedlu"]
    assert (best.note, best.choice) == ("", "not compared (other seeds): as printed, fedkge-sa")
    best = chosen(own, beside, *(made(tmp_path, PRINTED, 0.2, seed=seed) for seed in (0, 1)))["fedlu"]
    assert (best.note, best.choice) == (
        "",
        "best of 2 on validation with seed 1; not compared (other seeds): fedkge-sa",
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [("data.drop_leaks=true", "data"), ("evaluate.sides=tail", "sides"), ("trainer.lr=0.5", "")],
)
def test_other_data_and_other_sides_are_no_rivals(tmp_path: Path, given: str, told: str) -> None:
    own, beside = made(tmp_path, OWN, 0.3), made(tmp_path, SA, 0.4)
    (first,) = (line for line in rows("fedlu-table1", [own], "c3-transe/fedlu") if not line.view)
    (other,) = (line for line in rows("fedkge-sa", [beside], "c3-transe/fedlu") if not line.view)
    other = replace(other, job=replace(other.job, assignments=(given,)))
    best, why = best_of([first, other])
    assert best is (first if told else other)
    assert why == (f"not compared (other {told}): fedlu" if told else "best of 2 on validation")


def test_validation_is_that_of_the_run_whose_test_is_shown(tmp_path: Path) -> None:
    """A run with own negatives may lack validation where one with shared ones has it, which is shown then."""
    old, beside = made(tmp_path, OWN, None, 0.45), made(tmp_path, SA, 0.30)
    del old["curve"]
    shared = made(tmp_path / "shared", OWN, 0.50, 0.35)
    shared["config"]["trainer"]["chunk"] = 128
    assert chosen(old, beside)["fedlu"].choice == "not chosen: 1 of 2 has no validation"
    best = chosen(old, shared, beside)["fedlu"]
    assert best.records == [shared]
    assert best.choice == "best of 2 on validation"
    behind = "MRR of a run with own negatives, whose validation is not recorded: 45.00"
    assert best.differs[-2:] == ["negatives shared by 128 (paper: own)", behind]
    assert behind not in chosen(shared, beside)["fedlu"].differs
    shared["valid"]["mrr"] = 0.20
    assert chosen(old, shared, beside)["fedlu"].note == "fedkge-sa", "neither test nor the other run decides"


def test_one_seed_without_validation_is_enough_to_choose_nothing(tmp_path: Path) -> None:
    own = [made(tmp_path, OWN, 0.40), made(tmp_path, OWN, None, seed=1)]
    beside = [made(tmp_path, SA, 0.30, seed=seed) for seed in (0, 1)]
    assert chosen(*own, *beside)["fedlu"].choice == "not chosen: 1 of 2 has no validation"


def test_what_it_took_lists_the_rows_that_stand_from_other_tables(tmp_path: Path) -> None:
    own, beside = made(tmp_path, OWN, 0.30), made(tmp_path, SA, 0.33)
    for records, methods in (((own, beside), ["fedlu", "fedlu (fedkge-sa)"]), ((own,), ["fedlu"])):
        _, _, took = page(TABLE, PROTOCOL, by_place(*records)).partition("## What it took\n")
        lines = [line.strip("| ").split(" | ") for line in took.splitlines() if "| transe | fedlu" in line]
        assert [line[2] for line in lines] == methods
    _, _, took = page(TABLE, PROTOCOL, by_place(own, beside)).partition("## What it took\n")
    (line,) = (line for line in took.splitlines() if "fedlu (fedkge-sa)" in line)
    assert "loss=self-adversarial (paper: logistic)" in line


def test_what_differs_is_told_of_the_paper_that_a_row_stands_beside(tmp_path: Path) -> None:
    """FedS's `fedep` departs in nothing from FedS's paper."""
    record = made(tmp_path, "feds-others:r3-transe/fedep", 0.3)
    (own,) = (line for line in rows("feds-others", [record], "r3-transe/fedep"))
    assert own.departures == []
    (line,) = best_lines(TABLES["fedlu-table4"], PROTOCOL, by_place(record))
    assert {"batch_size=512 (paper: 1024)", "margin=8 (paper: 9)"} < {*line.departures}


# Alternatives: what a paper tried


def printed(*records: Record) -> Line:
    (line,) = (one for one in rows("fedlu-table1", records, "c3-transe*") if one.note and not one.view)
    return line


@pytest.mark.parametrize(
    ("valid", "margin", "note"),
    [
        ((0.30, None, None), 10, "1 of 3 margins run"),
        ((0.30, 0.33, None), 20, "2 of 3 margins run, best of 2 on validation"),
        ((0.30, 0.33, 0.34), 50, "best of 3 on validation"),
        ((0.30, 0.33, 0.33), 20, "best of 3 on validation"),
        ((0.0, 0.33, 0.34), 10, "not chosen: 1 of 3 has no validation"),
    ],
)
def test_of_alternatives_validation_chooses(
    tmp_path: Path, valid: Sequence[float | None], margin: int, note: str
) -> None:
    """None: not run; 0: run without validation."""
    names = ("relations=local", "margin=20 relations=local", "margin=50 relations=local")
    records = [
        made(tmp_path, f"fedlu-table1:c3-transe/fedlu {name}", found or None, 0.4 - (found or 0))
        for name, found in zip(names, valid, strict=True)
        if found is not None
    ]
    line = printed(*records)
    assert line.job.experiment().model.margin == margin
    assert line.note == f"as printed, {note}"
    assert line.paper["named"] == "FedLU (local)"


def test_alternatives_that_were_not_run_say_no_more(tmp_path: Path) -> None:
    line = printed(made(tmp_path, OWN, 0.3))
    assert (line.note, line.records) == ("as printed", [])
