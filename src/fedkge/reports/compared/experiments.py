"""Runs of one experiment: the same in everything but the seed, told as mean and standard deviation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeAlias

from fedkge.reports.folders.options import METHOD, NAME, SEED, START, chosen, same, spelled, swept_keys, tails
from fedkge.reports.folders.run import Kind, Run


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


Row: TypeAlias = dict[str, Any]  #: None is not known (yet); beside `x`, `x_std` is its deviation over seeds


def told(found: Mapping[str, Spread | None], several: bool) -> Row:
    """The cells of numbers: their means and, when there are several seeds, their deviations."""
    row: Row = {}
    for name, one in found.items():
        row |= {name: None if one is None else one.mean}
        row |= {f"{name}_std": None if one is None else one.std} if several else {}
    return row


def mean(values: Iterable[float | None]) -> float | None:
    """Of what is known; a single number stays what it is."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(set(known)) > 1 else known[0] if known else None


def minus(value: Spread | None, base: Spread | None) -> float | None:
    """The difference of two means, where both are known."""
    return None if value is None or base is None else value.mean - base.mean


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

    def all_test(self, several: bool, site: str | None = None, view: str = "") -> Row:
        """Every test metric over seeds, as cells."""
        return told({metric: self.test(metric, site, view=view) for metric in METRICS}, several)


METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@5", "hits@10")


def repeated(groups: Iterable[Group]) -> bool:
    """Whether an experiment has several seeds."""
    return any(len(group.runs) > 1 for group in groups)


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
    order = {Kind.ALONE: 0, None: 1, Kind.POOLED: 2}
    of = sorted(groups.values(), key=lambda group: order[group[0].reference])
    colours = _colours([group[0].reference for group in of])
    return [
        Group(label, group, *colour) for label, group, colour in zip(_labels(of), of, colours, strict=True)
    ]


def _labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """The run's name, or the approach and the options in which experiments differ.

    Where that is the same for two, both are told; then folders, by as much of their paths as is needed.
    """
    first = [group[0] for group in groups]
    keys = [key for key in swept_keys(first) if key not in (METHOD, START)]
    told = [spelled(run.approach, chosen(run), keys) for run in first]
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
