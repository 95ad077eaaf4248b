"""Who is the same, against merging sets of things one by one; shared ids, against looking names up."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.exposure import shared_counts
from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.graphs.links import Link
from fedkge.graphs.unify import Unified, unify
from small_graphs import names_of, shared_names

Thing = tuple[str, str]  # site, name
NAMES = ["a", "b", "c", "d", "a/b", "s/a", "%2F"]
SITES = ["s", "s/a", "t", "u", "%2F"]


def holding(entities: Sequence[str], relations: Sequence[str] = ()) -> Graph:
    """A graph for its names only."""
    return Graph(Names(list(entities)), Names(list(relations), Axis.RELATION), np.empty((0, 3), np.int64))


owned = st.lists(st.sampled_from(NAMES), unique=True, max_size=5)
federations = st.lists(st.sampled_from(SITES), unique=True, min_size=1).flatmap(
    lambda sites: st.fixed_dictionaries({site: st.builds(holding, owned, owned) for site in sites})
)
names = st.sampled_from([*NAMES, "nobody's"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Graph], list[Link]]:
    federation = draw(federations)
    site = st.one_of(st.none(), st.sampled_from(sorted(federation)))
    link = st.builds(Link, site, names, site, names, st.just("same.tsv:1"))
    return federation, draw(st.lists(link, min_size=1, max_size=12))


def things(federation: Federation) -> list[Thing]:
    return [(site, name) for site, graph in federation.items() for name in graph.entities]


def partition(federation: Federation, unified: Federation) -> set[frozenset[Thing]]:
    """The things of a federation, grouped by what they are called when unified."""
    groups: dict[str, set[Thing]] = {}
    for (site, name), (_, called) in zip(things(federation), things(unified), strict=True):
        groups.setdefault(called, set()).add((site, name))
    return set(map(frozenset, groups.values()))


def obvious(
    federation: Federation, by_name: bool, links: Sequence[Link]
) -> tuple[set[frozenset[Thing]], Counter[str]]:
    """The rule as it is stated, on sets of things."""
    groups: list[set[Thing]] = [{thing} for thing in things(federation)]
    fates: Counter[str] = Counter()

    def merge(one: Thing, other: Thing) -> bool:
        left = next(group for group in groups if one in group)
        right = next(group for group in groups if other in group)
        if left is right:
            return True
        if {site for site, _ in left} & {site for site, _ in right}:
            return False
        groups.remove(right)
        left |= right
        return True

    if by_name:
        for one, other in product(things(federation), repeat=2):
            if one[1] == other[1]:
                assert merge(one, other)
    for link in links:
        left, right = (
            sorted(thing for thing in things(federation) if thing[1] == name and site in (None, thing[0]))
            for site, name in ((link.left_site, link.left), (link.right_site, link.right))
        )
        pairs = [(one, other) for one, other in product(left, right) if one[0] != other[0]]
        if not left or not right:
            fates["unmatched"] += 1
        elif not pairs:
            fates["within_site"] += 1
        else:
            joined = [merge(one, other) for one, other in pairs]
            fates["used" if all(joined) else "left_out"] += 1
    return set(map(frozenset, groups)), fates


def quietly(federation: Federation, by_name: bool, links: Sequence[Link]) -> tuple[Unified, int]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", DataWarning)
        unified = unify(federation, by_name, {Axis.ENTITY: links})
    return unified, len(told)


@given(cases(), st.booleans())
@settings(max_examples=400)
def test_unify_against_the_obvious(case: tuple[dict[str, Graph], list[Link]], by_name: bool) -> None:
    federation, links = case
    expected, fates = obvious(federation, by_name, links)
    try:
        unified, told = quietly(federation, by_name, links)
    except DataError:
        assert fates["used"] + fates["left_out"] == 0
        return
    assert fates["used"] + fates["left_out"] > 0
    (report,) = unified.reports
    assert partition(federation, unified.federation) == expected
    found = {key: getattr(report, key) for key in ("used", "left_out", "within_site", "unmatched")}
    assert found == {key: fates[key] for key in found}
    assert report.given == len(links) == sum(found.values())
    assert len(report.examples) == min(report.left_out, 5)
    assert told == (report.left_out > 0)


@given(cases(), st.booleans())
@settings(max_examples=150)
def test_a_group_has_one_thing_of_a_site_and_order_of_sites_does_not_matter(
    case: tuple[dict[str, Graph], list[Link]], by_name: bool
) -> None:
    federation, links = case
    try:
        unified, _ = quietly(federation, by_name, links)
    except DataError:
        return
    assert list(unified.federation) == list(federation)
    for graph in unified.federation.values():
        assert len(set(graph.entities)) == len(graph.entities)
        assert len(set(graph.relations)) == len(graph.relations)
    backwards, _ = quietly(dict(reversed(federation.items())), by_name, links)
    assert backwards.reports == unified.reports
    for site, graph in unified.federation.items():
        assert backwards.federation[site].entities == graph.entities


@given(cases())
@settings(max_examples=100)
def test_unifying_again_changes_nothing(case: tuple[dict[str, Graph], list[Link]]) -> None:
    """Links that say what names say already are used and join nothing more."""
    federation, links = case
    try:
        unified, _ = quietly(federation, True, links)
    except DataError:
        return
    same = [Link(None, name, None, name, "again") for name in shared_names(unified.federation, Axis.ENTITY)]
    again = unify(unified.federation, links={Axis.ENTITY: same})
    for site, graph in unified.federation.items():
        assert again.federation[site].entities == graph.entities
    assert all(report.used == report.given == len(same) for report in again.reports)


@given(federations)
def test_what_is_shared_against_looking_names_up(federation: dict[str, Graph]) -> None:
    counts = shared_counts(names_of(federation), list(Axis))
    for axis in Axis:
        own = {site: names[axis] for site, names in names_of(federation).items()}
        owners = Counter(name for each in own.values() for name in each)
        shared = sorted(name for name, count in owners.items() if count > 1)
        assert shared_names(federation, axis) == shared
        assert {site: of[axis] for site, of in counts.items()} == {
            site: len(set(each) & set(shared)) for site, each in own.items()
        }
