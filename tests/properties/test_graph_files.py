"""Readers agree with each other and with the rule as stated; conversions lose nothing."""

from __future__ import annotations

import csv
import io
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.errors import DataError, DataWarning
from fedkge.graphs import arrow, delimited, indexing
from fedkge.graphs.files import graph_from_names, read_graph, write_graph
from fedkge.graphs.graph import Graph

pytestmark = pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")

ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)
IRI_LIKE = st.builds("{}:{}".format, st.sampled_from(["x", "http", "urn:fedkge", "_", "A.b"]), ANY)
NAMES = st.one_of(
    ANY, IRI_LIKE, st.sampled_from(["a", "b", "_:b0", "urn:fedkge:a", "http://x/é", "%41", "x:%zz"])
)
TSV_NAMES = NAMES.map(lambda name: name.translate(dict.fromkeys(map(ord, "\t\r\n\ufeff"), "_")))

PIECES = ["a", "b", "c", "é", "1", "\t", "\t", ",", ",", '"', "\n", "\r", "\r\n"]


def rows(names: st.SearchStrategy[str], min_size: int = 1) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    few = st.lists(names, min_size=1, max_size=6, unique=True)
    pick = few.flatmap(lambda pool: st.tuples(*[st.sampled_from(pool)] * 3))
    return st.lists(st.one_of(st.tuples(names, names, names), pick), min_size=min_size, max_size=12)


def same(one: indexing.NamedTriples, other: indexing.Triples) -> bool:
    def plain(triples: indexing.NamedTriples) -> tuple[object, ...]:
        marks = triples.confidential
        marks = None if marks is None else marks.tolist()
        return triples.entities, triples.relations, triples.triples.tolist(), marks

    return plain(one) == plain(other)


def outcome(read, path: Path, dialect: delimited.Dialect):  # type: ignore[no-untyped-def]
    try:
        return read(path, dialect, True)
    except DataError as error:
        return str(error)


@given(
    st.lists(st.sampled_from(PIECES), max_size=60),
    st.sampled_from([delimited.TSV, delimited.CSV]),
    st.sampled_from([16, 64, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_the_fast_reader_gives_what_the_plain_one_does_or_leaves_it(parts, dialect, block) -> None:
    """On arbitrary bytes, cut into blocks anywhere."""
    compare("".join(parts).encode(), dialect, block)


@given(
    st.lists(
        st.tuples(*[st.sampled_from(["a", "b", "é", "a b"])] * 3, st.sampled_from(["0", "1", ""])),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([3, 4]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([delimited.TSV, delimited.CSV]),
    st.sampled_from([16, 32, 1 << 20]),
)
@settings(max_examples=60, deadline=None)
def test_the_fast_reader_reads_good_files(triples, width, end, dialect, block) -> None:
    content = "".join(dialect.separator.join(row[:width]) + end for row in triples).encode()
    assert isinstance(compare(content, dialect, block), indexing.NamedTriples)


def compare(content: bytes, dialect: delimited.Dialect, block: int) -> object:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "BLOCK", block)
        path = Path(folder) / "train.tsv"
        path.write_bytes(content)
        fast, plain = outcome(arrow.read_fast, path, dialect), outcome(delimited.read_plainly, path, dialect)
        if fast is not None:
            assert fast == plain if isinstance(fast, str) else same(fast, plain)
        return fast


@given(rows(NAMES))
@settings(max_examples=50, deadline=None)
def test_csv_means_what_the_standard_library_writes(triples) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(triples)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.csv"
        path.write_bytes(b"head,relation,tail\r\n" + text.getvalue().encode())
        assert_same_graph(read_graph(path), graph_from_names(triples))


@given(rows(TSV_NAMES), rows(TSV_NAMES, 0))
@settings(max_examples=50, deadline=None)
def test_tsv_to_n_triples_and_back_is_the_identity(train, valid) -> None:
    graph = graph_from_names(train, [row for row in valid if row not in train])
    with tempfile.TemporaryDirectory() as folder:
        a, b, c = (Path(folder) / name for name in "abc")
        write_graph(graph, a, "tsv")
        write_graph(read_graph(a), b, "nt")
        write_graph(read_graph(b), c, "tsv")
        assert_same_graph(read_graph(b), graph)
        for path in a.iterdir():
            assert path.read_bytes() == (c / path.name).read_bytes()


@given(rows(NAMES), rows(NAMES, 0))
@settings(max_examples=40, deadline=None)
def test_n_triples_can_hold_any_name(train, valid) -> None:
    graph = graph_from_names(train, [row for row in valid if row not in train])
    with tempfile.TemporaryDirectory() as folder:
        write_graph(graph, Path(folder) / "nt", "nt", compress=True)
        assert_same_graph(read_graph(Path(folder) / "nt"), graph)


def obvious_ids(*splits: list[tuple[str, str, str]]) -> tuple[list[str], list[str]]:
    """The rule for ids as it is stated."""
    entities: list[str] = []
    relations: list[str] = []
    for triples in splits:
        for name in [row[0] for row in triples] + [row[2] for row in triples]:
            if name not in entities:
                entities.append(name)
        for _, name, _ in triples:
            if name not in relations:
                relations.append(name)
    return entities, relations


@given(
    rows(st.sampled_from("abcd")),
    rows(st.sampled_from("abcde"), 0),
    rows(st.sampled_from("abcdf"), 0),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_indexing_against_the_obvious(train, valid, test, crowded) -> None:
    """Ids, duplicates, leaks and unseen names, also when the keys of triples do not fit in 63 bits."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        if crowded:
            patch.setattr(indexing, "LARGEST_KEY", 1)
        if set(train) & set(valid) or set(train) & set(test) or set(valid) & set(test):
            with pytest.raises(DataError, match="may stand in one split only"):
                graph_from_names(train, valid, test)
            return
        graph = graph_from_names(train, valid, test)
    assert (list(graph.entities), list(graph.relations)) == obvious_ids(train, valid, test)
    for split, triples in zip(graph.splits(), (train, valid, test), strict=True):
        e, r = graph.entities, graph.relations
        assert [(e[h], r[k], e[t]) for h, k, t in graph.split(split).tolist()] == list(dict.fromkeys(triples))
        dropped = len(triples) - len(set(triples))
        told = [w for w in caught if str(w.message).startswith(f"{split}: {dropped} duplicate triple")]
        assert len(told) == (dropped > 0)
    seen = obvious_ids(train)
    for name, part in (("valid", valid), ("test", test)):
        new = [set(names) - set(known) for names, known in zip(obvious_ids(part), seen, strict=True)]
        told = [
            w for w in caught if str(w.message).startswith(f"{name}: ") and "never seen" in str(w.message)
        ]
        assert len(told) == any(new)


def assert_same_graph(one: Graph, other: Graph) -> None:
    assert (one.entities, one.relations) == (other.entities, other.relations)
    for split in one.splits():
        assert one.split(split).tolist() == other.split(split).tolist()
