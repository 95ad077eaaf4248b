"""Exports of Neo4j as CSV: nodes and relationships, as apoc.export.csv and neo4j-admin write them.

Two forms. The first has one file with columns `_id, _labels, ..., _start, _end, _type`, in which nodes and
relationships are rows. The second (also apoc's with `bulkImport`) has files of nodes with a column `:ID`, and
files of relationships with columns `:START_ID`, `:END_ID` and `:TYPE`. Relationships become triples.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.delimited import Bad, Dialect, dialect_of, is_blank, rows
from fedkge.graphs.indexing import NamedTriples, triples_by_name
from fedkge.graphs.streams import opened
from fedkge.graphs.table import Table, place

TYPED = re.compile(r"([^:]*):(ID|START_ID|END_ID|TYPE)(?:\(([^)]*)\))?")  #: name, kind, space of ids
APOC = {"_id": "ID", "_start": "START_ID", "_end": "END_ID", "_type": "TYPE"}

Node: TypeAlias = tuple[str, str]  #: its space of ids, and its id


@dataclass(frozen=True)
class Header:
    """The columns of an export: where those with a meaning stand, and the space of ids that they are of."""

    columns: list[str]
    kinds: dict[str, tuple[int, str]]

    @classmethod
    def of(cls, columns: Sequence[str]) -> Header:
        kinds = {}
        for i, column in enumerate(columns):
            if column in APOC:
                kinds[APOC[column]] = (i, "")
            elif found := TYPED.fullmatch(column):
                kinds[found[2]] = (i, found[3] or "")
        return cls([column.partition(":")[0] or column for column in columns], kinds)

    @property
    def nodes(self) -> bool:
        return "ID" in self.kinds

    @property
    def relationships(self) -> bool:
        return {"START_ID", "END_ID"} <= self.kinds.keys()

    def node(self, kind: str, fields: Sequence[str]) -> Node | None:
        """The node that a row names; none if the row is of the other sort."""
        i, space = self.kinds[kind]
        return None if is_blank(fields[i]) else (space, fields[i])


def header_of(path: Path, table: Table) -> Header:
    """The header of a CSV file."""
    with opened(path) as stream:
        return Header.of(next(rows(path, stream, _dialect(path, table)), (0, []))[1])


def is_export(path: Path, table: Table) -> bool:
    """Whether a CSV file is a whole export, with nodes and relationships."""
    header = header_of(path, table)
    return header.nodes and header.relationships


def read_neo4j(source: Path, files: Sequence[Path], table: Table) -> NamedTriples:
    """The relationships as triples, of nodes by the property `table.node`, or else by their ids."""
    bad = Bad(source, table.skip_bad)
    headers = {path: header_of(path, table) for path in files}
    names: dict[Node, str] = {}
    for path, header in headers.items():
        if header.nodes:
            names |= _nodes(path, header, table, bad)
    twice = len(names) - len(set(names.values()))
    if twice:
        warnings.warn(
            f"{source}: {twice:,} nodes have the {table.node or 'id'} of another: they are one entity",
            DataWarning,
            stacklevel=4,
        )
    named = triples_by_name(
        str(source),
        (
            row
            for path, header in headers.items()
            if header.relationships
            for row in _relationships(path, header, names, table, bad)
        ),
    )
    bad.tell()
    if not len(named.triples):
        raise DataError(f"{source}: expected relationships, found none")
    return named


def _nodes(path: Path, header: Header, table: Table, bad: Bad) -> Iterator[tuple[Node, str]]:
    if table.node is None and header.relationships:
        known = [name for name in header.columns if not name.startswith("_")]
        raise DataError(
            f"{path}: ids mean nothing to other sites; say which property names a node, as "
            f"in data.table = {{ node = {known[0] if known else 'name'!r} }} (found: {', '.join(known)})"
        )
    chosen = None if table.node is None else _property(path, header, table.node)
    for line, fields in _records(path, header, table, bad):
        node = header.node("ID", fields)
        if node is None:
            continue
        space, name = node
        if chosen is not None:
            name = fields[chosen]
        elif space:
            name = f"{space}/{name}"
        if is_blank(name):
            bad.row(line, f"{path.name}: node {node[1]!r} has no {table.node}")
        else:
            yield node, name


def _property(path: Path, header: Header, name: str) -> int:
    return place(path, header.columns, name, header=True)


def _relationships(
    path: Path, header: Header, names: dict[Node, str], table: Table, bad: Bad
) -> Iterator[tuple[str, str, str]]:
    kind = header.kinds.get("TYPE", (-1, ""))[0]
    named = re.sub(r"^relationships?[._-]|\.(csv|tsv)(\.gz)?$", "", path.name)  # as apoc names files by type
    for line, fields in _records(path, header, table, bad):
        head, tail = header.node("START_ID", fields), header.node("END_ID", fields)
        if head is None or tail is None:
            if not header.nodes:
                bad.row(line, f"{path.name}: expected a node at both ends, found none")
            continue
        unknown = next((end for end in (head, tail) if end not in names), None) if names else None
        relation = fields[kind] if kind >= 0 else named
        if unknown is not None:
            bad.row(line, f"{path.name}: no node has the id {unknown[1]!r}")
        elif is_blank(relation):
            bad.row(line, f"{path.name}: expected a type, found none")
        else:
            yield names.get(head, head[1]), relation, names.get(tail, tail[1])


def _records(path: Path, header: Header, table: Table, bad: Bad) -> Iterator[tuple[int, list[str]]]:
    with opened(path) as stream:
        for line, fields in rows(path, stream, _dialect(path, table)):
            if line == 1 or not fields:
                continue
            if len(fields) == len(header.columns):
                yield line, fields
            else:
                bad.row(line, f"{path.name}: expected {len(header.columns)} fields, found {len(fields)}")


def _dialect(path: Path, table: Table) -> Dialect:
    return dialect_of(Path(path.name.removesuffix(".gz")).suffix, table)
