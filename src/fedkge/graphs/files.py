"""Graphs and federations in files: which files make up a graph, and who reads them.

A graph is one file, or a folder with `train`, `valid`, `test` in any of the formats, or an OpenKE folder. Its
ids follow the rule stated in `fedkge.graphs.indexing`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fedkge.errors import DataError, suggest
from fedkge.graphs.arrow import parquet_rows, read_fast, read_parquet
from fedkge.graphs.delimited import dialect_of, read_plainly, rows
from fedkge.graphs.graph import Graph, Split
from fedkge.graphs.headers import warn_of_header
from fedkge.graphs.indexing import NamedTriples, graph_from_names, graph_from_triples
from fedkge.graphs.mapping import read_mapping
from fedkge.graphs.neo4j import header_of, is_export, read_neo4j
from fedkge.graphs.openke import is_openke, read_openke
from fedkge.graphs.pykeen import from_pykeen, to_pykeen
from fedkge.graphs.rdf import FORMATS, read_rdf
from fedkge.graphs.streams import opened
from fedkge.graphs.subgraph import dropped
from fedkge.graphs.table import PLAIN, Table
from fedkge.graphs.values import treated
from fedkge.graphs.wide import read_wide
from fedkge.graphs.writing import visible, write_federation, write_graph

__all__ = [
    "from_pykeen",
    "graph_from_names",
    "read_federation",
    "read_graph",
    "to_pykeen",
    "write_federation",
    "write_graph",
]

TABLES = (".tsv", ".csv", ".parquet")
SUFFIXES = (*TABLES, *FORMATS)  #: each may be followed by .gz
MAPPING = ".toml"  #: of a file that says how a whole graph is made out of tables


def read_graph(path: Path, *, strict: bool = False, drop_leaks: bool = False, table: Table = PLAIN) -> Graph:
    """The graph in a file, whose triples all become train, or in a folder.

    Duplicates are dropped with a warning. Names in valid or test that train never saw are a warning, or an
    error if `strict`. A triple in two splits is an error, or (`drop_leaks`) left out
    of the later one with a warning. A file that is not what its suffix says is an error.
    """
    graph = _read_graph(path, strict, drop_leaks, table)
    return dropped({"": graph}, table.drop)[""]


def _read_graph(path: Path, strict: bool, drop_leaks: bool, table: Table) -> Graph:
    if path.is_dir():
        splits = _read_folder(path, table)
    elif path.exists():
        splits = {Split.TRAIN: _read_file(path, Split.TRAIN, table)}
    else:
        raise DataError(f"{path}: no such file or folder")
    for part in splits.values():
        warn_of_header(part, table)
    return graph_from_triples(
        treated(splits, table), strict=strict, drop_leaks=drop_leaks, prefixes=table.namespaces()
    )


def read_federation(
    path: Path, *, strict: bool = False, drop_leaks: bool = False, table: Table = PLAIN
) -> dict[str, Graph]:
    """The sites' graphs, sorted by name: one folder or file each, named by it.

    A file, or a folder that holds a graph itself, is a federation of one. Hidden files and documents (README,
    LICENSE, NOTICE, ATTRIBUTION, *.md) are skipped.
    """
    if not path.is_dir() or is_openke(path) or _split_files(path) or _neo4j_files(path, table):
        sites = {_site(path.absolute()): path}
    else:
        sites = _sites(path)
    graphs = {site: _read_graph(sites[site], strict, drop_leaks, table) for site in sorted(sites)}
    return dropped(graphs, table.drop)


def _sites(folder: Path) -> dict[str, Path]:
    sites: dict[str, Path] = {}
    for member in visible(folder):
        if (site := _site(member)) in sites:
            raise DataError(
                f"{folder}: expected one graph per site, found {sites[site].name} and {member.name}"
            )
        sites[site] = member
    if not sites:
        raise DataError(f"{folder}: expected a folder or a file per site, found none")
    return sites


def _read_folder(folder: Path, table: Table) -> dict[Split, NamedTriples]:
    if is_openke(folder):
        return read_openke(folder)
    files = _split_files(folder)
    if not files:
        if exported := _neo4j_files(folder, table):
            return {Split.TRAIN: read_neo4j(folder, exported, table)}
        kinds = (*SUFFIXES, MAPPING)
        graphs = [member for member in visible(folder) if member.is_file() and _suffix(member) in kinds]
        if len(graphs) == 1:
            return {Split.TRAIN: _read_file(graphs[0], Split.TRAIN, table)}
    if Split.TRAIN not in files:
        found = ", ".join(member.name for member in visible(folder)[:8]) or "nothing"
        raise DataError(
            f"{folder}: expected train{{{','.join(SUFFIXES)}}}[.gz], found {found}{_misspelt(folder)}"
        )
    for member in visible(folder):
        hint = suggest(member.name.split(".")[0], map(str, Split))
        if hint and _suffix(member) in SUFFIXES and member not in files.values():
            raise DataError(f"{member}: expected train, valid or test, found another name{hint}")
    return {split: _read_file(path, split, table) for split, path in files.items()}


def _misspelt(folder: Path) -> str:
    """`; is trian.tsv meant to be train?`, or nothing when no file has a name like that."""
    for member in visible(folder):
        stem = member.name.split(".")[0]
        if _suffix(member) in SUFFIXES and stem not in list(Split) and suggest(stem.lower(), [Split.TRAIN]):
            return f"; is {member.name} meant to be train{member.name.removeprefix(stem)}?"
    return ""


def _split_files(folder: Path) -> dict[Split, Path]:
    """The folder's files that are named as a split."""
    files: dict[Split, Path] = {}
    for member in visible(folder):
        stem = member.name.split(".")[0]
        if member.is_dir() or stem not in list(Split):
            continue
        if _suffix(member) not in SUFFIXES:
            raise _unknown(member)
        if (split := Split(stem)) in files:
            raise DataError(
                f"{folder}: expected one file for {split}, found {files[split].name} and {member.name}"
            )
        files[split] = member
    return {split: files[split] for split in Split if split in files}


def _neo4j_files(folder: Path, table: Table) -> list[Path]:
    """The folder's files of nodes and relationships, if one has relationships between nodes of others."""
    headers = {
        member: header_of(member, table)
        for member in visible(folder)
        if member.is_file() and _suffix(member) in (".csv", ".tsv")
    }
    if not any(header.relationships and not header.nodes for header in headers.values()):
        return []
    return [path for path, header in headers.items() if header.nodes or header.relationships]


def _read_file(path: Path, split: Split, table: Table) -> NamedTriples:
    marks = split is Split.TRAIN
    suffix = _suffix(path)
    if suffix in TABLES:
        return _read_table(path, suffix, marks, table)
    if suffix in FORMATS:
        return read_rdf(path, values=table.numbers in ("keep", "bin"))
    if path.suffix == MAPPING:
        return read_mapping(path, values=table.numbers in ("keep", "bin"))
    raise _unknown(path)


def _read_table(path: Path, suffix: str, marks: bool, table: Table) -> NamedTriples:
    """By pyarrow if it is installed and has nothing to object to; the plain reader gives the same, slower."""
    if suffix == ".parquet":
        if table.key is not None:
            return read_wide(path, parquet_rows(path), table)
        return read_parquet(path, marks, table)
    dialect = dialect_of(suffix, table)
    if table.key is not None:
        with opened(path) as stream:
            return read_wide(path, rows(path, stream, dialect), table)
    if table.positions is None and is_export(path, table):
        return read_neo4j(path, [path], table)
    fast = read_fast(path, dialect, marks, table) if find_spec("pyarrow") and not table.skip_bad else None
    return fast or read_plainly(path, dialect, marks, table)


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def _unknown(path: Path) -> DataError:
    expected = f"a suffix of {' '.join(SUFFIXES)}, with or without .gz, or {MAPPING} for a mapping"
    return DataError(f"{path}: expected {expected}, found {_suffix(path)!r}; rename the file by its format")


def _site(path: Path) -> str:
    """A site's name: a folder's name, or a file's name without its suffixes."""
    return path.name if path.is_dir() else path.name.removesuffix(".gz").removesuffix(_suffix(path))
