"""Sizes beside a run under way are written as rich writes them, without rich."""

from __future__ import annotations

import pytest
from rich.filesize import decimal

from fedkge.front.progress import size


@pytest.mark.parametrize(
    "count", [0, 1, 999, 1000, 12_345, 999_949, 1_000_000, 123_456_789, 10**9, 5 * 10**12, 10**15 - 10**11]
)
def test_sizes(count: int) -> None:
    assert size(count) == decimal(count)
