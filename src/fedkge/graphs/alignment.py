"""What an alignment does: how much sites have in common, and what becomes of every link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from fedkge.graphs.graph import Axis, Federation, Names
from fedkge.graphs.grouping import Fate, Linking
from fedkge.graphs.links import Link
from fedkge.graphs.said import blank_apart
from fedkge.graphs.similar import Index
from fedkge.graphs.unify import LinkReport, Unified

NEAR = 0.5  #: how alike a name must be to be shown beside one that no site has


@dataclass(frozen=True)
class Common:
    """How many different things of one kind there are, and how many of them two or more sites have."""

    axis: Axis
    all: int
    shared: int


def common(federation: Federation, axis: Axis) -> Common:
    """Counted by names that say who is the same."""
    counts = Counter(name for graph in federation.values() for name in graph.names(axis))
    return Common(axis, len(counts), sum(count > 1 for count in counts.values()))


def summary(unified: Unified) -> str:
    """One line for whoever starts a run."""
    counts = [common(unified.federation, axis) for axis in Axis]
    words = {Axis.ENTITY: "entities", Axis.RELATION: "relations"}
    told = " and ".join(f"{one.shared:,} of {one.all:,} {words[one.axis]}" for one in counts)
    said = "".join(f"; {_links(report)}" for report in unified.reports)
    return f"alignment: {told} are at two or more sites{said}"


def _links(report: LinkReport) -> str:
    odd = {"left out": report.left_out, "within one site": report.within_site, "unmatched": report.unmatched}
    rest = "".join(f", {count:,} {what}" for what, count in odd.items() if count)
    return f"{report.used:,} of {report.given:,} {report.axis} links used{rest}"


@dataclass(frozen=True)
class Traced:
    """A link, what became of it, and names that are near one that no site has."""

    link: Link
    fate: Fate
    missing: str = ""
    near: tuple[str, ...] = ()


def traced(
    federation: Federation,
    axis: Axis,
    by_name: bool,
    links: Sequence[Link],
    said: Mapping[Axis, Sequence[Link]] = MappingProxyType({}),
) -> list[Traced]:
    """What becomes of every link, in their order; by the same rule as `unify`."""
    federation = blank_apart(federation)
    own = {site: federation[site].names(axis) for site in sorted(federation)}
    linking = Linking(list(own), list(own.values()), by_name, [*links, *said.get(axis, ())])
    linking.join()
    known = Index(sorted({name for names in own.values() for name in names}))
    return [
        _unmatched(link, own, known) if fate == "unmatched" else Traced(link, fate)
        for link, fate in linking.fates
    ]


def _unmatched(link: Link, own: Mapping[str, Names], known: Index) -> Traced:
    for site, name in ((link.left_site, link.left), (link.right_site, link.right)):
        held = [names for at, names in own.items() if site in (None, at)]
        if not any(name in names for names in held):
            near = known.near(name, NEAR)
            return Traced(link, "unmatched", name, tuple(other for _, other in near if other != name))
    return Traced(link, "unmatched")
