"""Many questions from a file or a table, and answers as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from fedkge.errors import ConfigError, DataError, FedkgeError, MissingPackage
from fedkge.evaluation.prediction import COLUMNS, Predictor
from fedkge.front.cells import is_missing, name_of
from fedkge.graphs.delimited import dialect_of
from fedkge.graphs.delimited import rows as records
from fedkge.graphs.streams import opened
from fedkge.runs.held import Held

Row: TypeAlias = dict[str, Any]
Question: TypeAlias = tuple[str | None, str | None, str | None]
ASKED = ("", "?")  #: what stands where something is asked for


def answered(held: Held, questions: Mapping[str, Question], top: int, known: bool, openly: bool) -> list[Row]:
    """The likeliest answers to each question, all of which are checked before the first is answered.

    With several questions, rows have the number of theirs. `known`: also what the graph already states.
    """
    predictor, rows = Predictor(held.tables, held.graph, openly), []
    for place, question in questions.items():
        try:
            predictor.ids(question)
        except FedkgeError as error:
            raise type(error)(f"{place}: {error}" if place else str(error)) from None
    for number, question in enumerate(questions.values(), 1):
        for one in predictor.ask(question, top, not known):
            rows.append(({"question": number} if len(questions) > 1 else {}) | asdict(one))
    return rows


def missing(held: Held, relation: str | None, top: int, openly: bool) -> list[Row]:
    """The likeliest triples that the graph does not state."""
    return [asdict(one) for one in Predictor(held.tables, held.graph, openly).missing(relation, top)]


def neighbours(held: Held, entity: str, top: int, openly: bool) -> list[Row]:
    """The entities whose vectors are nearest."""
    return [asdict(one) for one in Predictor(held.tables, held.graph, openly).neighbours(entity, top)]


def read_questions(path: Path) -> dict[str, Question]:
    """Questions by where they stand: CSV, TSV or Parquet with head, relation and tail.

    What is asked for is empty or `?`; its column can be left out where the first line names the others.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix == ".parquet":
        return questions_of(_parquet(path), str(path))
    if suffix not in (".csv", ".tsv"):
        raise ConfigError(f"{path}: expected questions as .csv, .tsv or .parquet, found {suffix!r}")
    with opened(path) as stream:
        rows = [(line, fields) for line, fields in records(path, stream, dialect_of(suffix)) if fields]
    names: Sequence[str] = COLUMNS
    if rows and set(map(str.lower, rows[0][1])) <= set(COLUMNS):
        names, rows = [name.lower() for name in rows[0][1]], rows[1:]
    found: dict[str, Question] = {}
    for number, fields in rows:
        where = f"{path}:{number}"
        if len(fields) != len(names):
            raise DataError(f"{where}: expected {', '.join(names)}, found {len(fields)} fields")
        found[where] = _question(dict(zip(names, fields, strict=True)), where)
    return _some(found, str(path))


def questions_of(rows: Iterable[Mapping[str, Any]], source: str) -> dict[str, Question]:
    """Questions from rows with some of the keys head, relation and tail."""
    found = {f"{source}[{i}]": _question(row, f"{source}[{i}]") for i, row in enumerate(rows)}
    return _some(found, source)


def _question(row: Mapping[str, Any], where: str) -> Question:
    given = [row.get(column) for column in COLUMNS]
    missing = [is_missing(one) or str(one) in ASKED for one in given]
    if sum(missing) != 1:
        raise DataError(f"{where}: expected two of head, relation and tail, and nothing or ? for the third")
    names = (None if gone else name_of(one, where) for one, gone in zip(given, missing, strict=True))
    head, relation, tail = names
    return head, relation, tail


def _some(found: dict[str, Question], source: str) -> dict[str, Question]:
    if not found:
        raise DataError(f"{source}: expected questions, found none")
    return found


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingPackage("pyarrow", "reading Parquet", "graphs") from None
    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected a Parquet file: {error}") from None
    return rows
