"""Cells of the tables that commands print."""

from __future__ import annotations

import pytest

from fedkge.cli.output import show


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1e-6, "1e-06"), (0.00005, "0.0001"), (0.0, "0.0000"), (-2e-7, "-2e-07"), (0.5, "0.5000")],
)
def test_small_numbers_are_not_shown_as_zero(
    value: float, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show([{"delta": value}], False)
    assert f" {shown} " in capsys.readouterr().out
