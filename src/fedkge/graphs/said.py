"""What graphs themselves say about names: blank nodes are a site's own, and `owl:sameAs` is a link.

A triple of `owl:sameAs` says who is the same, and is nothing to train on. For relations it is
`owl:equivalentProperty`. A blank node has a meaning in its own graph only, whatever its label.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.graphs.links import SAME, Link
from fedkge.graphs.prefixes import OWL
from fedkge.graphs.subgraph import without_relations

BLANK = "_:"  #: how names of blank nodes begin
APART = "\t"  #: between a site and its blank node: no other name has a tab in it
SAYS = {axis: {f"{at}{word}" for at in (OWL, "owl:") for word in SAME[axis]} for axis in Axis}


def lifted(federation: Federation) -> tuple[dict[str, Graph], dict[Axis, list[Link]]]:
    """The graphs without triples that say who is the same, and these as links."""
    links: dict[Axis, list[Link]] = {axis: [] for axis in Axis}
    left = {}
    for site, graph in federation.items():
        words = {name for axis in Axis for name in SAYS[axis] if name in graph.relations}
        left[site] = without_relations(graph, words) if words else graph
        if words:
            for axis in Axis:
                own = left[site].names(axis)
                links[axis] += (_link(site, own, *pair) for pair in _pairs(graph, axis))
    return left, {axis: found for axis, found in links.items() if found}


def _pairs(graph: Graph, axis: Axis) -> Iterator[tuple[str, str]]:
    words = SAYS[axis] - (SAYS[Axis.ENTITY] if axis is Axis.RELATION else set())
    said = [i for i, name in enumerate(graph.relations) if name in words]
    triples = graph.all()
    for left, _, right in triples[np.isin(triples[:, 1], said)].tolist():
        yield graph.entities[left], graph.entities[right]


def _link(site: str, own: Names, left: str, right: str) -> Link:
    """A link from what the site has to what others have; if the site has neither, between any sites."""
    where = f"site {site!r}: owl:sameAs"
    if left not in own and right in own:
        left, right = right, left
    mine = site if left in own else None
    return Link(mine, apart(site, left), None, apart(site, right), where)


def apart(site: str, name: str) -> str:
    """The name of an entity among those of all sites: a blank node's has its site in it."""
    return f"{site}{APART}{name}" if name.startswith(BLANK) else name


def blank_apart(federation: Federation) -> Federation:
    """The same graphs, in which no two sites have a blank node of the same name."""
    if not any(name.startswith(BLANK) for graph in federation.values() for name in graph.entities):
        return federation
    return {site: _apart(site, graph) for site, graph in federation.items()}


def _apart(site: str, graph: Graph) -> Graph:
    return replace(graph, entities=graph.entities.like(apart(site, name) for name in graph.entities))
