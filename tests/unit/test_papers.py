"""Tables of papers: which runs they consist of, what records keep, and pages that records alone decide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import fedkge
from fedkge.config import read_toml, variants
from fedkge.errors import ConfigError, DataError
from fedkge.papers.catalogue import (
    Job,
    Table,
    chosen_tables,
    jobs,
    matching,
    with_negatives,
)
from fedkge.papers.curves import MOST, drawable, overview, pictures, points
from fedkge.papers.curves_page import caption, curves_page
from fedkge.papers.index import INDEX, index
from fedkge.papers.lines import costs
from fedkge.papers.pages import PAGES, page, pages
from fedkge.papers.protocols import checkout
from fedkge.papers.records import (
    FOLDER,
    Record,
    append,
    by_cap,
    file_of,
    key_of,
    of_key,
    place_of,
    read_lines,
    read_records,
    shared_by,
    taken,
    write_records,
)
from fedkge.reports.compared.reference import each_reference_rows
from fedkge.reports.folders.load import load_run, load_runs
from fedkge.runs.experiment import Experiment
from paper_rows import PROTOCOLS, ROOT, TABLES, job_of, record_of, rows
from run_folders import write_ranks

SVG = "{http://www.w3.org/2000/svg}"


# Which runs


@pytest.mark.parametrize(
    "table", [table for table in TABLES.values() if table.runs], ids=lambda one: one.name
)
def test_runs_of_a_table_have_keys_of_their_own(table: Table) -> None:
    every = jobs(table, PROTOCOLS[table.protocol], [0, 1])
    assert len({job.key for job in every}) == len({job.place for job in every}) == len(every)
    for job in every[:3]:
        assert job.experiment().seed == job.seed
        assert PROTOCOLS[table.protocol].name(job.experiment().config()) == job.name


def test_every_variant_of_a_paper_is_in_a_table() -> None:
    listed = {
        (job.preset, job.variant)
        for table in TABLES.values()
        for job in (jobs(table, PROTOCOLS[table.protocol], [0]) if table.runs else [])
    }
    presets = [
        path for one in PROTOCOLS.values() for p in one.presets for path in (ROOT / "examples").glob(p)
    ]
    every = {(path, name) for path in presets for name in variants(read_toml(path))}
    assert every == listed


def test_nothing_is_run_on_what_is_left_for_others() -> None:
    for table in TABLES.values():
        for job in jobs(table, PROTOCOLS[table.protocol], [0]) if table.runs else []:
            assert not job.key.split("/")[1].endswith(("-C5", "-R5"))


def test_a_grid_that_gives_the_preset_gives_its_row() -> None:
    plain = job_of("feds-table3", "r10-transe/fedep")
    assert plain.key in {job.key for job in jobs(TABLES["feds-table5"], PROTOCOLS["feds-2024"], [0])}
    names = {job.name for job in jobs(TABLES["feds-table5"], PROTOCOLS["feds-2024"], [0])}
    assert {"fedep", "fedep epochs=2", "feds epochs=5"} < names


def test_what_cannot_be_run_says_why() -> None:
    with pytest.raises(ConfigError, match="fedlu-table5: C5 is left for others"):
        chosen_tables(TABLES, ["fedlu-table5"])
    with pytest.raises(ConfigError, match=r"no table or figure is named 'fedlu-tabel1'; did you mean"):
        chosen_tables(TABLES, ["fedlu-tabel1"])
    assert [table.name for table in chosen_tables(TABLES, ["fedlu-table*"])] == [
        "fedlu-table1",
        "fedlu-table4",
    ]
    with pytest.raises(ConfigError, match=r"--rows: nothing matches c5 \(there are: fedlu-2023-fb15k237-c3-"):
        matching(jobs(TABLES["fedlu-table1"], PROTOCOLS["fedlu-2023"], [0]), ["c3", "c5"])


def test_patterns_are_an_order() -> None:
    every = jobs(TABLES["fedlu-table1"], PROTOCOLS["fedlu-2023"], [1, 0])
    found = matching(every, ["c10-rotate/single", "c3-transe/fed?p"])
    rows = ["c10-rotate/single", "c3-transe/fedep"]
    assert [(job.row.removeprefix("fedlu-2023-fb15k237-"), job.seed) for job in found] == [
        (row, seed) for seed in (1, 0) for row in rows
    ]
    assert matching(every, []) == every


def test_what_tables_have_in_common_is_run_once() -> None:
    several = [f"feds-table{number}" for number in range(1, 7)] + ["feds-figure2", "feds-others"]
    every = [job for name in several for job in jobs(TABLES[name], PROTOCOLS["feds-2024"], [0, 1])]
    found = matching(every, [])
    assert {job.key for job in found} == {job.key for job in every}
    assert len({job.place for job in found}) == len(found) < len(every)
    assert [job.seed for job in found] == sorted(job.seed for job in found)
    first = jobs(TABLES["feds-table1"], PROTOCOLS["feds-2024"], [0])
    assert found[: len(first)] == first, "the first table is complete before another is begun"


def test_it_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkout(ROOT / "docs" / "results") == ROOT
    assert checkout(tmp_path) == Path(fedkge.__file__).parents[2]  # the one that the package is from
    monkeypatch.setattr("fedkge.papers.protocols.__file__", str(tmp_path / "protocols.py"))
    with pytest.raises(ConfigError, match="run this command in a checkout"):
        checkout(tmp_path)


# Departures


def departures(table: str, row: str) -> list[str]:
    return PROTOCOLS[TABLES[table].protocol].departures(job_of(table, row).experiment().config())


def test_options_that_are_not_the_papers_are_named() -> None:
    rows = ("single", "fedep", "fedprox", "fedec", "fedlu")
    told = {row: departures("fedlu-table1", f"c3-complex/{row}") for row in rows}
    tried = "margin=7 (paper: 10, 20 or 50)"
    assert told["single"] == ["margin=7 (paper: 9)"]
    assert told["fedep"] == [tried]
    assert told["fedprox"] == [tried, "mu=0.0001 (paper: 0.1)", "restart=false (paper: true)"]
    assert told["fedec"] == [tried, "mu=0.03 (paper: 0.3)", "restart=false (paper: true)"]
    assert told["fedlu"] == [tried, "relations=both (paper: local)"]
    assert departures("fedlu-table1", "c3-rotate/fedep") == []
    assert departures("fedlu-table1", "c3-transe/fedlu relations=local") == []
    assert departures("dpkge-table5", "fb15k-transe/single u-only") == ["rounds=99 (paper: 100)"]


def test_what_is_shown_beside_another_paper_departs_from_that_one() -> None:
    """FedLU under FedS's settings stands beside FedLU's numbers."""
    assert departures("feds-others", "r10-transe/fedep") == []
    told = departures("feds-others", "r10-transe/fedlu")
    assert {"rounds=400 (paper: 200)", "batch_size=512 (paper: 1024)", "relations=both (paper: local)"} < {
        *told
    }
    assert {"loss=self-adversarial (paper: logistic)", "margin=8 (paper: 10, 20 or 50)"} < {*told}


def test_options_of_a_row_that_the_paper_has_are_its_own() -> None:
    assert departures("feds-table5", "r10-transe/feds epochs=5") == []
    assert departures("pfedeg-table3", "r10-transe/pfedeg affinity=cosine beta=0") == []
    assert "mu=0.6 (paper: 2)" in departures("fedkge-l3", "r10-complex/fedlu mu=0.6 restart_global=true")


# Records


def test_a_record_has_what_a_reader_needs(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    record = record_of(tmp_path / "run", job)
    run = load_run(tmp_path / "run")
    assert key_of(record) == job.key == "fedlu-2023/fb15k-237-C3/transe/fedep/0"
    assert Experiment.parse(record["config"]).config() == job.experiment().config()
    assert [at for at, *_ in record["curve"]] == sorted(run.validations)
    assert record["curve"][-1][3] == run.traffic.bytes == sum(record["bytes"].values())
    assert record["metrics"]["fedep"] == run.metrics("test")
    assert record["triples"] == sum(one.triples for one in run.rounds.values())


def test_the_digest_is_of_all_ranks(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    ranks = {"airline": [1.0, 2.0], "languages": [3.0, 4.0]}

    def digest(name: str, **changed: Sequence[float]) -> str:
        folder = tmp_path / name
        record_of(folder, job)
        write_ranks(folder, {**ranks, **changed})
        return str(taken(load_run(folder), job.protocol, job.name)["ranks"])

    assert digest("a") == digest("b")
    assert digest("c", languages=[3.0, 5.0]) != digest("a2")


def test_a_run_that_goes_on_is_no_record(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    with pytest.raises(DataError, match=r"has no summary.json"):
        record_of(tmp_path / "run", job, ended=False)


def test_records_are_kept_by_key(tmp_path: Path) -> None:
    fedep, single = (job_of("fedlu-table1", f"c3-transe/{name}") for name in ("fedep", "single"))
    first = record_of(tmp_path / "a", fedep)
    again = record_of(tmp_path / "b", fedep, level=0.4)
    other = record_of(tmp_path / "c", single)
    write_records(tmp_path, [first, other])
    write_records(tmp_path, [again])
    found = read_records(tmp_path)
    assert found == {key_of(again): again, key_of(other): other}
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [file_of(first)]


def test_a_torn_line_at_the_end_is_left_out_and_others_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    record = record_of(tmp_path / "a", job_of("fedlu-table1", "c3-transe/fedep"))
    append(path, record)
    path.write_text(path.read_text() + '{"protocol": "fed')
    assert read_lines(path) == {key_of(record): record}
    path.write_text('{"protocol"\n' + json.dumps(record) + "\n")
    with pytest.raises(DataError, match="line 1: not JSON"):
        read_lines(path)
    path.write_text('{"protocol": "p"}\n')
    with pytest.raises(DataError, match="line 1: no record of a run: dataset is missing"):
        read_lines(path)


def test_all_records_are_where_they_belong() -> None:
    found = read_records(ROOT)
    for path in (ROOT / FOLDER).glob("*.jsonl"):
        assert {file_of(record) for record in read_lines(path).values()} == {path.name}
    listed = {
        job.key
        for table in TABLES.values()
        for job in (jobs(table, PROTOCOLS[table.protocol], [0, 1, 2]) if table.runs else [])
    }
    assert {key_of(record) for record in found.values()} <= listed  # every record stands in a table
    for record in found.values():
        assert ("curve" in record) is ("inferred" not in record)
    assert len(found) >= 145


# Lines


def test_numbers_stand_beside_the_papers(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    records = [record_of(tmp_path / str(seed), job, seed=seed) for seed in (0, 1)]
    for record, mrr in zip(records, (0.32, 0.34), strict=True):
        record["metrics"]["fedep"]["mrr"] = mrr
    (line,) = rows("fedlu-table1", records, "c3-transe/fedep")
    assert (line.paper["named"], line.paper["mrr"]) == ("FedE", 32.66)
    found = line.metric("mrr")
    assert found is not None
    assert (found.mean, found.std, found.n) == pytest.approx((0.33, 0.0141421, 2), rel=1e-4)
    text = page(TABLES["fedlu-table1"], PROTOCOLS["fedlu-2023"], {key_of(one): one for one in records})
    both = [one for one in text.splitlines() if one.startswith("| fb15k-237-C3 | transe | fedep | FedE")]
    assert len(both) == 2  # beside the paper, and as what validates best
    assert both[0].endswith("| 32.66 | 33.00 ± 1.41 | +0.34 |")
    assert both[1].endswith("| 32.66 | 33.00 ± 1.41 | +0.34 | the only one run |")


@pytest.mark.parametrize(
    ("best", "rounds", "told"),
    [
        (200, 200, "200, at the cap"),
        (190, 200, "190, ended by the cap"),
        (185, 200, "185"),  # validation stopped it in its last round
        (95, 110, "95"),
    ],
)
def test_the_budget_is_said_in_every_row(tmp_path: Path, best: int, rounds: int, told: str) -> None:
    record = record_of(tmp_path / "run", job_of("fedlu-table1", "c3-transe/fedprox"))
    record["courses"] = {"federation": {"best_round": best, "rounds": rounds}}
    record["triples"] = 2 * 3 * 248_092 * rounds  # sides, epochs, training triples of all sites
    text = page(TABLES["fedlu-table1"], PROTOCOLS["fedlu-2023"], {key_of(record): record})
    (line,) = (one for one in text.splitlines() if "3 × 200" in one)
    cells = line.strip("| ").split(" | ")
    steps = f"{2 * 3 * 248_092 * rounds / 1024 / 1e3:.1f}"
    differs = "margin=10 (paper: 9), mu=0.001 (paper: 0.1; chosen with test figures in view)"
    assert cells[3:8] == [differs, "3 × 200", str(rounds), told, steps]


@pytest.mark.parametrize(
    ("evaluate", "courses", "ended"),
    [
        ({}, {"a": (185, {}), "b": (60, {})}, False),
        ({}, {"a": (190, {}), "b": (60, {})}, True),
        ({}, {"a": (100, {"global": 190})}, True),  # it went on for another table
        ({}, {"a": (100, {"global": 185})}, False),
        ({"patience": 0}, {"a": (100, {})}, True),
        ({"rule": "drops"}, {"a": (100, {})}, True),  # records do not tell how often it fell
        ({"keep": "each"}, {"federation": (100, {})}, True),  # nor when sites were best
    ],
)
def test_a_run_that_validation_ended_was_not_ended_by_the_cap(
    evaluate: dict[str, Any], courses: dict[str, tuple[int, dict[str, int]]], ended: bool
) -> None:
    told = {
        name: {"rounds": 200, "best_round": best, "best_rounds": views}
        for name, (best, views) in courses.items()
    }
    usual = {"patience": 3, "every": 5, "rule": "patience", "keep": "together"}
    record = {"courses": told, "config": {"rounds": 200, "evaluate": {**usual, **evaluate}}}
    assert by_cap(record) is ended


def test_sides_are_those_of_the_paper(tmp_path: Path) -> None:
    job = job_of("pfedeg-table1", "r10-transe/fede")
    record = record_of(tmp_path / "run", job)
    assert record["metrics"]["fede"] == load_run(tmp_path / "run").metrics("test_tail")


def test_costs_are_those_of_the_reports(tmp_path: Path) -> None:
    fedep = record_of(tmp_path / "fedep", job_of("feds-table3", "r3-transe/fedep"))
    feds = record_of(tmp_path / "feds", job_of("feds-table3", "r3-transe/feds"), width=50, level=0.296)
    row = each_reference_rows(load_runs([tmp_path / "fedep", tmp_path / "feds"]), "fedep")[1]
    told = costs(feds, {key_of(one): one for one in (fedep, feds)})
    assert told["P@99"] == row["P@99"] == "never"
    for name in ("P@CG", "B@CG", "P@98", "B@98", "R@98", "values@98", "bytes@98"):
        assert told[name] == pytest.approx(row[name])


def test_units_are_of_the_same_settings(tmp_path: Path) -> None:
    plain = record_of(tmp_path / "plain", job_of("feds-table5", "r10-transe/fedep"))
    longer = record_of(tmp_path / "longer", job_of("feds-table5", "r10-transe/fedep epochs=5"), width=10)
    feds = record_of(tmp_path / "feds", job_of("feds-table5", "r10-transe/feds epochs=5"), width=10)
    both = {key_of(one): one for one in (plain, longer, feds)}
    assert costs(feds, both)["P@CG"] == pytest.approx(1)
    assert costs(feds, {key_of(one): one for one in (plain, feds)})["P@CG"] is None


def test_a_record_of_other_options_is_none(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedprox")
    record = record_of(tmp_path / "run", job)
    assert job.recorded({job.key: record}) == [record]
    record["config"]["method"]["mu"] = 0.5
    assert job.recorded({job.key: record}) == []
    (line,) = rows("fedlu-table1", [record], "c3-transe/fedprox")
    assert not line.records
    record["config"]["method"] = {"name": "no more"}
    assert job.recorded({job.key: record}) == []


# Shared negatives


def shared_record(folder: Path, job: Job, **made: Any) -> Record:
    """What is kept of the run that `--set trainer.chunk=128` makes of a job."""
    (shared,) = with_negatives([job], ["trainer.chunk=128"])
    return record_of(folder, shared, **made)


def differs(text: str, row: str) -> str:
    """The cell of a page that says what a row departs in."""
    _, _, took = text.partition("## What it took\n")
    (line,) = (one for one in took.splitlines() if one.startswith(f"| {row} |"))
    return line.strip("| ").split(" | ")[3]


def page_of(table: str, *records: Record) -> str:
    known = {place_of(record): record for record in records}
    return page(TABLES[table], PROTOCOLS[TABLES[table].protocol], known)


def test_shared_negatives_fill_the_row_and_are_named(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    own, shared = record_of(tmp_path / "own", job), shared_record(tmp_path / "shared", job, level=0.2)
    assert key_of(shared) == key_of(own) == job.key
    assert shared["config"]["trainer"]["chunk"] == 128
    assert job.recorded({place_of(shared): shared}) == [shared]
    row, margin = "fb15k-237-C3 | transe | fedep", "margin=10 (paper: 9)"
    text = page_of("fedlu-table1", shared)
    assert f"| {row} | FedE, Table 1 | 1 |" in text
    assert differs(text, row) == f"{margin}, negatives shared by 128 (paper: own)"
    assert "(../benchmarks.md#accuracy-of-shared-negatives)" in text
    text = page_of("fedlu-table1", own)
    assert differs(text, row) == margin
    assert "hared negatives" not in text
    shared["config"]["trainer"]["lr"] = 0.5
    assert job.recorded({place_of(shared): shared}) == [], "of other options, it is no record of this row"


def test_pages_say_that_accuracy_was_measured_with_other_settings(tmp_path: Path) -> None:
    """No recorded run has the settings of docs/shared.jsonl: change the pages if one has."""
    shared = [record for record in read_records(ROOT).values() if shared_by(record) > 1]
    assert shared
    assert all(record["config"]["model"]["dim"] != 128 for record in shared)
    text = page_of("fedlu-table1", shared_record(tmp_path / "run", job_of("fedlu-table1", "c3-transe/fedep")))
    assert "With the settings of this table the two were not compared." in text
    guide = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert "With these, own and shared negatives were not compared." in guide


def test_own_negatives_win(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedprox")
    own, shared = record_of(tmp_path / "own", job), shared_record(tmp_path / "shared", job, level=0.2)
    write_records(tmp_path, [own])
    write_records(tmp_path, [shared])  # the one does not replace the other
    known = read_records(tmp_path)
    assert job.recorded(known) == [own, shared]
    (line,) = rows("fedlu-table1", [shared, own], "c3-transe/fedprox")
    assert line.records == [own]
    own["config"]["method"]["mu"] = 0.5  # the preset has changed since
    (line,) = rows("fedlu-table1", [shared, own], "c3-transe/fedprox")
    assert line.records == [shared]


def test_a_row_of_both_kinds_of_negatives_says_so(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    records = [record_of(tmp_path / "0", job)]
    records += [shared_record(tmp_path / str(seed), replace(job, seed=seed), seed=seed) for seed in (1, 2)]
    (line,) = rows("fedlu-table1", records, "c3-transe/fedep")
    assert line.differs[1:] == ["negatives shared by 128 in 2 of 3 seeds (paper: own)"]


def test_alternatives_are_chosen_among_both_kinds_of_negatives(tmp_path: Path) -> None:
    found = []
    for name, valid in (("relations=local", 0.30), ("margin=20 relations=local", 0.33)):
        job = job_of("fedlu-table1", f"c3-transe/fedlu {name}")
        make = shared_record if "20" in name else record_of
        found.append(make(tmp_path / name, job))
        found[-1]["valid"]["mrr"] = valid
    own = [line for line in rows("fedlu-table1", found, "c3-transe*") if line.note and not line.view]
    assert [line.name for line in own] == ["fedlu margin=20 relations=local"]
    assert own[0].differs == ["negatives shared by 128 (paper: own)"]


def test_a_curve_of_shared_negatives_is_drawn_where_there_is_no_other(tmp_path: Path) -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    own, shared = record_of(tmp_path / "own", job), shared_record(tmp_path / "shared", job, level=0.2)
    (one,) = drawable(rows("fedlu-table1", [own, shared], "c3-transe/fedep"))
    assert one.shared == 1
    assert "shared" not in caption([one])
    old = {name: value for name, value in own.items() if name != "curve"}
    (one,) = drawable(rows("fedlu-table1", [old, shared], "c3-transe/fedep"))
    assert one.line.records == [old]
    assert [point.mrr for point in one.points] == [mrr for _, mrr, *_ in shared["curve"]]
    assert "Negatives shared by 128: fedep." in caption([one])


def test_units_are_of_the_same_kind_of_negatives_if_there_are_some(tmp_path: Path) -> None:
    fedep, feds = (job_of("feds-table3", f"r3-transe/{name}") for name in ("fedep", "feds"))
    wide, narrow = record_of(tmp_path / "a", fedep), shared_record(tmp_path / "b", fedep, width=64)
    told = shared_record(tmp_path / "c", feds, width=64)
    both = {place_of(one): one for one in (wide, narrow, told)}
    assert costs(told, both)["B@CG"] == pytest.approx(1)
    assert costs(told, {place_of(one): one for one in (wide, told)})["B@CG"] < 0.9


def test_folders_of_the_two_kinds_of_negatives_differ() -> None:
    job = job_of("fedlu-table1", "c3-transe/fedep")
    shared = {with_negatives([job], [f"trainer.chunk={n}"])[0].place for n in (32, 128)}
    assert len({job.place, *shared}) == 3
    assert with_negatives([job], ["trainer.chunk=1"])[0].place == job.place


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("method.mu=0.1", r"--set method.mu=0.1: expected trainer.chunk, as in trainer.chunk=128; any other"),
        ("trainer={chunk=128}", "expected trainer.chunk"),
        ("trainer.chunk=0", "--set trainer.chunk: expected at least 1, got 0"),
        ("trainer.chunk=many", "--set trainer.chunk: expected int, got 'many'"),
        ("trainer.chunk", "expected KEY=VALUE"),
    ],
)
def test_only_negatives_may_be_set(given: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        with_negatives([job_of("fedlu-table1", "c3-transe/fedep")], [given])


def test_old_records_keep_what_they_told() -> None:
    found: Mapping[str, Record] = read_records(ROOT)
    old = found["feds-2024/fb15k-237-R10/transe/feds/0"]
    if "curve" not in old:
        assert costs(old, found)["P@CG"] == old["spent"]["P@CG"]


# Pages


def shown_by(picture: str) -> list[str]:
    """Every text of a picture."""
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_curves_are_drawn_over_rounds_and_bytes(tmp_path: Path) -> None:
    names = ("single", "collective", "fedep")
    records = [record_of(tmp_path / name, job_of("fedlu-table1", f"c3-transe/{name}")) for name in names]
    for record in records[:2]:
        record["curve"] = [[number, mrr, 0, 0] for number, mrr, *_ in record["curve"]]
    old = {**record_of(tmp_path / "old", job_of("fedlu-table1", "c3-transe/fedec")), "inferred": ["config"]}
    del old["curve"]
    known = {key_of(record): record for record in [*records, old]}
    (drawn,), (without,) = overview(TABLES.values(), PROTOCOLS, known)
    assert drawn.file == "curves-fb15k-237-C3-transe-fedlu-2023.svg"
    texts = shown_by(drawn.svg)
    assert {"over rounds", "over bytes", "validation MRR", *names} <= set(texts)
    assert all(texts.count(name) == 1 for name in names), "both panels have one legend"
    left, right = list(ElementTree.fromstring(drawn.svg).iter(f"{SVG}g"))[::2]
    dotted = [line for line in right.iter(f"{SVG}polyline") if line.get("stroke-dasharray") == "2 3"]
    assert len(dotted) == 2, "alone and pooled send nothing"
    for line in dotted:
        assert len({point.split(",")[1] for point in line.attrib["points"].split()}) == 1
    assert len(list(left.iter(f"{SVG}polyline"))) == len(list(right.iter(f"{SVG}polyline"))) == 3
    assert without.name == "fedec"
    assert "fedec" not in texts
    text = curves_page([drawn], [without])
    assert f"({drawn.file})" in text
    assert "- fb15k-237-C3, transe, fedlu-2023: fedec\n" in text


def test_a_caption_tells_settings_and_marks(tmp_path: Path) -> None:
    cap = job_of("fedlu-table1", "c3-transe/fedep").experiment().rounds
    records = [
        record_of(tmp_path / "fedep", job_of("fedlu-table1", "c3-transe/fedep")),
        record_of(tmp_path / "fedprox", job_of("fedlu-table1", "c3-transe/fedprox")),
    ]
    records[0]["courses"] = {"federation": {"best_round": cap - 5, "rounds": cap}}
    (picture,) = pictures(TABLES["fedlu-figure4"], rows("fedlu-figure4", records))
    assert [one.name for one in picture.lines if one.capped] == ["fedep"]
    assert picture.svg.count('fill="#ffffff" stroke=') == 2, "a ring in each panel"
    told = caption(picture.lines)
    assert f"`rounds={cap}`" in told
    margin = "margin=10 (paper: 9)"
    seen = "mu=0.001 (paper: 0.1; chosen with test figures in view)"
    assert f"Unlike the paper: fedep {margin}; fedprox {margin}, {seen}." in told
    assert "Ended at the cap: fedep." in told
    assert "differ" not in told
    assert "Dots" not in told
    assert not pictures(TABLES["fedlu-table1"], rows("fedlu-table1", records)), "it does not ask for curves"


def test_an_old_record_tells_three_points() -> None:
    spent = {"R@CG": 90, "bytes@CG": 900, "valid_mrr": 0.398, "reference_mrr": 0.4}
    some = {"R@98": 40, "bytes@98": 400, "R@99": 60, "bytes@99": 600}
    bounds = [(40, pytest.approx(0.392), 400), (60, pytest.approx(0.396), 600)]
    best = (90, 0.398, 900)
    assert points({"spent": spent | some}) == [*bounds, best]
    assert points({"spent": spent | some | {"R@99": "never", "bytes@99": "never"}}) == [bounds[0], best]
    assert points({"spent": spent | some | {"R@99": 90, "bytes@99": 900}}) == [bounds[0], best]
    both = {"R@98": 60, "bytes@98": 600}
    assert points({"spent": spent | some | both}) == [bounds[1], best]
    assert points({}) == []


def test_long_curves_are_thinned(tmp_path: Path) -> None:
    """A picture of many methods stays small; the best and the last round stay."""
    job = job_of("fedlu-table1", "c3-transe/fedep")
    record = record_of(tmp_path / "run", job)
    record["curve"] = [[n, 0.9 if n == 501 else n / 2000, n, 10 * n] for n in range(1, 1001)]
    (one,) = drawable(rows("fedlu-table1", [record], "c3-transe/fedep"))
    assert len(one.points) <= MOST + 2
    assert {501, 1000} < {point.round for point in one.points}
    record["curve"] = record["curve"][-1:]  # validated once, at the end
    assert drawable(rows("fedlu-table1", [record], "c3-transe/fedep")) == []


def test_what_docs_joining_says_first_holds() -> None:
    """Alone, sites of C3 and C10 are level with FedLU or above it: change the page if new runs disagree."""
    known, compared = read_records(ROOT), 0
    pairs = [("fedlu-2023", "transe"), ("fedlu-2023", "rotate"), ("fedkge-sa", "transe")]
    for (protocol, model), data in product(pairs, ("fb15k-237-C3", "fb15k-237-C10")):
        keys = (f"{protocol}/{data}/{model}/{name}/0" for name in ("single", "fedlu"))
        both = [found[0] for key in keys if (found := of_key(known, key))]
        if len(both) == 2:
            single, fedlu = both
            best = max(fedlu["metrics"][name]["mrr"] for name in ("fedlu", "fedlu global"))
            assert single["metrics"]["single"]["mrr"] > best - 0.001, (protocol, data, model)
            compared += 1
    assert compared >= 5
    said = " ".join((ROOT / "docs" / "joining.md").read_text(encoding="utf-8").split())
    assert "the test MRR of FedLU to within 0.1 points, or a higher one" in said


def test_pages_are_what_the_records_give() -> None:
    records = read_records(ROOT)
    assert index(ROOT, records) == (ROOT / INDEX).read_text(encoding="utf-8")
    files = {path.name: path for path in (ROOT / PAGES).iterdir()}
    made = pages(ROOT, records)
    assert made.keys() == files.keys(), "run fedkge paper docs"
    for file, text in made.items():
        assert files[file].read_text(encoding="utf-8") == text, f"run fedkge paper docs: {file}"
        if file.endswith(".svg"):
            assert len(text) < 60_000
            ElementTree.fromstring(text)
