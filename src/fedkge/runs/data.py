"""From an experiment to its data: the one way, for every command."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedkge.errors import ConfigError, DataError, DataWarning, suggest
from fedkge.exchange.announce import LONGEST_ID, fingerprint, identify
from fedkge.exchange.rows import HUB
from fedkge.exports.files import check_names
from fedkge.graphs.across import Leaks, leaks, told, without_leaks
from fedkge.graphs.graph import Axis, Federation, Graph, Mask, Split
from fedkge.graphs.links import Link, read_links
from fedkge.graphs.persons import about_nobody, warn_of_nobody
from fedkge.graphs.prefixes import full_names
from fedkge.graphs.said import lifted
from fedkge.graphs.streams import CONTROL
from fedkge.graphs.unify import Unified, unify
from fedkge.methods import Member
from fedkge.nodes.identity import Identity
from fedkge.nodes.protection import check_validation, trained_on
from fedkge.runs.account import account_of, person_key
from fedkge.runs.experiment import Align, Data, Experiment, Marks
from fedkge.training.confidential import hides, marked


@dataclass(frozen=True, eq=False)
class Sources:
    """The graphs of an experiment, under their own names and under those that say who is the same."""

    named: Federation
    unified: Unified
    said: Mapping[Axis, Sequence[Link]] = field(default_factory=dict)  #: links that the graphs have in them

    @property
    def federation(self) -> Federation:
        """Equal names, and only these, are the same thing."""
        return self.unified.federation

    @cached_property
    def leaks(self) -> dict[str, Leaks]:
        """Triples that one site is measured by and another trains on, after alignment."""
        return leaks(self.federation)

    @classmethod
    def of(cls, experiment: Experiment, federation: Federation) -> Sources:
        """Of graphs at hand: persons named, and numbered as the experiment says, and checked."""
        federation, said = lifted(federation)
        persons, all_of_it = experiment.persons, experiment.privacy.by_person
        named = numbered(experiment, persons.of(federation, all_of_it))
        check_federation(named)
        unified = aligned(experiment.align, named, said)
        named, common = (
            persons.everywhere(graphs, unified.federation, all_of_it)
            for graphs in (named, unified.federation)
        )
        if all_of_it:
            warn_of_nobody(common)
        return cls(named, replace(unified, federation=common), said)

    def members(self, experiment: Experiment) -> dict[str, Member]:
        """Who trains on what."""
        for site in experiment.accept:
            if site not in self.named:
                raise ConfigError(f"accept.{site}: no such site{suggest(site, self.named)}")
        self._tell_withheld(experiment)
        members = dict(experiment.method.members(self.federation))
        if experiment.data.drop_leaks == "across":
            kept = without_leaks({name: one.graph for name, one in members.items()}, self.federation)
            members = {name: replace(one, graph=kept[name]) for name, one in members.items()}
        else:
            self._tell_leaks(experiment)
        check_marks(experiment, {name: member.graph for name, member in members.items()})
        for member in members.values():
            _check_apart(experiment, member)
            for site, part in member.parts.items():
                check_validation(experiment, site, part.graph)
        found = {}
        for name, member in members.items():
            key = partial(person_key, account_of(experiment, name))
            found[name] = replace(member, graph=trained_on(experiment, name, member.graph, key))
        return found

    def identity(self, experiment: Experiment, member: Member) -> Identity:
        """What a member's rows are announced as, and called when they are saved."""
        secret = secret_of(experiment.align)
        names = {Axis.ENTITY: member.graph.entities, Axis.RELATION: member.graph.relations}
        ids = {axis: identify(own, axis, secret) for axis, own in names.items()}
        named = {site: self.named[site] for site in member.parts}
        apart = [self._withheld(experiment, site) for site in named]
        hidden = {axis: set[int]().union(*(of[axis] for of in apart)) for axis in Axis}
        known = None if secret is None else fingerprint(secret)
        return Identity(ids, named, {axis: rows for axis, rows in hidden.items() if rows}, known)

    def announced(self, experiment: Experiment) -> dict[str, dict[Axis, list[str]]]:
        """The names that each site announces, as all sites call them."""
        found = {}
        for site, graph in self.federation.items():
            hidden = self._withheld(experiment, site)
            names = {Axis.ENTITY: graph.entities, Axis.RELATION: graph.relations}
            found[site] = {
                axis: [name for i, name in enumerate(own) if i not in hidden[axis]]
                for axis, own in names.items()
            }
        return found

    def _withheld(self, experiment: Experiment, site: str) -> dict[Axis, set[int]]:
        """What a site does not announce: persons, what only triples about them mention, what a file names."""
        found = experiment.persons.hidden(self.named[site])
        found[Axis.ENTITY] |= self._listed(experiment, site)
        return found

    def _tell_withheld(self, experiment: Experiment) -> None:
        """Say what is not announced because only triples about persons mention it."""
        if experiment.method.shares or experiment.method.hubless:
            for site, graph in self.named.items():
                experiment.persons.tell_hidden(site, graph)

    def _tell_leaks(self, experiment: Experiment) -> None:
        """Say how much of what a site is measured by others train on, if anything of theirs reaches it."""
        found = told(self.leaks, self.federation)
        if found is not None and experiment.method.kind != "alone":
            warnings.warn(
                f"{found} stand in the train of another site, from which they may have been learnt; "
                "data.drop_leaks = 'across' leaves them out of train",
                DataWarning,
                stacklevel=3,
            )

    def _listed(self, experiment: Experiment, site: str) -> set[int]:
        if not (experiment.method.shares or experiment.method.hubless):
            return set()
        return listed(experiment.align, self.named, site)


class Loader:
    """Loads experiments' data, and what several of them have in common once."""

    def __init__(self) -> None:
        self._read: dict[Any, dict[str, Graph]] = {}
        self._sources: dict[Any, Sources] = {}

    def load(self, experiment: Experiment) -> Sources:
        """Read, mark, number, check and align; experiments that agree on all of it share the outcome."""
        data, marks = experiment.data, experiment.marks
        drawn = data.ratio is not None or marks.share is not None  # what is drawn depends on the seed
        known = (
            data,
            marks,
            experiment.seed if drawn else None,
            (experiment.privacy.mode, experiment.privacy.unit),
            experiment.persons,
            experiment.align,
        )
        if known not in self._sources:
            read = replace(data, ratio=None, held_out=None)
            if read not in self._read:
                self._read[read] = read_data(read)
            self._sources[known] = Sources.of(experiment, divided(experiment, self._read[read]))
            for site, graph in self._sources[known].named.items():
                _check_splits(site, graph)
        return self._sources[known]


def load(experiment: Experiment) -> Sources:
    """The data of one experiment."""
    return Loader().load(experiment)


def read_data(data: Data) -> dict[str, Graph]:
    """The graphs as they are."""
    from fedkge.graphs.datasets import load as known
    from fedkge.graphs.files import read_federation
    from fedkge.graphs.table import PLAIN

    if data.name is not None:
        return dict(known(data.name, strict=data.strict))
    assert data.path is not None
    return read_federation(
        data.path, strict=data.strict, drop_leaks=bool(data.drop_leaks), table=data.table or PLAIN
    )


def divided(experiment: Experiment, federation: Federation) -> Federation:
    """The same graphs, marked and split where the options say so.

    Where only unrestricted triples may be held out, marks are set and persons are found before the split.
    Alignment tells which entities are persons of another site.
    """
    data, seed = experiment.data, experiment.seed
    mark = partial(with_marks, experiment.marks, seed=seed)
    if data.held_out != "unrestricted":
        return mark(split_by(data, federation, seed))
    if experiment.persons.named:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # they are said when the graphs are split
            named = Sources.of(experiment, federation).named
        federation = {
            site: replace(graph, persons=_same_mask(graph, named[site])) for site, graph in federation.items()
        }
    return split_by(data, mark(federation), seed)


def _same_mask(graph: Graph, other: Graph) -> Mask:
    """Which entities are persons in `other`, the same site's graph with other ids."""
    assert other.persons is not None
    persons = {other.entities[i] for i in np.flatnonzero(other.persons).tolist()}
    return np.fromiter((name in persons for name in graph.entities), np.bool_, graph.n_entities)


def split_by(data: Data, federation: Federation, seed: int) -> Federation:
    """The same graphs, split where the options say so."""
    from fedkge.graphs.split import parse_ratio, split

    if data.ratio is None:
        return federation
    ratio, keep = parse_ratio(data.ratio), data.held_out == "unrestricted"
    return {
        site: graph if _is_split(graph, keep) else split(graph, ratio, seed, keep)
        for site, graph in federation.items()
    }


def _is_split(graph: Graph, keep: bool) -> bool:
    """Whether it has valid and test; with `keep`, apart from triples about persons."""
    parts = (Split.VALID, Split.TEST)
    return all(len(about_nobody(graph, part) if keep else graph.split(part)) for part in parts)


def with_marks(marks: Marks, federation: Federation, seed: int) -> Federation:
    """The same graphs, with what is confidential besides what the data marks."""
    from fedkge.graphs.files import read_graph
    from fedkge.graphs.marks import mark_relations, mark_share, mark_triples, read_names

    if marks.share is not None:
        federation = mark_share(federation, marks.share, seed)
    if marks.relations is not None:
        federation = mark_relations(federation, read_names(marks.relations))
    if marks.triples is not None:
        federation = mark_triples(federation, read_graph(marks.triples))
    return federation


def numbered(experiment: Experiment, federation: Federation) -> Federation:
    """The same sites; what is confidential has no influence on who has which id.

    Ids in the order of first appearance, as files have them, would tell which names confidential triples
    begin with, and seeded choices of ids would depend on them.
    """
    from fedkge.graphs.subgraph import in_name_order

    every = experiment.privacy.mode == "fulldp"
    return {
        site: in_name_order(graph) if every or graph.confidential is not None else graph
        for site, graph in federation.items()
    }


def aligned(
    align: Align, federation: Federation, said: Mapping[Axis, Sequence[Link]] = MappingProxyType({})
) -> Unified:
    """The same graphs under names that say who is the same.

    With a secret every site aligns by itself, and nobody can tell what became of which link. What one graph
    says (`said`) other sites then do not know, and it is left out with a warning.
    """
    from fedkge.graphs.calling import called_apart

    links = links_of(align, federation)
    if said and (align.secret is not None or len(federation) == 1):
        warnings.warn(
            f"{sum(map(len, said.values())):,} links in the graphs (owl:sameAs) are left out: other sites do "
            "not know them; give all sites the same file of links (align.entities)",
            DataWarning,
            stacklevel=2,
        )
        said = {}
    if align.secret is not None:
        return Unified(called_apart(federation, align.names, links), ())
    return unify(federation, align.names, links, said)


def _full(federation: Federation, axis: Axis, links: Sequence[Link]) -> list[Link]:
    """The same links; short names are written out."""
    left = full_names(federation, axis, [link.left for link in links])
    right = full_names(federation, axis, [link.right for link in links])
    return [replace(link, left=a, right=b) for link, a, b in zip(links, left, right, strict=True)]


def links_of(align: Align, federation: Federation) -> dict[Axis, list[Link]]:
    """The links of the files that are given."""
    files = {Axis.ENTITY: align.entities, Axis.RELATION: align.relations}
    given = {axis: read_links(path, axis) for axis, path in files.items() if path is not None}
    return {axis: _full(federation, axis, links) for axis, links in given.items()}


def listed(align: Align, named: Federation, site: str) -> set[int]:
    """The entities of a site that `align.withhold` names."""
    if align.withhold is None:
        return set()
    from fedkge.graphs.marks import read_names

    hidden = set(full_names(named, Axis.ENTITY, read_names(align.withhold)))
    unknown = sorted(hidden.difference(*(graph.entities for graph in named.values())))
    if unknown:
        raise ConfigError(
            f"align.withhold: {align.withhold}: {unknown[0]!r} is no entity of any site; "
            "expected names as the sites have them"
        )
    return {i for i, name in enumerate(named[site].entities) if name in hidden}


def secret_of(align: Align) -> bytes | None:
    """The secret that sites share, if they have one."""
    return None if align.secret is None else checked_secret(align.secret)


def checked_secret(path: Path) -> bytes:
    """A secret that sites share."""
    if path.exists() and not path.is_file():
        raise ConfigError(f"align.secret: {path}: expected a file, found a folder, pipe or device")
    try:
        secret = path.read_bytes()
    except OSError as error:
        raise DataError(f"align.secret: {path}: {error.strerror}") from None
    if len(secret) < 16:
        raise ConfigError(f"align.secret: {path} has {len(secret)} bytes, expected at least 16, at random")
    return secret


def check_federation(federation: Federation) -> None:
    """Names that folders and files can have, and a hub of its own name: said before hours of training."""
    for site, graph in federation.items():
        if site.lower() == HUB:
            raise ConfigError(f"a site is named {site!r}, as the hub is; rename its folder")
        if not is_folder_name(site):
            raise ConfigError(f"a site is named {site!r}, which no folder can be; expected a plain name")
        for names in (graph.entities, graph.relations):
            check_names(names)
            odd = next((name for name in names if CONTROL.search(name)), None)
            if odd is not None:
                raise ConfigError(
                    f"site {site!r}: {names.axis} {odd[:80]!r} has a control character in its name; rename it"
                )
            long = next((name for name in names if len(name) * 4 > LONGEST_ID < len(name.encode())), None)
            if long is not None:
                raise ConfigError(
                    f"site {site!r}: a name of {len(long.encode()):,} bytes ({long[:40]!r}...), expected at "
                    f"most {LONGEST_ID:,}"
                )


def is_folder_name(name: str) -> bool:
    """Whether a folder can have this name on any system, and no terminal is steered by it."""
    plain = bool(name) and Path(name).name == name and not CONTROL.search(name) and len(name.encode()) <= 200
    stem = name.split(".")[0].upper()
    taken = stem in ("CON", "PRN", "AUX", "NUL") or bool(re.fullmatch(r"(COM|LPT)\d", stem))  # Windows' own
    return (
        plain
        and not taken
        and name[0] not in ".~"
        and name[-1] not in ". "
        and not set(name) & set('\\:*?"<>|')
    )


def _check_splits(site: str, graph: Graph) -> None:
    for split in ("train", "valid", "test"):
        if not len(graph.split(split)):
            raise ConfigError(
                f"site {site!r} has no {split} triples; name a ratio, as in data.ratio = '8:1:1', "
                "or split the data with `fedkge data split`"
            )


def _check_apart(experiment: Experiment, member: Member) -> None:
    """A method that pools the sites' graphs would take persons out of their site."""
    if len(member.parts) > 1 and experiment.persons.named:
        raise ConfigError(
            "method: it pools the graphs of all sites, and names and rows of persons never leave theirs; "
            "expected another method, or no persons"
        )


def check_marks(experiment: Experiment, graphs: Federation) -> None:
    """Marks and mode must go together: said before hours of training, and before anything is released."""
    privacy = experiment.privacy
    counts = {name: int(marked(graph, privacy).sum()) for name, graph in graphs.items()}
    if privacy.mode == "off":
        for name, count in counts.items():
            if count:
                warnings.warn(
                    f"site {name!r}: {count:,} confidential triples are trained on like all others "
                    "(privacy.mode is off)",
                    DataWarning,
                    stacklevel=2,
                )
    elif not any(hides(graph, privacy) for graph in graphs.values()):
        raise ConfigError(
            f"privacy.mode: {privacy.mode!r}, but no training triple of any site is confidential; mark "
            "some with `fedkge data mark`, or as in marks = { share = 0.5 }"
        )
