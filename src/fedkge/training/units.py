"""What is protected as one: a confidential triple, or what is said about one person. Units are sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedkge.graphs.graph import Ids


@dataclass(frozen=True, slots=True)
class Drawn:
    """The triples of a step: unit u of it has places[starts[u]:starts[u + 1]]."""

    places: Ids  # int64 [n], among the confidential triples
    starts: Ids  # int64 [units + 1]
    slots: Ids  # int64 [n], as `Units.slots`


@dataclass(frozen=True, slots=True)
class Units:
    """Which confidential triples each unit has: unit u has places[starts[u]:starts[u + 1]]."""

    places: Ids  # int64 [n]
    starts: Ids  # int64 [units + 1]
    most: int = 1  #: triples that a unit may have: a public number, not what the largest one has

    @classmethod
    def triples(cls, count: int) -> Units:
        """Each triple by itself."""
        every = np.arange(count + 1)
        return cls(every[:-1], every)

    @classmethod
    def persons(cls, owner: Ids, count: int, most: int) -> Units:
        """By the person (0 .. count - 1) of each confidential triple [c]; some may have none."""
        if len(owner) and owner.min() < 0:
            raise ValueError(f"{(owner < 0).sum()} confidential triples of nobody, expected none")
        sizes = np.bincount(owner, minlength=count)
        if sizes.max(initial=0) > most:
            raise ValueError(f"a person with {sizes.max()} triples, expected at most {most}")
        return cls(np.argsort(owner, kind="stable"), np.concatenate(([0], np.cumsum(sizes))), most)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def room(self) -> int:
        """How many slots there are: a public number."""
        return len(self) * self.most

    def slots(self, units: Ids, within: Ids) -> Ids:
        """Numbers of triples that no other unit changes: a place among all triples, others move."""
        return within * len(self) + units

    def drawn(self, chosen: Ids) -> Drawn:
        """The triples of some units, without units that have none."""
        if self.most == 1 and len(self) == len(self.places):
            return Drawn(self.places[chosen], np.arange(len(chosen) + 1), chosen)
        every = np.diff(self.starts)
        chosen = chosen[every[chosen] > 0]
        sizes = every[chosen]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        slots = self.slots(np.repeat(chosen, sizes), within)
        return Drawn(self.places[np.repeat(self.starts[chosen], sizes) + within], starts, slots)
