"""Given alignments: how they are read, what they join, what is left out and said, and what is refused."""

from __future__ import annotations

import gzip
import re
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.exposure import shared_counts
from fedkge.graphs.files import graph_from_names
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.links import OWL, Link, read_links
from fedkge.graphs.pool import pool
from fedkge.graphs.rdf import entity_terms, relation_terms
from fedkge.graphs.unify import LinkReport, unify
from small_graphs import names_of, shared_names

ENTITY, RELATION = Axis


def link(left: str, right: str, left_site: str | None = None, right_site: str | None = None) -> Link:
    return Link(left_site, left, right_site, right, "same.tsv:1")


def chain(*names: str, relation: str = "r") -> Graph:
    return graph_from_names([(a, relation, b) for a, b in pairwise(names)])


# Reading


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return path


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize(("suffix", "separator"), [(".tsv", "\t"), (".csv", ",")])
def test_two_and_four_fields(tmp_path: Path, suffix: str, separator: str, end: str) -> None:
    two = written(tmp_path, f"two{suffix}{end}", f"a{separator}b\nc d{separator}é\n\n")
    assert read_links(two, ENTITY) == [
        Link(None, "a", None, "b", f"{two}:1"),
        Link(None, "c d", None, "é", f"{two}:2"),
    ]
    four = written(tmp_path, f"four{suffix}{end}", separator.join(["s", "a", "t", "b"]))
    assert read_links(four, RELATION) == [Link("s", "a", "t", "b", f"{four}:1")]


def test_csv_is_quoted(tmp_path: Path) -> None:
    path = written(tmp_path, "same.csv", '"a,""b""\n",c\nd,e\n')
    assert [(one.left, one.right, one.where) for one in read_links(path, ENTITY)] == [
        ('a,"b"\n', "c", f"{path}:1"),
        ("d", "e", f"{path}:3"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "same.tsv",
            "a\tb\tc\n",
            r"tsv:1: expected 2 tab-separated fields .name, name., 4 .site, name, .*, or 5 .*, found 3",
        ),
        ("same.tsv", "a b\n", r"tsv:1: expected 2 tab-separated .*, found 1$"),
        (
            "same.tsv",
            "a\tb\ns\ta\tt\tb\n",
            r"tsv:2: expected 2 tab-separated fields as in line 1, found 4$",
        ),
        ("same.csv", "s,a,t,b\na,b\n", r"csv:2: expected 4 comma-separated fields as in line 1, found 2$"),
        ("same.tsv", "a\tb\n\nc\td\n", r"tsv:2: expected a link, found a blank line$"),
        ("same.tsv", "a\tb\nc\t\n", r"tsv:2: expected name, name, found an empty field$"),
        (
            "same.tsv",
            " \ta\tt\tb\n",
            r"tsv:1: expected site, name, site, name, found a field of white space$",
        ),
        ("same.csv", 'a,"b\n', r"csv:1: expected quoting by RFC 4180"),
        ("same.tsv", "", r"same\.tsv: expected links between names, found none$"),
        ("same.tsv.gz", "\n", r"same\.tsv\.gz: expected links between names, found none$"),
        ("same.parquet", "a\tb\n", r"expected a suffix of \.tsv \.csv \.nt .*found '\.parquet'"),
        ("same", "a\tb\n", r"expected a suffix of .*found ''"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_links(written(tmp_path, name, content), ENTITY)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"same\.tsv: No such file"):
        read_links(tmp_path / "same.tsv", ENTITY)
    (tmp_path / "same.tsv").write_bytes(b"a\tb\nc\t\xff\n")
    with pytest.raises(DataError, match=r"same\.tsv:2: expected UTF-8, found byte 0xff"):
        read_links(tmp_path / "same.tsv", ENTITY)


# RDF

TURTLE = """
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix x: <http://x/> .
x:a owl:sameAs x:b, _:c ; x:label "a" .
x:p owl:equivalentProperty x:q .
x:a x:r x:b .
"""


def test_turtle_links_by_axis_and_passes_over_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    path = written(tmp_path, "same.ttl", TURTLE)
    same = [("http://x/a", "http://x/b"), ("http://x/a", "_:c")]
    assert [(one.left, one.right) for one in read_links(path, ENTITY)] == same
    assert [(one.left, one.right) for one in read_links(path, RELATION)] == [
        *same,
        ("http://x/p", "http://x/q"),
    ]
    assert {(one.left_site, one.right_site, one.where) for one in read_links(path, ENTITY)} == {
        (None, None, str(path))
    }


def test_rdf_without_links_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    path = written(tmp_path, "same.nt", f"<x:p> <{OWL}equivalentProperty> <x:q> .\n<x:a> <x:r> <x:b> .\n")
    assert len(read_links(path, RELATION)) == 1
    with pytest.raises(DataError, match="expected owl:sameAs between entity names, found none in 2 triples"):
        read_links(path, ENTITY)
    with pytest.raises(DataError, match=r"bad\.nt:2: "):
        read_links(written(tmp_path, "bad.nt", f"<x:p> <{OWL}sameAs> <x:q> .\n<x:a> oops"), ENTITY)


ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)
NAMES = st.one_of(ANY, st.sampled_from(["_:b0", "urn:fedkge:a", "http://x/é", "%41", f"{OWL}sameAs"]))


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=8), st.sampled_from(Axis), st.booleans())
@settings(max_examples=60)
def test_rdf_names_are_those_of_graphs(pairs: list[tuple[str, str]], axis: Axis, turtle: bool) -> None:
    """Whatever name a graph writes to N-Triples, a link by that term has it, in order."""
    pytest.importorskip("pyoxigraph")
    terms = entity_terms if axis is ENTITY else relation_terms
    triples = (
        f"{left} <{OWL}{'sameAs' if axis is ENTITY else 'equivalentProperty'}> {right} ."
        for left, right in zip(*(terms(side) for side in zip(*pairs, strict=True)), strict=True)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "same.ttl" if turtle else "same.nt.gz", "\n".join(triples))
        assert [(one.left, one.right) for one in read_links(path, axis)] == pairs


# Joining

SITES = {"s": chain("a", "b", "c"), "t": chain("A", "b", "C"), "u": chain("x", "a", relation="q")}


def called(federation: object, site: str, axis: Axis = ENTITY) -> list[str]:
    graph = federation[site]  # type: ignore[index]
    return list(graph.entities if axis is ENTITY else graph.relations)


def test_names_alone_change_nothing() -> None:
    unified = unify(SITES)
    assert unified.federation is SITES
    assert unified.reports == ()
    assert unify(SITES, links={ENTITY: []}).federation is SITES


def test_links_join_what_names_do_not() -> None:
    unified = unify(SITES, links={ENTITY: [link("a", "A"), link("C", "c", "t", "s"), link("a", "missing")]})
    assert called(unified.federation, "s") == ["A", "b", "C"]
    assert called(unified.federation, "t") == ["A", "b", "C"]
    assert called(unified.federation, "u") == ["x", "A"], "what is called a is one thing everywhere"
    assert unified.reports == (LinkReport(ENTITY, 3, 2, 0, 0, 1, ()),)
    for site, graph in unified.federation.items():
        assert graph.train is SITES[site].train
        assert graph.relations is SITES[site].relations
        assert graph.entities.axis is ENTITY
    assert shared_names(unified.federation, ENTITY) == ["A", "C", "b"]


def test_a_link_that_would_merge_two_things_of_one_site_is_left_out_and_told() -> None:
    links = [link("a", "A"), link("x", "A"), Link("t", "C", "u", "a", "same.tsv:3"), link("c", "C")]
    with pytest.warns(DataWarning, match=r"2 of 4 entity links are left out.*same\.tsv:1: 'x' = 'A'") as told:
        unified = unify(SITES, links={ENTITY: links})
    assert len(told) == 1
    assert called(unified.federation, "u") == ["x", "A"]
    assert unified.reports == (
        LinkReport(
            ENTITY,
            4,
            2,
            2,
            0,
            0,
            (
                "same.tsv:1: 'x' = 'A' would make 'x' and 'a' of site 'u' the same",
                "same.tsv:3: 'C' = 'a' would make 'C' and 'A' of site 't' the same",
            ),
        ),
    )


def test_the_first_link_wins() -> None:
    sites = {"s": chain("a", "a2"), "t": chain("A", "A2")}
    for links in ([link("a", "A"), link("a2", "A")], [link("a2", "A"), link("a", "A")]):
        with pytest.warns(DataWarning, match="1 of 2"):
            unified = unify(sites, links={ENTITY: links})
        position = called(sites, "s").index(links[0].left)
        assert called(unified.federation, "s")[position] == "A"
        assert shared_names(unified.federation, ENTITY) == ["A"]


def test_links_within_one_site_are_counted_apart() -> None:
    links = [
        link("a", "A"),
        link("A", "C"),
        link("a", "b", "s", "s"),
        link("x", "x"),
        link("x", "b", "s", "t"),
    ]
    report = unify(SITES, links={ENTITY: links}).reports[0]
    assert (report.used, report.left_out, report.within_site, report.unmatched) == (1, 0, 3, 1)


def test_without_names_only_links_join() -> None:
    alone = unify(SITES, names=False)
    assert alone.reports == ()
    assert called(alone.federation, "s") == ["s/a", "s/b", "s/c"]
    assert called(alone.federation, "u", RELATION) == ["u/q"]
    assert shared_names(alone.federation, ENTITY) == shared_names(alone.federation, RELATION) == []
    linked = unify(
        SITES, names=False, links={ENTITY: [link("a", "A"), link("b", "b")], RELATION: [link("r", "q")]}
    )
    assert called(linked.federation, "s") == ["s/a", "s/b", "s/c"]
    assert called(linked.federation, "t") == ["s/a", "s/b", "t/C"]
    assert called(linked.federation, "u") == ["u/x", "s/a"], "A of t is a of s and a of u"
    assert [called(linked.federation, site, RELATION) for site in "stu"] == [["s/r"]] * 3
    assert [report.axis for report in linked.reports] == [ENTITY, RELATION]


def test_prefixes_cannot_be_mistaken() -> None:
    sites = {"s": chain("t/x", "y"), "s/t": chain("x", "y"), "s%2Ft": chain("x", "z")}
    unified = unify(sites, names=False)
    assert shared_names(unified.federation, ENTITY) == shared_names(unified.federation, RELATION) == []


def test_names_that_cross_are_two_groups() -> None:
    sites = {"s": chain("a", "b"), "t": chain("a", "b")}
    unified = unify(sites, names=False, links={ENTITY: [link("a", "b")]})
    assert called(unified.federation, "s") == ["s/a", "s/b"]
    assert called(unified.federation, "t") == ["s/b", "s/a"]
    with pytest.warns(DataWarning, match="'a' = 'b' would make 'a' and 'b' of site 's' the same"):
        assert called(unify(sites, links={ENTITY: [link("a", "b")]}).federation, "t") == ["a", "b"]


@pytest.mark.parametrize("names", [True, False])
def test_unknown_sites_and_links_that_match_nothing_are_errors(names: bool) -> None:
    sites = {"hospital": chain("a", "b"), "insurer": chain("c", "d")}
    with pytest.raises(
        DataError,
        match=r"tsv:1: expected a site \(hospital, insurer\), found 'hospitl'; did you mean 'hospital'\?",
    ):
        unify(sites, names, {ENTITY: [link("a", "c", "insurer", "hospitl")]})
    message = (
        r"same\.tsv:1: expected links between entity names of different sites, found none in 2 links: 1 name "
        r"what no site has, 1 speak of one site only; the first is 'x:a' = 'c', while 'hospital' has 'a'"
    )
    with pytest.raises(DataError, match=message):
        unify(sites, names, {ENTITY: [link("x:a", "c"), link("a", "b")]})
    with pytest.raises(DataError, match="relation names"):
        unify(sites, names, {RELATION: [link("r", "nothing")]})


def test_examples_are_few() -> None:
    sites = {"s": chain(*(f"a{i}" for i in range(20))), "t": chain("b", "c")}
    with pytest.warns(DataWarning, match="19 of 20 entity"):
        (report,) = unify(sites, links={ENTITY: [link(f"a{i}", "b") for i in range(20)]}).reports
    assert len(report.examples) == 5
    assert all(re.search(r"'a\d' = 'b' would make", example) for example in report.examples)


# Working with what is the same


def test_pooling_what_was_unified() -> None:
    sites = {
        "s": graph_from_names([("Paris", "in", "France"), ("Lyon", "in", "France")]),
        "t": graph_from_names(
            [("paris", "liegt_in", "frankreich"), ("Lyon", "nahe", "paris")],
            [("Lyon", "liegt_in", "frankreich")],
        ),
    }
    links = {
        ENTITY: [link("Paris", "paris"), link("frankreich", "France")],
        RELATION: [link("in", "liegt_in")],
    }
    unified = unify(sites, links=links).federation
    pooled = pool(unified)
    assert list(pooled.graph.entities) == ["Paris", "Lyon", "France"]
    assert list(pooled.graph.relations) == ["in", "nahe"]
    assert pooled.graph.train.tolist() == [[0, 0, 2], [1, 0, 2], [1, 1, 0]]
    assert pooled.graph.valid.tolist() == [[1, 0, 2]]
    assert pooled.entities["t"].tolist() == [0, 1, 2]
    apart = pool(unify(sites, names=False).federation).graph
    assert (apart.n_entities, apart.n_relations, len(apart.train)) == (6, 3, 4)


def test_what_sites_share_by_hand() -> None:
    assert shared_names(SITES, ENTITY) == ["a", "b"]
    counts = shared_counts(names_of(SITES), [ENTITY, RELATION])
    assert {site: of[ENTITY] for site, of in counts.items()} == {"s": 2, "t": 1, "u": 1}
    assert {site: of[RELATION] for site, of in counts.items()} == {"s": 1, "t": 1, "u": 0}
