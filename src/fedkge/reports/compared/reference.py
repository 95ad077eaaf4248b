"""What it takes to converge, beside a reference: rounds, values and bytes (FedS, section IV-B)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from math import isfinite
from statistics import fmean
from typing import NamedTuple, TypeAlias

from fedkge.errors import ConfigError, suggest
from fedkge.reports.compared.experiments import Group, Row, experiments, foremost, mean, repeated, spread
from fedkge.reports.drawing.curves import BY_BYTES, WEIGHTED, mean_curve, over_bytes, point, validation
from fedkge.reports.drawing.figure import Figure, decades, titled
from fedkge.reports.drawing.lines import Line, Point, Scale, line_figure
from fedkge.reports.folders.run import Curve, Run
from fedkge.reports.pages.markup import size

LEVELS = {"99": 0.99, "98": 0.98}  #: shares of the reference's best validation MRR
CONVERGED = "CG"  #: the level of a run's own best validation MRR
SPENT = {"rounds": "R", "values": "values", "bytes": "bytes"}  #: and what rows call it
RATIOS = {"rounds": "R_ratio", "values": "P", "bytes": "B"}  #: to what the reference spent
NEVER = "never"


class Cost(NamedTuple):
    """What was spent up to and with a round; values and bytes are those sent in both directions."""

    rounds: int
    values: float
    bytes: float


Reached: TypeAlias = Cost | str | None  #: `NEVER`: the run ended below the level; None: not known (yet)


class Unit(NamedTuple):
    """What a reference reached, and what it spent to get to each level: others are told in units of it."""

    mrr: float | None  #: its best validation MRR
    spent: Mapping[str, Reached]  #: by level


class Course(NamedTuple):
    """How far a run was after each validated round, and what it had sent by then."""

    progress: Curve  #: the best validation MRR so far
    values: Curve
    bytes: Curve
    ended: bool = True

    @classmethod
    def of(cls, run: Run) -> Course:
        return cls(progress(run), run.sent("values"), run.sent("bytes"), run.ended)

    @property
    def best(self) -> float | None:
        """The best validation MRR of a run that has ended."""
        return max(self.progress.values(), default=None) if self.ended else None

    def reached(self, level: float | None) -> Reached:
        """What the run had spent when its validation MRR first was at least `level`."""
        if level is None:
            return None
        number = next((number for number, mrr in sorted(self.progress.items()) if mrr >= level), None)
        if number is None:
            return NEVER if self.ended else None
        return Cost(number, self.values.get(number, 0), self.bytes.get(number, 0))

    def spent(self, top: float | None) -> dict[str, Reached]:
        """By level, of which those in per cent are shares of `top`."""
        shares = {name: None if top is None else share * top for name, share in LEVELS.items()}
        return {name: self.reached(level) for name, level in {CONVERGED: self.best, **shares}.items()}

    def unit(self) -> Unit:
        """The run as a reference."""
        return Unit(self.best, self.spent(self.best))

    def costs(self, base: Unit | None) -> Row:
        """What a run reached and spent, by itself and in units of a reference; see `reference_rows`."""
        row: Row = {"valid_mrr": self.best}
        for level, own in self.spent(base.mrr if base else None).items():
            other = base.spent[level] if base else None
            for what in Cost._fields:
                spent = getattr(own, what) if isinstance(own, Cost) else own
                unit = getattr(other, what) if isinstance(other, Cost) else None
                ratio = spent / unit if isinstance(own, Cost) and unit else None
                row[f"{SPENT[what]}@{level}"] = spent
                row[f"{RATIOS[what]}@{level}"] = NEVER if own == NEVER else ratio
        return row


def progress(run: Run) -> Curve:
    """Round -> the best validation MRR so far, over all sites; where each keeps its own, of their bests."""
    if run.keeps_each:
        curves, queries = validation(run)
        return mean_curve({site: _so_far(curve) for site, curve in curves.items()}, queries)
    return _so_far({number: found.mrr for number, found in run.validations.items() if isfinite(found.mrr)})


def _so_far(curve: Curve) -> dict[int, float]:
    numbers = sorted(curve)
    return dict(zip(numbers, accumulate((curve[number] for number in numbers), max), strict=True))


def reference_rows(runs: Sequence[Run], reference: str) -> list[Row]:
    """One row per experiment, means over its seeds: what it spent until it converged and to reach each level.

    With `@CG` at its own best validation, with `@99` and `@98` when it first had that many per cent of the
    reference's: `R` rounds, `values` and `bytes` sent, and `R_ratio`, `P` and `B`, which are these in units
    of what the reference with the same data, model and seed spent to get as far itself. A cell is "never"
    where the run ended before; None where that is not known (yet), or the reference spent nothing.
    """
    groups = experiments(runs)
    several = repeated(groups)
    rows = []
    for group, each in _by_experiment(groups, reference):
        row: Row = {"run": group.label, **({"seeds": len(group.runs)} if several else {})}
        for key in (key for key in each[0] if key not in ("run", "seed")):
            row |= _told(key, [of[key] for of in each], several)
        rows.append(row)
    return rows


def each_reference_rows(runs: Sequence[Run], reference: str) -> list[Row]:
    """The same with a row per run, which has a `seed`: what the means are made of."""
    return [row for _, each in _by_experiment(experiments(runs), reference) for row in each]


def references(groups: Sequence[Group], name: str) -> list[Group]:
    """The experiments that `name` means, at most one for the same data and model.

    It is looked for among labels, then among folders, then among methods.
    """

    def folders(group: Group) -> list[str]:
        """Names of the runs' folders; of several seeds, of the folder that holds them."""
        paths = [run.path.parent if run.path.name == f"seed-{run.seed}" else run.path for run in group.runs]
        return [path.name for path in paths]

    kinds: tuple[Callable[[Group], Iterable[str]], ...] = (
        lambda group: [group.label],
        folders,
        lambda group: [group.approach],
        lambda group: [group.first.method],
    )
    matches = ([group for group in groups if name in names(group)] for names in kinds)
    found = next(filter(None, matches), [])
    if not found:
        known = [word for names in kinds for group in groups for word in names(group)]
        labels = ", ".join(group.label for group in groups)
        raise ConfigError(f"--reference: no run is {name!r}{suggest(name, known)} (there are: {labels})")
    for group in found:
        alike = [other for other in found if other.first.problem == group.first.problem]
        if len(alike) > 1:
            labels = " or ".join(repr(other.label) for other in alike)
            raise ConfigError(f"--reference: {name!r} means {len(alike)} experiments; name one, as {labels}")
    return found


def beside(group: Group, bases: Sequence[Group]) -> Group | None:
    """The reference of an experiment among those of all."""
    return next((base for base in bases if base.first.problem == group.first.problem), None)


def _by_experiment(groups: Sequence[Group], reference: str) -> list[tuple[Group, list[Row]]]:
    bases = references(groups, reference)
    found = []
    for group in groups:
        base = beside(group, bases)
        units = {run.seed: Course.of(run).unit() for run in base.runs} if base else {}
        rows = [{"seed": run.seed, **Course.of(run).costs(units.get(run.seed))} for run in group.runs]
        found.append((group, [{"run": group.label, **row} for row in rows]))
    return found


def _told(key: str, values: Sequence[float | str | None], several: bool) -> Row:
    """A number over seeds; words where some never got there, as the mean of the others would flatter."""
    never = values.count(NEVER)
    if never:
        words = NEVER if never == len(values) else f"{NEVER} in {never} of {len(values)}"
        return {key: words} | ({f"{key}_std": None} if several else {})
    numbers = [value for value in values if not isinstance(value, str)]
    found = spread(numbers)
    return {key: mean(numbers)} | ({f"{key}_std": found.std if found else None} if several else {})


DRAWN = 8  #: experiments beside the reference; of more, the best
NEAR = 0.9  #: of the least that any line reaches is where all begin, so that levels can be told apart


def reference_figures(groups: Sequence[Group], reference: str) -> list[Figure]:
    """One per reference that has ended, with the experiments on the same data and model."""
    bases = references(groups, reference)
    figures = []
    for base in bases:
        compared = [group for group in groups if beside(group, bases) is base]
        others = foremost([group for group in compared if group is not base], DRAWN)
        drawn = [group for group in compared if group is base or group in others]
        figures += _figure(base, drawn)
    return figures


def _figure(base: Group, groups: Sequence[Group]) -> list[Figure]:
    """None when nothing was sent, or the level to reach is not known yet."""
    tops = [top for run in base.runs if (top := Course.of(run).best) is not None]
    talking = [group for group in groups if any(run.traffic.bytes for run in group.runs)]
    lines = {line.name: line for line in _near([_over_bytes(group) for group in talking])}
    sent = [of.x for line in lines.values() for of in line.points]
    if not tops or not sent:
        return []
    ends = min(sent), max(sent)
    drawn = [lines.get(group.label) or _silent(group, ends) for group in groups]
    for name, share in LEVELS.items():
        level = [Point(x, share * fmean(tops)) for x in ends]
        drawn.append(Line(f"{name} % of {base.label}", level, "soft", 2))
    title = f"Validation MRR over bytes sent, beside {base.label}"
    label = f"{title}, one line per experiment, and the levels to reach; {WEIGHTED}."
    xaxis = titled("sent so far, in both directions", **decades(*ends, size))
    return [line_figure(title, label, drawn, Scale(xaxis, titled("filtered MRR"), BY_BYTES))]


def _over_bytes(group: Group) -> Line:
    """With a star where a run converged; means over seeds have no such point."""
    curves = [mean_curve(*validation(run)) for run in group.runs]
    points = over_bytes(curves, [run.sent() for run in group.runs], group.known_until)
    course = Course.of(group.first)
    top, found = course.best, course.reached(course.best)
    alone = len(group.runs) == 1
    star = Point(found.bytes, top) if alone and top is not None and isinstance(found, Cost) else None
    return Line(group.label, points, group.colour, group.dash, star)


def _near(lines: Sequence[Line]) -> list[Line]:
    """Each from just before it comes near the best of the worst; without what a logarithm does not have."""
    known = [[of for of in line.points if of.x > 0 and isfinite(of.y)] for line in lines]
    least = NEAR * min((max(of.y for of in points) for points in known if points), default=0.0)
    before = [sum(1 for _ in takewhile(lambda of: of.y < least, points)) for points in known]
    return [
        replace(line, points=points[max(0, n - 1) :])
        for line, points, n in zip(lines, known, before, strict=True)
    ]


def _silent(group: Group, ends: tuple[float, float]) -> Line:
    """Who sends nothing is a level, at the best that it reaches."""
    tops = [max(curve.values()) for run in group.runs if (curve := progress(run))]
    return Line(group.label, [point(x, tops) for x in ends] if tops else [], group.colour, 1)
