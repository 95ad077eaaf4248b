"""Common names that each site finds by itself, against the obvious way."""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.errors import DataWarning
from fedkge.graphs.calling import called, called_apart
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.links import Link, read_links
from fedkge.graphs.unify import unify

NONE = np.empty((0, 3), np.int64)


def graph(*entities: str) -> Graph:
    return Graph(Names(entities), Names(["r"], Axis.RELATION), NONE, NONE, NONE)


def linked(*pairs: str) -> dict[Axis, list[Link]]:
    """`a=b`, or `site:a=site:b`."""
    found = []
    for pair in pairs:
        sides = [side.split(":") if ":" in side else [None, side] for side in pair.split("=")]
        found.append(Link(sides[0][0], str(sides[0][1]), sides[1][0], str(sides[1][1]), "links"))
    return {Axis.ENTITY: found}


def test_without_links_a_name_is_common_in_its_normal_form() -> None:
    assert list(called("s", graph("b", "Zu\u0308rich", "HTTP://A/")).entities) == [
        "b",
        "Zürich",
        "http://A/".lower(),
    ]
    assert list(called("s", graph("b"), names=False).entities) == ["s\tb"]


def test_links_join_in_any_number_of_steps() -> None:
    links = linked("z=y", "y=nobody has this", "m=y")
    assert list(called("s", graph("z", "q"), links=links).entities) == ["m", "q"]
    assert list(called("t", graph("y"), links=links).entities) == ["m"]


def test_of_two_names_for_one_thing_one_is_shared() -> None:
    with pytest.warns(
        DataWarning, match=r"site 's': 1 entity names .* 'Zu\u0308rich' means the same as 'Zürich'"
    ):
        found = called("s", graph("Zu\u0308rich", "Zürich"))
    assert list(found.entities) == ["s\tZu\u0308rich", "Zürich"]
    with pytest.warns(DataWarning, match="'b' means the same as 'a'"):
        found = called("s", graph("b", "a"), links=linked("a=b"))
    assert list(found.entities) == ["s\tb", "a"]
    assert len(set(found.entities)) == 2


def test_without_names_only_links_count_and_sites_are_heeded() -> None:
    links = linked("s:x=t:y")
    sites = {"s": graph("x", "y"), "t": graph("x", "y")}
    found = called_apart(sites, names=False, links=links)
    assert [list(g.entities) for g in found.values()] == [["s\tx", "s\ty"], ["t\tx", "s\tx"]]


def test_same_as_links_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    path = tmp_path / "same.nt"
    path.write_text("<http://a/x> <http://www.w3.org/2002/07/owl#sameAs> <http://B/y> .\n")
    links = {Axis.ENTITY: read_links(path, Axis.ENTITY)}
    one, two = called("s", graph("http://A/x"), links=links), called("t", graph("http://b/%79"), links=links)
    assert list(one.entities) == list(two.entities) == ["http://a/x"]


LETTERS = "abcdef"
PAIRS = st.lists(st.tuples(st.sampled_from(LETTERS), st.sampled_from(LETTERS)), max_size=5)
HELD = st.lists(st.sets(st.sampled_from(LETTERS), min_size=1), min_size=2, max_size=3)


def reachable(start: str, pairs: list[tuple[str, str]]) -> set[str]:
    found = {start}
    for _ in LETTERS:
        found |= {b for a, b in pairs if a in found} | {a for a, b in pairs if b in found}
    return found


@given(PAIRS, HELD)
@settings(deadline=None, max_examples=200)
def test_common_names_are_those_of_the_connected_components(
    pairs: list[tuple[str, str]], held: list[set[str]]
) -> None:
    links = linked(*(f"{a}={b}" for a, b in pairs))
    sites = {f"s{i}": graph(*sorted(names)) for i, names in enumerate(held)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        found = {site: list(one.entities) for site, one in called_apart(sites, links=links).items()}
    for site, own in sites.items():
        assert len(set(found[site])) == len(own.entities), "no two things of a site are one"
        for name, common in zip(own.entities, found[site], strict=True):
            group = reachable(name, pairs)
            chosen = min(group & set(own.entities), key=lambda one: (one != min(group), one))
            assert common == (min(group) if name == chosen else f"{site}\t{name}")


@given(PAIRS, HELD)
@settings(deadline=None, max_examples=100)
def test_where_nothing_clashes_sites_agree_as_one_program_that_knows_all_graphs(
    pairs: list[tuple[str, str]], held: list[set[str]]
) -> None:
    """Links between names that somebody has, and at most one thing of a group at a site."""
    everyone = set().union(*held)
    pairs = [(a, b) for a, b in pairs if {a, b} <= everyone and a != b]
    groups = {frozenset(reachable(name, pairs)) for name in everyone}
    if not pairs or any(len(group & names) > 1 for group, names in product(groups, held)):
        return
    links = linked(*(f"{a}={b}" for a, b in pairs))
    sites = {f"s{i}": graph(*sorted(names)) for i, names in enumerate(held)}
    apart, together = called_apart(sites, links=links), unify(sites, True, links).federation
    assert {s: list(g.entities) for s, g in apart.items()} == {
        s: list(g.entities) for s, g in together.items()
    }
