"""Graphs out of databases: what a site's file may say, and what morph-kgc makes of the hospital's tables."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedkge.errors import DataError, DataWarning, MissingPackage
from fedkge.graphs.files import read_federation, read_graph
from fedkge.graphs.mapping import PYTHON

HOSPITAL = Path(__file__).parents[2] / "examples" / "hospital"
STATEMENTS = [
    "<urn:b> <urn:likes> <urn:a> .",
    "<urn:a> <urn:likes> <urn:b> .",
    '<urn:a> <urn:age> "40"^^<http://www.w3.org/2001/XMLSchema#integer> .',
    "<urn:a> <urn:ill> <urn:x> .",
    "_:one <urn:likes> <urn:caf\\u00E9> .",
]

Site = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site's file, and a stand-in for morph-kgc that writes the lines given, or fails."""

    def make(text: str, lines: list[str] = STATEMENTS, fails: str = "") -> Path:
        home = tmp_path / "sites"
        home.mkdir(exist_ok=True)
        (tmp_path / "made.nt").write_text("\n".join(lines))
        (tmp_path / "map.ttl").write_text("")
        stand_in = tmp_path / "python"
        stand_in.write_text(
            f"#!{sys.executable}\n"
            "import configparser, pathlib, sys\n"
            f"if {fails!r}: sys.exit({fails!r})\n"
            "options = configparser.ConfigParser(); options.read(sys.argv[3])\n"
            f"given = pathlib.Path({str(tmp_path / 'given.txt')!r})\n"
            "given.write_text(repr((dict(options['SITE']), str(pathlib.Path.cwd()))))\n"
            f"made = pathlib.Path({str(tmp_path / 'made.nt')!r}).read_text()\n"
            "pathlib.Path(options['CONFIGURATION']['output_file']).write_text(made)\n"
        )
        stand_in.chmod(0o755)
        monkeypatch.setenv(PYTHON, str(stand_in))
        path = home / "ward.toml"
        path.write_text(text)
        return path

    return make


def test_triples_come_sorted_and_marked_by_predicate(site: Site, tmp_path: Path) -> None:
    path = site('mapping = "../map.ttl"\nconfidential = ["urn:ill"]\n')
    with pytest.warns(DataWarning, match=r"ward\.toml: 1 triples about literals skipped"):
        federation = read_federation(path.parent)
    graph = federation["ward"]
    found = {
        (graph.entities[h], graph.relations[r], graph.entities[t]): bool(mark)
        for (h, r, t), mark in zip(graph.train.tolist(), graph.confidential, strict=True)
    }
    assert found == {
        ("urn:a", "urn:ill", "urn:x"): True,
        ("urn:a", "urn:likes", "urn:b"): False,
        ("urn:b", "urn:likes", "urn:a"): False,
        ("_:one", "urn:likes", "urn:café"): False,
    }
    first = graph.digest()
    path = site('mapping = "../map.ttl"\nconfidential = ["urn:ill"]\n', STATEMENTS[::-1])
    with pytest.warns(DataWarning, match="skipped"):
        assert read_graph(path).digest() == first  # a set has no order


def test_morph_is_told_where_everything_is(site: Site, tmp_path: Path) -> None:
    (tmp_path / "100%.sqlite").write_text("")
    path = site(
        'mapping = "../map.ttl"\ndatabase = "sqlite:///../100%.sqlite"\nfiles = ".."\n', STATEMENTS[:2]
    )
    read_graph(path)
    given, folder = eval((tmp_path / "given.txt").read_text())
    assert Path(given["mappings"]).resolve() == tmp_path / "map.ttl"
    assert Path(given["db_url"].removeprefix("sqlite:///")).resolve() == tmp_path / "100%.sqlite"
    assert Path(folder) == tmp_path
    path = site('mapping = "../map.ttl"\ndatabase = "postgresql://me@there/tables"\n', STATEMENTS[:2])
    read_graph(path)
    given, folder = eval((tmp_path / "given.txt").read_text())
    assert given["db_url"] == "postgresql://me@there/tables"
    assert Path(folder) == path.parent


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"ward\.toml: .*mapping"),
        ('mapping = "../nothing.ttl"', r"ward\.toml: mapping: .*nothing\.ttl: no such file"),
        ('mapping = "../map.ttl"\nfile = ".."', r"ward\.toml: file: no such option; did you mean 'files'"),
        ('mapping = "../map.ttl"\nfiles = "../lost"', r"ward\.toml: files: .*lost: no such folder"),
        (
            'mapping = "../map.ttl"\ndatabase = "sqlite:///no.db"',
            r"ward\.toml: database: .*no\.db: no such file",
        ),
        (
            'mapping = "../map.ttl"\nconfidential = ["urn:il"]',
            r"no triple of 'urn:il'; did you mean 'urn:ill'",
        ),
        ("mapping = ", r"ward\.toml: "),
    ],
)
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
def test_what_is_wrong_with_a_site_is_said(site: Site, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_graph(site(text))


def test_what_is_wrong_with_a_mapping_is_said(site: Site) -> None:
    text = 'mapping = "../map.ttl"'
    with pytest.raises(DataError, match=r"ward\.toml: morph-kgc failed: no such column: ward"):
        read_graph(site(text, fails="Traceback:\nno such column: ward"))
    with pytest.raises(DataError, match="it made none"):
        read_graph(site(text, []))
    with pytest.raises(DataError, match=r"morph-kgc wrote 'nonsense', expected a triple"):
        read_graph(site(text, ["nonsense"]))


def test_without_morph_it_says_what_to_install(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = site('mapping = "../map.ttl"')
    monkeypatch.setenv(PYTHON, "/nowhere/python")
    with pytest.raises(DataError, match=r"/nowhere/python cannot be run"):
        read_graph(path)
    monkeypatch.delenv(PYTHON)
    monkeypatch.setattr("fedkge.graphs.mapping.find_spec", lambda name: None)
    with pytest.raises(
        MissingPackage, match=r"needs morph-kgc.*environment of its own.*export FEDKGE_MORPH_KGC="
    ):
        read_graph(path)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    home = tmp_path / "hospital"
    shutil.copytree(HOSPITAL, home, ignore=shutil.ignore_patterns("tables"))
    exec(
        compile((home / "make_tables.py").read_text(), "make_tables", "exec"), made := {"__name__": "tables"}
    )
    made["main"](home / "tables")
    return home


def test_made_up_tables_are_the_same_every_time(tables: Path, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tables / "tables" / "north.sqlite") as north:
        (patients,) = north.execute("SELECT count(*) FROM patient").fetchone()
        (ill,) = north.execute("SELECT count(*) FROM diagnosis").fetchone()
    assert (patients, ill) == (240, 720)


@pytest.mark.skipif(
    not os.environ.get(PYTHON) and find_spec("morph_kgc") is None,
    reason=f"morph-kgc is not installed here, and {PYTHON} names no Python that has it",
)
@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")
def test_the_hospitals_tables_become_a_federation(tables: Path) -> None:
    """Every row of a table is a triple; diagnoses and drugs have one name everywhere."""
    import sqlite3

    federation = read_federation(tables / "sites")
    assert list(federation) == ["north", "pharmacy", "south"]
    north = federation["north"]
    with sqlite3.connect(tables / "tables" / "north.sqlite") as db:
        (rows,) = db.execute(
            "SELECT (SELECT 2 * count(*) FROM patient) + (SELECT count(*) FROM diagnosis) + "
            "(SELECT count(*) FROM prescription) + (SELECT count(*) FROM examination)"
        ).fetchone()
        (secret,) = db.execute(
            "SELECT (SELECT count(*) FROM diagnosis) + (SELECT count(*) FROM prescription) + "
            "(SELECT count(*) FROM examination)"
        ).fetchone()
    assert len(north.train) == rows
    assert north.confidential is not None
    assert north.confidential.sum() == secret
    assert federation["pharmacy"].confidential is None
    common = set(north.entities) & set(federation["pharmacy"].entities)
    assert {name.split("/")[3] for name in common} == {"diagnosis", "drug"}
