"""Rows of the papers' tables, made of records of runs that were never trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedkge.papers.catalogue import Job, jobs, matching, read_tables
from fedkge.papers.lines import Line, lines
from fedkge.papers.protocols import read_protocols
from fedkge.papers.records import Record, place_of, taken
from fedkge.reports.folders.load import load_run
from fedkge.reports.folders.options import flat
from run_folders import write_run

ROOT = Path(__file__).parents[1]
PROTOCOLS = read_protocols(ROOT)
TABLES = read_tables(ROOT)


def job_of(table: str, row: str) -> Job:
    (job,) = matching(jobs(TABLES[table], PROTOCOLS[TABLES[table].protocol], [0]), [row])
    return job


def record_of(folder: Path, job: Job, **made: Any) -> Record:
    """What is kept of a run as that of the job would be."""
    config = job.experiment().config()
    asked = [f"{key}={json.dumps(value)}" for key, value in flat(config).items() if key != "seed"]
    made = {"model": config["model"]["name"], "data": config["data"]["name"], "options": asked, **made}
    return taken(load_run(write_run(folder, config["method"]["name"], **made)), job.protocol, job.name)


def rows(table: str, records: Sequence[Record], row: str = "*") -> list[Line]:
    protocol = PROTOCOLS[TABLES[table].protocol]
    every = jobs(TABLES[table], protocol, sorted({record["seed"] for record in records}))
    known = {place_of(record): record for record in records}
    return lines(TABLES[table], protocol, sorted(matching(every, [row]), key=lambda job: job.name), known)


def by_place(*records: Record) -> Mapping[str, Record]:
    return {place_of(record): record for record in records}


def made(folder: Path, row: str, valid: float | None, test: float = 0.3, seed: int = 0) -> Record:
    """A record of a row, as TABLE:PATTERN, with its validation and test MRR."""
    table, _, pattern = row.partition(":")
    job = replace(job_of(table, pattern), seed=seed)
    record = record_of(folder / f"{row} {seed}".replace("/", "_"), job, seed=seed)
    record["metrics"][record["method"]]["mrr"] = test
    if valid is None:
        del record["valid"]
    else:
        record["valid"]["mrr"] = valid
    return record
