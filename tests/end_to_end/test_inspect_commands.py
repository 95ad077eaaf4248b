"""Commands that use what a run made: measure it again, ask it, take its rows elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import answer, fedkge, refused

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here")

# evaluate


@pytest.mark.usefixtures("done")
def test_evaluate_repeats_the_runs_own_metrics() -> None:
    rows = answer("evaluate", "runs/tiny")
    summary = json.loads(Path("runs/tiny/summary.json").read_text())
    assert [(row["site"], row["side"]) for row in rows] == [
        (site, side) for site in ("north", "south") for side in ("both", "head", "tail")
    ]
    assert rows[0]["mrr"] == pytest.approx(summary["sites"]["north"]["metrics"]["test"]["mrr"], rel=1e-12)
    valid = answer("evaluate", "runs/tiny", "--split", "valid")
    assert valid[0]["mrr"] == pytest.approx(summary["sites"]["north"]["metrics"]["valid"]["mrr"], rel=1e-12)


@pytest.mark.usefixtures("done")
def test_evaluate_keeps_the_ranks_that_the_run_kept() -> None:
    paths = [Path("runs/tiny/sites") / site / "ranks.safetensors" for site in ("north", "south")]
    before = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    answer("evaluate", "runs/tiny")
    assert not any(path.exists() for path in paths)
    answer("evaluate", "runs/tiny", "--keep-ranks", "--ties", "pessimistic")
    assert [path.read_bytes() for path in paths] == before
    for other in (("--split", "valid"), ("--types", "train"), ("--classify",)):
        assert refused("evaluate", "runs/tiny", "--keep-ranks", *other).startswith("--keep-ranks: expected")


@pytest.mark.usefixtures("done")
def test_evaluate_ties_and_types() -> None:
    best, middle, worst = (
        answer("evaluate", "runs/tiny", "--ties", ties)[0]["mrr"]
        for ties in ("optimistic", "realistic", "pessimistic")
    )
    assert best >= middle >= worst
    typed, plain = answer("evaluate", "runs/tiny", "--types", "train"), answer("evaluate", "runs/tiny")
    assert all(few["mrr"] >= all_["mrr"] for few, all_ in zip(typed, plain, strict=True))
    assert answer("evaluate", "runs/tiny", "--types", "openke")


@pytest.mark.usefixtures("done")
def test_evaluate_by_relation() -> None:
    rows = answer("evaluate", "runs/tiny", "--by-relation")
    north = {row["relation"]: row for row in rows if row["site"] == "north"}
    assert set(north) == {"a", "b"}
    whole = answer("evaluate", "runs/tiny")[0]
    count = sum(row["count"] for row in north.values())
    assert count == whole["count"]
    assert sum(row["mrr"] * row["count"] for row in north.values()) / count == pytest.approx(whole["mrr"])


@pytest.mark.usefixtures("done")
def test_evaluate_classification() -> None:
    rows = answer("evaluate", "runs/tiny", "--classify")
    assert [row["site"] for row in rows] == ["north", "south"]
    assert all(0 <= row["accuracy"] <= 1 and 0 <= row["auc"] <= 1 for row in rows)
    assert set(rows[1]["thresholds"]) == {"b", "c", "d"}
    shown = fedkge("evaluate", "runs/tiny", "--classify")
    assert shown.exit_code == 0, shown.output
    assert "accuracy" in shown.stdout


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "tset"], "--split: expected one of valid, test, got 'tset'; did you mean 'test'?"),
        (["--ties", "mean"], "--ties: expected one of optimistic, realistic, pessimistic, got 'mean'"),
        (["--types", "all"], "--types: expected one of none, train, openke, got 'all'"),
    ],
)
def test_evaluate_refuses(arguments: list[str], message: str) -> None:
    assert refused("evaluate", "runs/tiny", *arguments) == message


def test_not_a_run() -> None:
    assert refused("evaluate", "federation").startswith("federation: not a run folder; expected one with")
    assert refused("predict", "nowhere", "--site", "a", "--head", "e1").startswith(
        "nowhere: not a run folder"
    )


# predict


def known_triples() -> set[tuple[str, ...]]:
    lines = [
        line
        for split in ("train", "valid", "test")
        for line in Path(f"federation/north/{split}.tsv").read_text().splitlines()
    ]
    return {tuple(line.split("\t")) for line in lines}


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (["--head", "e1", "--relation", "a"], "tail"),
        (["--tail", "e1", "--relation", "b"], "head"),
        (["--head", "e1", "--tail", "e2"], "relation"),
    ],
)
def test_predict(given: list[str], asked: str) -> None:
    line = ("predict", "runs/tiny", "--site", "north", *given)
    everything = answer(*line, "--known", "--top", 50)
    assert len({row[asked] for row in everything}) == len(everything) == (2 if asked == "relation" else 20)
    scores = [row["score"] for row in everything]
    assert scores == sorted(scores, reverse=True)
    stated = known_triples()
    assert all(row["known"] == ((row["head"], row["relation"], row["tail"]) in stated) for row in everything)
    new = answer(*line, "--top", 50)
    assert new == [row for row in everything if not row["known"]]
    assert answer(*line, "--top", 1) == new[:1]


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--head", "e1"], "predict: expected two of head, relation and tail, got head"),
        (["--head", "e111", "--relation", "a"], "no entity is named 'e111'; did you mean 'e11' or 'e1'?"),
        (["--head", "e1", "--relation", "aa"], "no relation is named 'aa'; did you mean 'a'?"),
        (["--head", "e1", "--relation", "a", "--top", "0"], "top: expected at least 1, got 0"),
    ],
)
def test_predict_refuses(given: list[str], message: str) -> None:
    assert refused("predict", "runs/tiny", "--site", "north", *given) == message


@pytest.mark.usefixtures("done")
def test_unknown_site() -> None:
    said = refused("predict", "runs/tiny", "--site", "nroth", "--head", "e1", "--relation", "a")
    assert said == "runs/tiny: no tables of a site named 'nroth'; did you mean 'north'? (known: north, south)"


# embeddings


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("format", "package", "expected"),
    [
        (
            "safetensors",
            "safetensors",
            ["entities.safetensors", "entities.tsv", "relations.safetensors", "relations.tsv"],
        ),
        ("tsv", "torch", ["entities.vectors.tsv", "relations.vectors.tsv"]),
        ("parquet", "pyarrow", ["entities.parquet", "relations.parquet"]),
        ("pykeen", "pykeen", ["trained_model.pkl"]),
    ],
)
def test_embeddings(format: str, package: str, expected: list[str], tmp_path: Path) -> None:
    pytest.importorskip(package)
    rows = answer("embeddings", "runs/tiny", "--site", "north", "--out", tmp_path / "e", "--format", format)
    names = [Path(row["file"]).name for row in rows]
    assert names[: len(expected)] == expected
    assert all(Path(row["file"]).stat().st_size == row["bytes"] > 0 for row in rows)


@pytest.mark.usefixtures("done")
def test_embeddings_refuses(tmp_path: Path) -> None:
    line = ("embeddings", "runs/tiny", "--site", "north", "--out", tmp_path / "e", "--format")
    said = refused(*line, "parqet")
    assert said == (
        "--format: expected one of safetensors, parquet, tsv, pykeen, got 'parqet'; did you mean 'parquet'?"
    )
    (tmp_path / "file").touch()
    said = refused("embeddings", "runs/tiny", "--site", "north", "--out", tmp_path / "file")
    assert said.startswith(f"{tmp_path / 'file'}: cannot be written: ")


def test_runs_with_links_are_measured_by_the_names_that_sites_use(tmp_path: Path) -> None:
    """Links give things new names inside a run; what is kept and asked for has the site's own."""
    (tmp_path / "same.tsv").write_text("north\te0\tsouth\te19\n")
    line = ("run", "tiny.toml", "--out", tmp_path / "run", "--set", "rounds=2", "--set", "method.name=fedep")
    (summary,) = answer(
        *line, "--set", "align.names=false", "--set", f"align.entities={tmp_path / 'same.tsv'}"
    )
    assert summary["sites"]["north"]["shared"] == {"entity": 1, "relation": 0}
    rows = answer("evaluate", tmp_path / "run")
    assert rows[0]["mrr"] == pytest.approx(summary["sites"]["north"]["metrics"]["test"]["mrr"], rel=1e-12)
    found = answer("predict", tmp_path / "run", "--site", "south", "--head", "e19", "--relation", "b")
    assert {row["head"] for row in found} == {"e19"}


def test_tables_beside_those_that_a_run_is_measured_by(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (summary,) = answer("run", "tiny.toml", "--out", run, "--set", "rounds=3", "--set", "method.name=fedlu")
    for view in ("global", "hub"):
        rows = [row for row in answer("evaluate", run, "--view", view) if row["side"] == "both"]
        saved = [summary["sites"][row["site"]]["metrics"][f"test_{view}"]["mrr"] for row in rows]
        assert [row["mrr"] for row in rows] == pytest.approx(saved, rel=1e-12)
    line = ("predict", run, "--site", "north", "--head", "e1", "--relation", "a", "--known")
    scores = [{row["tail"]: row["score"] for row in answer(*line, *view)} for view in ((), ("--view", "hub"))]
    assert scores[0] != scores[1]
    for view in ("", "global"):
        answer("embeddings", run, "--site", "north", "--out", tmp_path / f"out{view}", "--view", view)
    files = [tmp_path / out / "entities.safetensors" for out in ("out", "outglobal")]
    assert files[0].read_bytes() != files[1].read_bytes()
    assert files[1].read_bytes() == (run / "sites/north/global/entities.safetensors").read_bytes()
    assert refused(*line, "--view", "gobal") == (
        f"{run / 'sites/north'}: no tables named 'gobal'; did you mean 'global'? "
        "(beside those that it is measured by: global, hub)"
    )
    assert refused("evaluate", run, "--view", "hub", "--keep-ranks").startswith("--keep-ranks: expected")
    attacks = [answer("attack", run, "--name", "membership", *view) for view in ((), ("--view", "global"))]
    for found, name in zip(attacks, ("run", "run, global"), strict=True):
        assert {row["run"] for row in found["membership"]} == {name}
    aucs = [[row["auc"] for row in found["membership"]] for found in attacks]
    assert aucs[0] != aucs[1]
