"""Values of tables as names and marks: the same for DataFrames, arrays and lists as for files."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from fedkge.errors import DataError
from fedkge.graphs.delimited import MARKS


def is_missing(value: Any) -> bool:
    """Whether a table has nothing there: None, NaN, or what pandas has for them."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def name_of(value: Any, where: str) -> str:
    """A value as a name: whole numbers without a decimal point, and nothing that is missing."""
    if is_missing(value):
        raise DataError(f"{where}: a missing value; leave out such rows, as in table.dropna()")
    whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    text = str(int(value)) if whole and not isinstance(value, bool) else str(value)
    if not text.strip():
        raise DataError(f"{where}: expected a name, found {text!r}")
    return text


def mark_of(value: Any, where: str) -> bool:
    """Whether a triple is confidential: true or false, or as files have it."""
    text = "" if is_missing(value) else str(value).removesuffix(".0").lower()
    if text not in MARKS:
        raise DataError(f"{where}: expected true, false, 1, 0 or nothing as the mark, found {value!r}")
    return MARKS[text]
