"""TSV and CSV in plain Python: the slow and obvious reader, which also says where a file goes wrong."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from fedkge.errors import DataError
from fedkge.graphs.indexing import NamedTriples, triples_by_name
from fedkge.graphs.streams import opened

HEADERS = (["head", "relation", "tail"], ["subject", "predicate", "object"])
ROLES = ("head", "relation", "tail")
MARK_HEADERS = ("confidential", "mark")  #: what a column of marks may be called, in any case
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


def read_plainly(path: Path, dialect: Dialect, marks: bool) -> NamedTriples:
    """The triples of a file; `marks`: whether a fourth field may mark confidential ones."""
    found = bytearray()
    with opened(path) as stream:
        named = triples_by_name(str(path), _triples(path, stream, dialect, marks, found))
    if not len(named.triples):
        raise DataError(f"{path}: expected triples, found none")
    if not found:
        return named
    confidential = np.frombuffer(found, np.bool_)
    return NamedTriples(str(path), named.triples, named.entities, named.relations, confidential)


def is_header(path: Path, fields: list[str]) -> bool:
    """Whether the first line of a CSV file is a header, in any case; the same words in another order are an
    error, since the columns would be read as something they are not."""
    words = [field.lower() for field in fields]
    marks = [word for word in words if word in MARK_HEADERS]
    for names in HEADERS:
        if words == names + marks[:1]:
            return True
        if sorted(words) == sorted(names + marks[:1]):
            expected = ",".join(names + marks)
            raise DataError(f"{path}:1: expected columns in the order {expected}, found {','.join(fields)}")
    return False


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
                raise DataError(f"{path}:{number}: expected UTF-8, found {found}") from None


def _triples(
    path: Path, stream: BufferedIOBase, dialect: Dialect, marks: bool, found: bytearray
) -> Iterator[list[str]]:
    """The (head, relation, tail) of each line; their marks, if the file has them, are added to `found`."""
    width = blank = 0
    for line, fields in rows(path, stream, dialect):
        if line == 1 and dialect.quoted and is_header(path, fields):
            width = len(fields)
            _check_width(path, 1, dialect, 4 if marks and width == 4 else 3, width, marks)
            continue
        if not fields:
            blank = blank or line
            continue
        if blank:
            raise DataError(f"{path}:{blank}: expected a triple, found a blank line")
        width = width or (4 if marks and len(fields) == 4 else 3)
        if len(fields) != width:
            _check_width(path, line, dialect, width, len(fields), marks)
        for role, name in zip(ROLES, fields, strict=False):
            if is_blank(name):
                found_instead = "a field of white space" if name else "an empty field"
                raise DataError(f"{path}:{line}: expected the name of a {role}, found {found_instead}")
        if width == 4:
            mark = MARKS.get(fields[3].lower())
            if mark is None:
                expected = "0, 1, true, false or nothing as the mark of confidentiality"
                raise DataError(f"{path}:{line}: expected {expected}, found {fields[3]!r}")
            found.append(mark)
        yield fields[:3]


def _check_width(path: Path, line: int, dialect: Dialect, expected: int, found: int, marks: bool) -> None:
    if found == expected:
        return
    hint = f"; line 1 had {expected} fields" if line > 1 and {expected, found} == {3, 4} else ""
    if found == 4 and not marks:
        hint += "; marks of confidentiality belong in train"
    raise DataError(f"{path}:{line}: expected {expected} {dialect.called} fields, found {found}{hint}")
