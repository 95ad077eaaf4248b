"""Rows of a table: what the paper has, what runs came to over seeds, what they departed in and took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from fedkge.papers.catalogue import Job, Table, jobs
from fedkge.papers.comparing import ONLY, best_of
from fedkge.papers.protocols import PLAIN, Options, Protocol, setting
from fedkge.papers.records import Record, but_sharing, shared_by
from fedkge.papers.seen import departures
from fedkge.reports.compared.experiments import Spread, spread
from fedkge.reports.compared.reference import CONVERGED, LEVELS, NEVER, SPENT, Cost, Course, Unit
from fedkge.reports.folders.options import differing, flat

REFERENCE = "fedep"  #: whose costs are the unit
PRINTED = "as printed"  #: the note of alternatives


@dataclass(frozen=True)
class Line:
    """One row: an experiment with all its seeds, or another table that its method measures."""

    job: Job
    view: str  #: empty: the tables that the run is judged by
    asked: str  #: which method of the paper it is, by the name of the paper's row
    paper: Options
    records: Sequence[Record]  #: by seed; none: not run yet
    traced: Sequence[Record]  #: the same, or of shared negatives where only that run has a curve
    costs: Sequence[Mapping[str, Any]]  #: by seed, where the table has them
    departures: Sequence[str]
    note: str  #: where it comes from, if it is not the table's own plain row
    cap: int  #: rounds at most
    choice: str = ""  #: why it stands for a row of the paper that several were run for
    behind: Sequence[Record] = ()  #: of own negatives, where the record that is shown has shared ones

    @property
    def name(self) -> str:
        return f"{self.job.name} {self.view}".strip()

    @property
    def subject(self) -> tuple[str, str]:
        _, data, model, *_ = self.job.key.split("/")
        return data, model

    @property
    def differs(self) -> list[str]:
        """What departs from the paper, what was chosen by test figures, and negatives that runs shared."""
        return [*self.departures, *sharing(self.records), *self._own_negatives()]

    def _own_negatives(self) -> list[str]:
        """`MRR of a run with own negatives, whose validation is not recorded: 29.48`, if there is one."""
        found = spread(record["metrics"].get(self.name, {}).get("mrr") for record in self.behind)
        told = "MRR of a run with own negatives, whose validation is not recorded"
        return [] if found is None else [f"{told}: {100 * found.mean:.2f}"]

    def metric(self, name: str) -> Spread | None:
        return spread(record["metrics"][self.name].get(name) for record in self.records)

    def best_rounds(self) -> list[int]:
        """At which tables were kept; of a view that was validated too, its own."""
        found = []
        for record in self.records:
            for course in record["courses"].values():
                beside = course.get("best_rounds") if self.view else None
                found.append(beside.get(self.view, max(beside.values())) if beside else course["best_round"])
        return found


def sharing(records: Sequence[Record]) -> list[str]:
    """`negatives shared by 128 (paper: own)`, in how many seeds if not in all; empty: all have own ones."""
    chunks = [chunk for record in records if (chunk := shared_by(record)) > 1]
    if not chunks:
        return []
    some = f" in {len(chunks)} of {len(records)} seeds" if len(chunks) < len(records) else ""
    return [f"negatives shared by {' or '.join(map(str, sorted({*chunks})))}{some} (paper: own)"]


def seeds_of(records: Mapping[str, Record]) -> list[int]:
    """All seeds that anything was run with."""
    return sorted({record["seed"] for record in records.values()}) or [0]


def rows_of(table: Table, protocol: Protocol, records: Mapping[str, Record]) -> list[Line]:
    """The lines of a table with all the seeds that any record has."""
    every = jobs(table, protocol, seeds_of(records))
    return lines(table, protocol, sorted(every, key=lambda job: (job.preset, job.name)), records)


def lines(
    table: Table, protocol: Protocol, every: Sequence[Job], records: Mapping[str, Record]
) -> list[Line]:
    """A line for each row of the table, run or not; of alternatives only the one that validates best."""
    found: list[Line] = []
    for _, group in groupby(every, key=lambda job: (job.preset, job.name)):
        seeds = list(group)
        done = [kinds for job in seeds if (kinds := job.recorded(records))]
        found += _of_job(table, protocol, seeds[0], done, records)
    return sorted(_chosen(table, found), key=lambda line: line.subject)


def _of_job(
    table: Table, protocol: Protocol, job: Job, done: Sequence[list[Record]], records: Mapping[str, Record]
) -> Iterable[Line]:
    """The row and its views; of each seed, `done` has what was recorded, first what is shown."""
    experiment = job.experiment()
    config = experiment.config()
    alternative = job.variant in table.alternatives
    asked = config["method"]["name"] if alternative else job.name  # the paper's row that alternatives are for
    for view in ("", *(one.name for one in experiment.method.views())):
        name = f"{job.name} {view}".strip()
        line = Line(
            job,
            view,
            f"{asked} {view}".strip(),
            {},
            [record for record, *_ in done if name in record["metrics"]],
            [next((one for one in kinds if "curve" in one), kinds[0]) for kinds in done],
            [costs(record, records) for record, *_ in done] if table.costs and not view else [],
            departures(protocol, config),
            "",
            experiment.rounds,
            behind=[one for shown, *rest in done if shared_by(shown) > 1 for one in rest],
        )
        yield replace(line, paper=protocol.row(*line.subject, line.asked))


def _chosen(table: Table, found: Sequence[Line]) -> list[Line]:
    kept = [line for line in found if line.job.variant not in table.alternatives]
    rivals: dict[Any, list[Line]] = {}
    for line in found:
        if line.job.variant in table.alternatives:
            rivals.setdefault((line.job.preset, line.view), []).append(line)
    for of in rivals.values():
        of.sort(key=lambda line: table.alternatives.index(line.job.variant))
        kept.append(_alternative(of))
    return kept


def _alternative(of: Sequence[Line]) -> Line:
    """The one of them that validates best, in the order of the catalogue; its note says how many were run."""
    ran = [line for line in of if line.records]
    if not ran:
        return replace(of[0], note=PRINTED)
    best, why = best_of(ran)
    if len(ran) < len(of):
        count = f"{len(ran)} of {len(of)} {_tried(of)} run"
        why = count if why == ONLY else f"{count}, {why}"
    return replace(best, note=f"{PRINTED}, {why}")


def _tried(of: Sequence[Line]) -> str:
    """`margins`, if alternatives differ only in their margin."""
    option, *more = differing([flat(line.job.experiment().config()) for line in of])
    return "variants" if more else f"{option.rpartition('.')[2]}s"


# What it took to converge, in units of the reference


def costs(record: Record, records: Mapping[str, Record]) -> Mapping[str, Any]:
    """What a run spent to converge and to get as far as the reference with the same settings and seed."""
    if "curve" not in record:
        return record.get("spent", {})
    base = _reference(record, records)
    return _course(record).costs(None if base is None else _unit(base))


def _reference(record: Record, records: Mapping[str, Record]) -> Record | None:
    """The reference with the same settings and seed; if there is one, with the same kind of negatives."""
    wanted = but_sharing(setting(record["config"]))
    same = [
        other
        for other in records.values()
        if (other["protocol"], other["seed"]) == (record["protocol"], record["seed"])
        and ("curve" in other or "spent" in other)
        and other["config"]["method"]["name"] == REFERENCE
        and all(other["config"][part]["name"] == name for part, name in PLAIN.items())
        and but_sharing(setting(other["config"])) == wanted
    ]
    return min(same, key=lambda other: shared_by(other) != shared_by(record), default=None)


def _course(record: Record) -> Course:
    best, so_far = -1.0, {}
    for number, mrr, _, _ in record["curve"]:
        best = so_far[number] = max(best, mrr)
    values = {number: values for number, _, values, _ in record["curve"]}
    sent = {number: sent for number, _, _, sent in record["curve"]}
    return Course(so_far, values, sent)


def _unit(record: Record) -> Unit:
    if "curve" in record:
        return _course(record).unit()
    spent = record["spent"]
    levels = (CONVERGED, *LEVELS)
    found = {level: Cost(*(spent[f"{SPENT[what]}@{level}"] for what in Cost._fields)) for level in levels}
    return Unit(spent["valid_mrr"], found)


def over_seeds(values: Sequence[Any]) -> Spread | str | None:
    """A number over seeds; words where some never got there."""
    never = list(values).count(NEVER)
    if never:
        return NEVER if never == len(values) else f"{NEVER} in {never} of {len(values)}"
    return spread(values)
