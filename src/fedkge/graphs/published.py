"""Federations in the files that FedE, FedLU and FKGE have published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedkge.errors import DataError
from fedkge.graphs.delimited import TSV, read_plainly, rows
from fedkge.graphs.graph import Graph, Ids, Split
from fedkge.graphs.indexing import NamedTriples, graph_from_triples, triples_by_id
from fedkge.graphs.openke import is_openke, numbered_names, read_openke
from fedkge.graphs.pickles import read_pickle
from fedkge.graphs.streams import check_regular, opened

FORGET = "unlearn.txt"  #: what FedLU forgets, beside its splits


@dataclass(frozen=True, eq=False)
class Published:
    """The sites' graphs, and what else the files have."""

    federation: Mapping[str, Graph]
    forget: Mapping[str, Graph] = field(default_factory=dict)  #: triples to be forgotten, as train
    links: Sequence[tuple[str, str, str, str]] = ()  #: site, entity, site, entity


def read_fede(path: Path, names: Path | None = None) -> Published:
    """FedE's pickle: a list with a dict of splits for each client, which have arrays of ids.

    `edge_index_ori` [2, m] has heads and tails and `edge_type_ori` [m] relations, in the ids of the data set
    that was dealt out: these tell who is the same. `names` is that data set's folder, as OpenKE has it, with
    entity2id.txt and relation2id.txt; without it, ids are names.
    """
    clients = read_pickle(path)
    if not isinstance(clients, list) or not clients:
        raise DataError(f"{path}: expected a list of clients, found {_kind(clients)}")
    files = {part: names / f"{part}2id.txt" for part in ("entity", "relation")} if names else {}
    known = {part: numbered_names(file) for part, file in files.items()}
    federation = {}
    for number, client in enumerate(clients):
        where = f"{path}: client {number}"
        if not isinstance(client, dict) or not client.keys() >= {str(split) for split in Split}:
            raise DataError(f"{where}: expected a dict with train, valid and test, found {_kind(client)}")
        splits = {split: _fede_split(f"{where}, {split}", client[str(split)], known) for split in Split}
        federation[str(number)] = graph_from_triples(splits, drop_leaks=True)
    return Published(federation)


def _fede_split(where: str, found: Any, known: Mapping[str, Sequence[str]]) -> NamedTriples:
    if not isinstance(found, dict) or not found.keys() >= {"edge_index_ori", "edge_type_ori"}:
        raise DataError(f"{where}: expected edge_index_ori and edge_type_ori, found {_kind(found)}")
    ends = _ids(f"{where}, edge_index_ori", found["edge_index_ori"], "entity", known)
    relations = _ids(f"{where}, edge_type_ori", found["edge_type_ori"], "relation", known)
    if ends.ndim != 2 or len(ends) != 2 or relations.shape != ends.shape[1:]:
        raise DataError(
            f"{where}: expected edge_index_ori [2, m] and edge_type_ori [m], found {list(ends.shape)} and "
            f"{list(relations.shape)}"
        )
    named = [
        known.get(part) or {int(i): str(i) for i in np.unique(ids).tolist()}
        for part, ids in (("entity", ends), ("relation", relations))
    ]
    return triples_by_id(where, np.stack((ends[0], relations, ends[1]), 1), *named)


def _ids(where: str, found: Any, part: str, known: Mapping[str, Sequence[str]]) -> Ids:
    if not isinstance(found, np.ndarray):
        raise DataError(f"{where}: expected an array, found {_kind(found)}")
    below = len(known[part]) if part in known else 2**62
    odd = np.argwhere((found < 0) | (found >= below))
    if len(odd):
        at = tuple(odd[0].tolist())
        expected = f"an id of the {below:,} in use" if part in known else "an id from 0 on"
        raise DataError(f"{where}{list(at)}: expected {expected}, found {found[at]}")
    return found.astype(np.int64)


def _kind(found: Any) -> str:
    if isinstance(found, dict):
        return f"a dict with {', '.join(repr(str(key)[:40]) for key in list(found)[:6]) or 'nothing'}"
    return (
        f"a list of {len(found)}" if isinstance(found, list) else f"something of type {type(found).__name__}"
    )


def read_fedlu(path: Path) -> Published:
    """FedLU's folder: one for each client, with train.txt, valid.txt, test.txt, unlearn.txt and the names.

    Lines are head, relation, tail; entities.dict and relations.dict have an id and a name in each, and
    every name of the triples.
    """
    clients = _folders(path, lambda folder: (folder / "entities.dict").is_file(), "entities.dict")
    federation, forget = {}, {}
    for site, folder in clients.items():
        known = [set(_dict(folder / f"{part}.dict")) for part in ("entities", "relations")]
        splits = {split: _fedlu_split(folder / f"{split}.txt", known) for split in Split}
        federation[site] = graph_from_triples(splits, drop_leaks=True)
        if (folder / FORGET).is_file():
            forgotten = _fedlu_split(folder / FORGET, known)
            forget[site] = graph_from_triples({Split.TRAIN: forgotten})
    return Published(federation, forget)


def _fedlu_split(path: Path, known: Sequence[set[str]]) -> NamedTriples:
    found = read_plainly(path, TSV, marks=False)
    if not (known[0].issuperset(found.entities) and known[1].issuperset(found.relations)):
        raise _unknown_name(path, known)
    return found


def _unknown_name(path: Path, known: Sequence[set[str]]) -> DataError:
    """What to say of a split that has a name which is in no dictionary: its first line with one."""
    parts = (known[0], "entities.dict"), (known[1], "relations.dict"), (known[0], "entities.dict")
    with opened(path) as stream:
        return next(
            DataError(f"{path}:{line}: expected a name of {path.with_name(file)}, found {name!r}")
            for line, fields in rows(path, stream, TSV)
            for name, (names, file) in zip(fields, parts, strict=False)
            if name not in names
        )


def _dict(path: Path) -> list[str]:
    names = []
    with opened(path) as stream:
        for line, fields in rows(path, stream, TSV):
            if len(fields) != 2 or fields[0] != str(line - 1):
                raise DataError(f"{path}:{line}: expected {line - 1}, a tab and a name, found {fields!r}")
            names.append(fields[1])
    return names


def read_fkge(path: Path) -> Published:
    """FKGE's repository: OpenKE/benchmarks has a folder NAME_1 for each graph, as OpenKE writes them.

    trainse_data/aligned has A_B.npy [n, 2] for pairs of graphs: the ids of entities that are the same. A
    folder of such graphs alone is read too, and has no links.
    """
    home = path / "OpenKE" / "benchmarks"
    folders = _folders(home if home.is_dir() else path, is_openke, "train2id.txt")
    sites = {site.removesuffix("_1"): folder for site, folder in folders.items()}
    federation = {
        site: graph_from_triples(read_openke(folder), drop_leaks=True) for site, folder in sites.items()
    }
    links: list[tuple[str, str, str, str]] = []
    for file in sorted((path / "trainse_data" / "aligned").glob("*_*.npy")):
        left, _, right = file.stem.partition("_")
        if (
            left in sites
            and right in sites
            and (left < right or not file.with_stem(f"{right}_{left}").is_file())
        ):
            names = [numbered_names(sites[site] / "entity2id.txt") for site in (left, right)]
            links += [(left, a, right, b) for a, b in _aligned(file, names)]
    return Published(federation, links=links)


def _aligned(path: Path, names: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The names of each pair of ids."""
    check_regular(path)
    try:
        pairs = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # a header that lies is found out before memory
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise ValueError(f"{pairs.dtype} {list(pairs.shape)}")
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: expected an array of whole numbers [n, 2], found {error}") from None
    for column, known in enumerate(names):
        odd = np.flatnonzero((pairs[:, column] < 0) | (pairs[:, column] >= len(known)))
        if len(odd):
            raise DataError(
                f"{path}: row {odd[0]}: expected an id below {len(known):,}, found {pairs[odd[0], column]}"
            )
    return [(names[0][a], names[1][b]) for a, b in pairs.tolist()]


def _folders(path: Path, is_one: Any, expected: str) -> dict[str, Path]:
    if not path.is_dir():
        raise DataError(f"{path}: expected a folder, found {'a file' if path.exists() else 'nothing'}")
    found = {folder.name: folder for folder in sorted(path.iterdir()) if folder.is_dir() and is_one(folder)}
    if not found:
        raise DataError(f"{path}: expected folders that have {expected}, found none")
    return found
