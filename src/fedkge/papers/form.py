"""The form of a record: what each of its parts must be, so that pages can be made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from re import fullmatch
from typing import Any

from fedkge.errors import DataError, suggest
from fedkge.papers.records import NEEDED, Record
from fedkge.reports.compared.reference import CONVERGED, LEVELS, NEVER, SPENT

MADE = ("valid", "sites", "curve", "triples", "seconds", "bytes", "ranks")  #: what a record with a curve has
OLD = ("inferred", "spent")  #: what only a record of a run from before there were records has
COURSE = ("rounds", "best_round", "best_rounds")
PLACED = ("protocol", "dataset", "model")  #: parts that name the file of a record
PARTS = ("data", "model", "trainer", "method", "select", "codec", "aggregate")  #: that its `config` must have
POINT = "[round, validation MRR, values, bytes]"
MOST = 2**63 - 1  #: no number of a record is larger
MARKUP = frozenset("|<>`[]")  #: what would be more than text on a page
WIDEST = 60  #: characters of what was found that a message shows


def check_form(record: Record) -> None:
    """An error that names the part, what was expected there, and what was found."""
    _known("", record, (*NEEDED, *MADE, *OLD))
    for part in (*PLACED, "method"):
        _text(part, record[part])
        if part in PLACED and "/" in record[part]:
            raise _unlike(part, "a name without slashes", record[part])
    _whole("seed", record["seed"])
    _courses(record["courses"])
    for name, of in {"device": None, **_table("environment", record["environment"])}.items():
        _text(f"environment.{name}", of)
        if not of.isprintable() or set(of) & MARKUP:
            raise _unlike(f"environment.{name}", f"a line without any of {' '.join(sorted(MARKUP))}", of)
    for name, of in _filled("metrics", record["metrics"]).items():
        _metrics(f"metrics.{name}", of)
    config = _table("config", record["config"])
    for part in PARTS:
        _table(f"config.{part}", config.get(part))
    if "triples" in record:
        _whole("triples", record["triples"])
    if "inferred" in record and "curve" not in record:
        _old(record)
    else:
        _made(record)


def _made(record: Record) -> None:
    """What comes with a curve."""
    if odd := next((part for part in OLD if part in record), None):
        raise DataError(f"{odd}: a record with a curve has no such part")
    if missing := next((part for part in MADE if part not in record), None):
        raise DataError(f"{missing} is missing; a record of a run has {', '.join(MADE)}")
    _metrics("valid", record["valid"])
    for name, of in record["metrics"].items():
        _whole(f"metrics.{name}.count", of.get("count"), least=1)
    for site, of in _filled("sites", record["sites"]).items():
        _metrics(f"sites.{site}", of)
        _whole(f"sites.{site}.count", of.get("count"), least=1)
    _curve(record["curve"])
    for part, value in {"total": None, **_table("seconds", record["seconds"])}.items():
        _number(f"seconds.{part}", value)
    sent = _table("bytes", record["bytes"])
    _known("bytes", sent, ("up", "down"))
    for way in ("up", "down"):
        _whole(f"bytes.{way}", sent.get(way))
    if not isinstance(record["ranks"], str) or not fullmatch("[0-9a-f]{32}", record["ranks"]):
        raise _unlike("ranks", "a digest of 32 hexadecimal digits", record["ranks"])


def _old(record: Record) -> None:
    """What is kept of a run from before there were records."""
    if odd := next((part for part in MADE if part in record and part != "triples"), None):
        raise DataError(f"{odd}: a record without a curve has no such part")
    if not isinstance(record["inferred"], list) or not set(map(str, record["inferred"])) <= {*NEEDED, *MADE}:
        raise _unlike("inferred", "a list of parts of the record", record["inferred"])
    if "spent" in record:
        _spent(_table("spent", record["spent"]))


def _courses(value: Any) -> None:
    for name, course in _filled("courses", value).items():
        where = f"courses.{name}"
        of = _table(where, course)
        _known(where, of, COURSE)
        _whole(f"{where}.rounds", of.get("rounds"), least=1)
        _whole(f"{where}.best_round", of.get("best_round"), most=of["rounds"])
        for view, best in _table(f"{where}.best_rounds", of.get("best_rounds", {})).items():
            _whole(f"{where}.best_rounds.{view}", best, most=of["rounds"])


def _metrics(where: str, value: Any) -> None:
    of = _table(where, value)
    for name, number in {"mrr": None, **of}.items():
        if name == "mrr" or name.startswith("hits@"):
            _number(f"{where}.{name}", number, most=1)
        elif name == "mr":
            _number(f"{where}.{name}", number, least=1)
        elif name == "count":
            _whole(f"{where}.{name}", number, least=1)
        else:
            raise DataError(f"{where}.{name}: no such metric; expected mrr, mr, hits@K or count")


def _curve(value: Any) -> None:
    if not isinstance(value, list) or not value:
        raise _unlike("curve", f"one {POINT} or more", value)
    before = -1
    for i, point in enumerate(value):
        if not isinstance(point, list) or len(point) != len(POINT.split(",")):
            raise _unlike(f"curve[{i}]", POINT, point)
        number, mrr, *sent = point
        _whole(f"curve[{i}], round", number, least=before + 1)
        _number(f"curve[{i}], validation MRR", mrr, most=1)
        for name, count in zip(("values", "bytes"), sent, strict=True):
            _whole(f"curve[{i}], {name}", count)
        before = number


def _spent(of: Mapping[str, Any]) -> None:
    """What an old record tells of its costs, in words where the run never got so far."""
    for name in ("valid_mrr", "reference_mrr"):
        _number(f"spent.{name}", of.get(name), most=1)
    for name in SPENT.values():
        _whole(f"spent.{name}@{CONVERGED}", of.get(f"{name}@{CONVERGED}"))
    needed = dict.fromkeys(f"{name}@{level}" for name in SPENT.values() for level in LEVELS)
    for name, number in {**needed, **of}.items():
        if number != NEVER:
            _number(f"spent.{name}", number)


# Kinds of values


def _known(where: str, of: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in of:
        if name not in names:
            place = f"{where}.{name}" if where else name
            raise DataError(f"{place}: no such part{suggest(name, names)} (known: {', '.join(names)})")


def _text(where: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise _unlike(where, "a word or more", value)


def _whole(where: str, value: Any, least: int = 0, most: int = MOST) -> None:
    if type(value) is not int or not least <= value <= most:
        raise _unlike(where, f"a whole number {_bounds(least, most)}", value)


def _number(where: str, value: Any, least: int = 0, most: int = MOST) -> None:
    if type(value) not in (int, float) or not least <= value <= most:  # NaN is within no bounds
        raise _unlike(where, f"a number {_bounds(least, most)}", value)


def _bounds(least: int, most: int) -> str:
    return f"of at least {least}" if most == MOST else f"from {least} to {most}"


def _table(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _unlike(where, "an object", value)
    return value


def _filled(where: str, value: Any) -> Mapping[str, Any]:
    if not _table(where, value):
        raise _unlike(where, "an object with one entry or more", value)
    return value


def _unlike(where: str, expected: str, found: Any) -> DataError:
    text = "nothing" if found is None else json.dumps(found)
    return DataError(f"{where}: expected {expected}, found {text[:WIDEST]}{'...' * (len(text) > WIDEST)}")
