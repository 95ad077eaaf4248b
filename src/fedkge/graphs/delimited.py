"""TSV and CSV in plain Python: the slow and obvious reader, which also says where a file goes wrong."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.indexing import NamedTriples, triples_by_name
from fedkge.graphs.streams import opened
from fedkge.graphs.table import PLAIN, ROLES, Layout, Table, layout

MARKS = {"": False, "0": False, "1": True, "false": False, "true": True}  #: compared in lower case
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONGEST_FIELD = 2**31 - 1  #: characters; the csv module's own limit of 131,072 is too low for some literals


@dataclass(frozen=True)
class Dialect:
    """What stands between the fields of a line."""

    separator: str
    called: str
    quoted: bool  #: RFC 4180: a field may stand in double quotes, and the first line may be a header


TSV = Dialect("\t", "tab-separated", quoted=False)
CSV = Dialect(",", "comma-separated", quoted=True)


def dialect_of(suffix: str, table: Table = PLAIN) -> Dialect:
    """How a file of that suffix is written, unless options say otherwise."""
    usual = CSV if suffix == ".csv" else TSV
    if table.separator in (None, usual.separator):
        return usual
    return Dialect(str(table.separator), f"{table.separator!r}-separated", quoted=suffix == ".csv")


def read_plainly(path: Path, dialect: Dialect, marks: bool, table: Table = PLAIN) -> NamedTriples:
    """The triples of a file; `marks`: whether a column may mark confidential ones."""
    bad = Bad(path, table.skip_bad)
    found = bytearray()
    with opened(path) as stream:
        reader = _triples(path, stream, dialect, marks, table, bad, found)
        named = triples_by_name(str(path), reader)
    bad.tell()
    if not len(named.triples):
        raise DataError(f"{path}: expected triples, found none")
    if not found:
        return named
    confidential = np.frombuffer(found, np.bool_)
    return NamedTriples(str(path), named.triples, named.entities, named.relations, confidential)


class Bad:
    """Rows that are no triples: the first one is an error, or all are counted."""

    def __init__(self, path: Path, skip: bool) -> None:
        self.path, self.skip, self.count, self.first = path, skip, 0, ""

    def row(self, line: int, what: str) -> None:
        if not self.skip:
            raise DataError(f"{self.path}:{line}: {what}")
        self.first = self.first or f"the first is line {line}: {what}"
        self.count += 1

    def tell(self) -> None:
        if self.count:
            rows = "1 bad row" if self.count == 1 else f"{self.count:,} bad rows"
            warnings.warn(f"{self.path}: {rows} skipped; {self.first}", DataWarning, stacklevel=4)


def is_blank(name: str) -> bool:
    """Whether a name is empty or only white space, and so no name."""
    return not name or name.isspace()


def rows(path: Path, stream: BufferedIOBase, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The line number and the fields of each record; a blank line has no fields."""
    if not dialect.quoted:
        for number, line in enumerate(_lines(path, stream), 1):
            text = line.rstrip("\r\n")
            yield number, text.split(dialect.separator) if text else []
        return
    records = csv.reader(_lines(path, stream), delimiter=dialect.separator, strict=True)
    number = 1
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        for fields in records:
            yield number, fields
            number = records.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{number}: expected quoting by RFC 4180, found {error}") from None
    finally:
        csv.field_size_limit(limit)


def _lines(path: Path, stream: BufferedIOBase) -> Iterator[str]:
    """Lines with their ends, which are \\n, \\r\\n or \\r; decoded one by one, to know which is not UTF-8."""
    number = 0
    for chunk in stream:
        for line in chunk.splitlines(keepends=True):
            number += 1
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"byte 0x{line[error.start]:02x} after {error.start} bytes"
                advice = "write the file anew as UTF-8, as in iconv -f LATIN1 -t UTF-8"
                raise DataError(f"{path}:{number}: expected UTF-8, found {found}; {advice}") from None


def _triples(
    path: Path,
    stream: BufferedIOBase,
    dialect: Dialect,
    marks: bool,
    table: Table,
    bad: Bad,
    found: bytearray,
) -> Iterator[list[str]]:
    """The (head, relation, tail) of each line; their marks, if the file has them, are added to `found`."""
    shape: Layout | None = None
    blank = 0
    for line, fields in rows(path, stream, dialect):
        if not fields:
            blank = blank or line
            continue
        if blank:
            bad.row(blank, "expected a triple, found a blank line")
            blank = 0
        if shape is None:
            shape = layout(path, fields, table, marks, dialect.called, usual=dialect.quoted and line == 1)
            if shape.header:
                continue
        wrong, mark = _wrong(fields, shape, dialect, marks)
        if wrong:
            bad.row(line, wrong)
            continue
        if shape.mark is not None:
            found.append(mark)
        yield [fields[place] for place in shape.places]


def _wrong(fields: list[str], shape: Layout, dialect: Dialect, marks: bool) -> tuple[str, bool]:
    """What keeps a row from being a triple, and its mark."""
    if len(fields) != shape.width:
        hint = f"; line 1 had {shape.width} fields" if {len(fields), shape.width} == {3, 4} else ""
        if len(fields) == 4 and not marks:
            hint += "; marks of confidentiality belong in train"
        return f"expected {shape.width} {dialect.called} fields, found {len(fields)}{hint}", False
    for role, place in zip(ROLES, shape.places, strict=True):
        if is_blank(fields[place]):
            found_instead = "a field of white space" if fields[place] else "an empty field"
            return f"expected the name of a {role}, found {found_instead}", False
    if shape.mark is None:
        return "", False
    mark = MARKS.get(fields[shape.mark].lower())
    if mark is None:
        expected = "0, 1, true, false or nothing as the mark of confidentiality"
        advice = "; if the column means something else, name those to read (data.table)"
        return f"expected {expected}, found {fields[shape.mark]!r}{advice}", False
    return "", mark
