"""Which names exactly two sites have: where a mean is exchanged, each of the two learns the other's row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedkge.graphs.graph import Axis

Announced: TypeAlias = Mapping[str, Mapping[Axis, Collection[str]]]  #: site -> the names that it announces


@dataclass(frozen=True, slots=True)
class Exposure:
    """How many names at least two sites have, and how many of these exactly two."""

    axis: Axis
    shared: int
    by_two: int

    def __str__(self) -> str:
        things = {Axis.ENTITY: "entities", Axis.RELATION: "relations"}[self.axis]
        return (
            f"{self.by_two:,} of {self.shared:,} shared {things} are at exactly two sites: each of the two "
            "can compute the other's rows from the hub's means (`fedkge attack --name pairs` measures it)"
        )


def exposures(announced: Announced, axes: Sequence[Axis]) -> list[Exposure]:
    """Per axis, counted over names that say who is the same."""
    found = []
    for axis in axes:
        owners = Counter(_owners(announced, axis).values())
        found.append(Exposure(axis, owners.total() - owners[1], owners[2]))
    return found


def shared_counts(announced: Announced, axes: Sequence[Axis]) -> dict[str, dict[Axis, int]]:
    """How many names each site has that another one has too."""
    owners = {axis: _owners(announced, axis) for axis in axes}
    return {
        site: {axis: sum(owners[axis][name] > 1 for name in names[axis]) for axis in axes}
        for site, names in announced.items()
    }


def _owners(announced: Announced, axis: Axis) -> Counter[str]:
    return Counter(name for names in announced.values() for name in names[axis])
