"""How far a site has moved its rows while it forgot: told once, before the first round of an unlearning.

A site that joins sends the displacement of the rows that it announces. The hub tells it how many sites own
each row that it shares, and tells every site the sum of what the others have moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.rows import Message
from fedkge.graphs.graph import Axis
from fedkge.models.tables import LONGEST

MOVED, OWNERS = "moved", "owners"


def body(part: str, by_axis: Mapping[Axis, Tensor]) -> dict[str, Tensor]:
    """Displacements, or numbers of owners, as they are sent."""
    return {f"{axis}.{part}": of for axis, of in by_axis.items()}


def split(message: Message) -> tuple[Message, dict[Axis, Tensor], dict[Axis, Tensor]]:
    """A message without them, displacements, and numbers of owners."""
    rest = dict(message.body)
    moved, owners = (
        {axis: rest.pop(f"{axis}.{part}") for axis in Axis if f"{axis}.{part}" in rest}
        for part in (MOVED, OWNERS)
    )
    return replace(message, body=rest), moved, owners


def check_moved(moved: Mapping[Axis, Tensor], sizes: Mapping[Axis, tuple[int, int]]) -> None:
    """`sizes`: the rows and the width that each axis may have; one that is not there may have none."""
    for axis, rows in moved.items():
        if axis not in sizes:
            raise DataError(f"{axis} rows that were moved: expected none")
        if rows.dtype != torch.float32 or tuple(rows.shape) != sizes[axis]:
            raise DataError(
                f"{axis} rows that were moved: {list(rows.shape)}, expected {list(sizes[axis])} float32"
            )
        if not bool((rows.abs() <= LONGEST).all()):
            raise DataError(f"{axis} rows that were moved: expected finite numbers within {LONGEST:g}")


def check_owners(owners: Mapping[Axis, Tensor], sizes: Mapping[Axis, int], most: int) -> None:
    """Two owners at least, and no more than there can be sites."""
    for axis, of in owners.items():
        if of.dtype != torch.int32 or tuple(of.shape) != (sizes.get(axis),):
            raise DataError(f"{axis} owners: {list(of.shape)}, expected one number for each shared row")
        if len(of) and not 2 <= int(of.min()) <= int(of.max()) <= most:
            raise DataError(f"{axis} owners: expected 2 to {most:,}")
