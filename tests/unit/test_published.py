"""Files as FedE, FedLU and FKGE publish them: what is read, and errors that say where they are."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import answer, fedkge
from fedkge.errors import DataError
from fedkge.graphs.files import read_federation, read_graph
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.links import read_links
from fedkge.graphs.published import read_fede, read_fedlu, read_fkge
from fedkge.graphs.unify import unify

Triple = tuple[str, str, str]
ENTITIES = ["paris", "rome", "france", "italy", "euro"]
RELATIONS = ["capital", "currency"]


def named(graph: Graph, split: str) -> list[Triple]:
    return [
        (graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.split(split).tolist()
    ]


# FedE


def fede() -> list[dict[str, Any]]:
    """Two clients; ids with _ori are those of the whole, the others each client's own."""

    def split(*triples: tuple[int, int, int]) -> dict[str, Any]:
        h, r, t = np.array(triples).T
        own = {"edge_index": np.stack((h, t)) % 3, "edge_type": r * 0}
        return {**own, "edge_index_ori": np.stack((h, t)), "edge_type_ori": r}

    return [
        {"train": split((0, 0, 2), (1, 0, 3)), "valid": split((0, 0, 3)), "test": split((1, 0, 2))},
        {"train": split((2, 1, 4), (3, 1, 4)), "valid": split((2, 1, 3)), "test": split((3, 1, 2))},
    ]


def written(folder: Path, content: Any) -> Path:
    path = folder / "FB15k237-Fed2.pkl"
    path.write_bytes(pickle.dumps(content, 3))
    return path


def openke_names(folder: Path, entities: list[str] = ENTITIES, relations: list[str] = RELATIONS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, names in (("entity", entities), ("relation", relations)):
        lines = "".join(f"{name}\t{i}\n" for i, name in enumerate(names))
        (folder / f"{part}2id.txt").write_text(f"{len(names)}\n{lines}")
    return folder


def test_fede(tmp_path: Path) -> None:
    path = written(tmp_path, fede())
    plain = read_fede(path).federation
    assert list(plain) == ["0", "1"]
    assert named(plain["1"], "train") == [("2", "1", "4"), ("3", "1", "4")]
    found = read_fede(path, openke_names(tmp_path / "names")).federation
    assert named(found["0"], "train") == [("paris", "capital", "france"), ("rome", "capital", "italy")]
    assert named(found["0"], "test") == [("rome", "capital", "france")]
    assert named(found["1"], "valid") == [("france", "currency", "italy")]


Change = Callable[[list[dict[str, Any]]], Any]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda all_: {}, r"Fed2.pkl: expected a list of clients, found a dict with nothing"),
        (
            lambda all_: all_[1].pop("valid"),
            r"client 1: expected a dict with train, valid and test, found a dict",
        ),
        (
            lambda all_: all_[1].update(test=[1]),
            r"client 1, test: expected edge_index_ori and .* a list of 1",
        ),
        (
            lambda all_: all_[0]["train"].update(edge_type_ori=3),
            r"client 0, train, edge_type_ori: expected an array, found something of type int",
        ),
        (
            lambda all_: all_[0]["train"].update(edge_type_ori=np.arange(5) % 2),
            r"client 0, train: expected edge_index_ori \[2, m\] .*, found \[2, 2\] and \[5\]",
        ),
        (
            lambda all_: all_[1]["test"]["edge_index_ori"].__setitem__((1, 0), 7),
            r"client 1, test, edge_index_ori\[1, 0\]: expected an id of the 5 in use, found 7",
        ),
        (
            lambda all_: all_[1]["test"]["edge_type_ori"].__setitem__(0, -1),
            r"client 1, test, edge_type_ori\[0\]: expected an id of the 2 in use, found -1",
        ),
    ],
)
def test_bad_fede(tmp_path: Path, change: Change, message: str) -> None:
    content = fede()
    changed = change(content)
    path = written(tmp_path, changed if changed == {} else content)
    with pytest.raises(DataError, match=message):
        read_fede(path, openke_names(tmp_path / "names"))


def test_bad_fede_without_names(tmp_path: Path) -> None:
    content = fede()
    content[1]["valid"]["edge_index_ori"][0, 0] = -3
    with pytest.raises(DataError, match=r"valid, edge_index_ori\[0, 0\]: expected an id from 0 on, found -3"):
        read_fede(written(tmp_path, content))


# FedLU


def fedlu(folder: Path) -> Path:
    for site, own in {"0": "xy", "1": "yz"}.items():
        home = folder / "C2FL" / site
        home.mkdir(parents=True)
        (home / "entities.dict").write_text("".join(f"{i}\t/m/{name}\n" for i, name in enumerate(own)))
        (home / "relations.dict").write_text(f"0\t/r/{site}\n")
        a, b = own
        lines = {"train": (a + b, b + b), "valid": (b + a,), "test": (a + a,), "unlearn": (b + b,)}
        for split, pairs in lines.items():
            text = "".join(f"/m/{h}\t/r/{site}\t/m/{t}\n" for h, t in pairs)
            (home / f"{split}.txt").write_text(text)
    return folder / "C2FL"


def test_fedlu(tmp_path: Path) -> None:
    found = read_fedlu(fedlu(tmp_path))
    assert named(found.federation["0"], "train") == [("/m/x", "/r/0", "/m/y"), ("/m/y", "/r/0", "/m/y")]
    assert named(found.federation["1"], "test") == [("/m/y", "/r/1", "/m/y")]
    assert named(found.forget["1"], "train") == [("/m/z", "/r/1", "/m/z")]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("1/entities.dict", "0\t/m/y\n2\t/m/z\n", r"1/entities.dict:2: expected 1, a tab and a name, found"),
        (
            "1/train.txt",
            "/m/y\t/r/1\t/m/q\n",
            r"1/train.txt:1: expected a name of .*1/entities.dict, found '/m/q'",
        ),
        (
            "1/test.txt",
            "/m/y\t/r/0\t/m/z\n",
            r"1/test.txt:1: expected a name of .*1/relations.dict, found '/r/0'",
        ),
        (
            "1/train.txt",
            "/m/y\t/r/1\t/m/z\n" * 2 + "/m/y\t/r/1\t/r/1\n",
            r"1/train.txt:3: expected a name of .*1/entities.dict, found '/r/1'",
        ),
        (
            "1/unlearn.txt",
            "/m/y\t/r/1\t/m/z\n/m/y\t/m/y\t/m/z\n",
            r"1/unlearn.txt:2: expected a name of .*1/relations.dict, found '/m/y'",
        ),
        ("1/valid.txt", "/m/y\t/r/1\n", r"1/valid.txt:1: expected"),
        ("1/train.txt", None, r"1/train.txt: No such file"),
    ],
)
def test_bad_fedlu(tmp_path: Path, file: str, text: str | None, message: str) -> None:
    path = fedlu(tmp_path)
    (path / file).unlink() if text is None else (path / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_fedlu(path)


# FKGE


def fkge(folder: Path) -> Path:
    for site, names in {"whisky": ["malt", "islay"], "yago": ["Islay", "Scotland", "Malt"]}.items():
        home = openke_names(folder / "OpenKE" / "benchmarks" / f"{site}_1", names, ["in"])
        for split, (h, t) in {"train": (0, 1), "valid": (1, 0), "test": (1, 1)}.items():
            (home / f"{split}2id.txt").write_text(f"1\n{h}\t{t}\t0\n")
    aligned = folder / "trainse_data" / "aligned"
    aligned.mkdir(parents=True)
    pairs = np.array([[0, 2], [1, 0]], np.int32)
    np.save(aligned / "whisky_yago.npy", pairs)
    np.save(aligned / "yago_whisky.npy", pairs[:, ::-1])
    np.save(aligned / "yago_poke.npy", pairs)  # a graph that is not there
    return folder


def test_fkge(tmp_path: Path) -> None:
    found = read_fkge(fkge(tmp_path))
    assert named(found.federation["whisky"], "train") == [("malt", "in", "islay")]
    assert found.links == [("whisky", "malt", "yago", "Malt"), ("whisky", "islay", "yago", "Islay")]
    alone = read_fkge(tmp_path / "OpenKE" / "benchmarks")
    assert (list(alone.federation), alone.links) == (["whisky", "yago"], [])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[0, 1], [0, 3]]), r"whisky_yago.npy: row 1: expected an id below 3, found 3"),
        (np.array([[0, 1], [-1, 1]]), r"whisky_yago.npy: row 1: expected an id below 2, found -1"),
        (np.arange(4), r"whisky_yago.npy: expected an array of whole numbers \[n, 2\], found int64 \[4\]"),
        (np.zeros((2, 2)), r"whisky_yago.npy: expected an array of whole numbers .* found float64"),
        (np.array([[print, 1]], object), r"whisky_yago.npy: expected an array of whole numbers"),
        (None, r"whisky_yago.npy: expected an array of whole numbers"),
    ],
)
def test_bad_fkge(tmp_path: Path, array: Any, message: str) -> None:
    path = fkge(tmp_path) / "trainse_data" / "aligned" / "whisky_yago.npy"
    if array is None:  # a header that claims far more than the file has
        np.save(path, np.zeros((9, 2), np.int64))
        content = path.read_bytes().replace(b"(9, 2), } ", b"(9999999999999, 2), } ")
        path.write_bytes(content)
    else:
        np.save(path, array, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        read_fkge(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    for read in (read_fedlu, read_fkge):
        with pytest.raises(DataError, match=r"expected folders that have .*, found none"):
            read(tmp_path)
        with pytest.raises(DataError, match=r"gone: expected a folder, found nothing"):
            read(tmp_path / "gone")


# The command


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, names = written(tmp_path, fede()), openke_names(tmp_path / "names")
    rows = answer("data", "convert", path, "out", "--from", "fede", "--names", names)
    assert [row["train"] for row in rows] == [2, 2]
    assert named(read_federation(tmp_path / "out")["1"], "train")[0] == ("france", "currency", "euro")
    answer("data", "convert", fedlu(tmp_path), "lu", "--from", "fedlu")
    assert named(read_graph(tmp_path / "lu" / "0" / "forget.tsv"), "train") == [("/m/y", "/r/0", "/m/y")]
    assert named(read_federation(tmp_path / "lu")["0"], "valid") == [("/m/y", "/r/0", "/m/x")]
    repository = fkge(tmp_path / "repository")
    answer("data", "convert", repository, "peers", "--from", "fkge", "--links", "links.tsv")
    links = read_links(tmp_path / "links.tsv", Axis.ENTITY)
    joined = unify(read_federation(tmp_path / "peers"), True, {Axis.ENTITY: links})
    assert [(report.used, report.unmatched) for report in joined.reports] == [(1, 1)]  # Malt is in no triple


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--from", "fedlu", "--separator", ";"), "--from fedlu: these files are no tables"),
        (("--from", "fedlu", "--names", "x"), "--names is for --from fede"),
        (("--names", "x"), "--names, --links: of no use without --from"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    found = fedkge("data", "convert", fedlu(tmp_path), tmp_path / "out", *options)
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())
