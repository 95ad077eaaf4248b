"""Writers: what is written reads back, twice the same bytes, and a failure leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedkge.errors import DataError
from fedkge.graphs import writing
from fedkge.graphs.files import graph_from_names, read_federation, read_graph, write_federation, write_graph
from fedkge.graphs.graph import Graph

GRAPH = graph_from_names([("a b", "r", "x:c"), ("x:c", "r", "_:d")], [("a b", "r", "_:d")])


def marked() -> Graph:
    return Graph(GRAPH.entities, GRAPH.relations, GRAPH.train, confidential=np.array([False, True]))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("format", ["tsv", "nt"])
def test_written_graphs_read_back(tmp_path: Path, format: writing.Format, compress: bool) -> None:
    write_graph(GRAPH, tmp_path / "new" / "graph", format, compress)
    names = [path.name for path in sorted((tmp_path / "new" / "graph").iterdir())]
    end = ".gz" if compress else ""
    assert names == [f"train.{format}{end}", f"valid.{format}{end}"]  # test has no triples
    back = read_graph(tmp_path / "new" / "graph")
    assert (back.entities, back.relations) == (GRAPH.entities, GRAPH.relations)
    assert back.all().tolist() == GRAPH.all().tolist()


def test_n_triples_spelling(tmp_path: Path) -> None:
    write_graph(GRAPH, tmp_path / "graph", "nt")
    assert (tmp_path / "graph" / "train.nt").read_text().splitlines() == [
        "<urn:fedkge:a%20b> <urn:fedkge:r> <x:c> .",
        "<x:c> <urn:fedkge:r> _:d .",
    ]


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(GRAPH, tmp_path / "one", compress=True)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write_graph(GRAPH, tmp_path / "two", compress=True)
    one, two = ((tmp_path / name / "train.tsv.gz").read_bytes() for name in ("one", "two"))
    assert one == two
    assert b"train" not in one  # no file name in the header either


def test_marks_are_kept_by_tsv_and_refused_by_n_triples(tmp_path: Path) -> None:
    write_graph(marked(), tmp_path / "tsv")
    back = read_graph(tmp_path / "tsv").confidential
    assert back is not None
    assert back.tolist() == [False, True]
    with pytest.raises(DataError, match="N-Triples cannot mark 1 confidential triples"):
        write_graph(marked(), tmp_path / "nt", "nt")
    assert [path.name for path in tmp_path.iterdir()] == ["tsv"]


@pytest.mark.parametrize("name", ["tab\there", "two\nlines", "carriage\rreturn", "\ufeffmark", "\ud800"])
def test_names_that_tsv_cannot_hold(tmp_path: Path, name: str) -> None:
    graph = graph_from_names([("a", "r", "b"), ("a", "r", name)])
    with pytest.raises(DataError, match="out: expected names"):
        write_graph(graph, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    """The disk fills up at the second site's second chunk."""
    if existing:
        (tmp_path / "out").mkdir()
    before = sorted(tmp_path.rglob("*"))
    honest, calls = writing._lines, []

    def failing(*arguments):  # type: ignore[no-untyped-def]
        calls.append(arguments)
        yield from honest(*arguments)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "_lines", failing)
    with pytest.raises(DataError, match="out: No space left on device"):
        write_federation({"a": GRAPH, "b": GRAPH}, tmp_path / "out")
    assert len(calls) == 3
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("about")
    write_graph(GRAPH, tmp_path)
    content = (tmp_path / "train.tsv").read_bytes()
    with pytest.raises(DataError, match="expected a new or empty folder"):
        write_graph(GRAPH, tmp_path, "nt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "train.tsv", "valid.tsv"]
    assert (tmp_path / "train.tsv").read_bytes() == content


def test_federations_read_back(tmp_path: Path) -> None:
    write_federation({"zoo": GRAPH, "bank": GRAPH}, tmp_path / "out", "nt", compress=True)
    back = read_federation(tmp_path / "out")
    assert list(back) == ["bank", "zoo"]
    assert back["zoo"].train.tolist() == GRAPH.train.tolist()


@pytest.mark.parametrize("site", ["", "..", ".hidden", "a/b", "README"])
def test_site_names_that_are_no_folders(tmp_path: Path, site: str) -> None:
    with pytest.raises(DataError, match="expected site names that can name a visible folder"):
        write_federation({"a": GRAPH, site: GRAPH}, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected one of the formats tsv, nt, found 'xml'"):
        write_graph(GRAPH, tmp_path / "out", "xml")  # type: ignore[arg-type]
