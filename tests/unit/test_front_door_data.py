"""The front door, items 3 to 7: tables and RDF as they come, values, blank nodes and links, hostile input."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from commands import CONFIG, answer, fedkge, refused, write_home
from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs import files, streams
from fedkge.graphs.files import graph_from_names, read_federation, read_graph
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.prefixes import shortened
from fedkge.graphs.said import lifted
from fedkge.graphs.similar import suggestions
from fedkge.graphs.table import Table
from fedkge.graphs.unify import unify
from fedkge.graphs.values import bin_of
from fedkge.runs.checks import check_federation

SAME = "http://www.w3.org/2002/07/owl#sameAs"


def named(graph: Graph) -> list[tuple[str, str, str]]:
    e, r = graph.entities, graph.relations
    return [(e[h], r[k], e[t]) for h, k, t in graph.all().tolist()]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# 3: tables as they come


@pytest.mark.parametrize("pyarrow", [True, False])
@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("id,from,kind,to\n1,a,r,b\n2,b,r,c\n", Table(head="from", relation="kind", tail="to")),
        ("id,From,Kind,To\n1,a,r,b\n2,b,r,c\n", Table(head="from", relation="kind", tail="to")),
        ("1,a,r,b\n2,b,r,c\n", Table(head=2, relation=3, tail=4)),
        ("x,y,z,w\n1,a,r,b\n2,b,r,c\n", Table(head=2, relation=3, tail=4, header=True)),
        ("b;a;r\nc;b;r\n", Table(head=2, relation=3, tail=1, separator=";")),
        ("Tail,Head,Relation\nb,a,r\nc,b,r\n", Table()),
        ("a,r,b\n", Table(header=False)),
    ],
)
def test_3_columns_by_name_and_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pyarrow: bool, text: str, table: Table
) -> None:
    if not pyarrow:
        monkeypatch.setattr(files, "find_spec", lambda name: None)
    found = named(read_graph(write(tmp_path / "site.csv", text), table=table))
    assert found == [("a", "r", "b"), ("b", "r", "c")][: len(found)]


def test_3_a_quoted_line_break_in_a_column_that_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", 'h,r,t,note\na,r,b,"x\nc,r,d,y"\n')
    assert named(read_graph(path, table=Table(head="h", relation="r", tail="t"))) == [("a", "r", "b")]


def test_3_marks_from_a_column(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", "secret,h,r,t\n1,a,r,b\n0,b,r,c\n")
    graph = read_graph(path, table=Table(head="h", relation="r", tail="t", mark="secret"))
    assert graph.confidential is not None
    assert graph.confidential.tolist() == [True, False]


def test_3_a_first_line_that_looks_like_a_header_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "site.tsv", "source\ttype\ttarget\na\tr\tb\nb\tr\tc\n")
    with pytest.warns(DataWarning, match=r"source, type, target.*data\.table\.header = true"):
        assert len(read_graph(path).train) == 3
    assert len(read_graph(path, table=Table(header=True)).train) == 2
    assert len(read_graph(path, table=Table(header=False)).train) == 3


def test_3_one_usual_name_is_enough_in_a_long_file(tmp_path: Path) -> None:
    rows = "".join(f"p{i};takes;d{i % 3}\n" for i in range(30))
    path = write(tmp_path / "site.csv", "Patient;angle;Wert\n" + rows)
    with pytest.warns(DataWarning, match=r"Patient, angle, Wert.*--header and --no-header"):
        read_graph(path, table=Table(separator=";"))
    read_graph(write(tmp_path / "other.csv", "x;angle;Wert\n" + rows), table=Table(separator=";"))


def test_3_advice_names_the_option_of_the_command_too(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", "a;r;b\n")
    with pytest.raises(DataError, match=r"data\.table = .*, or fedkge data convert --separator ';'"):
        read_graph(path)


def test_3_bad_rows_are_counted_and_skipped_if_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", "a,r,b\na,r\n,r,c\nb,r,c\n")
    with pytest.raises(DataError, match=r"csv:2: expected 3"):
        read_graph(path)
    with pytest.warns(DataWarning, match=r"2 bad rows skipped; the first is line 2: expected 3"):
        assert named(read_graph(path, table=Table(skip_bad=True))) == [("a", "r", "b"), ("b", "r", "c")]


def test_3_relations_are_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", "a,r,b\na,label,A\n")
    assert named(read_graph(path, table=Table(drop=("label",)))) == [("a", "r", "b")]
    with pytest.raises(
        DataError, match=r"data\.table\.drop: no relation is named 'labels'; did you mean 'label'"
    ):
        read_graph(path, table=Table(drop=("labels",)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_3_a_wide_table(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"patients{suffix}"
    if suffix == ".csv":
        write(path, "patient,ward,smoker,town\np1,W1,yes,Bern\np2,W1,no,\n")
    else:
        columns = {
            "patient": ["p1", "p2"],
            "ward": ["W1", "W1"],
            "smoker": ["yes", "no"],
            "town": ["Bern", None],
        }
        parquet.write_table(pa.table(columns), path)
    found = named(read_graph(path, table=Table(key="patient")))
    assert set(found) == {
        ("p1", "ward", "W1"),
        ("p1", "smoker", "smoker=yes"),
        ("p1", "town", "Bern"),
        ("p2", "ward", "W1"),
        ("p2", "smoker", "smoker=no"),
    }
    only = named(read_graph(path, table=Table(key="patient", columns=("ward",))))
    assert only == [("p1", "ward", "W1"), ("p2", "ward", "W1")]


APOC = """"_id","_labels","name","_start","_end","_type","since"
"0",":Person","Ann",,,,
"1",":Person","Bob",,,,
,,,"0","1","KNOWS","2001"
"""


def test_3_one_file_of_neo4j(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", APOC)
    assert named(read_graph(path, table=Table(node="name"))) == [("Ann", "KNOWS", "Bob")]
    with pytest.raises(
        DataError, match=r"which property names a node, as in data\.table = \{ node = 'name' \}"
    ):
        read_graph(path)


def test_3_files_of_nodes_and_relationships_of_neo4j(tmp_path: Path) -> None:
    write(tmp_path / "nodes.csv", "personId:ID(P),name,:LABEL\n1,Ann,Person\n2,Bob,Person\n")
    rows = ":START_ID(P),role,:END_ID(P),:TYPE\n1,x,2,KNOWS\n2,y,9,KNOWS\n"
    write(tmp_path / "relationships.csv", rows)
    with pytest.raises(DataError, match=r":3: relationships\.csv: no node has the id '9'"):
        read_graph(tmp_path)
    with pytest.warns(DataWarning, match="1 bad row skipped"):
        assert named(read_graph(tmp_path, table=Table(skip_bad=True))) == [("P/1", "KNOWS", "P/2")]
    with pytest.warns(DataWarning, match="1 bad row skipped"):
        federation = read_federation(tmp_path, table=Table(skip_bad=True, node="name"))
    assert [named(graph) for graph in federation.values()] == [[("Ann", "KNOWS", "Bob")]]


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".nq", "<x:a> <x:r> <x:b> <x:graph> .\n"),
        (".trig", "@prefix x: <x:> . x:graph { x:a x:r x:b }"),
        (
            ".rdf",
            '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="x:"><rdf:Description '
            'rdf:about="x:a"><x:r rdf:resource="x:b"/></rdf:Description></rdf:RDF>',
        ),
        (".jsonld", '{"@id": "x:a", "x:r": {"@id": "x:b"}}'),
    ],
)
def test_3_formats_of_rdf(tmp_path: Path, suffix: str, text: str) -> None:
    assert named(read_graph(write(tmp_path / f"site{suffix}", text))) == [("x:a", "x:r", "x:b")]


def test_3_nothing_is_fetched_for_json_ld(tmp_path: Path) -> None:
    path = write(tmp_path / "site.jsonld", '{"@context": "https://schema.org/", "@id": "x:a", "name": "b"}')
    with pytest.raises(DataError, match="nothing is fetched from the network"):
        read_graph(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "a"}, "expected all three"),
        ({"key": 1, "head": 1, "relation": 2, "tail": 3}, "key: a wide table"),
        ({"columns": ("a",)}, "columns: expected a key"),
        ({"separator": "ab"}, "separator: expected one character"),
        ({"edges": ("age=1",)}, "edges: expected numbers"),
        ({"numbers": "bin", "edges": ("age=2,1",)}, "edges: expected rising"),
        ({"head": 0, "relation": 1, "tail": 2}, "from 1, found 0"),
        ({"prefixes": ("ex",)}, "prefixes: expected"),
    ],
)
def test_3_options_that_cannot_be_right(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Table(**options)  # type: ignore[arg-type]


def test_3_the_same_words_in_an_experiment_and_for_convert(tmp_path: Path) -> None:
    rows = "".join(f"e{i % 7};e{(i * 3 + 1) % 7};r{i % 3}\n" for i in range(21))
    write(tmp_path / "sites" / "a.csv", "from;to;type\n" + rows)
    options = ("--head", "from", "--relation", "type", "--tail", "to", "--separator", ";")
    assert fedkge("data", "convert", tmp_path / "sites", tmp_path / "out", *options).exit_code == 0
    converted = (tmp_path / "out" / "train.tsv").read_text().splitlines()
    assert converted[0] == "e0\tr0\te1"
    table = '{ head = "from", relation = "type", tail = "to", separator = ";" }'
    text = CONFIG.replace(
        '{ path = "federation" }', f'{{ path = "sites", ratio = "3:1:1", table = {table} }}'
    )
    write(tmp_path / "tiny.toml", text)
    ran = fedkge("run", tmp_path / "tiny.toml", "--out", tmp_path / "run", "--set", "rounds=1")
    assert ran.exit_code == 0, ran.output
    again = fedkge("evaluate", tmp_path / "run")  # the run's folder knows how the data is read
    assert again.exit_code == 0, again.output


# 4: numbers and dates


VALUES = "p1,age,37\np2,age,52\np1,born,1988-04-01\np1,knows,p2\np2,temperature,36.6\n"


def test_4_numbers_and_dates_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", VALUES)
    with pytest.warns(
        DataWarning, match=r"4 tails are numbers or dates, such as '37' of 'age'.*numbers = 'bin'"
    ):
        assert len(read_graph(path).train) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        assert len(read_graph(path, table=Table(numbers="keep")).train) == 5


def test_4_integers_are_fine_as_names(tmp_path: Path) -> None:
    read_graph(write(tmp_path / "site.tsv", "1\tr\t2\n3\tr\t4\n2\tr\t5\n"))  # a warning would fail


def test_4_they_are_skipped_or_put_into_bins(tmp_path: Path) -> None:
    path = write(tmp_path / "site.csv", VALUES)
    with pytest.warns(DataWarning, match="4 triples about numbers or dates skipped"):
        assert named(read_graph(path, table=Table(numbers="skip"))) == [("p1", "knows", "p2")]
    binned = named(read_graph(path, table=Table(numbers="bin", edges=("age=18,40,65",))))
    assert binned == [
        ("p1", "age", "age=18..40"),
        ("p2", "age", "age=40..65"),
        ("p1", "born", "born=1988"),
        ("p1", "knows", "p2"),
        ("p2", "temperature", "temperature=20..50"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "r=0"),
        ("1", "r=1..2"),
        ("1.99", "r=1..2"),
        ("2", "r=2..5"),
        ("5", "r=5..10"),
        ("10", "r=10..20"),
        ("1000", "r=1000..2000"),
        ("0.3", "r=0.2..0.5"),
        ("-3", "r=-5..-2"),
        ("31.12.1999", "r=1999"),
        ("2020-02-03T10:00:00Z", "r=2020"),
    ],
)
def test_4_bins(text: str, expected: str) -> None:
    assert bin_of("r", text) == expected


def test_4_so_it_is_in_rdf(tmp_path: Path) -> None:
    kinds = '<x:p> <x:age> "37" . <x:p> <x:name> "Ann" . <x:p> <x:knows> <x:q> .'
    path = write(tmp_path / "site.ttl", kinds)
    with pytest.warns(
        DataWarning, match="2 triples about literals skipped, 1 of them about numbers or dates"
    ):
        assert named(read_graph(path)) == [("x:p", "x:knows", "x:q")]
    with pytest.warns(DataWarning, match="1 triples about literals skipped"):
        binned = named(read_graph(path, table=Table(numbers="bin")))
    assert binned == [("x:p", "x:age", "x:age=20..50"), ("x:p", "x:knows", "x:q")]


# 5: blank nodes, owl:sameAs, prefixes


def test_5_blank_nodes_of_two_sites_are_never_the_same(tmp_path: Path) -> None:
    for site in ("north", "south"):
        write(tmp_path / site / "train.nt", "_:x <x:r> <x:a> .\n<x:a> <x:r> _:x .\n")
    federation = read_federation(tmp_path)
    north, south = unify(federation).federation.values()
    assert set(north.entities) & set(south.entities) == {"x:a"}
    (row,) = answer("data", "stats", tmp_path)
    assert row["shared_by_two"] == 1


def test_5_a_blank_node_is_one_node_in_the_splits_of_a_graph(tmp_path: Path) -> None:
    write(tmp_path / "train.nt", "_:x <x:r> <x:a> .\n")
    write(tmp_path / "test.nt", "<x:a> <x:r> _:x .\n")
    assert list(read_graph(tmp_path).entities) == ["_:x", "x:a"]


def test_5_same_as_in_a_graph_is_a_link() -> None:
    federation = {
        "north": graph_from_names(
            [("n:ann", "r", "n:bob"), ("n:ann", SAME, "s:ann"), ("s:bob", SAME, "n:bob")]
        ),
        "south": graph_from_names([("s:ann", "r", "s:bob")]),
    }
    left, said = lifted(federation)
    assert named(left["north"]) == [("n:ann", "r", "n:bob")]
    assert [(link.left, link.right) for link in said[Axis.ENTITY]] == [("n:ann", "s:ann"), ("n:bob", "s:bob")]
    unified = unify(left, said=said)
    assert set(unified.federation["north"].entities) == set(unified.federation["south"].entities)
    assert unified.reports[0].used == 2


def test_5_prefixes_work_wherever_names_are_given(tmp_path: Path) -> None:
    lines = "".join(f"ex:e{i} ex:r{i % 2} ex:e{(i * 3 + 1) % 9} .\n" for i in range(9))
    write(tmp_path / "site.ttl", "@prefix ex: <https://x.example/> .\n" + lines)
    graph = read_graph(tmp_path / "site.ttl")
    assert graph.entities[graph.entities.id("ex:e1")] == "https://x.example/e1"
    write(tmp_path / "secret.txt", "ex:r1\n")
    answer("data", "mark", tmp_path / "site.ttl", tmp_path / "marked", "--relations", tmp_path / "secret.txt")
    write(tmp_path / "triples.tsv", "ex:e0\tex:r0\tex:e1\n")
    answer("data", "mark", tmp_path / "site.ttl", tmp_path / "again", "--triples", tmp_path / "triples.tsv")
    found = read_graph(tmp_path / "site.ttl", table=Table(drop=("ex:r1",)))
    assert list(found.relations) == ["https://x.example/r0"]
    plain = write(tmp_path / "site.nt", "<https://x.example/e1> <x:r> <x:b> .\n")
    assert "ex:e1" not in read_graph(plain).entities
    assert "ex:e1" in read_graph(plain, table=Table(prefixes=("ex=https://x.example/",))).entities


def test_5_predict_and_packs_know_prefixes(tmp_path: Path) -> None:
    lines = "".join(f"ex:e{i % 8} ex:r{i % 3} ex:e{(i * 5 + 1) % 8} .\n" for i in range(24))
    write(tmp_path / "sites" / "a.ttl", "@prefix ex: <https://x.example/> .\n" + lines)
    write(tmp_path / "tiny.toml", CONFIG.replace('"federation"', '"sites", ratio = "3:1:1"'))
    run, pack = tmp_path / "run", tmp_path / "pack"
    ran = fedkge("run", tmp_path / "tiny.toml", "--out", run, "--set", "rounds=1")
    assert ran.exit_code == 0, ran.output
    asked = ("--head", "ex:e1", "--relation", "ex:r1", "--top", "2")
    found = answer("predict", run, "--site", "a", *asked)
    assert found == answer("predict", run, "--site", "a", "--head", "https://x.example/e1", *asked[2:])
    assert fedkge("pack", run, "a", "--out", pack).exit_code == 0
    assert len(answer("predict", pack, *asked)) == 2


# 6: what an alignment does


@pytest.fixture
def two_sites(tmp_path: Path) -> Path:
    north = "Zürich\tin\tSwitzerland\nBern\tin\tSwitzerland\nMilan\tin\tItaly\n"
    south = "zurich\tin\tSwitzerland\nBerne\tin\tSwitzerland\nMilano\tin\tItaly\nMilan Town\tin\tItaly\n"
    write(tmp_path / "sites" / "north.tsv", north)
    write(tmp_path / "sites" / "south.tsv", south)
    return tmp_path


def test_6_align_shows_what_links_do(two_sites: Path) -> None:
    links = "Bern\tBerne\nZuerich\tzurich\nMilan\tMilano\nMilan\tMilan Town\n"
    file = write(two_sites / "same.tsv", links)
    found = answer("data", "align", two_sites / "sites", "--entities", file)
    entities, relations = found["axes"]
    assert (relations["different"], relations["shared"]) == (1, 1)
    assert entities["shared"] == 4  # Switzerland, Italy by name; Bern and Milan by links
    assert {k: entities[k] for k in ("links", "used", "unmatched", "ambiguous")} == {
        "links": 4,
        "used": 2,
        "unmatched": 1,
        "ambiguous": 1,
    }
    unmatched, ambiguous = found["links"]
    assert (unmatched["no site has"], unmatched["near"]) == ("Zuerich", "Zürich, zurich")
    assert (ambiguous["link"], ambiguous["why"]) == ("Milan = Milan Town", "ambiguous")
    shown = fedkge("data", "align", two_sites / "sites", "--entities", file).stdout
    assert "Links that do nothing" in shown


def test_6_align_suggests_links_in_a_file_to_edit(two_sites: Path) -> None:
    file = two_sites / "links.tsv"
    made = answer("data", "align", two_sites / "sites", "--suggest", file, "--similarity", "0.6")["suggested"]
    lines = [line.split("\t")[:4] for line in file.read_text().splitlines()]
    assert lines[0] == ["north", "Zürich", "south", "zurich"]  # the surest first
    assert ["north", "Bern", "south", "Berne"] in lines
    assert made["links"] == len(lines)
    assert made["ambiguous"] == 1  # Milan: Milano, Milan Town
    edited = [line for line in file.read_text().splitlines() if "Town" not in line]
    write(two_sites / "edited.tsv", "\n".join(edited))
    found = answer("data", "align", two_sites / "sites", "--entities", two_sites / "edited.tsv")["axes"][0]
    assert (found["used"], found["unmatched"], found["ambiguous"]) == (3, 0, 0)
    assert "is there already" in refused("data", "align", two_sites / "sites", "--suggest", file)


def test_6_digits_must_be_equal() -> None:
    assert suggestions({"a": ["patient 12"], "b": ["patient 13"]}, 0.1) == []


def test_6_every_run_prints_one_line(tmp_path: Path) -> None:
    write_home(tmp_path)
    links = write(tmp_path / "same.tsv", "a\tc\nb\tnowhere\n")
    options = ("--set", "rounds=1", "--set", f"align.relations={links}")
    said = fedkge("run", tmp_path / "tiny.toml", "--out", tmp_path / "run", *options)
    (line,) = [line for line in said.stderr.splitlines() if line.startswith("alignment: ")]
    assert line == (
        "alignment: 20 of 20 entities and 2 of 3 relations are at two or more sites; "
        "1 of 2 relation links used, 1 unmatched"
    )


# 7: hostile input


def test_7_a_small_file_that_unpacks_to_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "UNPACKED", 1 << 20)
    line = b"a\tr\tb\n"
    for name, content in (("lines", line * 2_000_000), ("one", b"a" * 12_000_000)):
        path = tmp_path / f"{name}.tsv.gz"
        path.write_bytes(gzip.compress(content))
        with pytest.raises(DataError, match="unpack to more than 100 times as many"):
            read_graph(path)


def test_7_a_parquet_file_of_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkge.graphs.arrow.MOST_ROWS", 1000)
    same = pa.array(["a"] * 3_000_000).dictionary_encode()
    parquet.write_table(pa.table({"h": same, "r": same, "t": same}), tmp_path / "site.parquet")
    with pytest.raises(DataError, match=r"3,000,000 rows in .* bytes, as no honest graph has"):
        read_graph(tmp_path / "site.parquet")


def test_7_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    (tmp_path / "zero.tsv").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(DataError, match="expected a regular file, found a pipe, device or socket"):
            read_graph(tmp_path / f"{name}.tsv")
    assert "found a folder, pipe or device" in refused("run", "/dev/zero")


def test_7_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", "a\x1b[2J\tr\tb\nc\tr\n")
    assert "\x1b" not in fedkge("data", "stats", tmp_path).stderr
    write_home(tmp_path)
    with (tmp_path / "federation" / "north" / "train.tsv").open("a") as file:
        file.write("e1\ta\te2\x1b[2J\n")
    message = refused("run", tmp_path / "tiny.toml", "--out", tmp_path / "run")
    assert "site 'north': entity 'e2\\x1b[2J' has a control character" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "site", ["", ".", "..", "a/b", "Hub", "a\nb", "CON", "x" * 300, ".hidden", "a:b", "a."]
)
def test_7_site_names_that_cannot_be_folders(site: str) -> None:
    with pytest.raises(ConfigError, match="a site is named"):
        check_federation({site: graph_from_names([("a", "r", "b")])})


def test_7_a_line_break_in_the_address_of_a_database(tmp_path: Path) -> None:
    write(tmp_path / "map.ttl", "")
    write(tmp_path / "site.toml", 'mapping = "map.ttl"\ndatabase = "sqlite:///a\\n[OTHER]"\n')
    with pytest.raises(DataError, match="database: expected a text without line breaks"):
        read_graph(tmp_path / "site.toml")


def test_5_short_names_for_people() -> None:
    """By the longest namespace, and only if the short name leads back to the IRI."""
    own = {"ex": "https://care.example/", "drug": "https://care.example/drug/", "odd": ""}
    assert shortened("https://care.example/drug/a", own) == "drug:a"
    assert shortened("https://care.example/b", own) == "ex:b"
    assert shortened("http://xmlns.com/foaf/0.1/knows", own) == "foaf:knows"
    assert (
        shortened("https://care.example///x", {"ex": "https://care.example/"}) == "https://care.example///x"
    )
    assert shortened("plain", own) == "plain"


def test_7_a_program_ends_after_a_damaged_gzip_file(tmp_path: Path) -> None:
    """Threads of Arrow, if any had been at work, would wait for ever at exit."""
    packed = gzip.compress(b"a\tr\tb\n" * 6_000_000, compresslevel=1)
    (tmp_path / "cut.tsv.gz").write_bytes(packed[: len(packed) * 2 // 3])
    code = "from pathlib import Path; from fedkge.graphs import files; files.read_graph(Path('cut.tsv.gz'))"
    line = [sys.executable, "-c", code]
    found = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 1
    assert "the gzip data ends too early" in found.stderr


def test_7_a_few_bytes_of_xml_do_not_become_gigabytes(tmp_path: Path) -> None:
    """Entities that name namespaces, as ontologies have them, are fine."""
    rdf = (
        '<?xml version="1.0"?><!DOCTYPE rdf:RDF [{}]><rdf:RDF xmlns:ex="http://e/" '
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="&ex;a">'
        '<ex:r rdf:resource="&ex;b"/></rdf:Description></rdf:RDF>'
    )
    file = tmp_path / "graph.rdf"
    file.write_text(rdf.format('<!ENTITY ex "http://e/" >'))
    assert list(read_graph(file).entities) == ["http://e/a", "http://e/b"]
    for bomb in ('<!ENTITY ex "http://e/" ><!ENTITY b "&ex;&ex;">', f'<!ENTITY ex "http://e/{"x" * 500}">'):
        file.write_text(rdf.format(bomb))
        with pytest.raises(DataError, match="expected short entities without entities inside"):
            read_graph(file)


def test_7_a_long_prefix_does_not_become_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "UNPACKED", 1 << 20)
    file = tmp_path / "graph.ttl"
    lines = "".join(f"a:{i} a:r a:{i + 1} .\n" for i in range(1000))
    file.write_text(f"@prefix a: <http://e/{'x' * 10_000}/> .\n{lines}")
    with pytest.raises(DataError, match="more than 100 times as long as the file"):
        read_graph(file)


def test_3_a_header_beside_positions_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text("patient;what;value\np1;has;flu\np2;has;flu\n")
    places = Table(separator=";", head=1, relation=2, tail=3)
    with pytest.warns(DataWarning, match=r"first line \(patient, what, value\) looks like names of columns"):
        assert len(read_graph(file, table=places).train) == 3
    assert len(read_graph(file, table=replace(places, header=True)).train) == 2


def test_4_numbers_of_dropped_relations_are_not_mentioned(tmp_path: Path) -> None:
    file = tmp_path / "people.tsv"
    file.write_text("".join(f"p{i}\tage\t{20 + i}\np{i}\thas\tflu\n" for i in range(9)))
    assert list(read_graph(file, table=Table(drop=("age",))).relations) == ["has"]
    with pytest.warns(DataWarning, match="9 tails are numbers or dates"):
        read_graph(file)
