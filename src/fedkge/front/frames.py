"""Rows as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedkge.errors import MissingPackage

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(rows: Sequence[Mapping[str, Any]], index: str | None = None) -> DataFrame:
    """A DataFrame with a column per key; `index` names the column that rows are called by."""
    try:
        import pandas
    except ImportError:
        raise MissingPackage("pandas", "a table of results", "notebook") from None
    found = pandas.DataFrame.from_records(list(rows))
    return found if index is None or not len(found) else found.set_index(index)
