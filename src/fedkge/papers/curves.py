"""Curves of runs as pictures: validation MRR over rounds and over bytes sent, for each data set and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import ceil
from typing import Any, NamedTuple, TypeAlias

from fedkge.papers.catalogue import Table
from fedkge.papers.lines import Line, rows_of
from fedkge.papers.protocols import Protocol
from fedkge.papers.records import Record, shared_by
from fedkge.reports.compared.experiments import COLOURS
from fedkge.reports.compared.reference import CONVERGED, LEVELS
from fedkge.reports.drawing.axes import scaled
from fedkge.reports.drawing.figure import Figure, Trace, decades, mark, titled
from fedkge.reports.drawing.svg import DASHES, panels

Look: TypeAlias = tuple[str, int]  # colour, dash
SEED = 0  #: the run of a method that is drawn
MOST = 120  #: points of a line
HEIGHT = 320  #: pixels of a panel
DOTTED = 2  #: the dash of a method that sends nothing, over bytes


class Point(NamedTuple):
    """Where a run was after a validated round."""

    round: int
    mrr: float
    sent: int  #: bytes, both ways


class Drawn(NamedTuple):
    """A line of a picture: one method's run."""

    line: Line
    points: Sequence[Point]
    whole: bool  #: False: the record tells some points only
    capped: bool  #: the run ended with the last round that it may have
    shared: int  #: positives that share negatives; 1: each has its own

    @property
    def name(self) -> str:
        return self.line.name


class Picture(NamedTuple):
    """A file of docs/results."""

    file: str
    title: str
    lines: Sequence[Drawn]
    svg: str


def points(record: Record) -> list[Point]:
    """A record's validated rounds. Of an old record, the rounds that it tells the costs of, or none.

    At 98 and 99 % of the reference's best the run's MRR was at least that much: this bound is the point.
    """
    if "curve" in record:
        return [Point(number, mrr, sent) for number, mrr, _, sent in record["curve"]]
    if not (spent := record.get("spent")):
        return []
    best = Point(spent[f"R@{CONVERGED}"], spent["valid_mrr"], spent[f"bytes@{CONVERGED}"])
    found = {best.round: best}
    for level, share in LEVELS.items():
        number = spent[f"R@{level}"]
        if isinstance(number, int) and number < best.round:
            found.setdefault(number, Point(number, share * spent["reference_mrr"], spent[f"bytes@{level}"]))
    return [found[number] for number in sorted(found)]


def overview(
    tables: Iterable[Table], protocols: Mapping[str, Protocol], records: Mapping[str, Record]
) -> tuple[list[Picture], list[Line]]:
    """A picture for each data set, model and paper's settings; and lines with a record but no curve.

    Methods have the options of their presets: points of grids are on pages of their own.
    """
    every: dict[tuple[str, str, str], dict[str, Line]] = {}
    for table in (table for table in tables if table.runs):
        for line in rows_of(table, protocols[table.protocol], records):
            if _traced(line) and not line.view and not line.job.assignments:
                of = every.setdefault((*line.subject, table.protocol), {})
                of.setdefault(line.name, line)
    found = {subject: drawable(of.values()) for subject, of in sorted(every.items())}
    looks = _looks(found.values())
    drawn, without = [], []
    for (data, model, key), lines in found.items():
        told = {one.name for one in lines}
        without += [
            line
            for name, line in every[data, model, key].items()
            if name not in told and "curve" not in (_traced(line) or {})
        ]
        if lines:
            title = f"{data}, {model}, settings of {protocols[key].paper}"
            drawn.append(picture(f"curves-{data}-{model}-{key}.svg", title, lines, looks))
    return drawn, without


def pictures(table: Table, found: Sequence[Line]) -> list[Picture]:
    """The rows of a table that asks for curves: a picture for each data set and model."""
    shown = [line for line in found if not line.view] if table.curves else []
    by_subject = {of: drawable(group) for of, group in groupby(shown, key=lambda line: line.subject)}
    looks = _looks(by_subject.values())
    return [
        picture(f"{table.name}-{data}-{model}.svg", f"{data}, {model}", lines, looks)
        for (data, model), lines in by_subject.items()
        if lines
    ]


def drawable(found: Iterable[Line]) -> list[Drawn]:
    """Lines with something to draw."""
    drawn = []
    for line in found:
        if (record := _traced(line)) and (told := points(record)) and not _is_dot(record):
            capped = max(course["rounds"] for course in record["courses"].values()) >= line.cap
            drawn.append(Drawn(line, _thinned(told), "curve" in record, capped, shared_by(record)))
    return drawn


def _is_dot(record: Record) -> bool:
    """Whether a run was validated once, at its end: that is no curve."""
    return len(record.get("curve", ())) == 1


def _traced(line: Line) -> Record | None:
    """The record of the seed that is drawn."""
    return next((record for record in line.traced if record["seed"] == SEED), None)


def _thinned(told: Sequence[Point]) -> list[Point]:
    """At most so many points, evenly; the best and the last are among them."""
    step = ceil(len(told) / MOST)
    kept = {*range(0, len(told), step), len(told) - 1}
    kept.add(max(range(len(told)), key=lambda i: told[i].mrr))
    return [told[i] for i in sorted(kept)]


# Drawing


def picture(file: str, title: str, found: Sequence[Drawn], looks: Mapping[str, Look]) -> Picture:
    """Two panels with the same y axis: over rounds, and over bytes where a method sends some."""
    heights = [point.mrr for one in found for point in one.points]
    room = 0.05 * (max(heights) - min(heights)) or 0.01
    scale = titled("validation MRR", range=[min(heights) - room, max(heights) + room])

    def panel(name: str, xaxis: Mapping[str, Any], traces: Iterable[Sequence[Trace]]) -> Figure:
        layout = {"xaxis": xaxis, "yaxis": scale}
        return Figure(name, "", [trace for of in traces for trace in of], layout, HEIGHT, longest=60)

    rounds = (_traces(one, looks[one.name], [point.round for point in one.points]) for one in found)
    figures = [panel("over rounds", titled("round"), rounds)]
    if sent := [point.sent for one in found for point in one.points if point.sent]:
        ends = min(sent), max(sent)
        axis = titled("sent, both ways, logarithmic") | decades(*ends, lambda of: f"{scaled(of, 3)}B")
        figures.append(panel("over bytes", axis, (_over_bytes(one, looks[one.name], ends) for one in found)))
    names = ", ".join(one.name for one in found)
    label = f"Validation MRR over rounds and over bytes sent: one line for each of {names}."
    return Picture(file, title, found, panels(title, label, figures))


def _looks(groups: Iterable[Sequence[Drawn]]) -> dict[str, Look]:
    """Colour and dash of each method, the same in all pictures of a page.

    Neighbours differ in both, so that a line is known without its colour.
    """
    named = {one.name: one.line.job.experiment().method.kind for group in groups for one in group}
    looks: dict[str, Look] = {name: (kind, 0) for name, kind in named.items() if kind in ("alone", "pooled")}
    for turn, name in enumerate(sorted(named.keys() - looks.keys())):
        looks[name] = f"s{turn % COLOURS}", (turn + turn // COLOURS) % len(DASHES)
    return looks


def _traces(one: Drawn, look: Look, x: Sequence[int | None]) -> list[Trace]:
    """A line; dots where only they are known; a ring at the end of a run that ended at the cap."""
    y, mode = [point.mrr for point in one.points], "lines" if one.whole else "lines+markers"
    drawn = [mark("scatter", one.name, *look, x=x, y=y, mode=mode)]
    if one.capped:
        ring: Trace = {"marker": {"symbol": "circle-open", "size": 10}, "mode": "markers"}
        drawn.append(mark("scatter", "", *look, x=x[-1:], y=y[-1:], **ring))
    return drawn


def _over_bytes(one: Drawn, look: Look, ends: tuple[int, int]) -> list[Trace]:
    """The line; of a method that sends nothing, the best that it came to."""
    sent = [point.sent or None for point in one.points]
    if any(sent):
        return _traces(one, look, sent)
    best = max(point.mrr for point in one.points)
    return [mark("scatter", one.name, look[0], DOTTED, x=list(ends), y=[best, best], mode="lines")]
