"""Every format and layout gives the same graph: names in the stated order, triples in file order."""

from __future__ import annotations

import csv
import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyoxigraph as ox
import pytest
from pyarrow import parquet

from fedkge.errors import DataError, DataWarning
from fedkge.graphs import files
from fedkge.graphs.files import from_pykeen, graph_from_names, read_federation, read_graph, to_pykeen
from fedkge.graphs.graph import Graph, Split
from fedkge.graphs.rdf import FORMATS

TRAIN = [("x:a", "x:knows", "x:b"), ("x:c", "x:knows", "x:a"), ("x:b", "x:likes", "x:d")]
VALID = [("x:a", "x:likes", "x:d")]
TEST = [("x:d", "x:knows", "x:c")]


def named(graph: Graph, split: str = "train") -> list[tuple[str, str, str]]:
    e, r = graph.entities, graph.relations
    return [(e[h], r[k], e[t]) for h, k, t in graph.split(split).tolist()]


def text(rows, separator="\t") -> bytes:
    return "".join(separator.join(row) + "\n" for row in rows).encode()


def encode(rows, suffix: str) -> bytes:
    if suffix == ".parquet":
        sink = pa.BufferOutputStream()
        columns = list(zip(*rows, strict=True))
        parquet.write_table(pa.table(dict(zip("abc", columns, strict=True))), sink)
        return sink.getvalue().to_pybytes()
    if suffix in (".nt", ".ttl", ".nq", ".trig"):
        return "".join(f"<{h}> <{r}> <{t}> .\n" for h, r, t in rows).encode()
    if suffix in FORMATS:
        quads = [ox.Quad(*map(ox.NamedNode, row)) for row in rows]
        return ox.serialize(quads, format=getattr(ox.RdfFormat, FORMATS[suffix]))
    return text(rows, "," if suffix == ".csv" else "\t")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_every_format_reads_the_same_graph(tmp_path: Path, suffix: str, packed: bool) -> None:
    for split, rows in zip(Split, (TRAIN, VALID, TEST), strict=True):
        content = encode(rows, suffix)
        name = f"{split}{suffix}{'.gz' if packed else ''}"
        (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    graph = read_graph(tmp_path)
    assert list(graph.entities) == ["x:a", "x:c", "x:b", "x:d"]  # heads of train, then its tails
    assert list(graph.relations) == ["x:knows", "x:likes"]
    assert graph.train.tolist() == [[0, 0, 2], [1, 0, 0], [2, 1, 3]]
    assert (named(graph, "valid"), named(graph, "test")) == (VALID, TEST)
    assert graph.confidential is None


def test_a_single_file_is_all_train(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_bytes(text(TRAIN))
    assert named(read_graph(tmp_path / "facts.tsv")) == TRAIN
    assert named(read_graph(tmp_path)) == TRAIN
    assert len(read_graph(tmp_path).valid) == 0


@pytest.mark.parametrize("pyarrow", [True, False])
class TestDelimited:
    @pytest.fixture(autouse=True)
    def _reader(self, pyarrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        if not pyarrow:
            monkeypatch.setattr(files, "find_spec", lambda name: None)

    def read(self, tmp_path: Path, content: bytes, suffix: str = ".tsv") -> Graph:
        (tmp_path / f"train{suffix}").write_bytes(content)
        return read_graph(tmp_path)

    def test_tsv_has_no_quoting(self, tmp_path: Path) -> None:
        graph = self.read(tmp_path, b'"a\tr s\t b "\n#x\tNA\tnull\n')
        assert named(graph) == [('"a', "r s", ' b "'), ("#x", "NA", "null")]

    @pytest.mark.parametrize(
        "content", [b"a\tr\tb", b"a\tr\tb\r\n", b"a\tr\tb\n\n\n", b"\xef\xbb\xbfa\tr\tb\r"]
    )
    def test_line_ends(self, tmp_path: Path, content: bytes) -> None:
        assert named(self.read(tmp_path, content)) == [("a", "r", "b")]

    def test_csv_quoting(self, tmp_path: Path) -> None:
        graph = self.read(tmp_path, b'"a, b","say ""r""","two\r\nlines"\r\nc,r,d\r\n', ".csv")
        assert named(graph) == [("a, b", 'say "r"', "two\r\nlines"), ("c", "r", "d")]

    @pytest.mark.parametrize(
        "header", [b"head,relation,tail", b"subject,predicate,object", b'"head",relation,tail']
    )
    def test_csv_header(self, tmp_path: Path, header: bytes) -> None:
        assert named(self.read(tmp_path, header + b"\na,r,b\n", ".csv")) == [("a", "r", "b")]

    def test_what_is_nearly_a_header_is_a_triple(self, tmp_path: Path) -> None:
        graph = self.read(tmp_path, b"heads,relation,tail\na,r,b\nhead,relation,tail\n", ".csv")
        assert named(graph) == [("heads", "relation", "tail"), ("a", "r", "b"), ("head", "relation", "tail")]

    @pytest.mark.parametrize("suffix", [".tsv", ".csv"])
    def test_fourth_column_marks_confidential_triples(self, tmp_path: Path, suffix: str) -> None:
        marks = ["1", "0", "true", "False", ""]
        rows = [("a", "r", f"b{i}", mark) for i, mark in enumerate(marks)]
        graph = self.read(tmp_path, text(rows, "," if suffix == ".csv" else "\t"), suffix)
        assert graph.confidential is not None
        assert graph.confidential.tolist() == [True, False, True, False, False]

    def test_csv_header_with_marks(self, tmp_path: Path) -> None:
        graph = self.read(tmp_path, b"head,relation,tail,confidential\na,r,b,1\n", ".csv")
        assert graph.confidential is not None
        assert (named(graph), graph.confidential.tolist()) == ([("a", "r", "b")], [True])

    def test_a_duplicate_stays_confidential_if_any_copy_is(self, tmp_path: Path) -> None:
        content = b"a\tr\tb\t0\nc\tr\td\t0\na\tr\tb\t1\nc\tr\td\t0\na\tr\tb\t0\ne\tr\tf\t1\n"
        with pytest.warns(DataWarning, match=r"train\.tsv: 3 duplicate triples dropped"):
            graph = self.read(tmp_path, content)
        assert named(graph) == [("a", "r", "b"), ("c", "r", "d"), ("e", "r", "f")]
        assert graph.confidential is not None
        assert graph.confidential.tolist() == [True, False, True]


def test_needs_no_optional_package(tmp_path: Path) -> None:
    """On a machine with numpy alone: TSV and CSV work, Parquet and RDF say what to install."""
    (tmp_path / "a.tsv").write_bytes(text(TRAIN))
    (tmp_path / "b.csv").write_bytes(text(TRAIN, ","))
    for suffix in (".nt", ".parquet"):
        (tmp_path / f"c{suffix}").write_bytes(encode(TRAIN, suffix))
    script = """
import sys
from pathlib import Path
for package in ("pyarrow", "pyoxigraph", "torch", "pykeen", "pandas"):
    sys.modules[package] = None
from fedkge.errors import MissingPackage
from fedkge.graphs.files import read_graph, to_pykeen, write_graph
folder = Path(sys.argv[1])
graph = read_graph(folder / "a.tsv")
assert graph.train.tolist() == read_graph(folder / "b.csv").train.tolist()
write_graph(graph, folder / "out", compress=True)
assert read_graph(folder / "out").train.tolist() == graph.train.tolist()
uses = [
    lambda: read_graph(folder / "c.nt"),
    lambda: read_graph(folder / "c.parquet"),
    lambda: write_graph(graph, folder / "out2", "nt"),
    lambda: to_pykeen(graph),
]
for use in uses:
    try:
        use()
    except MissingPackage as error:
        assert "pip install" in str(error)
    else:
        raise AssertionError("expected MissingPackage")
assert not (folder / "out2").exists()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_importing_loads_no_optional_package() -> None:
    optional = {"torch", "pyarrow", "pyoxigraph", "pykeen"}
    script = f"import sys, fedkge.graphs.files; print({optional} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "set()"


def test_parquet_columns_are_found_by_name(tmp_path: Path) -> None:
    table = pa.table({"TAIL": ["b"], "Confidential": [True], "Head": ["a"], "relation": ["r"]})
    parquet.write_table(table, tmp_path / "train.parquet")
    graph = read_graph(tmp_path)
    assert graph.confidential is not None
    assert (named(graph), graph.confidential.tolist()) == ([("a", "r", "b")], [True])


def test_parquet_dictionaries_keep_the_order_of_appearance(tmp_path: Path) -> None:
    heads = pa.DictionaryArray.from_arrays(pa.array([2, 0, 2]), ["z", "unused", "a"])
    table = pa.table({"h": heads, "r": ["r", "q", "q"], "t": pa.array(["z", "m", "a"], pa.large_string())})
    parquet.write_table(table, tmp_path / "train.parquet")
    graph = read_graph(tmp_path)
    assert (list(graph.entities), list(graph.relations)) == (["a", "z", "m"], ["r", "q"])


def test_turtle_literals_are_skipped_and_blank_nodes_kept(tmp_path: Path) -> None:
    (tmp_path / "train.ttl").write_text(
        """@prefix : <http://x/> .
        :a :knows _:someone, :b ; :name "A" , "Ä"@de ; :age 7 .
        _:someone :lives [ :in :town ] ; :near [ :in :town ] ."""
    )
    with pytest.warns(DataWarning, match=r"train\.ttl: 3 triples about literals skipped"):
        graph = read_graph(tmp_path)
    assert ("http://x/a", "http://x/knows", "_:someone") in named(graph)
    nameless = [name for name in graph.entities if name.startswith("_:train-anonymous-")]
    assert sorted(nameless) == ["_:train-anonymous-1", "_:train-anonymous-2"]  # not random, not one


def test_openke_has_the_relation_last(tmp_path: Path) -> None:
    (tmp_path / "entity2id.txt").write_text("4\nun used\t0\nb\t1\n/m/a b\t2\nc 3\n")
    (tmp_path / "relation2id.txt").write_text("2\nr\t0\nq\t1\n")
    (tmp_path / "train2id.txt").write_text("2\n2 1 0\n1 3 1\n")
    (tmp_path / "valid2id.txt").write_text("1\n2 3 1\n")
    (tmp_path / "test2id.txt").write_text("1\n3\t2 0\n")
    graph = read_graph(tmp_path)
    assert named(graph) == [("/m/a b", "r", "b"), ("b", "q", "c")]
    assert named(graph, "valid") == [("/m/a b", "q", "c")]
    assert named(graph, "test") == [("c", "r", "/m/a b")]
    assert list(graph.entities) == ["/m/a b", "b", "c"]


def test_federation_is_sorted_and_skips_documents(tmp_path: Path) -> None:
    for site in ("zoo", "bank"):
        (tmp_path / site).mkdir()
        (tmp_path / site / "train.tsv").write_bytes(text(TRAIN))
    (tmp_path / "hospital.v2.csv.gz").write_bytes(gzip.compress(text(VALID, ",")))
    for document in (".hidden", "README", "readme.txt", "LICENSE", "notes.md"):
        (tmp_path / document).write_text("words")
    federation = read_federation(tmp_path)
    assert list(federation) == ["bank", "hospital.v2", "zoo"]
    assert named(federation["hospital.v2"]) == VALID


def test_a_folder_or_file_with_one_graph_is_a_federation_of_one(tmp_path: Path) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "train.tsv.gz").write_bytes(gzip.compress(text(TRAIN)))
    assert list(read_federation(folder)) == ["alone"]
    assert list(read_federation(folder / "train.tsv.gz")) == ["train"]


def test_names_in_memory() -> None:
    graph = graph_from_names(iter(TRAIN), VALID, TEST)
    assert [named(graph, split) for split in Split] == [TRAIN, VALID, TEST]
    with pytest.raises(DataError, match=r"valid\[1\]: expected three names"):
        graph_from_names(TRAIN, [VALID[0], ("a", "", "b")])
    with pytest.raises(DataError, match="train: expected triples, found none"):
        graph_from_names([])


def test_pykeen_factories_come_and_go() -> None:
    from pykeen.triples import CoreTriplesFactory, TriplesFactory

    training = TriplesFactory.from_labeled_triples(np.array(TRAIN), create_inverse_triples=True)
    testing = TriplesFactory.from_labeled_triples(
        np.array(TEST), entity_to_id=training.entity_to_id, relation_to_id=training.relation_to_id
    )
    graph = from_pykeen(training, testing=testing)
    assert sorted(named(graph)) == sorted(TRAIN)
    assert (named(graph, "test"), len(graph.valid), graph.n_relations) == (TEST, 0, 2)
    back = to_pykeen(graph)
    assert back[1] is None
    assert back[0].mapped_triples.tolist() == graph.train.tolist()
    assert back[0].entity_labeling.label(range(4)).tolist() == list(graph.entities)
    again = from_pykeen(*back)
    assert again.train.tolist() == graph.train.tolist()
    assert again.entities == graph.entities
    with pytest.raises(DataError, match="TriplesFactory with labels, found CoreTriplesFactory"):
        from_pykeen(CoreTriplesFactory.create(training.mapped_triples))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*never seen")  # 29 entities of its test set
def test_fb15k_237_by_both_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    if "FEDKGE_DATA" not in os.environ:
        pytest.skip("FEDKGE_DATA is not set: no real graphs here")
    folder = Path(os.environ["FEDKGE_DATA"]) / "fb15k-237"
    fast = read_graph(folder)
    assert [len(triples) for triples in fast.splits().values()] == [272_115, 17_535, 20_466]
    assert (fast.n_entities, fast.n_relations) == (14_541, 237)
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    plain = read_graph(folder)
    assert (fast.entities, fast.relations) == (plain.entities, plain.relations)
    assert np.array_equal(fast.all(), plain.all())


@pytest.mark.parametrize("pyarrow", [True, False])
@pytest.mark.parametrize("header", ["Head,RELATION,tail", "Subject,Predicate,Object"])
def test_csv_headers_in_any_case(tmp_path: Path, monkeypatch, pyarrow: bool, header: str) -> None:
    if not pyarrow:
        monkeypatch.setattr(files, "find_spec", lambda name: None)
    (tmp_path / "train.csv").write_text(f"{header}\na,r,b\n")
    assert named(read_graph(tmp_path)) == [("a", "r", "b")]


@pytest.mark.parametrize("pyarrow", [True, False])
def test_long_csv_fields(tmp_path: Path, monkeypatch, pyarrow: bool) -> None:
    if not pyarrow:
        monkeypatch.setattr(files, "find_spec", lambda name: None)
    limit, name = csv.field_size_limit(), "x" * 200_000
    (tmp_path / "train.csv").write_text(f'a,r,"{name}"\n')
    assert named(read_graph(tmp_path)) == [("a", "r", name)]
    assert csv.field_size_limit() == limit
