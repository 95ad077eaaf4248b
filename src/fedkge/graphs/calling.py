"""What a site calls its things when it aligns by itself: from its own names and links, and no other graph.

Sites that share a secret align in this way. Each one computes the common names of its own things, and equal
common names are the same thing. The result depends on the site's names and on the links, which all sites have
alike, so that it is the same in one process and on machines that never see each other's names.

The rule: names that links join, in any number of steps, have one common name, the smallest of them in its
normal form. Every other name is common in its normal form, or if names do not count, it is the site's own.
If several things of a site would have the same common name, one has it and the others stay the site's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from fedkge.errors import DataWarning
from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.graphs.links import Link
from fedkge.graphs.normal import normal
from fedkge.graphs.said import BLANK

Thing: TypeAlias = tuple[str | None, str]  #: a site, or None: at all sites; a normal name
OWN = "\t"  #: between a site and a name that only this site has: no name has a tab in it


def called(
    site: str,
    graph: Graph,
    names: bool = True,
    links: Mapping[Axis, Sequence[Link]] = MappingProxyType({}),
) -> Graph:
    """The same graph under common names; `names`: whether equal names are the same thing."""
    groups = {axis: grouped(links.get(axis, ()), names) for axis in Axis}
    return _called(site, graph, names, groups)


def called_apart(
    federation: Federation,
    names: bool = True,
    links: Mapping[Axis, Sequence[Link]] = MappingProxyType({}),
) -> dict[str, Graph]:
    """Every site's graph as the site itself would call it."""
    groups = {axis: grouped(links.get(axis, ()), names) for axis in Axis}
    return {site: _called(site, graph, names, groups) for site, graph in federation.items()}


def grouped(links: Sequence[Link], names: bool = True) -> dict[Thing, str]:
    """The common name of everything that links name."""
    parent: dict[Thing, Thing] = {}

    def root(thing: Thing) -> Thing:
        parent.setdefault(thing, thing)
        while parent[thing] != thing:
            parent[thing] = parent[parent[thing]]
            thing = parent[thing]
        return thing

    for link in links:
        sites = (None, None) if names else (link.left_site, link.right_site)
        one, other = root((sites[0], normal(link.left))), root((sites[1], normal(link.right)))
        smaller, larger = sorted((one, other), key=_common)
        parent[larger] = smaller  # so that the root is the smallest of its group
    return {thing: _common(root(thing)) for thing in list(parent)}


def _common(thing: Thing) -> str:
    site, name = thing
    return name if site is None else f"{site}{OWN}{name}"


def _called(site: str, graph: Graph, names: bool, groups: Mapping[Axis, Mapping[Thing, str]]) -> Graph:
    entities = _axis(site, graph.entities, names, groups[Axis.ENTITY])
    relations = _axis(site, graph.relations, names, groups[Axis.RELATION])
    return replace(graph, entities=entities, relations=relations)


def _axis(site: str, own: Names, names: bool, groups: Mapping[Thing, str]) -> Names:
    wanted = [_wanted(site, normal(name), names, groups) for name in own]
    holder: dict[str, str] = {}  # common name -> the own name that has it
    for name, common in zip(own, wanted, strict=True):
        if common is not None and (common not in holder or _is_nearer(site, common, name, holder[common])):
            holder[common] = name
    alone = [n for n, common in zip(own, wanted, strict=True) if common is not None and holder[common] != n]
    if alone:
        other = holder[str(wanted[own.id(alone[0])])]
        warnings.warn(
            f"site {site!r}: {len(alone):,} {own.axis} names mean the same as another name of this site and "
            f"are not shared; the first: {alone[0]!r} means the same as {other!r}",
            DataWarning,
            stacklevel=4,
        )
    return own.like(
        [
            common if common is not None and holder[common] == name else f"{site}{OWN}{name}"
            for name, common in zip(own, wanted, strict=True)
        ]
    )


def _is_nearer(site: str, common: str, one: str, other: str) -> bool:
    """Whether the first of two names is to have a common name: spelt like it, or smaller."""

    def distance(name: str) -> tuple[bool, bool, str]:
        return common not in (name, f"{site}{OWN}{name}"), normal(name) != common, name

    return distance(one) < distance(other)


def _wanted(site: str, name: str, names: bool, groups: Mapping[Thing, str]) -> str | None:
    """The common name of a normal name; None: only this site has it."""
    linked = groups.get((site, name), groups.get((None, name)))
    if linked is not None:
        return linked
    return name if names and not name.startswith(BLANK) else None
