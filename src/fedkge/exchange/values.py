"""How many numbers a message has, as the papers count them (FedS, Eq. 5)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedkge.exchange.codec import Codec
from fedkge.exchange.direction import NEW, SUPPORT
from fedkge.graphs.graph import Axis


def values(
    body: Mapping[str, Tensor], shared: Mapping[Axis, int], codec: Codec, widths: Mapping[Axis, int]
) -> int:
    """Every number of every row, a row's number of sites, and one per shared row where only some are sent.

    Looks at the lengths of tensors alone. A body that nobody could read counts nothing.
    """
    count = 0
    for axis, width in widths.items():
        coded, whole = (_rows(body.get(f"{axis}.{part}")) for part in ("values", f"{NEW}.values"))
        rows, of = coded + whole, shared.get(axis, 0)
        if not 0 < rows <= of:
            continue
        count += coded * codec.numbers(width) + whole * width
        count += rows if f"{axis}.{SUPPORT}" in body else 0
        count += of if rows < of else 0
    return count


def _rows(tensor: Tensor | None) -> int:
    return len(tensor) if tensor is not None and tensor.ndim else 0
