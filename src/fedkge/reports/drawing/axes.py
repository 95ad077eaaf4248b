"""An axis of a plot, from plotly's words for it: where a value lies, and which ticks stand beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from math import ceil, floor, isfinite, log10
from typing import Any

TICKS = 6  #: about so many


@dataclass(frozen=True)
class Axis:
    """From values to pixels."""

    low: float  #: of values, or of their logarithms
    high: float
    first: float  #: the pixel of `low`
    last: float
    log: bool
    ticks: Sequence[tuple[float, str]]
    title: str
    visible: bool

    def at(self, value: float) -> float:
        """The pixel of a value."""
        number = log10(value) if self.log else value
        return self.first + (number - self.low) / (self.high - self.low) * (self.last - self.first)

    def has(self, value: Any) -> bool:
        """Whether a value has a place on the axis."""
        return isinstance(value, int | float) and isfinite(value) and (not self.log or value > 0)


def axis(
    words: Mapping[str, Any], values: Iterable[Any], first: float, last: float, room: float = 0.0
) -> Axis:
    """The axis that `words` describe, over these values; `room` is added at both ends."""
    log = words.get("type") == "log"
    known = [v for v in values if isinstance(v, int | float) and isfinite(v) and (not log or v > 0)]
    if "range" in words:
        low, high = words["range"]
    else:
        scaled = [log10(v) for v in known] if log else known
        low, high = min(scaled, default=0.0), max(scaled, default=1.0)
        if words.get("rangemode") == "tozero" and not log:
            low, high = min(low, 0.0), max(high, 0.0)
        margin = room or 0.04 * (high - low)
        low -= 0.0 if words.get("rangemode") == "tozero" and low == 0 and not room else margin
        high += margin
    if high <= low:
        low, high = low - 0.5, high + 0.5
    if words.get("autorange") == "reversed":
        first, last = last, first
    title = words.get("title", {}).get("text", "")
    ticks = [(v, t) for v, t in _ticks(words, low, high, log) if _within(v, low, high, log)]
    return Axis(low, high, first, last, log, ticks, unescape(title), words.get("visible", True))


def _within(value: float, low: float, high: float, log: bool) -> bool:
    if log and value <= 0:
        return False
    number = log10(value) if log else value
    slack = 1e-9 * (high - low)
    return low - slack <= number <= high + slack


def _ticks(words: Mapping[str, Any], low: float, high: float, log: bool) -> list[tuple[float, str]]:
    if "tickvals" in words:
        names = words.get("ticktext", words["tickvals"])
        return [(v, unescape(str(t))) for v, t in zip(words["tickvals"], names, strict=True)]
    if log:
        return [(10.0**n, _shown(10.0**n, words)) for n in range(floor(low), ceil(high) + 1)]
    step = 10.0 ** floor(log10((high - low) / TICKS))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (m * step) <= TICKS)
    count = range(ceil(low / step), floor(high / step) + 1)
    return [(n * step, _shown(n * step, words)) for n in count]


def _shown(value: float, words: Mapping[str, Any]) -> str:
    form, suffix = words.get("tickformat", ""), words.get("ticksuffix", "")
    if form.endswith("%"):
        return f"{100 * value:.4g}%"
    return f"{scaled(value, 4) if form.endswith('s') else f'{value:.4g}'}{suffix}"


def scaled(value: float, digits: int) -> str:
    """A large number with its unit: 2.5M."""
    for unit in ("", "k", "M", "G"):
        if abs(value) < 1000:
            return f"{value:.{digits}g}{unit}"
        value /= 1000
    return f"{value:.{digits}g}T"


def filled_in(template: str, value: float) -> str:
    """A number as plotly's `%{x:.3s}` would write it."""

    def written(found: re.Match[str]) -> str:
        form = found[1]
        return scaled(value, int(form.strip(".s") or 4)) if form.endswith("s") else f"{value:{form}}"

    return re.sub(r"%\{[xy]:([^}]*)\}", written, template)
