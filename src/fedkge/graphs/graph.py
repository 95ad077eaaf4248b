"""A knowledge graph held by one site: triples over local ids, and the names behind the ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError, suggest
from fedkge.graphs.prefixes import expanded

Ids: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


class Axis(StrEnum):
    """The two tables of a model."""

    ENTITY = "entity"
    RELATION = "relation"


class Split(StrEnum):
    """The three parts of a graph."""

    TRAIN = "train"
    VALID = "valid"
    TEST = "test"


class Names(Sequence[str]):
    """Distinct names in id order: `names[3]` is the name of id 3, `names.id("x")` the id of x.

    `prefixes` say what short names stand for, as `ex` in `ex:alice`: these are understood too.
    """

    __slots__ = ("_ids", "_names", "axis", "prefixes")

    def __init__(
        self,
        names: Iterable[str],
        axis: Axis = Axis.ENTITY,
        prefixes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.prefixes = prefixes
        self._names = names if isinstance(names, list) else list(names)
        self._ids: dict[str, int] | None = None
        self.axis = axis

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._names[index]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.full(name) in self._index()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self._names == other._names

    __hash__ = None  # type: ignore[assignment]

    def id(self, name: str) -> int:
        """The id of `name`; an unknown name is an error that suggests a near one."""
        found = self._index().get(self.full(name))
        if found is None:
            raise DataError(f"no {self.axis} is named {name!r}{suggest(name, self._names)}")
        return found

    def full(self, name: str) -> str:
        """The name that a short one stands for; any other name stays as it is."""
        index = self._index()
        long = name if name in index else expanded(name, self.prefixes)
        return long if long in index else name

    def like(self, names: Iterable[str]) -> Names:
        """Other names of the same kind."""
        return Names(names, self.axis, self.prefixes)

    def ids(self, names: Iterable[str]) -> Ids:
        return np.fromiter((self.id(name) for name in names), np.int64)

    def _index(self) -> dict[str, int]:
        if self._ids is None:
            self._ids = {name: i for i, name in enumerate(self._names)}
        return self._ids


def _none() -> Ids:
    return np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Triples (head, relation, tail) over local ids `0..n-1`; immutable; no triple stands twice.

    Ids are dense: every entity and relation occurs in some split. `confidential` marks training
    triples that only a private trainer may touch. Names and rows of `persons` stay at the site.
    """

    entities: Names
    relations: Names
    train: Ids  # [m, 3]: head, relation, tail
    valid: Ids = field(default_factory=_none)
    test: Ids = field(default_factory=_none)
    confidential: Mask | None = None  # [m]
    persons: Mask | None = None  # [n_entities]

    def __post_init__(self) -> None:
        for split, triples in self.splits().items():
            if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != np.int64:
                raise DataError(
                    f"{split}: expected int64 [m, 3], found {triples.dtype} {list(triples.shape)}"
                )
        if self.confidential is not None and self.confidential.shape != (len(self.train),):
            raise DataError(f"confidential: {len(self.confidential)} marks for {len(self.train)} triples")
        if self.persons is not None and self.persons.shape != (self.n_entities,):
            raise DataError(f"persons: {len(self.persons)} marks for {self.n_entities} entities")

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        return len(self.relations)

    def names(self, axis: Axis) -> Names:
        return self.entities if axis is Axis.ENTITY else self.relations

    def split(self, split: Split | str) -> Ids:
        return self.splits()[Split(split)]

    def splits(self) -> Mapping[Split, Ids]:
        return {Split.TRAIN: self.train, Split.VALID: self.valid, Split.TEST: self.test}

    def all(self) -> Ids:
        """Every triple: train, then valid, then test."""
        return np.concatenate((self.train, self.valid, self.test))

    def digest(self) -> str:
        """A short text that changes with any name, triple, mark or order."""
        state = hashlib.blake2b(digest_size=16)
        for names in (self.entities, self.relations):
            for name in names:
                state.update(name.encode() + b"\n")
        for triples in self.splits().values():
            state.update(b"%d" % len(triples) + triples.tobytes())
        if self.confidential is not None:
            state.update(self.confidential.tobytes())
        if self.persons is not None:
            state.update(b"persons" + self.persons.tobytes())
        return state.hexdigest()

    def __repr__(self) -> str:
        sizes = "/".join(f"{len(t):,}" for t in self.splits().values())
        return f"Graph({self.n_entities:,} entities, {self.n_relations:,} relations, {sizes} triples)"


Federation: TypeAlias = Mapping[str, Graph]  #: the sites' graphs by site name
