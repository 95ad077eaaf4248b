"""What links make the same: groups of at most one thing of each site, joined link by link, all by number."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count, repeat
from typing import Literal, TypeAlias

import numpy as np

from fedkge.graphs.graph import Names
from fedkge.graphs.links import Link

EXAMPLES = 5  #: how many of the links left out are told

Sites: TypeAlias = int  #: a set of sites, a bit for each
Fate: TypeAlias = Literal["used", "left_out", "within_site", "unmatched"]


def each(sites: Sites) -> Iterator[Sites]:
    """The sites of a set one by one, in order."""
    while sites:
        first = sites & -sites
        yield first
        sites ^= first


class Groups:
    """Things `0..n-1`, at first each a group by itself; `sites[i]` are the sites that have thing i.

    Every thing knows its group's root, and the things of a group form a ring: two rings that exchange one
    successor each are one ring. The smaller group gets the other's root, so all joins take O(n log n).
    """

    def __init__(self, sites: Sequence[Sites]) -> None:
        self._sites = list(sites)  # of all things of a group, at its root
        self._size = [1] * len(sites)  # likewise
        self._root = list(range(len(sites)))
        self._next = list(range(len(sites)))

    def join(self, one: int, other: int) -> Sites:
        """Make two things the same and return 0; or change nothing and return the sites that would then have
        two things in one group."""
        kept, moved = self._root[one], self._root[other]
        if kept == moved:
            return 0
        if clash := self._sites[kept] & self._sites[moved]:
            return clash
        if self._size[kept] < self._size[moved]:
            kept, moved = moved, kept
        for thing in self.members(moved):
            self._root[thing] = kept
        self._next[kept], self._next[moved] = self._next[moved], self._next[kept]
        self._sites[kept] |= self._sites[moved]
        self._size[kept] += self._size[moved]
        return 0

    def members(self, thing: int) -> list[int]:
        """All things of the group that `thing` is in, itself first."""
        found = [thing]
        while (thing := self._next[thing]) != found[0]:
            found.append(thing)
        return found

    def joined(self) -> Iterator[list[int]]:
        """The groups of more than one thing."""
        for thing, root in enumerate(self._root):
            if thing == root and self._size[root] > 1:
                yield self.members(thing)


class Linking:
    """The links of one axis, and the things that they name.

    If names count (`by_name`) a thing is a name, wherever it is held; else it is a name at one site.
    """

    def __init__(
        self, sites: Sequence[str], own: Sequence[Names], by_name: bool, links: Sequence[Link]
    ) -> None:
        self._sites, self._own, self._by_name = sites, own, by_name
        number: defaultdict[str, int] = defaultdict(count().__next__)
        self._links = [(link, number[link.left], number[link.right]) for link in links]
        self._linked = [  # for each name of a site its number, -1 if no link has it
            np.fromiter(map(number.get, names, repeat(-1)), np.int64, len(names)) for names in own
        ]
        self._owners: list[Sites] = [0] * len(number)  # of each linked name
        for i, linked in enumerate(self._linked):
            for name in linked[linked >= 0].tolist():
                self._owners[name] |= 1 << i
        self._first = list(accumulate(map(int.bit_count, self._owners), initial=0))
        self._things = list(zip(number, self._owners, strict=True))  # a name, and the sites where it is this
        if not by_name:
            self._things = [(name, site) for name, owners in self._things for site in each(owners)]
        self._groups = Groups([sites for _, sites in self._things])
        self.fates: list[tuple[Link, Fate]] = []  #: what became of each link, in their order
        self.examples: list[str] = []  #: the first links left out, and what they would have joined

    def join(self) -> Counter[Fate]:
        """Take all links, in their order; how many came to what."""
        bit: dict[str | None, Sites] = {site: 1 << i for i, site in enumerate(self._sites)}
        bit[None] = -1  # all sites
        self.fates = []
        for link, left, right in self._links:
            here, there = self._owners[left] & bit[link.left_site], self._owners[right] & bit[link.right_site]
            if not here or not there:
                fate: Fate = "unmatched"
            elif here == there and here.bit_count() == 1:
                fate = "within_site"
            else:
                fate = self._take(link, self._pairs(left, here, right, there))
            self.fates.append((link, fate))
        return Counter(fate for _, fate in self.fates)

    def _thing(self, name: int, site: Sites) -> int:
        """The number of what a site has under a name: things are numbered by name, then by site."""
        return name if self._by_name else self._first[name] + (self._owners[name] & (site - 1)).bit_count()

    def _pairs(self, left: int, here: Sites, right: int, there: Sites) -> Iterable[tuple[int, int]]:
        """The things that a link says are the same: at every two different sites, those of these names."""
        if self._by_name:
            return [(left, right)]
        return ((self._thing(left, a), self._thing(right, b)) for a in each(here) for b in each(there & ~a))

    def _take(self, link: Link, pairs: Iterable[tuple[int, int]]) -> Fate:
        fate: Fate = "used"
        for one, other in pairs:
            if clash := self._groups.join(one, other):
                if fate == "used" and len(self.examples) < EXAMPLES:
                    self.examples.append(self._example(link, one, other, clash))
                fate = "left_out"
        return fate

    def _example(self, link: Link, one: int, other: int, clash: Sites) -> str:
        first = next(each(clash))
        held = (self._things[member] for thing in (one, other) for member in self._groups.members(thing))
        ours, theirs = (name for name, sites in held if sites & first)
        return (
            f"{link.where}: {link.left!r} = {link.right!r} would make {ours!r} and {theirs!r} "
            f"of site {self._sites[first.bit_length() - 1]!r} the same"
        )

    def called(self, prefixes: Sequence[str]) -> Iterator[list[str]]:
        """Each site's names, its prefix before them; those of one group are replaced by their smallest."""
        common = [prefixes[sites.bit_length() - 1] + name for name, sites in self._things]
        for group in self._groups.joined():
            smallest = min(common[thing] for thing in group)
            for thing in group:
                common[thing] = smallest
        for i, (prefix, own, linked) in enumerate(zip(prefixes, self._own, self._linked, strict=True)):
            names = [prefix + name for name in own] if prefix else list(own)
            local = np.flatnonzero(linked >= 0)
            for position, name in zip(local.tolist(), linked[local].tolist(), strict=True):
                names[position] = common[self._thing(name, 1 << i)]
            yield names
