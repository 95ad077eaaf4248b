"""Numbers as classes: an elevation of 312 ft is `elevation/200 to 500 ft`."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bands:
    """Classes between increasing bounds; a bound belongs to the class above it."""

    what: str
    bounds: tuple[int, ...]
    unit: str = ""

    def of(self, value: float) -> str:
        i = bisect_right(self.bounds, value)
        if i == 0:
            return f"{self.what}/under {self.bounds[0]:,}{self.unit}"
        if i == len(self.bounds):
            return f"{self.what}/{self.bounds[-1]:,}{self.unit} or more"
        return f"{self.what}/{self.bounds[i - 1]:,} to {self.bounds[i]:,}{self.unit}"
