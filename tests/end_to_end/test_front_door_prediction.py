"""The front door, items 8 and 9: runs that can be shipped, and questions in any number."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import answer, fedkge, printed, refused, write_home
from fedkge.errors import DataError
from fedkge.evaluation import Predictor
from fedkge.front.questions import questions_of, read_questions
from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph, Names
from fedkge.models import MODELS, Tables
from fedkge.runs.held import hold

pytest.importorskip("numba")
RUN = "runs/tiny"
ASK = ("--head", "e1", "--relation", "b")


@pytest.fixture
def run(here: Path, done: subprocess.CompletedProcess[str]) -> Path:
    assert done.returncode == 0, done.stderr
    return here / RUN


def small(model: str, looped: bool = False) -> tuple[Tables, Graph]:
    random = np.random.default_rng(3)
    triples = np.unique(random.integers(0, [7, 2, 7], (25, 3)), axis=0)
    triples = triples if looped else triples[triples[:, 0] != triples[:, 2]]
    names = Names([f"city{i}" for i in range(7)]), Names(["road", "rail"], "relation")  # type: ignore[arg-type]
    graph = Graph(*names, triples[4:], triples[:2], triples[2:4])
    return Tables.create(MODELS[model](dim=4), torch.arange(7), torch.arange(2), 0), graph


# 8. Packs


def test_8_a_pack_predicts_without_the_run_and_its_data(run: Path, tmp_path: Path) -> None:
    pack = tmp_path / "shipped"
    files = [Path(row["file"]).name for row in answer("pack", run, "north", "--out", pack)]
    assert files[0] == "pack.json"
    assert "train.tsv" in files
    assert str(run.parent) not in (pack / "pack.json").read_text()
    of_run = answer("predict", run, "--site", "north", *ASK, "--known")
    of_pack = answer("predict", pack, *ASK, "--known")
    assert of_pack == of_run
    assert any(row["known"] for row in of_pack)
    assert answer("predict", pack, *ASK) == answer("predict", run, "--site", "north", *ASK)
    assert all(path.stat().st_mode & 0o77 == 0 for path in pack.rglob("*") if path.is_file())


def test_8_known_triples_can_be_left_out(run: Path, tmp_path: Path) -> None:
    fedkge("pack", run, "north", "--out", tmp_path / "bare", "--no-known")
    assert not (tmp_path / "bare" / "known").exists()
    found = answer("predict", tmp_path / "bare", *ASK, "--top", 50)
    assert len(found) == 20
    assert not any(row["known"] for row in found)
    assert "expected one of the two" in refused("pack", run, "north", "--no-known", "--confidential")


def test_8_new_triples_are_known(run: Path, tmp_path: Path) -> None:
    """Of the run and of a pack; those with names that have no rows are counted."""
    fedkge("pack", run, "north", "--out", tmp_path / "pack")
    for source, *which in ([tmp_path / "pack"], [run, "--site", "north"]):
        best = answer("predict", source, *which, *ASK, "--top", 1)[0]["tail"]
        new = tmp_path / "new.tsv"
        new.write_text(f"e1\tb\t{best}\ne1\tb\tnobody\n")
        found = fedkge("predict", source, *which, *ASK, "--top", 1, "--data", new, "--json")
        assert printed(found.stdout)[0]["tail"] != best
        assert "1 of 2 new triples name what training never saw: they change nothing" in found.stderr


def test_8_what_is_wrong_is_said(run: Path, tmp_path: Path) -> None:
    assert "site: which one?" in refused("pack", run)
    assert "no tables of a site named 'nroth'; did you mean 'north'?" in refused("pack", run, "nroth")
    assert fedkge("pack", run, "north", "--out", tmp_path / "pack").exit_code == 0
    assert "exists already" in refused("pack", run, "north", "--out", tmp_path / "pack")
    assert "a pack of site 'north', not of 'south'" in refused(
        "predict", tmp_path / "pack", "--site", "south", *ASK
    )
    (tmp_path / "pack" / "pack.json").write_text("{}")
    assert "pack the run anew" in refused("predict", tmp_path / "pack", *ASK)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with confidential triples and persons."""
    home = tmp_path_factory.mktemp("private")
    write_home(home)
    train = home / "federation" / "north" / "train.tsv"
    lines = train.read_text().splitlines()
    train.write_text("".join(f"{line}\t{int(i % 4 == 0)}\n" for i, line in enumerate(lines)))
    (home / "persons.txt").write_text("e3\n")
    text = (home / "tiny.toml").read_text()
    (home / "tiny.toml").write_text(f'persons = {{ names = "persons.txt" }}\n{text}')
    assert fedkge("run", home / "tiny.toml", "--out", home / "run", "--set", "rounds=2").exit_code == 0
    return home


def test_8_nothing_confidential_leaves_unless_asked_for(private: Path, tmp_path: Path) -> None:
    """Persons never do: no row, no name, no triple about them."""
    said = fedkge("pack", private / "run", "north", "--out", tmp_path / "open")
    assert said.exit_code == 0, said.output
    assert "trained on confidential triples without a proven protection" in said.stderr
    fedkge("pack", private / "run", "north", "--out", tmp_path / "all", "--confidential")
    marked = {
        tuple(line.split("\t")[:3])
        for line in (private / "federation" / "north" / "train.tsv").read_text().splitlines()
        if line.endswith("1")
    }
    about = {one for one in marked if "e3" in (one[0], one[2])}
    for name, kept in (("open", set()), ("all", marked - about)):
        known = read_graph(tmp_path / name / "known")
        stated = {
            (known.entities[h], known.relations[r], known.entities[t]) for h, r, t in known.train.tolist()
        }
        assert stated & marked == kept
        assert not any("e3" in (h, t) for h, _, t in stated)
        assert "e3" not in (tmp_path / name / "entities.tsv").read_text().split()
        assert len(hold(tmp_path / name).tables.entities) == 19
    openly = answer("predict", tmp_path / "all", *ASK, "--known", "--unrestricted")
    assert openly == answer("predict", tmp_path / "open", *ASK, "--known")


# 9. Questions


def test_9_many_questions_from_a_file(run: Path, tmp_path: Path) -> None:
    site = ("--site", "north", "--top", 3)
    expected = [
        *answer("predict", run, *site, "--head", "e1", "--relation", "a"),
        *answer("predict", run, *site, "--tail", "e2", "--relation", "b"),
        *answer("predict", run, *site, "--head", "e1", "--tail", "e2"),
    ]
    (tmp_path / "q.csv").write_text("relation,head,tail\na,e1,\nb,?,e2\n?,e1,e2\n")
    (tmp_path / "q.tsv").write_text("e1\ta\t?\n?\tb\te2\ne1\t?\te2\n")
    for file in ("q.csv", "q.tsv"):
        found = answer("predict", run, *site, "--questions", tmp_path / file)
        assert [row.pop("question") for row in found] == sorted([1] * 3 + [2] * 3 + [3] * len(expected[6:]))
        assert found == expected
    pq = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table(
        {"head": ["e1", None], "relation": ["a", "b"], "tail": [None, "e2"]}
    )
    pq.write_table(table, tmp_path / "q.parquet")
    found = answer("predict", run, *site, "--questions", tmp_path / "q.parquet")
    assert [row["question"] for row in found] == [1, 1, 1, 2, 2, 2]


def test_9_bad_questions_are_told_by_their_line(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "q.csv"
    ask = ("predict", run, "--site", "north", "--questions", file)
    for text, said in {
        "head,relation\ne1,a\ne111,a\n": f"{file}:3: no entity is named 'e111'; did you mean 'e11' or 'e1'",
        "head,relation\ne1\n": f"{file}:2: expected head, relation, found 1 fields",
        "e1,a,e2\n": f"{file}:1: expected two of head, relation and tail, and nothing or ? for the third",
        "head,relation\n": f"{file}: expected questions, found none",
    }.items():
        file.write_text(text)
        assert refused(*ask).startswith(said)
    assert "expected questions as .csv" in refused(*ask[:-1], run / "config.toml")
    assert "expected one kind of question" in refused(*ask, "--head", "e1")
    assert "expected one kind of question" in refused("predict", run, "--site", "north", "--missing", *ASK)


def test_9_which_names_exist(run: Path) -> None:
    where = ("predict", run, "--site", "north", "--relation")
    assert refused(*where, "a", "--head", "E19").startswith("no entity is named 'E19'; did you mean 'e19'")
    assert "no relation is named 'zzz' (there are 2: 'b', 'a')" in refused(*where, "zzz", "--head", "e1")


@pytest.mark.parametrize("model", ["transe", "distmult", "transr"])
@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("relation", [None, "rail"])
def test_9_missing_links_against_scoring_all(
    model: str, looped: bool, relation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedkge.evaluation.prediction.AT_ONCE", 20)  # a few heads at a time
    tables, graph = small(model, looped)
    facts = set(map(tuple, graph.all().tolist()))
    loops = {r for h, r, t in facts if h == t}
    every = [
        (h, r, t)
        for r in range(2)
        for h in range(7)
        for t in range(7)
        if (h, r, t) not in facts
        and (h != t or r in loops)
        and (relation is None or graph.relations[r] == relation)
    ]
    scores = dict(zip(every, tables.score(torch.tensor(every)).tolist(), strict=True))
    found = Predictor(tables, graph).missing(relation, top=9)
    ids = [
        (graph.entities.id(p.head), graph.relations.id(p.relation), graph.entities.id(p.tail)) for p in found
    ]
    assert len(set(ids)) == 9
    assert set(ids) <= set(every)
    assert [p.score for p in found] == pytest.approx(
        sorted(scores.values(), reverse=True)[:9], rel=1e-5, abs=1e-5
    )
    assert len(Predictor(tables, graph).missing(relation, top=1000)) == len(every)


def test_9_missing_links_hide_persons() -> None:
    tables, graph = small("transe")
    hidden = Graph(*[graph.entities, graph.relations], graph.train, persons=np.arange(7) == 2)
    openly = Predictor(tables, hidden, openly=True)
    assert all("city2" not in (p.head, p.tail) for p in openly.missing(top=500))
    assert all(p.entity != "city2" for p in openly.neighbours("city1", 10))
    with pytest.raises(Exception, match=r"no entity is named 'city22'; did you mean (?!.*'city2')"):
        openly.ask(("city22", "road", None))


def test_9_neighbours_have_the_largest_cosine() -> None:
    tables, graph = small("rotate")
    rows = tables.entities.double()
    cosines = torch.nn.functional.cosine_similarity(rows, rows[3:4]).tolist()
    found = Predictor(tables, graph).neighbours("city3", 4)
    order = sorted((i for i in range(7) if i != 3), key=lambda i: -cosines[i])[:4]
    assert [one.entity for one in found] == [f"city{i}" for i in order]
    assert [one.similarity for one in found] == pytest.approx([cosines[i] for i in order], abs=1e-6)


def test_9_answers_in_every_format(run: Path, tmp_path: Path) -> None:
    ask = ("predict", run, "--site", "north", "--missing", "--relation", "a", "--top", 4)
    rows = answer(*ask)
    assert len(rows) == 4
    for suffix in ("csv", "parquet", "nt", "json"):
        assert answer(*ask, "--out", tmp_path / f"a.{suffix}")[0]["rows"] == 4
    triples = [(row["head"], row["relation"], row["tail"]) for row in rows]
    with (tmp_path / "a.csv").open() as file:
        assert [(row["head"], row["relation"], row["tail"]) for row in csv.DictReader(file)] == triples
    assert json.loads((tmp_path / "a.json").read_text()) == {"version": 1, "result": rows}
    assert pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "a.parquet").to_pylist() == rows
    again = read_graph(tmp_path / "a.nt")
    named = {(again.entities[h], again.relations[r], again.entities[t]) for h, r, t in again.train.tolist()}
    assert named == set(triples)
    assert "exists already" in refused(*ask, "--out", tmp_path / "a.csv")
    assert fedkge(*ask, "--out", tmp_path / "a.csv", "--overwrite").exit_code == 0
    assert "expected a name that ends in" in refused(*ask, "--out", tmp_path / "a.xml")
    near = ("predict", run, "--site", "north", "--neighbours", "e1")
    assert "no triples" in refused(*near, "--out", tmp_path / "b.nt")
    assert len(answer(*near, "--top", 5)) == 5


def test_8_a_pack_needs_no_data(run: Path, tmp_path: Path) -> None:
    """Neither the folder of the run nor that of the graphs is there."""
    home = tmp_path / "elsewhere"
    shutil.copytree(run.parents[1], home)
    config = home / RUN / "config.toml"
    config.write_text(config.read_text().replace(str(run.parents[1]), str(home)))
    assert fedkge("pack", home / RUN, "south", "--out", tmp_path / "pack").exit_code == 0
    shutil.rmtree(home)
    assert answer("predict", tmp_path / "pack", "--head", "e1", "--relation", "c", "--top", 1)


def test_9_questions_are_read_like_graphs(tmp_path: Path) -> None:
    """Quotes of TSV are part of names, a name may have any character but the separator, numbers are names."""
    odd, number = '"so\x0bcalled"', "7"
    (tmp_path / "q.tsv").write_text(f"head\trelation\ttail\n{odd}\tr\t?\n{number}\tr\t\n", encoding="utf-8")
    assert list(read_questions(tmp_path / "q.tsv").values()) == [(odd, "r", None), (number, "r", None)]
    (tmp_path / "q.csv").write_text('head,relation\r\n"two\nlines",r\r\n', encoding="utf-8-sig")
    assert list(read_questions(tmp_path / "q.csv").values()) == [("two\nlines", "r", None)]
    (tmp_path / "q.csv").write_bytes(b"head,relation\nZ\xfcrich,in\n")
    with pytest.raises(DataError, match=r"q\.csv:2: expected UTF-8"):
        read_questions(tmp_path / "q.csv")
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"head": [7, None], "relation": "r", "tail": [pandas.NA, "b"]})
    asked = questions_of(table.to_dict("records"), "table")
    assert list(asked.values()) == [("7", "r", None), (None, "r", "b")]
