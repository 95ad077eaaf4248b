"""From triples by name to a graph by id: who gets which number, what is dropped, what is refused.

Ids count names in the order of first appearance, column by column: the heads of train from top to bottom,
then its tails, then the heads of valid, its tails, the heads of test, its tails; relations likewise. Column
by column rather than triple by triple, because a column that was read in blocks keeps that order
when the blocks' dictionaries are merged: the ids depend on the file alone, not on how it was cut.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.graph import Axis, Graph, Ids, Mask, Names, Split

LARGEST_KEY = 2**63 - 1

Numbered: TypeAlias = Sequence[str] | Mapping[int, str]  #: names by id


@dataclass(frozen=True)
class NamedTriples:
    """The triples of one split as they were read, over ids of their own, possibly with duplicates."""

    source: str  #: what messages call it: a file, or a split's name
    triples: Ids  # [n, 3]: head, relation, tail
    entities: list[str]  # in order of first appearance: the heads, then the tails
    relations: list[str]  # in order of first appearance
    confidential: Mask | None = None  # [n]
    prefixes: Mapping[str, str] = field(default_factory=dict)  #: what short names in the file stand for


def triples_by_name(source: str, rows: Iterable[Sequence[str]]) -> NamedTriples:
    """Number the names of (head, relation, tail) rows: the slow and obvious version of the rule above."""
    heads: dict[str, int] = {}
    relations: dict[str, int] = {}
    tails: dict[str, int] = {}
    codes = array("q")
    for head, relation, tail in rows:
        codes.append(heads.setdefault(head, len(heads)))
        codes.append(relations.setdefault(relation, len(relations)))
        codes.append(tails.setdefault(tail, len(tails)))
    triples = np.array(codes, np.int64).reshape(-1, 3)
    entity_of_tail = _numbers(heads, tails)
    triples[:, 2] = entity_of_tail[triples[:, 2]]
    return NamedTriples(source, triples, list(heads), list(relations))


def triples_by_id(source: str, triples: Ids, entities: Numbered, relations: Numbered) -> NamedTriples:
    """Renumber triples that came with ids of their own; names that no triple uses are left out."""
    ends, used_entities = _by_appearance(np.concatenate((triples[:, 0], triples[:, 2])))
    links, used_relations = _by_appearance(triples[:, 1])
    renumbered = np.stack((ends[: len(triples)], links, ends[len(triples) :]), axis=1)
    names = [entities[i] for i in used_entities.tolist()], [relations[i] for i in used_relations.tolist()]
    return NamedTriples(source, renumbered, *names)


def graph_from_names(
    train: Iterable[Sequence[str]],
    valid: Iterable[Sequence[str]] = (),
    test: Iterable[Sequence[str]] = (),
    *,
    strict: bool = False,
) -> Graph:
    """A graph from (head, relation, tail) names in memory, held to the same rules as a graph in files."""
    given = {Split.TRAIN: train, Split.VALID: valid, Split.TEST: test}
    return graph_from_triples(
        {split: triples_by_name(str(split), _checked(rows, split)) for split, rows in given.items()},
        strict=strict,
    )


def graph_from_triples(
    splits: Mapping[Split, NamedTriples],
    *,
    strict: bool = False,
    drop_leaks: bool = False,
    prefixes: Mapping[str, str] = MappingProxyType({}),
) -> Graph:
    """Join the splits into one graph.

    Duplicates within a split are dropped with a warning, keeping the first; if any copy is confidential,
    the one that stays is. Names that train never saw are a warning, or an error if `strict`. A triple
    that stands in two splits is an error, or (`drop_leaks`) left out of the later one with a warning.
    `prefixes` are added to those of the files.
    """
    train = splits[Split.TRAIN]
    if not len(train.triples):
        raise DataError(f"{train.source}: expected triples, found none")
    joined = {Split.TRAIN: train}
    entities, relations = train.entities, train.relations
    later = [split for split in (Split.VALID, Split.TEST) if split in splits and len(splits[split].triples)]
    if later:
        entity_ids = {name: i for i, name in enumerate(entities)}
        relation_ids = {name: i for i, name in enumerate(relations)}
        joined |= {split: _renumbered(splits[split], entity_ids, relation_ids) for split in later}
        entities, relations = list(entity_ids), list(relation_ids)
        for split in later:
            _report_unseen(joined[split], train, entities, relations, strict)

    keys = _keys([part.triples for part in joined.values()], len(entities), len(relations))
    ordered = [np.sort(key) for key in keys]
    for (a, earlier), (b, later_split) in combinations(enumerate(list(joined)), 2):
        part, other = joined[earlier], joined[later_split]
        leaked = _among(keys[b], ordered[a])
        if not leaked.any():
            continue
        count = _count(len(np.unique(keys[b][leaked])), "triple")
        head, relation, tail = other.triples[leaked.argmax()].tolist()
        found = (
            f"{other.source}: {count} also in {part.source}, such as ({entities[head]}, "
            f"{relations[relation]}, {entities[tail]})"
        )
        if not drop_leaks:
            raise DataError(f"{found}; a triple may stand in one split only (drop_leaks keeps the first)")
        warnings.warn(f"{found}; left out of the later split", DataWarning, stacklevel=3)
        joined[later_split] = replace(other, triples=other.triples[~leaked])
        keys[b] = keys[b][~leaked]
        ordered[b] = np.sort(keys[b])
    kept = {split: _distinct(joined[split], keys[i], ordered[i]) for i, split in enumerate(joined)}
    none = np.empty((0, 3), np.int64)
    parts = [kept[split].triples if split in kept else none for split in Split]
    declared = {prefix: iri for part in splits.values() for prefix, iri in part.prefixes.items()}
    short = declared | dict(prefixes)
    names = Names(entities, Axis.ENTITY, short), Names(relations, Axis.RELATION, short)
    return Graph(*names, parts[0], parts[1], parts[2], kept[Split.TRAIN].confidential)


def _checked(rows: Iterable[Sequence[str]], split: Split) -> Iterable[Sequence[str]]:
    for number, row in enumerate(rows):
        if len(row) != 3 or not all(isinstance(name, str) and name.strip() for name in row):
            raise DataError(f"{split}[{number}]: expected three names (head, relation, tail), found {row!r}")
        yield row


def _numbers(known: dict[str, int], names: Iterable[str]) -> Ids:
    """The number of each name; unknown names are added to `known`, which this modifies."""
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


def _by_appearance(column: Ids) -> tuple[Ids, Ids]:
    """The column renumbered by first appearance, and the old number of each new one."""
    used, first, place = np.unique(column, return_index=True, return_inverse=True)
    order = np.argsort(first)
    new = np.empty_like(order)
    new[order] = np.arange(len(order))
    return new[place], used[order]


def _renumbered(part: NamedTriples, entity_ids: dict[str, int], relation_ids: dict[str, int]) -> NamedTriples:
    """`part` over the graph's ids; its new names are added to the two dictionaries, which this modifies."""
    entity, relation = _numbers(entity_ids, part.entities), _numbers(relation_ids, part.relations)
    head, link, tail = part.triples.T
    return replace(part, triples=np.stack((entity[head], relation[link], entity[tail]), axis=1))


def _report_unseen(
    part: NamedTriples, train: NamedTriples, entities: list[str], relations: list[str], strict: bool
) -> None:
    """Train's names were numbered first, so what train never saw has a number beyond them."""
    ends, links = np.unique(part.triples[:, [0, 2]]), np.unique(part.triples[:, 1])
    new_entities, new_relations = ends[ends >= len(train.entities)], links[links >= len(train.relations)]
    found = []
    if len(new_entities):
        names = "entity", "entities"
        found.append(f"{_count(len(new_entities), *names)} such as {entities[new_entities[0]]!r}")
    if len(new_relations):
        found.append(f"{_count(len(new_relations), 'relation')} such as {relations[new_relations[0]]!r}")
    if not found:
        return
    message = f"{part.source}: {' and '.join(found)} never seen in {train.source}"
    if strict:
        raise DataError(f"{message}; move their triples to train, or do without the strict check")
    warnings.warn(message, DataWarning, stacklevel=4)


def _keys(splits: Sequence[Ids], n_entities: int, n_relations: int) -> list[Ids]:
    """One number per triple: two are equal exactly when the triples are, within and across splits."""
    pairs = [triples[:, 0] * n_relations + triples[:, 1] for triples in splits]  # (h, r)
    if n_entities * n_relations * n_entities > LARGEST_KEY:
        dense = np.unique(np.concatenate(pairs), return_inverse=True)[1]
        pairs = np.split(dense, np.cumsum([len(pair) for pair in pairs])[:-1])
    return [pair * n_entities + triples[:, 2] for pair, triples in zip(pairs, splits, strict=True)]


def _among(keys: Ids, ordered: Ids) -> Mask:
    """Which keys stand in `ordered`, which is sorted: the last that is no larger must be equal."""
    found: Mask = ordered[np.searchsorted(ordered, keys, side="right") - 1] == keys
    return found


def _distinct(part: NamedTriples, keys: Ids, ordered: Ids) -> NamedTriples:
    """`part` without later copies of a triple; `ordered` are its keys, sorted."""
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return part
    copies = np.flatnonzero(_among(keys, repeated))  # the places of everything that stands twice or more
    _, first, group = np.unique(keys[copies], return_index=True, return_inverse=True)
    keep = np.ones(len(keys), np.bool_)
    keep[copies] = False
    keep[copies[first]] = True
    confidential = part.confidential
    if confidential is not None:
        confidential = confidential.copy()
        confidential[copies[first]] = np.bincount(group, weights=confidential[copies]) > 0
        confidential = confidential[keep]
    dropped = _count(len(copies) - len(first), "duplicate triple")
    warnings.warn(f"{part.source}: {dropped} dropped", DataWarning, stacklevel=4)
    return replace(part, triples=part.triples[keep], confidential=confidential)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
