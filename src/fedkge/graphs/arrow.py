"""TSV, CSV and Parquet through pyarrow: columns become numbers without a Python object per triple."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError, DataWarning, MissingPackage
from fedkge.graphs.delimited import MARKS, Dialect, is_blank, rows
from fedkge.graphs.graph import Mask
from fedkge.graphs.indexing import NamedTriples
from fedkge.graphs.streams import RATIO, opened
from fedkge.graphs.table import MARK_HEADERS, PLAIN, Table, layout, place, usual_columns

MOST_ROWS = 1_000_000  #: of a Parquet file of any size
BLOCK = 4 << 20  #: bytes parsed at a time; the result does not depend on it

Column: TypeAlias = Any  # pyarrow.ChunkedArray of strings
Codes: TypeAlias = NDArray[np.int32]


def read_fast(path: Path, dialect: Dialect, marks: bool, table: Table = PLAIN) -> NamedTriples | None:
    """What `read_plainly` returns, or None where only that reader can tell: a file with an error, with
    blank lines, or with quotes (pyarrow would accept a quote that is never closed)."""
    import pyarrow
    from pyarrow import csv

    with opened(path) as stream:
        _, first = next(rows(path, stream, dialect), (0, []))
    if not first:
        return None
    shape = layout(path, first, table, marks, dialect.called, usual=dialect.quoted)
    columns = list(map(str, range(shape.width)))
    text = pyarrow.large_string()
    how = csv.ReadOptions(
        # Arrow's threads wait for ever at exit if reading fails midway, as a damaged gzip file does.
        use_threads=path.suffix != ".gz",
        column_names=columns,
        block_size=BLOCK,
        skip_rows=int(shape.header),
    )
    try:
        with opened(path) as stream:
            read = csv.read_csv(
                stream,
                how,
                csv.ParseOptions(delimiter=dialect.separator, quote_char=False, ignore_empty_lines=False),
                csv.ConvertOptions(column_types=dict.fromkeys(columns, text), null_values=[]),
            )
    except pyarrow.ArrowException:
        return None
    if not read.num_rows:
        return None
    confidential = None if shape.mark is None else _marks(read[shape.mark])
    if shape.mark is not None and confidential is None:
        return None
    used = {*shape.places, shape.mark}
    others = [read[i] for i in range(shape.width) if i not in used]
    doubtful = dialect.quoted and any(map(_has_quotes, others))
    named = _coded(path, [read[place] for place in shape.places], confidential)
    del read, others
    pyarrow.default_memory_pool().release_unused()  # else the text of the file stays with the process
    names = named.entities + named.relations
    doubtful = doubtful or any(map(is_blank, names)) or (dialect.quoted and '"' in "".join(names))
    return None if doubtful else named


def _has_quotes(column: Column) -> bool:
    from pyarrow import compute

    return bool(compute.any(compute.match_substring(column, '"')).as_py())


def read_parquet(path: Path, marks: bool, table: Table = PLAIN) -> NamedTriples:
    """Three columns, found by their names in any case or else by their order; a fourth holds marks and must
    be named so. Options may name the columns."""
    read = _parquet(path)
    if not read.num_rows:
        raise DataError(f"{path}: expected triples, found none")
    found = read.column_names
    if (chosen := table.positions) is not None:
        names = [found[place(path, found, column, header=True)] for column in chosen]
        mark = None
        if table.mark is not None and marks:
            mark = found[place(path, found, table.mark, header=True)]
    else:
        names, mark = _parquet_columns(path, found, marks)
    columns = [_text(path, name, read[name]) for name in names]
    if table.skip_bad:
        columns, read = _without_gaps(path, columns, read)
    columns = [_named(path, name, column) for name, column in zip(names, columns, strict=True)]
    return _coded(path, columns, None if mark is None else _parquet_marks(path, mark, read[mark]))


def parquet_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The names of the columns, then each row as text, with its number."""
    read = _parquet(path)
    yield 1, list(read.column_names)
    columns = [_text(path, name, read[name]).to_pylist() for name in read.column_names]
    for number, fields in enumerate(zip(*columns, strict=True), 2):
        yield number, list(fields)


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingPackage("pyarrow", f"{path}: reading Parquet", "graphs") from None

    with opened(path) as stream:
        packed = pyarrow.py_buffer(stream.read()) if path.suffix == ".gz" else None
        try:
            file = parquet.ParquetFile(pyarrow.BufferReader(packed) if packed is not None else stream)
            size = path.stat().st_size
            if file.metadata.num_rows > MOST_ROWS + RATIO * size:
                raise DataError(
                    f"{path}: {file.metadata.num_rows:,} rows in {size:,} bytes, as no honest graph has"
                )
            read = file.read()
        except pyarrow.ArrowException as error:
            raise DataError(f"{path}: expected Parquet, found something else ({error})") from None
    if len(set(map(str.lower, read.column_names))) < read.num_columns:
        raise DataError(f"{path}: expected columns with names of their own, found {read.column_names}")
    return read


def _without_gaps(path: Path, columns: list[Column], read: Any) -> tuple[list[Column], Any]:
    """Without rows in which a name is missing, which are counted."""
    from pyarrow import compute

    full = [compute.not_equal(compute.utf8_trim_whitespace(column), "") for column in columns]
    keep = compute.and_(compute.and_(full[0], full[1]), full[2])
    if gone := len(keep) - compute.sum(keep).as_py():
        rows_ = "1 bad row" if gone == 1 else f"{gone:,} bad rows"
        warnings.warn(f"{path}: {rows_} skipped, in which a name is missing", DataWarning, stacklevel=5)
    return [column.filter(keep) for column in columns], read.filter(keep)


def _parquet_columns(path: Path, found: list[str], marks: bool) -> tuple[list[str], str | None]:
    """The columns of heads, relations and tails, and that of the marks if there is a fourth."""
    advice = "name those to read, as in data.table = { head = 'from', relation = 'type', tail = 'to' }"
    if len(found) not in (3, 4):
        raise DataError(f"{path}: expected 3 or 4 columns, found {', '.join(found)}; {advice}")
    if len(found) == 4 and not marks:
        raise DataError(f"{path}: expected 3 columns, found 4; marks of confidentiality belong in train")
    if (places := usual_columns(found)) is not None:
        names = [found[i] for i in places]
    else:
        names = [name for name in found if len(found) == 3 or name.lower() not in MARK_HEADERS][:3]
    rest = [name for name in found if name not in names]
    if rest and (len(rest) > 1 or rest[0].lower() not in MARK_HEADERS):
        expected = f"three columns and one named {' or '.join(MARK_HEADERS)}"
        raise DataError(f"{path}: expected {expected}, found also {rest[0]!r}; {advice}")
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
    """The column as strings; numbers and dates as they are written, gaps as empty strings."""
    from pyarrow import ArrowException, compute, large_string, types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    plain = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_boolean)
    if not any(fits(kind) for fits in (*plain, types.is_floating, types.is_temporal, types.is_null)):
        raise DataError(f"{path}: expected texts or numbers in column {name!r}, found {column.type}")
    try:
        column = column.cast(large_string())
        column.validate(full=True)
    except ArrowException as error:
        raise DataError(f"{path}: expected UTF-8 in column {name!r}, found {error}") from None
    return compute.fill_null(column, "")


def _named(path: Path, name: str, column: Column) -> Column:
    """The column, in which no name may be missing."""
    from pyarrow import compute

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
