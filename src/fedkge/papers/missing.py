"""What tables of papers lack: found, run, and recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from fedkge.errors import ConfigError
from fedkge.papers.catalogue import (
    Job,
    Table,
    chosen_tables,
    is_recorded,
    jobs,
    matching,
    read_tables,
    with_negatives,
)
from fedkge.papers.protocols import Protocol
from fedkge.papers.records import Record, append, of_key, place_of, shared_by, write_records
from fedkge.papers.running import How, check_data, run_all


@dataclass(frozen=True)
class Asked:
    """Tables by their names or patterns, and which of their runs."""

    names: Sequence[str]
    rows: Sequence[str] = ()  #: patterns; none: all rows
    seeds: Sequence[int] = (0,)
    assignments: Sequence[str] = ()  #: `trainer.chunk=128`, or none
    curves: bool = False  #: what is recorded without its curve is missing, too

    def __post_init__(self) -> None:
        for seed in self.seeds:
            if seed < 0:
                raise ConfigError(f"--seeds: expected whole numbers from 0 on, as in 0,1,2, got {seed}")
            if self.seeds.count(seed) > 1:
                raise ConfigError(f"--seeds: {seed} stands twice")


@dataclass(frozen=True)
class Missing:
    """Runs that are not recorded, in the order of seeds, then of patterns, then of tables."""

    tables: Sequence[Table]
    jobs: Sequence[Job]
    known: dict[str, Record]
    lacking: Callable[[Job], bool] = field(repr=False)

    @property
    def left(self) -> int:
        """How many are still not recorded."""
        return sum(map(self.lacking, self.jobs))


def missing(root: Path, protocols: Mapping[str, Protocol], known: dict[str, Record], asked: Asked) -> Missing:
    """What the tables lack; says so on standard error."""
    every_table = read_tables(root)
    tables = chosen_tables(every_table, asked.names)
    _tell_instead(every_table, asked.names)
    every = [job for table in tables for job in jobs(table, protocols[table.protocol], asked.seeds)]
    chosen = matching(every, asked.rows) if tables else []
    drawn = {
        job.key
        for table in tables
        if table.curves
        for job in jobs(table, protocols[table.protocol], asked.seeds)
    }
    lacking = partial(_lacking, known=known, curves=asked.curves, drawn=drawn)
    lacked = [job for job in with_negatives(chosen, asked.assignments) if lacking(job)]
    stale = sum(bool(of_key(known, job.key)) and not job.recorded(known) for job in lacked)
    more = f"; {stale} have records of other options than their presets have now" if stale else ""
    if tables:
        print(f"note: {len(chosen) - len(lacked)} of {len(chosen)} runs are recorded{more}", file=sys.stderr)
    return Missing(tables, lacked, known, lacking)


def _tell_instead(tables: Mapping[str, Table], names: Sequence[str]) -> None:
    """Say what there is instead of tables that patterns mean and that have no runs."""
    told: dict[str, list[str]] = {}
    for table in tables.values():
        if table.instead and any(fnmatch(table.name, name) for name in names):
            told.setdefault(table.instead, []).append(table.name)
    for instead, of in told.items():
        print(f"note: {', '.join(of)}: no runs; instead: {instead}", file=sys.stderr)


def _lacking(job: Job, known: Mapping[str, Record], curves: bool, drawn: Collection[str]) -> bool:
    """Whether a run is not recorded; with `curves`, whether its curve is not.

    A run that a table draws needs a curve, or some points of it. Shared negatives are as good, unless own
    ones are asked for (`--set trainer.chunk=1`).
    """
    found = [record for record in job.recorded(known) if job.chunk != 1 or shared_by(record) == 1]
    if curves and not any("curve" in record for record in found):
        return True
    return not is_recorded(found, job.key in drawn)


def fill(found: Missing, root: Path, records: Path | None, how: How, lanes: int) -> list[str]:
    """Run what is missing; every record is on the disk before the next run begins. What failed, in words.

    Records go into a file of JSON lines, or among those of the checkout.
    """
    from fedkge.front.progress import progress
    from fedkge.front.training import device_named

    device_named(how.device)  # before anything is begun
    check_data(found.jobs)
    failed = []
    for outcome in run_all(found.jobs, how, lanes, progress):
        if outcome.failure:
            failed.append(f"{outcome.job.row}: {outcome.failure}")
            print(f"error: {failed[-1]}", file=sys.stderr)
        elif outcome.record is None:
            print(f"note: {outcome.job.row}: interrupted; the same command goes on with it", file=sys.stderr)
        else:
            found.known[place_of(outcome.record)] = outcome.record
            if records is None:
                write_records(root, [outcome.record])
            else:
                append(records, outcome.record)
    if found.left:
        print(f"note: {found.left} runs are left; the same command goes on", file=sys.stderr)
    return failed
