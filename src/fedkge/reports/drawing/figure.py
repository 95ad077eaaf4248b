"""A plot as plain data for plotly.js: what to draw; colours are left to the page and its two schemes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

Trace: TypeAlias = dict[str, Any]  #: `meta.series` names the page's variable with its colour


class End(NamedTuple):
    """A line's name beside its last point, where the screen is wide enough."""

    series: str
    name: str
    y: float
    shift: float  #: pixels upwards, so that names do not cover each other


@dataclass(frozen=True)
class Figure:
    """One plot: `label` says to those who cannot see it what it shows."""

    title: str
    label: str
    data: Sequence[Trace]
    layout: Mapping[str, Any]
    height: int = 360  #: pixels
    tools: bool = False  #: buttons for zooming and saving
    ends: Sequence[End] = ()  #: stand in for the legend


def named_axis(names: Sequence[str]) -> dict[str, Any]:
    """An axis of positions with names: plotly would take a site named 7 for a number."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": [text(name) for name in names]}
    return {**ticks, "showgrid": False, "zeroline": False}


def bytes_axis(title: str) -> dict[str, Any]:
    """20 MB rather than 20000000."""
    return {"title": {"text": title}, "tickformat": "~s", "ticksuffix": "B", "rangemode": "tozero"}


def text(name: str, longest: int = 24) -> str:
    """A name as plotly text, which knows a little HTML and takes dollars for formulas."""
    short = name if len(name) <= longest else f"{name[: longest - 1]}…"
    return escape(short, quote=False).replace("$", "&#36;")


def finite(value: float | None) -> float | None:
    """JSON knows no infinity; a gap is drawn."""
    return value if value is not None and isfinite(value) else None
