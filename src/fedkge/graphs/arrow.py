"""TSV, CSV and Parquet through pyarrow: columns become numbers without a Python object per triple."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError, MissingPackage
from fedkge.graphs.delimited import (
    HEADERS,
    MARK_HEADERS,
    MARKS,
    ROLES,
    Dialect,
    is_blank,
    is_header,
    rows,
)
from fedkge.graphs.graph import Mask
from fedkge.graphs.indexing import NamedTriples
from fedkge.graphs.streams import opened

BLOCK = 4 << 20  #: bytes parsed at a time; the result does not depend on it

Column: TypeAlias = Any  # pyarrow.ChunkedArray of strings
Codes: TypeAlias = NDArray[np.int32]


def read_fast(path: Path, dialect: Dialect, marks: bool) -> NamedTriples | None:
    """What `read_plainly` returns, or None where only that reader can tell: a file with an error, with
    blank lines, or with quotes (pyarrow would accept a quote that is never closed)."""
    import pyarrow
    from pyarrow import csv

    with opened(path) as stream:
        _, first = next(rows(path, stream, dialect), (0, []))
    if len(first) not in ((3, 4) if marks else (3,)):
        return None
    columns = [*ROLES, "mark"][: len(first)]
    text = pyarrow.large_string()
    try:
        with opened(path) as stream:
            table = csv.read_csv(
                stream,
                csv.ReadOptions(
                    column_names=columns,
                    block_size=BLOCK,
                    skip_rows=int(dialect.quoted and is_header(path, first)),
                ),
                csv.ParseOptions(delimiter=dialect.separator, quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(column_types=dict.fromkeys(columns, text), null_values=[]),
            )
    except pyarrow.ArrowException:
        return None
    if not table.num_rows:
        return None
    confidential = _marks(table["mark"]) if "mark" in columns else None
    if "mark" in columns and confidential is None:
        return None
    named = _coded(path, [table[role] for role in ROLES], confidential)
    del table
    pyarrow.default_memory_pool().release_unused()  # else the text of the file stays with the process
    names = named.entities + named.relations
    doubtful = any(map(is_blank, names)) or (dialect.quoted and '"' in "".join(names))
    return None if doubtful else named


def read_parquet(path: Path, marks: bool) -> NamedTriples:
    """Three columns of strings, found by their names in any case or else by their order; a fourth holds marks
    and must be named so."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingPackage("pyarrow", f"{path}: reading Parquet", "graphs") from None

    with opened(path) as stream:
        packed = pyarrow.py_buffer(stream.read()) if path.suffix == ".gz" else None
        try:
            table = parquet.read_table(pyarrow.BufferReader(packed) if packed is not None else stream)
        except pyarrow.ArrowException as error:
            raise DataError(f"{path}: expected Parquet, found something else ({error})") from None
    if table.num_columns not in (3, 4) or len(set(map(str.lower, table.column_names))) < table.num_columns:
        raise DataError(
            f"{path}: expected 3 or 4 columns, each with a name of its own, found {table.column_names}"
        )
    if table.num_columns == 4 and not marks:
        raise DataError(f"{path}: expected 3 columns, found 4; marks of confidentiality belong in train")
    if not table.num_rows:
        raise DataError(f"{path}: expected triples, found none")
    names, mark = _parquet_columns(path, table.column_names)
    columns = [_text(path, name, table[name]) for name in names]
    return _coded(path, columns, None if mark is None else _parquet_marks(path, mark, table[mark]))


def _parquet_columns(path: Path, found: list[str]) -> tuple[list[str], str | None]:
    """The columns of heads, relations and tails, and that of the marks if there is a fourth."""
    by_word = {name.lower(): name for name in found}
    header = next((words for words in HEADERS if set(words) <= set(by_word)), None)
    if header is not None:
        names = [by_word[word] for word in header]
    else:
        names = [name for name in found if len(found) == 3 or name.lower() not in MARK_HEADERS][:3]
    rest = [name for name in found if name not in names]
    if rest and (len(rest) > 1 or rest[0].lower() not in MARK_HEADERS):
        expected = f"three columns and one named {' or '.join(MARK_HEADERS)}"
        raise DataError(f"{path}: expected {expected}, found also {rest[0]!r}; remove or rename that column")
    return names, rest[0] if rest else None


def _coded(path: Path, columns: list[Column], confidential: Mask | None) -> NamedTriples:
    """Number the names of three columns of strings."""
    import pyarrow

    heads, links, tails = columns
    ends, entities = _by_appearance(pyarrow.chunked_array([*heads.chunks, *tails.chunks]))
    triples = np.empty((len(heads), 3), np.int64)
    triples[:, 0], triples[:, 2] = ends[: len(heads)], ends[len(heads) :]
    triples[:, 1], relations = _by_appearance(links)
    return NamedTriples(str(path), triples, entities, relations, confidential)


def _by_appearance(column: Column) -> tuple[Codes, list[str]]:
    """The column as numbers, and its distinct names in the order of first appearance."""
    encoded = column.dictionary_encode()
    codes = np.concatenate([_plain(chunk.indices) for chunk in encoded.chunks])
    return codes, encoded.chunk(0).dictionary.to_pylist()


def _plain(indices: Any) -> Codes:
    """An int32 array without gaps, as numpy's; Arrow's own way would import pandas where it is installed."""
    return np.frombuffer(indices.buffers()[1], np.int32, len(indices), 4 * indices.offset)


def _marks(column: Column) -> Mask | None:
    """True where the mark says so; None if some mark says nothing we know."""
    codes, values = _by_appearance(column)
    known = [MARKS.get(value.lower()) for value in values]
    if None in known:
        return None
    marks: Mask = np.array(known, np.bool_)[codes]
    return marks


def _text(path: Path, name: str, column: Column) -> Column:
    """The column as strings without gaps and empty names."""
    from pyarrow import ArrowException, compute, large_string, types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise DataError(f"{path}: expected strings in column {name!r}, found {column.type}")
    try:
        column = column.cast(large_string())
        column.validate(full=True)
    except ArrowException as error:
        raise DataError(f"{path}: expected UTF-8 in column {name!r}, found {error}") from None
    column = compute.fill_null(column, "")
    bad = [name for name in column.unique().to_pylist() if is_blank(name)]
    if bad:
        row = min(compute.index(column, name).as_py() for name in bad) + 1
        raise DataError(f"{path}: row {row}: expected a name in column {name!r}, found none")
    return column


def _parquet_marks(path: Path, name: str, column: Column) -> Mask:
    from pyarrow import ArrowException, large_string

    try:
        texts = column.cast(large_string()).fill_null("")
    except ArrowException:
        raise DataError(
            f"{path}: expected marks of confidentiality in column {name!r}, found {column.type}"
        ) from None
    marks = _marks(texts)
    if marks is None:
        found = next(value for value in texts.unique().to_pylist() if value.lower() not in MARKS)
        row = texts.to_pylist().index(found) + 1
        raise DataError(
            f"{path}: row {row}: expected 0, 1, true, false or nothing in column {name!r}, found {found!r}"
        )
    return marks
