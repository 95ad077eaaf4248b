"""Wide tables: a row per thing, a column per property. Every filled cell is a triple (row, column, cell)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedkge.errors import DataError
from fedkge.graphs.delimited import Bad, is_blank
from fedkge.graphs.indexing import NamedTriples, triples_by_name
from fedkge.graphs.table import Table, place

ANSWERS = frozenset(("yes", "no", "true", "false"))  #: cells that mean nothing without their column
EMPTY = frozenset(("", "na", "n/a", "nan", "null", "none", "-"))  #: cells that say nothing, in lower case


def read_wide(path: Path, records: Iterator[tuple[int, list[str]]], table: Table) -> NamedTriples:
    """The triples of a wide table, row by row. `records`: line numbers and fields, the header first."""
    bad = Bad(path, table.skip_bad)
    named = triples_by_name(str(path), _triples(path, records, table, bad))
    bad.tell()
    if not len(named.triples):
        raise DataError(f"{path}: expected filled cells, found none")
    return named


def _triples(
    path: Path, records: Iterator[tuple[int, list[str]]], table: Table, bad: Bad
) -> Iterator[tuple[str, str, str]]:
    _, first = next(records, (0, []))
    if table.header is False:
        raise DataError(f"{path}: data.table.header: a wide table needs a header, which names its relations")
    assert table.key is not None
    key = place(path, first, table.key, header=True)
    chosen = [place(path, first, name, header=True) for name in table.columns] or range(len(first))
    used = [(i, first[i].strip()) for i in chosen if i != key and not is_blank(first[i])]
    if not used:
        raise DataError(f"{path}:1: expected columns beside the key {first[key]!r}, found none")
    for line, fields in records:
        if not fields:
            continue
        if len(fields) != len(first):
            bad.row(line, f"expected {len(first)} fields as in line 1, found {len(fields)}")
        elif is_blank(fields[key]):
            bad.row(line, f"expected a name in column {first[key]!r}, found none")
        else:
            for i, relation in used:
                cell = fields[i].strip()
                if cell.lower() not in EMPTY:
                    yield fields[key], relation, f"{relation}={cell}" if cell.lower() in ANSWERS else cell
