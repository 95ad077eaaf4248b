"""Who is the same: things of different sites get one name if equal names or given links join them.

The rule: a group holds at most one thing of each site. Equal names are joined first (if names count at all),
then links in the order given. A link that would bring two things of one site into one group is left out: it
changes nothing, is counted, and the first few are named. What came first stays, nothing is overwritten.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from fedkge.errors import DataError, DataWarning, suggest
from fedkge.graphs.graph import Axis, Federation, Names
from fedkge.graphs.grouping import Fate, Linking
from fedkge.graphs.links import Link
from fedkge.graphs.said import blank_apart


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What became of the links of one axis: given = used + left_out + within_site + unmatched."""

    axis: Axis
    given: int
    used: int  #: all that they name is now the same
    left_out: int  #: would have made two things of one site the same, be it only at some of their sites
    within_site: int  #: speak of one site only
    unmatched: int  #: name what no site has, or not the site that they name
    examples: tuple[str, ...]  #: the first links left out, and what they would have joined


@dataclass(frozen=True, slots=True, eq=False)
class Unified:
    """A federation in which equal names, and only these, are the same thing; a report per axis with links."""

    federation: Federation
    reports: tuple[LinkReport, ...]


def unify(
    federation: Federation,
    names: bool = True,
    links: Mapping[Axis, Sequence[Link]] = MappingProxyType({}),
    said: Mapping[Axis, Sequence[Link]] = MappingProxyType({}),
) -> Unified:
    """The same graphs, ids and triples included, under names that say who is the same.

    `names`: whether equal names are the same thing to begin with; if not, links alone decide, and equal names
    can be joined by a link of a name with itself. A link without sites speaks of every pair of different
    sites of which one has the left name and the other the right one. Such pairs are taken by the names of
    their sites, so that the result does not depend on the order of `federation`. Blank nodes of two sites are
    never the same by name. `said`: further links, which graphs have in them; none of these need match.

    A group is called by its smallest name, in the order of code points. If `names`, all things of a name are
    in one group, so no other group is called by it. If not, every name is first prefixed by its site and a
    slash (one in the site's own name is escaped), so that no two things have the same name.
    """
    federation = blank_apart(federation)
    if names and not any(links.values()) and not any(said.values()):
        return Unified(federation, ())
    (entities, of_entities), (relations, of_relations) = (
        _unify_axis(federation, axis, names, links.get(axis, ()), said.get(axis, ())) for axis in Axis
    )
    renamed = {
        site: replace(graph, entities=entities[site], relations=relations[site])
        for site, graph in federation.items()
    }
    reports = tuple(report for report in (of_entities, of_relations) if report is not None)
    for report in reports:
        if report.left_out:
            warnings.warn(
                f"{report.left_out:,} of {report.given:,} {report.axis} links are left out, since two things "
                f"of one site cannot be the same; {report.examples[0]}",
                DataWarning,
                stacklevel=2,
            )
    return Unified(renamed, reports)


def _unify_axis(
    federation: Federation, axis: Axis, by_name: bool, given: Sequence[Link], said: Sequence[Link]
) -> tuple[dict[str, Names], LinkReport | None]:
    """Each site's names as all sites call them, and what became of the links if there are any."""
    links = [*given, *said]
    own = {site: federation[site].names(axis) for site in sorted(federation)}
    if by_name and not links:
        return own, None
    _check_sites(list(own), links)
    linking = Linking(list(own), list(own.values()), by_name, links)
    fates = linking.join()
    if given and not said and not fates["used"] + fates["left_out"]:
        raise _nothing_matches(axis, own, links, fates)
    report = LinkReport(
        axis,
        given=len(links),
        used=fates["used"],
        left_out=fates["left_out"],
        within_site=fates["within_site"],
        unmatched=fates["unmatched"],
        examples=tuple(linking.examples),
    )
    prefixes = ["" if by_name else f"{site.replace('%', '%25').replace('/', '%2F')}/" for site in own]
    called = zip(own, linking.called(prefixes), strict=True)
    return {site: own[site].like(names) for site, names in called}, report if links else None


def _check_sites(sites: Sequence[str], links: Sequence[Link]) -> None:
    known = {None, *sites}
    for link in links:
        for site in (link.left_site, link.right_site):
            if site not in known:
                few = ", ".join(sites[:5]) + (", ..." if len(sites) > 5 else "")
                raise DataError(
                    f"{link.where}: expected a site ({few}), found {site!r}{suggest(str(site), sites)}"
                )


def _nothing_matches(
    axis: Axis, own: Mapping[str, Names], links: Sequence[Link], fates: Counter[Fate]
) -> DataError:
    first = links[0]
    held = "; ".join(f"{site!r} has {names[0]!r}" for site, names in list(own.items())[:2] if len(names))
    return DataError(
        f"{first.where}: expected links between {axis} names of different sites, found none "
        f"in {len(links):,} links: {fates['unmatched']:,} name what no site has, {fates['within_site']:,} "
        f"speak of one site only; the first is {first.left!r} = {first.right!r}, while {held}"
    )
