"""What is to be forgotten: found in a site's graph, taken out of it, and told by a keyed digest."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedkge.errors import ConfigError, DataError, suggest
from fedkge.graphs.graph import Federation, Graph, Ids, Mask, Split
from fedkge.graphs.subgraph import regrouped
from fedkge.methods.unlearn import Lesson
from fedkge.nodes.store import write_whole

LEAST_KEY = 16  #: bytes
LISTED = 5  #: things that a site does not have that an error names

Named = tuple[str, str, str]  #: head, relation, tail


@dataclass(frozen=True)
class Request:
    """What one site is asked to forget; everything is named as the site names it."""

    site: str
    triples: Sequence[Named] = ()
    entities: Sequence[str] = ()  #: all their triples
    relations: Sequence[str] = ()  #: all their triples

    @classmethod
    def read(cls, site: str, path: Path, of: Literal["triples", "entities", "relations"]) -> Request:
        """From a file: triples in any format that graphs have, or a name per line; it may be empty."""
        from fedkge.graphs.files import read_graph
        from fedkge.graphs.marks import read_names

        if not path.is_file():
            raise DataError(f"{path}: no such file")
        if _empty(path):
            return cls(site)
        if of == "entities":
            return cls(site, entities=read_names(path))
        if of == "relations":
            return cls(site, relations=read_names(path))
        listed = read_graph(path)
        return cls(
            site,
            [
                (listed.entities[h], listed.relations[r], listed.entities[t])
                for h, r, t in listed.all().tolist()
            ],
        )


def _empty(path: Path) -> bool:
    from fedkge.graphs.streams import opened

    with opened(path) as stream:
        return not any(line.strip() for line in stream)


@dataclass(frozen=True, eq=False)
class Erasure:
    """What is taken out of a federation: triples of sites, or whole sites."""

    before: Federation  #: the graphs with what is to be forgotten
    chosen: Mapping[str, Mapping[Split, Mask]]  # site -> split -> which triples; only sites that forget some
    withdrawn: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)  #: how many things that were asked a site lacks

    @classmethod
    def of(
        cls,
        federation: Federation,
        requests: Iterable[Request],
        withdrawn: Sequence[str] = (),
        ignore_missing: bool = False,
    ) -> Erasure:
        """Find what is asked for; what a site does not have is an error that lists it, unless ignored."""
        for site in withdrawn:
            if site not in federation:
                raise DataError(f"no site is named {site!r}{suggest(site, federation)}")
        if len(federation) - len(set(withdrawn)) < 1:
            raise DataError("all sites would withdraw: nothing would be left; delete the run instead")
        chosen: dict[str, dict[Split, Mask]] = {}
        missing: dict[str, list[str]] = {}
        for request in requests:
            if request.site not in federation:
                raise DataError(f"no site is named {request.site!r}{suggest(request.site, federation)}")
            if request.site in withdrawn:
                raise DataError(f"site {request.site!r} withdraws: there is nothing else to forget there")
            masks, unknown = _found(federation[request.site], request)
            if unknown:
                missing.setdefault(request.site, []).extend(unknown)
            old = chosen.get(request.site, masks)
            masks = {split: mask | old[split] for split, mask in masks.items()}
            if any(mask.any() for mask in masks.values()):
                chosen[request.site] = masks
        if missing and not ignore_missing:
            site, unknown = next(iter(missing.items()))
            more = f", and {len(unknown) - LISTED:,} more" if len(unknown) > LISTED else ""
            raise DataError(
                f"site {site!r} does not have {len(unknown):,} of what it should forget: "
                f"{'; '.join(unknown[:LISTED])}{more}. Nothing was done; mend the list, or leave them out "
                "with --ignore-missing"
            )
        found = cls(
            federation,
            chosen,
            tuple(dict.fromkeys(withdrawn)),
            {site: len(of) for site, of in missing.items()},
        )
        for site in chosen:
            found._check(site)
        return found

    def _check(self, site: str) -> None:
        for split, mask in self.chosen[site].items():
            if mask.all():
                what = "everything" if split is Split.TRAIN else f"all {split} triples"
                raise DataError(
                    f"site {site!r} would forget {what}: a run needs train, valid and test triples at every "
                    f"site; a site that has nothing left withdraws: --withdraw {site}"
                )

    @property
    def sites(self) -> set[str]:
        """Those that forget something, or leave."""
        return {*self.chosen, *self.withdrawn}

    @property
    def empty(self) -> bool:
        return not self.sites

    @property
    def retained(self) -> dict[str, Graph]:
        """What is left; names that no triple uses are gone."""
        return {
            site: self._left(site, graph) for site, graph in self.before.items() if site not in self.withdrawn
        }

    def _left(self, site: str, graph: Graph) -> Graph:
        if site not in self.chosen:
            return graph
        train, valid, test = (graph.split(split)[~mask] for split, mask in self.chosen[site].items())
        marks = graph.confidential
        marks = None if marks is None else marks[~self.chosen[site][Split.TRAIN]]
        return regrouped(graph, train, valid, test, marks)

    @property
    def share(self) -> float:
        """The part of their training triples that the sites which forget some have to forget."""
        masks = [of[Split.TRAIN] for of in self.chosen.values()]
        return float(np.concatenate(masks).mean()) if masks else 0.0

    def among(self, trained: Federation) -> Erasure:
        """The same, as far as it was trained on; `trained` are the graphs of that, in the ids of before."""
        if trained is self.before:
            return self
        chosen = {}
        for site, masks in self.chosen.items():
            own, kept = (
                {k: _codes(of[site], t) for k, t in of[site].splits().items()}
                for of in (self.before, trained)
            )
            chosen[site] = {split: mask[np.isin(own[split], kept[split])] for split, mask in masks.items()}
        return replace(self, before=trained, chosen=chosen)

    def forgotten(self, site: str) -> Ids:
        """The training triples that a site forgets, in its ids before."""
        return self.before[site].train[self.chosen[site][Split.TRAIN]]

    def lesson(self, site: str) -> Lesson | None:
        """What the site's tables have to forget, in its ids before; none where nothing was trained on."""
        if site not in self.chosen or not len(forgotten := self.forgotten(site)):
            return None
        graph, masks = self.before[site], self.chosen[site]
        train, valid, test = (graph.split(split)[~mask] for split, mask in masks.items())
        left = Graph(graph.entities, graph.relations, train, valid, test)
        return Lesson(site, left, forgotten)

    def rest(self, site: str, after: Graph) -> Lesson | None:
        """The same in the ids of the graph that is left; triples of names that are gone are not in it."""
        if (lesson := self.lesson(site)) is None:
            return None
        h, r, t = lesson.forgotten.T
        entity, relation = (
            np.array([names.id(name) if name in names else -1 for name in of], np.int64)
            for names, of in (
                (after.entities, lesson.graph.entities),
                (after.relations, lesson.graph.relations),
            )
        )
        there = np.stack((entity[h], relation[r], entity[t]), 1)
        there = there[(there >= 0).all(1)]
        return Lesson(site, after, there) if len(there) else None

    def named(self) -> dict[str, list[Named]]:
        """Everything that is taken out, in words; of a site that withdraws all of it."""
        found = {}
        for site, graph in self.before.items():
            if site in self.withdrawn:
                triples = graph.all()
            elif site in self.chosen:
                triples = np.concatenate(
                    [graph.split(split)[mask] for split, mask in self.chosen[site].items()]
                )
            else:
                continue
            found[site] = [
                (graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in triples.tolist()
            ]
        return found


def _found(graph: Graph, request: Request) -> tuple[dict[Split, Mask], list[str]]:
    """Which triples of each split are asked for, and what is not there."""
    unknown = [f"entity {name!r}" for name in request.entities if name not in graph.entities]
    unknown += [f"relation {name!r}" for name in request.relations if name not in graph.relations]
    entities = graph.entities.ids(name for name in request.entities if name in graph.entities)
    relations = graph.relations.ids(name for name in request.relations if name in graph.relations)
    there = {
        triple: (graph.entities.id(triple[0]), graph.relations.id(triple[1]), graph.entities.id(triple[2]))
        for triple in request.triples
        if triple[0] in graph.entities and triple[1] in graph.relations and triple[2] in graph.entities
    }
    asked = _codes(graph, np.array(list(there.values()), np.int64).reshape(-1, 3))
    masks, known = {}, []
    for split, triples in graph.splits().items():
        codes = _codes(graph, triples)
        known.append(codes)
        masks[split] = (
            np.isin(codes, asked)
            | np.isin(triples[:, [0, 2]], entities).any(1)
            | np.isin(triples[:, 1], relations)
        )
    here = dict(zip(there, np.isin(asked, np.concatenate(known)).tolist(), strict=True))
    unknown += [" ".join(map(repr, triple)) for triple in request.triples if not here.get(triple, False)]
    return masks, unknown


def _codes(graph: Graph, triples: Ids) -> Ids:
    """A number for each triple."""
    h, r, t = triples.T
    codes: Ids = (h * graph.n_relations + r) * graph.n_entities + t
    return codes


# Digests


def read_key(path: Path) -> bytes:
    """The key of digests; one that is not there is made, for whoever asked to keep."""
    if not path.exists():
        key = secrets.token_bytes(32)
        write_whole(path, key)
        path.chmod(0o600)
        return key
    try:
        key = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if len(key) < LEAST_KEY:
        raise ConfigError(f"{path} has {len(key)} bytes, expected at least {LEAST_KEY}, at random")
    return key


def digest(key: bytes, site: str, triple: Named) -> str:
    """A triple's keyed digest: HMAC-SHA-256 of site and names; without the key it cannot be guessed."""
    return hmac.digest(key, "\t".join((site, *triple)).encode(), "sha256").hex()


def digests(key: bytes, erasure: Erasure) -> dict[str, list[str]]:
    """By site, of everything that is taken out, in the digests' order; withdrawn sites have one of all."""
    found = {}
    for site, triples in erasure.named().items():
        own = sorted(digest(key, site, triple) for triple in triples)
        if site in erasure.withdrawn:
            own = [hmac.digest(key, "\n".join(own).encode(), "sha256").hex()]
        found[site] = own
    return found
