"""Which names exactly two sites have: where a mean is exchanged, each of the two learns the other's row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedkge.graphs.graph import Axis, Federation


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


def exposures(federation: Federation, axes: Sequence[Axis]) -> list[Exposure]:
    """Per axis, counted over names that say who is the same."""
    found = []
    for axis in axes:
        names = [g.entities if axis is Axis.ENTITY else g.relations for g in federation.values()]
        owners = Counter(Counter(name for one in names for name in one).values())
        found.append(Exposure(axis, owners.total() - owners[1], owners[2]))
    return found
