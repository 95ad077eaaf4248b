"""Plain values beside rows: how many a site says that it has, and what a method says about a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fedkge.errors import DataError
from fedkge.graphs.graph import Axis


def totals(site: str, note: Mapping[str, Any], ids: Mapping[Axis, Tensor]) -> dict[Axis, int]:
    """How many rows, shared or not, each table of a site has that joins with this note."""
    found, shared = note.get("totals"), {axis.value: len(own) for axis, own in ids.items()}
    if isinstance(found, Mapping) and found.keys() == shared.keys():
        counts = {Axis(axis): found[axis] for axis in shared}
        if all(type(count) is int and count >= shared[axis] for axis, count in counts.items()):
            return counts
    raise DataError(f"{site} joins with totals {found!r}, expected numbers of rows of at least {shared}")


def noted(sites: Sequence[str], notes: Mapping[str, Tensor]) -> dict[str, Any]:
    """Numbers [s, s] between sites as a journal has them, to six digits; nothing where there are none."""
    found = {
        name: {"sites": list(sites), "values": [[float(f"{v:.6g}") for v in row] for row in values.tolist()]}
        for name, values in notes.items()
    }
    return {"notes": found} if found else {}
