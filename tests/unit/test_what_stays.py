"""What stays at the site: modes of files, predictions and exports for others, triples kept in train."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import answer, fedkge, printed, write_home
from fedkge.graphs.files import read_federation
from fedkge.graphs.graph import Graph
from fedkge.graphs.indexing import graph_from_names
from fedkge.graphs.marks import mark_share
from fedkge.graphs.persons import name_persons, without_persons
from fedkge.graphs.split import split
from fedkge.runs.data import load
from small_federations import experiment, small_federation

pytest.importorskip("numba")

STRICT = {
    "marks.share": 0.5,
    "privacy.mode": "strict",
    "privacy.noise": 3.0,
    "privacy.delta": 1e-4,
    "privacy.accountant": "rdp",
    "rounds": 2,
    "evaluate.every": 2,
    "method.name": "fedep",
}


def given(options: dict[str, Any]) -> list[str]:
    return [word for key, value in options.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    return tmp_path


def shared(folder: Path) -> list[str]:
    """Files that anybody but their owner may read or write."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert found
    return [str(path.relative_to(folder)) for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.parametrize("runtime", ["simulate", "processes"])
def test_all_files_of_a_run_and_of_an_account_are_their_owners_only(home: Path, runtime: str) -> None:
    pytest.importorskip("dp_accounting")
    done = fedkge("run", "tiny.toml", "--out", "runs/x", *given({**STRICT, "runtime.name": runtime}))
    assert done.exit_code == 0, done.output
    if runtime == "simulate":
        for command in (["privacy", "runs/x"], ["attack", "runs/x"], ["evaluate", "runs/x", "--keep-ranks"]):
            assert fedkge(*command).exit_code == 0
    names = {path.name for path in (home / "runs").rglob("*")}
    assert {"summary.json", "ledger.jsonl", "ledger.head", "ranks.safetensors", "entities.tsv"} <= names
    assert shared(home / "runs") == []
    assert shared(home / "federation" / ".fedkge") == []


def test_predictions_for_others_know_unrestricted_triples_only(home: Path) -> None:
    assert fedkge("run", "tiny.toml", "--out", "runs/x", *given(STRICT)).exit_code == 0
    graph = mark_share(read_federation(home / "federation"), 0.5, 0)["north"]
    names, marks = graph.entities, graph.confidential
    assert marks is not None
    tails: dict[tuple[str, str], dict[str, bool]] = {}
    for (h, r, t), secret in zip(graph.train.tolist(), marks.tolist(), strict=True):
        tails.setdefault((names[h], graph.relations[r]), {})[names[t]] = secret
    (head, relation), stated = next((q, of) for q, of in tails.items() if len(set(of.values())) == 2)
    asked = ["predict", "runs/x", "--site", "north", "--head", head, "--relation", relation, "--top", "50"]
    plain = fedkge(*asked)
    assert "known answers, which are left out, may be confidential" in plain.stderr
    told = fedkge(*asked, "--known")
    assert "answers marked as known may be confidential triples" in told.stderr
    openly = fedkge(*asked, "--known", "--unrestricted", "--json")
    assert openly.stderr == ""
    known = {one["tail"] for one in printed(openly.stdout) if one["known"]}
    secret = {tail for tail, confidential in stated.items() if confidential}
    assert secret
    assert known >= stated.keys() - secret
    assert not known & secret
    left = {one["tail"] for one in answer(*asked, "--unrestricted")}
    assert secret <= left, "that one is left out would tell"
    assert not secret & {one["tail"] for one in answer(*asked)}


def test_no_person_is_predicted_or_exported_for_others(home: Path) -> None:
    options = {"persons.prefixes": '["e1"]', "rounds": 1, "evaluate.every": 1, "method.name": "fedep"}
    assert fedkge("run", "tiny.toml", "--out", "runs/x", *given(options)).exit_code == 0
    asked = ["predict", "runs/x", "--site", "north", "--relation", "a", "--top", "50", "--unrestricted"]
    found = {one["tail"] for one in answer(*asked, "--head", "e2")}
    assert found
    assert not any(name.startswith("e1") for name in found)
    refused = fedkge(*asked, "--head", "e12")
    assert refused.exit_code == 2
    assert "a person, about whom nothing is said to others" in refused.stderr
    for extra, count in (([], 9), (["--persons"], 20)):
        out = home / f"out{count}"
        made = fedkge("embeddings", "runs/x", "--site", "north", "--format", "tsv", "--out", out, *extra)
        assert made.exit_code == 0, made.output
        lines = (out / "entities.vectors.tsv").read_text().splitlines()
        assert len(lines) == count
        assert any(line.startswith("e1") for line in lines) == bool(extra)


def test_a_graph_without_its_persons_has_the_others_in_order() -> None:
    graph = name_persons({"a": small_federation()["b"]}, prefixes=["e1"])["a"]
    other = without_persons(graph)
    assert list(other.entities) == [name for name in graph.entities if not name.startswith("e1")]
    names = [[graph.entities[h], graph.relations[r], graph.entities[t]] for h, r, t in graph.train.tolist()]
    expected = [one for one in names if not one[0].startswith("e1") and not one[2].startswith("e1")]
    assert [
        [other.entities[h], other.relations[r], other.entities[t]] for h, r, t in other.train.tolist()
    ] == expected


# Confidential triples stay in train


def ring(count: int = 40) -> Graph:
    rows = [(f"e{i}", "open", f"e{(i + k) % count}") for i in range(count) for k in (1, 2, 3)]
    rows += [(f"e{i}", "secret", f"e{(i + 7) % count}") for i in range(count)]
    graph = graph_from_names(rows)
    return replace(graph, confidential=graph.train[:, 1] == graph.relations.id("secret"))


def triples(graph: Graph, name: str) -> set[tuple[str, str, str]]:
    names, relations = graph.entities, graph.relations
    return {(names[h], relations[r], names[t]) for h, r, t in graph.split(name).tolist()}


def test_what_is_held_out_does_not_depend_on_confidential_triples() -> None:
    graph = ring()
    divided = split(graph, (8, 1, 1), 3, keep_confidential=True)
    assert divided.confidential is not None
    assert int(divided.confidential.sum()) == 40
    assert all(relation == "open" for name in ("valid", "test") for _, relation, _ in triples(divided, name))
    assert (len(divided.valid), len(divided.test)) == (12, 12)
    assert graph.confidential is not None
    fewer = replace(
        graph,
        train=graph.train[~graph.confidential],
        confidential=np.zeros(int((~graph.confidential).sum()), np.bool_),
    )
    alone = split(fewer, (8, 1, 1), 3, keep_confidential=True)
    assert triples(alone, "valid") == triples(divided, "valid")
    assert triples(alone, "test") == triples(divided, "test")
    with pytest.warns(match="lost their marks"):
        split(graph, (8, 1, 1), 3)


def told_about(graph: Graph, name: str, persons: str) -> set[tuple[str, str, str]]:
    return {one for one in triples(graph, name) if one[0].startswith(persons) or one[2].startswith(persons)}


@pytest.mark.parametrize("share", [None, 0.3])
def test_what_is_held_out_of_a_person_depends_on_nobody_else(tmp_path: Path, share: float | None) -> None:
    """Nor does what is held out of the rest depend on persons."""
    others = [f"e{i}\tr{k}\te{(i + k) % 40}\n" for i in range(40) for k in (1, 2, 3)]
    said = [f"p{i}\tr{k}\te{(5 * i + k) % 40}\n" for i in range(12) for k in (1, 2, 3, 4)]
    found = []
    for number, rows in enumerate((others + said, said[:44] + others, others + said[4:])):
        folder = tmp_path / str(number) / "north"
        folder.mkdir(parents=True)
        (folder / "train.tsv").write_text("".join(rows))
        if not number:  # no split, apart from persons
            (folder / "valid.tsv").write_text("p5\tr1\te39\n")
        asked = experiment(
            data={"path": str(folder.parent), "name": None, "ratio": "6:2:2"},
            persons={"prefixes": ["p"]},
            marks={"share": share} if share else {},
            privacy={"mode": "u-only", "unit": "entity"},
        )
        found.append(load(asked).named["north"])
    whole = found[0]
    for name in ("valid", "test"):
        about = told_about(whole, name, "p")
        assert about
        assert triples(whole, name) - about
        for other, gone in ((found[1], "p11"), (found[2], "p0")):
            kept = {one for one in triples(whole, name) if one[0] != gone and one != ("p5", "r1", "e39")}
            assert kept == triples(other, name)
    assert {head for head, _, _ in told_about(whole, "train", "p")} == {f"p{i}" for i in range(12)}


def test_strict_training_of_data_by_ratio_just_works_and_an_error_names_the_command(home: Path) -> None:
    folder = home / "marked" / "north"
    folder.mkdir(parents=True)
    rows = [f"e{i}\topen\te{(i + k) % 40}\t0\n" for i in range(40) for k in (1, 2, 3)]
    rows += [f"e{i}\tsecret\te{(i + 7) % 40}\t1\n" for i in range(40)]
    (folder / "all.tsv").write_text("".join(rows))
    options = {**STRICT, "data.path": "marked", "data.ratio": "8:1:1", "evaluate.every": 1}
    del options["marks.share"]
    done = fedkge("run", "tiny.toml", "--out", "runs/x", *given(options))
    assert done.exit_code == 0, done.output
    wrong = fedkge("run", "tiny.toml", "--out", "runs/y", *given({**options, "data.held_out": "all"}))
    assert wrong.exit_code == 2
    assert "`fedkge data split --keep-confidential`" in wrong.stderr
    assert fedkge("data", "split", "marked", "divided", "--keep-confidential").exit_code == 0
    for key in ("data.path", "data.ratio"):
        del options[key]
    done = fedkge("run", "tiny.toml", "--out", "runs/z", *given({**options, "data.path": "divided"}))
    assert done.exit_code == 0, done.output


def test_what_was_held_out_of_confidential_relations_is_marked_when_data_is_divided_anew(home: Path) -> None:
    """Marks cannot stand in valid and test: a relation that is marked as a whole says what they are."""
    before = ring()
    for rows in (before.train[::9], before.train[3::9]):  # some of both relations
        assert len(np.unique(rows[:, 1])) == 2
    stays = np.ones(len(before.train), np.bool_)
    stays[::9] = stays[3::9] = False
    assert before.confidential is not None
    parted = replace(
        before,
        train=before.train[stays],
        valid=before.train[::9],
        test=before.train[3::9],
        confidential=before.confidential[stays],
    )
    divided = split(parted, (8, 1, 1), 3, keep_confidential=True)
    assert divided.confidential is not None
    assert int(divided.confidential.sum()) == 40
    assert all(relation == "open" for name in ("valid", "test") for _, relation, _ in triples(divided, name))
    wrong = fedkge("data", "split", "atlas", "divided", "--keep-confidential")
    assert wrong.exit_code == 2
    assert "`fedkge data mark`" in wrong.stderr
