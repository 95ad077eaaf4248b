"""OpenKE folders: names in entity2id.txt and relation2id.txt, triples as ids: head, tail, relation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedkge.errors import DataError
from fedkge.graphs.delimited import TSV, rows
from fedkge.graphs.graph import Ids, Split
from fedkge.graphs.indexing import NamedTriples, triples_by_id
from fedkge.graphs.streams import opened


def is_openke(folder: Path) -> bool:
    """Whether the folder holds a graph as OpenKE keeps it."""
    return (folder / "train2id.txt").is_file()


def read_openke(folder: Path) -> dict[Split, NamedTriples]:
    """The splits that are there. The ids in the files are used to find names, and then forgotten."""
    entities, relations = numbered_names(folder / "entity2id.txt"), numbered_names(folder / "relation2id.txt")
    splits = {}
    for split in Split:
        path = folder / f"{split}2id.txt"
        if split is Split.TRAIN or path.exists():
            triples = _triples(path, len(entities), len(relations))
            splits[split] = triples_by_id(str(path), triples, entities, relations)
    return splits


def _records(path: Path) -> Iterator[tuple[int, str]]:
    """The line number and text of each line after the first, which must be their number."""
    expected = found = 0
    with opened(path) as stream:
        for number, fields in rows(path, stream, TSV):
            text = "\t".join(fields).strip()
            if number == 1:
                if not (text.isascii() and text.isdigit()):
                    raise DataError(f"{path}:1: expected the number of lines that follow, found {text!r}")
                expected = int(text)
            elif text:
                found += 1
                yield number, text
    if found != expected or not found:
        raise DataError(f"{path}: expected {expected or 'some'} lines after the first, found {found}")


def numbered_names(path: Path) -> list[str]:
    """The names of entity2id.txt or relation2id.txt, by id."""
    names: dict[int, str] = {}
    for line, text in _records(path):
        name, *number = text.rsplit(maxsplit=1)
        if len(number) != 1 or not (number[0].isascii() and number[0].isdigit()):
            raise DataError(f"{path}:{line}: expected a name and its id, found {text!r}")
        if int(number[0]) in names:
            raise DataError(f"{path}:{line}: expected each id once, found {number[0]} again")
        names[int(number[0])] = name
    if sorted(names) != list(range(len(names))):
        raise DataError(f"{path}: expected the ids 0 to {len(names) - 1}, found {max(names)}")
    if len(set(names.values())) != len(names):
        raise DataError(f"{path}: expected each name once, found some with two ids")
    return [names[i] for i in range(len(names))]


def _triples(path: Path, n_entities: int, n_relations: int) -> Ids:
    """[n, 3] head, relation, tail: in the file the relation comes last."""
    limits = (n_entities, n_entities, n_relations)
    found = []
    for line, text in _records(path):
        fields = text.split()
        if len(fields) != 3 or not all(field.isascii() and field.isdigit() for field in fields):
            raise DataError(f"{path}:{line}: expected three ids (head, tail, relation), found {text!r}")
        ids = [int(field) for field in fields]
        for number, limit, role in zip(ids, limits, ("head", "tail", "relation"), strict=True):
            if number >= limit:
                raise DataError(f"{path}:{line}: expected a {role} below {limit}, found {number}")
        found.append(ids)
    return np.array(found, np.int64)[:, [0, 2, 1]]
