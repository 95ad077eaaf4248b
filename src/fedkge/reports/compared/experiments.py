"""Runs of one experiment: the same in everything but the seed, told as mean and standard deviation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean, stdev
from typing import NamedTuple

from fedkge.reports.folders.before import Kind
from fedkge.reports.folders.options import METHOD, NAME, SEED, START, chosen, same, spoken, swept_keys, tails
from fedkge.reports.folders.run import Run


class Spread(NamedTuple):
    """A number over seeds; one seed has no deviation."""

    mean: float
    std: float | None  #: of the sample, n - 1 in the denominator
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Over the values that are known; None when none is."""
    known = [value for value in values if value is not None and isfinite(value)]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


@dataclass(frozen=True)
class Group:
    """One or more runs that differ in their seed alone."""

    label: str
    runs: Sequence[Run]
    colour: str  #: the page's variable for it, the same in every plot
    dash: int  #: which kind of line, when there are more than colours

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def approach(self) -> str:
        return self.first.approach

    @property
    def sites(self) -> list[str]:
        return list(dict.fromkeys(site for run in self.runs for site in run.sites))

    @property
    def ended(self) -> list[Run]:
        return [run for run in self.runs if run.ended]

    @property
    def known_until(self) -> float:
        """The round up to which all runs tell: after it, one that goes on may still change the mean."""
        return min((run.last_round for run in self.runs if not run.ended), default=inf)

    def test(
        self, metric: str = "mrr", site: str | None = None, split: str | None = None, view: str = ""
    ) -> Spread | None:
        """A test metric over seeds: of the sides that runs are judged by, unless a split is named."""
        return self.over(lambda run: run.metrics(split or run.headline(view), site).get(metric))

    def valid(self, metric: str = "mrr") -> Spread | None:
        """What runs are chosen by: the same metric of the tables that they kept, on validation."""
        return self.over(lambda run: run.metrics(run.chosen_by).get(metric))

    def over(self, value: Callable[[Run], float | None]) -> Spread | None:
        """A number of each run that has ended, over seeds."""
        return spread(value(run) for run in self.ended)


COLOURS = 8  #: of the page, for everything but alone and pooled


def experiments(runs: Sequence[Run]) -> list[Group]:
    """Runs by experiment: alone first, pooled last, others as given; a seed given again begins another."""
    groups: dict[tuple[str, int], list[Run]] = {}
    times: Counter[tuple[str, int]] = Counter()
    for run in runs:
        called = {NAME: run.config.get(NAME)}
        options = same(called | {key: value for key, value in chosen(run).items() if key != SEED})
        again = times[options, run.seed]
        times[options, run.seed] += 1
        groups.setdefault((options, again), []).append(run)
    for group in groups.values():
        group.sort(key=lambda run: run.seed)
    of = sorted(groups.values(), key=lambda group: _rank(group[0].reference))
    colours = _colours([group[0].reference for group in of])
    return [
        Group(label, group, *colour) for label, group, colour in zip(_labels(of), of, colours, strict=True)
    ]


def _rank(reference: Kind | None) -> int:
    return {None: 1, Kind.ALONE: 0, Kind.POOLED: 2}[reference]


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The run's name, or the approach and the options in which experiments differ.

    Where that is the same for two, both are told; then folders, by as much of their paths as is needed.
    """
    first = [group[0] for group in groups]
    keys = [key for key in swept_keys(first) if key not in (METHOD, START)]
    told = []
    for run in first:
        options = chosen(run)
        own = [spoken(key, options[key], keys) for key in keys if key in options]
        told.append(" · ".join([run.approach, *own]))
    names = [str(run.config.get(NAME) or one) for run, one in zip(first, told, strict=True)]
    short = tails(str(run.path) for run in first)
    for more in (told, [short[str(run.path)] for run in first]):
        twice = Counter(names)
        pairs = zip(names, more, strict=True)
        names = [f"{name} · {one}" if twice[name] > 1 and name != one else name for name, one in pairs]
    return names


def _colours(references: Sequence[Kind | None]) -> list[tuple[str, int]]:
    """Alone and pooled look the same on every page; all others take the page's colours in turn."""
    used: Counter[str] = Counter()
    found = []
    for reference in references:
        kind = "s" if reference is None else str(reference)
        turn = used[kind]
        used[kind] += 1
        found.append((f"s{turn % COLOURS}", turn // COLOURS) if kind == "s" else (kind, turn))
    return found


def foremost(groups: Sequence[Group], most: int) -> list[Group]:
    """All, or of too many to draw alone, pooled, and the best of the rest on validation; in their order."""
    if len(groups) <= most:
        return list(groups)

    def merit(group: Group) -> tuple[bool, float]:
        found = group.valid()
        return group.first.reference is not None, found.mean if found else -1.0

    chosen = sorted(groups, key=merit, reverse=True)[:most]
    return [group for group in groups if group in chosen]
