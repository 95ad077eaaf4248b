"""Tables as they come: which columns hold heads, relations and tails, and what to do with odd rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fedkge.errors import ConfigError, DataError, suggest

HEADERS = (["head", "relation", "tail"], ["subject", "predicate", "object"])
ROLES = ("head", "relation", "tail")
MARK_HEADERS = ("confidential", "mark")  #: what a column of marks may be called, in any case

Column: TypeAlias = str | int  #: its name in the header, or its position from 1


@dataclass(frozen=True)
class Table:
    """How to read data that is not three columns of names. What is unset is found out from the file."""

    head: Column | None = None  #: the column with heads: its name in the first line, or its position from 1
    relation: Column | None = None  #: the column with relations
    tail: Column | None = None  #: the column with tails
    mark: Column | None = None  #: the column that marks confidential triples
    key: Column | None = None  #: of a wide table: the column that names a row; other columns are relations
    columns: tuple[str, ...] = ()  #: of a wide table: the columns to use; unset: all
    node: str | None = None  #: of a Neo4j export: the property that names a node
    separator: str | None = None  #: between fields, as in ";"; unset: a comma in .csv, a tab in .tsv
    header: bool | None = None  #: the first line names the columns; unset: if it has the usual names
    skip_bad: bool = False  #: count rows that are no triples, and go on without them
    drop: tuple[str, ...] = ()  #: relations to leave out
    numbers: Literal["keep", "bin", "skip"] | None = (
        None  #: numbers and dates as tails; unset: kept in tables, skipped in RDF, with a warning
    )
    edges: tuple[str, ...] = ()  #: of bins, by relation, as in "age=18,40,65"; unset: 1, 2, 5, 10, 20, ...
    prefixes: tuple[str, ...] = ()  #: short names of IRIs, as in "ex=https://care.example/"

    def __post_init__(self) -> None:
        named = [self.head, self.relation, self.tail]
        if any(column is not None for column in named) and None in named:
            raise ConfigError("head, relation, tail: expected all three columns, or none of them")
        if self.key is not None and (self.head is not None or self.mark is not None):
            raise ConfigError("key: a wide table has one; expected no head, relation, tail or mark beside it")
        if self.columns and self.key is None:
            raise ConfigError("columns: expected a key beside it, the column that names a row")
        if self.mark is not None and self.head is None:
            raise ConfigError("mark: expected head, relation and tail beside it")
        for column in (*named, self.mark, self.key):
            if isinstance(column, int) and column < 1:
                raise ConfigError(f"expected positions of columns from 1, found {column}")
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise ConfigError(f"separator: expected one character, found {self.separator!r}")
        if self.edges and self.numbers != "bin":
            raise ConfigError("edges: expected numbers = 'bin' beside it")
        self.borders(), self.namespaces()

    def borders(self) -> dict[str, list[float]]:
        """The edges of bins by relation."""
        found = {}
        for text in self.edges:
            relation, _, numbers = text.rpartition("=")
            try:
                borders = [float(number) for number in numbers.split(",")]
            except ValueError:
                borders = []
            if not relation or not borders or borders != sorted(set(borders)):
                raise ConfigError(f"edges: expected rising numbers, as in 'age=18,40,65', found {text!r}")
            found[relation] = borders
        return found

    def namespaces(self) -> dict[str, str]:
        """What each prefix stands for."""
        found = {}
        for text in self.prefixes:
            prefix, equals, namespace = text.partition("=")
            if not equals or not namespace:
                raise ConfigError(f"prefixes: expected them as in 'ex=https://care.example/', found {text!r}")
            found[prefix.removesuffix(":")] = namespace
        return found

    @property
    def positions(self) -> tuple[Column, Column, Column] | None:
        """The three columns, if they are named."""
        if self.head is None or self.relation is None or self.tail is None:
            return None
        return self.head, self.relation, self.tail


PLAIN = Table()


@dataclass(frozen=True)
class Layout:
    """Where a row of a file has its triple."""

    width: int  #: fields of every row
    places: tuple[int, int, int]  #: of head, relation and tail, from 0
    mark: int | None
    header: bool  #: the first line is no triple


def layout(path: Path, first: list[str], table: Table, marks: bool, called: str, usual: bool) -> Layout:
    """From the first line of a file. `usual`: a line with the usual names of columns is a header."""
    if (columns := table.positions) is not None:
        wanted = [*columns] if table.mark is None or not marks else [*columns, table.mark]
        header = table.header if table.header is not None else any(isinstance(one, str) for one in wanted)
        head, relation, tail, *rest = [place(path, first, column, header) for column in wanted]
        return Layout(len(first), (head, relation, tail), rest[0] if rest else None, header)
    header = usual and usual_columns(first) is not None if table.header is None else table.header
    found = usual_columns(first) if header else None
    if found is not None:
        rest = [i for i in range(len(first)) if i not in found]
        if not rest or (marks and len(rest) == 1 and _is_mark(first[rest[0]])):
            return Layout(len(first), found, rest[0] if rest else None, True)
        if odd := [first[i] for i in rest if not _is_mark(first[i])]:
            raise DataError(
                f"{path}:1: expected no other columns, found {odd[0]!r}; say which ones to read, as in "
                "data.table = { head = 'head', relation = 'relation', tail = 'tail' }"
            )
    if len(first) not in ((3, 4) if marks else (3,)):
        hint = "; marks of confidentiality belong in train" if len(first) == 4 else ""
        raise DataError(f"{path}:1: expected 3 {called} fields, found {len(first)}{hint or _advice(first)}")
    return Layout(len(first), (0, 1, 2), 3 if len(first) == 4 else None, header)


def usual_columns(first: list[str]) -> tuple[int, int, int] | None:
    """Where the usual names of columns stand, in any case and order; none if one of them is missing."""
    words = [field.lower() for field in first]
    if len(set(words)) < len(words):
        return None
    for names in HEADERS:
        if set(names) <= set(words):
            head, relation, tail = map(words.index, names)
            return head, relation, tail
    return None


def place(path: Path, first: list[str], column: Column, header: bool) -> int:
    """The position, from 0, of a column that options name."""
    if isinstance(column, int):
        if column > len(first):
            raise DataError(f"{path}:1: expected a column {column}, found {len(first)} columns")
        return column - 1
    if not header:
        raise DataError(
            f"{path}: no column has a name (data.table.header), expected a position, found {column!r}"
        )
    if column in first:
        return first.index(column)
    lower = [field.lower().strip() for field in first]
    if lower.count(column.lower()) == 1:
        return lower.index(column.lower())
    shown = ", ".join(first[:12])
    raise DataError(f"{path}:1: no column is named {column!r}{suggest(column, first)} (columns: {shown})")


def _is_mark(field: str) -> bool:
    return field.lower() in MARK_HEADERS


def _advice(first: list[str]) -> str:
    """What to do about a table of another shape."""
    if len(first) > 1:
        return (
            "; say which columns to read with data.table, as in { head = 1, relation = 2, tail = 3 }, or "
            "with fedkge data convert --head 1 --relation 2 --tail 3"
        )
    other = next((sign for sign in "\t;|," if first[0].count(sign) >= 2), None)
    if other is None:
        return ""
    return (
        f"; is {other!r} between the fields? data.table = {{ separator = {other!r} }}, or "
        f"fedkge data convert --separator {other!r}"
    )
