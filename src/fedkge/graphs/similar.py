"""Names that look alike at different sites: links for a person to confirm.

Two names are compared by the triples of letters in them (Dice's coefficient), without what an IRI has in
front, without case, accents and punctuation. Names whose digits differ are never alike: `e12` is not `e13`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from urllib.parse import unquote

from fedkge.graphs.said import BLANK

RARE = 4  #: triples of letters of a name, the rarest ones, that look for candidates
CROWD = 200  #: names that share a triple of letters: more say too little
MOST = 3  #: candidates of a name


@dataclass(frozen=True)
class Suggestion:
    """Two names that may mean the same, and how alike they are (1: the same but for case and signs)."""

    left_site: str
    left: str
    right_site: str
    right: str
    score: float


def plain(name: str) -> str:
    """The words of a name, in lower case and without accents."""
    local = re.split(r"[#/]", name.rstrip("#/"))[-1] if "://" in name else name
    letters = unicodedata.normalize("NFKD", unquote(local)).casefold()
    kept = "".join(c if c.isalnum() else " " for c in letters if not unicodedata.combining(c))
    return " ".join(kept.split())


class Index:
    """Names by their triples of letters."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [name for name in names if not name.startswith(BLANK) and plain(name)]
        self.grams = [_grams(plain(name)) for name in self.names]
        self.counts = Counter(gram for grams in self.grams for gram in grams)
        self.places: defaultdict[str, list[int]] = defaultdict(list)
        for i, grams in enumerate(self.grams):
            for gram in self._rare(grams):
                self.places[gram].append(i)

    def _rare(self, grams: frozenset[str]) -> list[str]:
        return sorted(grams, key=lambda gram: (self.counts[gram], gram))[:RARE]

    def near(self, name: str, least: float) -> list[tuple[float, str]]:
        """The most similar names, best first."""
        own = _grams(plain(name))
        places = {i for gram in own if self.counts[gram] <= CROWD for i in self.places.get(gram, ())}
        scored = (
            (2 * len(own & self.grams[i]) / (len(own) + len(self.grams[i])), self.names[i])
            for i in places
            if _digits(self.names[i]) == _digits(name)
        )
        found = [(score, other) for score, other in scored if score >= least]
        return sorted(found, key=lambda one: (-one[0], one[1]))[:MOST]


def suggestions(names: Mapping[str, Sequence[str]], least: float) -> list[Suggestion]:
    """Pairs of names of different sites that no equal name joins, best first. `names` are by site."""
    found = []
    for one, other in combinations(sorted(names), 2):
        here, there = set(names[one]), set(names[other])
        index = Index([name for name in names[other] if name not in here])
        for name in names[one]:
            if name not in there and not name.startswith(BLANK) and plain(name):
                found += [
                    Suggestion(one, name, other, near, round(score, 3))
                    for score, near in index.near(name, least)
                ]
    return sorted(found, key=lambda s: (-s.score, s.left_site, s.left, s.right_site, s.right))


def ambiguous(found: Sequence[Suggestion]) -> int:
    """How many names have several candidates at one site."""
    counts: Counter[tuple[str, ...]] = Counter()
    for s in found:
        counts[s.left_site, s.left, s.right_site] += 1
        counts[s.right_site, s.right, s.left_site] += 1
    return sum(count > 1 for count in counts.values())


def lines(found: Sequence[Suggestion]) -> Iterator[str]:
    """A file of links, to be edited: site, name, site, name, score."""
    for s in found:
        yield f"{s.left_site}\t{s.left}\t{s.right_site}\t{s.right}\t{s.score}\n"


def _grams(text: str) -> frozenset[str]:
    padded = f"  {text} "
    return frozenset(padded[i : i + 3] for i in range(len(padded) - 2))


def _digits(name: str) -> str:
    return "".join(c for c in plain(name) if c.isdigit())
