"""Graphs out of databases and tables: R2RML and RML mappings, carried out by morph-kgc.

A site is a TOML file that names a mapping. morph-kgc asks for other versions of pandas and pyoxigraph than
the rest of this package does, so it runs as a process of its own, with the Python of its own environment if
there is one (`FEDKGE_MORPH_KGC`). Triples about literals are skipped, as from any RDF.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fedkge.config import build, read_toml
from fedkge.errors import ConfigError, DataError, MissingPackage, suggest
from fedkge.graphs.indexing import NamedTriples, triples_by_name
from fedkge.graphs.rdf import tell_skipped
from fedkge.graphs.streams import CONTROL
from fedkge.graphs.values import is_value

PYTHON = "FEDKGE_MORPH_KGC"  #: the environment variable with the Python that has morph-kgc
SECONDS = 3600  #: after so many a mapping is given up
LINE = re.compile(
    r"(<[^>]*>|_:\S+) (<[^>]*>) (<[^>]*>|_:\S+|\".*) \."
)  # of N-Triples, as morph-kgc writes it
ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})")


@dataclass(frozen=True)
class Source:
    """Where triples come from; paths are relative to the file that names them."""

    mapping: str  #: R2RML or RML, in Turtle
    database: str | None = None  #: of SQL, as SQLAlchemy takes it: sqlite:///north.sqlite
    files: str | None = None  #: the folder where RML's file names are looked up; unset: beside this file
    confidential: tuple[str, ...] = ()  #: predicates whose triples are confidential


def read_mapping(path: Path, values: bool = False) -> NamedTriples:
    """The triples that a mapping makes, sorted; those of confidential predicates are marked.

    `values`: numbers and dates are tails.
    """
    try:
        options = build(Source, read_toml(path), "")
    except ConfigError as error:
        raise DataError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from None
    lines = _made(path, options)
    named = triples_by_name(str(path), _rows(path, lines, values))
    if not len(named.triples):
        raise DataError(f"{path}: expected a mapping that makes triples between IRIs, it made none")
    if not options.confidential:
        return named
    for name in options.confidential:
        if name not in named.relations:
            hint = suggest(name, named.relations)
            raise DataError(f"{path}: confidential: the mapping makes no triple of {name!r}{hint}")
    secret = [relation in options.confidential for relation in named.relations]
    return NamedTriples(
        named.source,
        named.triples,
        named.entities,
        named.relations,
        np.array(secret, np.bool_)[named.triples[:, 1]],
    )


def _made(path: Path, options: Source) -> list[str]:
    """What morph-kgc writes, a triple per line; a set has no order, so that the lines are sorted."""
    home = path.parent.resolve()
    for key, value in (("mapping", f"{home}/{options.mapping}"), ("database", options.database or "")):
        if CONTROL.search(value):  # a line break would begin another setting of morph-kgc
            raise DataError(f"{path}: {key}: expected a text without line breaks and tabs, found {value!r}")
    mapping = home / options.mapping
    if not mapping.is_file():
        raise DataError(f"{path}: mapping: {mapping}: no such file")
    if not (files := home / (options.files or ".")).is_dir():
        raise DataError(f"{path}: files: {files}: no such folder")
    with TemporaryDirectory() as folder:
        made = Path(folder) / "triples.nt"
        source = [f"mappings: {mapping}"]
        if options.database is not None:
            source.append(f"db_url: {_address(path, home, options.database)}")
        config = Path(folder) / "morph.ini"
        head = [
            "[CONFIGURATION]",
            f"output_file: {made}",
            "output_format: N-TRIPLES",
            "number_of_processes: 1",
        ]
        config.write_text("\n".join([*head, "[SITE]", *source]).replace("%", "%%") + "\n", encoding="utf-8")
        _run(path, [*_command(path), "-m", "morph_kgc", str(config)], files)
        return sorted(set(made.read_text(encoding="utf-8").splitlines())) if made.exists() else []


def _address(path: Path, home: Path, database: str) -> str:
    """The address, with SQLite's file found from the site's file; a missing one is not created."""
    start = "sqlite:///"
    if not database.startswith(start):
        return database
    file = home / database.removeprefix(start)
    if not file.is_file():
        raise DataError(f"{path}: database: {file}: no such file")
    return f"{start}{file}"


def _command(path: Path) -> list[str]:
    if chosen := os.environ.get(PYTHON):
        return [chosen]
    if find_spec("morph_kgc") is None:
        raise MissingPackage(
            "morph-kgc",
            f"{path}: carrying out a mapping",
            remedy="give it an environment of its own, since it asks for other versions of pandas and "
            "pyoxigraph: python -m venv morph; morph/bin/pip install 'morph-kgc[sqlite]'; "
            f"export {PYTHON}=$PWD/morph/bin/python",
        )
    return [sys.executable]


def _run(path: Path, command: list[str], files: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=files, capture_output=True, text=True, check=False, timeout=SECONDS, errors="replace"
        )
    except OSError as error:
        raise DataError(
            f"{path}: {PYTHON}: {command[0]} cannot be run ({error.strerror}); expected a Python"
        ) from None
    except subprocess.TimeoutExpired:
        raise DataError(f"{path}: the mapping was not done after {SECONDS:,} seconds") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"{path}: morph-kgc failed: {said[-1].strip() if said else 'it does not say why'}")


def _rows(path: Path, lines: list[str], values: bool) -> Iterator[tuple[str, str, str]]:
    skipped = Counter[bool]()
    for line in lines:
        found = LINE.fullmatch(line.strip())
        if found is None:
            raise DataError(f"{path}: morph-kgc wrote {line!r}, expected a triple of N-Triples")
        head, relation, tail = found.groups()
        value = tail.startswith('"') and is_value(tail[1:].split('"')[0])
        if value and values:
            yield _name(head), _name(relation), tail[1:].split('"')[0]
        elif tail.startswith('"'):
            skipped[value] += 1
        else:
            yield _name(head), _name(relation), _name(tail)
    tell_skipped(str(path), sum(skipped.values()), skipped[True])


def _name(term: str) -> str:
    """An IRI without its brackets and escapes; a blank node keeps its label."""
    return ESCAPE.sub(lambda code: chr(int(code[1] or code[2], 16)), term.removeprefix("<").removesuffix(">"))
