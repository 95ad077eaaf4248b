"""Records from elsewhere: every line is checked before any is taken in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from fedkge.errors import ConfigError, DataError, FedkgeError, suggest
from fedkge.papers.agreement import check_agreement
from fedkge.papers.catalogue import SHOWN, Job, jobs, read_tables
from fedkge.papers.form import check_form
from fedkge.papers.protocols import read_protocols
from fedkge.papers.records import Record, but_sharing, key_of, numbered, place_of, portable
from fedkge.reports.folders.options import flat, valued
from fedkge.runs.experiment import Experiment

LEFT = ("fb15k-237-C5", "fb15k-237-R5")  #: data that is left for others to check


def taken_in(root: Path, paths: Sequence[Path]) -> dict[str, Record]:
    """The records of all files, by place; one that no page would show is an error with its file and line."""
    if not paths:
        raise ConfigError("add: expected files of records, as in `fedkge paper add new.jsonl`")
    found: dict[str, Record] = {}
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: no such file; expected one that `--records` has written")
        own = _checked(root, path, torn=False)
        if not own:
            raise DataError(f"{path}: expected a record in each line, found none")
        if twice := next((place for place in own if place in found and found[place] != own[place]), None):
            raise DataError(
                f"{path}: another record of {twice} than in a file before it; expected one for each run"
            )
        found |= own
    return found


def gone_on_with(root: Path, path: Path) -> dict[str, Record]:
    """The records of a file that more are added to. It may be missing, or end in a torn line."""
    return _checked(root, path, torn=True) if path.exists() else {}


def check_record(root: Path, record: Record) -> None:
    """An error that says why pages cannot be made of a record, or would not show it."""
    check_form(record)
    protocols = read_protocols(root)
    if (protocol := record["protocol"]) not in protocols:
        known = ", ".join(protocols)
        raise DataError(
            f"protocol: expected one of {known}, found {protocol!r}{suggest(protocol, protocols)}"
        )
    try:
        config = Experiment.parse(record["config"]).config()
    except ConfigError as error:
        raise DataError(f"config: {error}") from None
    if left := next((name for name in (record["dataset"], config["data"].get("name")) if name in LEFT), None):
        raise DataError(f"{left} is left for others to check: nothing is run on it")
    key, rows = key_of(record), _rows(root, protocol, record["seed"])
    if key not in rows:
        raise DataError(f"no table of the catalogue has the row {key}{suggest(key, rows)}")
    if not any(job.recorded({place_of(record): record}) for job in rows[key]):
        job = rows[key][0]
        raise DataError(f"its options are not those of {job.row}: {_differences(config, job)}")
    _check_names(record, rows[key][0])
    check_agreement(record)


def replaced(known: Mapping[str, Record], found: Mapping[str, Record]) -> list[str]:
    """`fedlu-2023/.../fedep/0: MRR 0.3090 becomes 0.3110` for each record that gives way to another."""
    return [
        f"{place}: MRR {before['metrics'][before['method']]['mrr']:.4f} becomes "
        f"{now['metrics'][now['method']]['mrr']:.4f}"
        for place, now in found.items()
        if (before := known.get(place)) is not None and before != now
    ]


def _checked(root: Path, path: Path, torn: bool) -> dict[str, Record]:
    found, lines = dict[str, Record](), dict[str, int]()
    for number, record in numbered(path, torn):
        try:
            check_record(root, record)
        except FedkgeError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
        except RecursionError:
            raise DataError(f"{path}, line {number}: nested too deeply for a record") from None
        place = place_of(record)
        if place in found and found[place] != record:
            raise DataError(
                f"{path}, line {number}: another record of {place} than in line {lines[place]}; expected one "
                f"for each run: remove one of these lines"
            )
        found[place], lines[place] = record, number
    return found


@cache
def _rows(root: Path, protocol: str, seed: int) -> dict[str, list[Job]]:
    """Every run of a paper's tables, by key."""
    found: dict[str, list[Job]] = {}
    for table in read_tables(root).values():
        if table.protocol == protocol and table.runs:
            for job in jobs(table, read_protocols(root)[protocol], [seed]):
                found.setdefault(job.key, []).append(job)
    return found


def _differences(config: Record, job: Job) -> str:
    """`method.mu=0.5 (preset: 0.1)` for each option in which a record is unlike its row."""
    own, preset = flat(but_sharing(config)), flat(but_sharing(portable(job.experiment().config())))
    keys = [key for key in {**preset, **own} if own.get(key) != preset.get(key)]

    def told(options: Record, key: str) -> str:
        return valued(options[key]) if key in options else "unset"

    shown = [f"{key}={told(own, key)} (preset: {told(preset, key)})" for key in keys[:SHOWN]]
    return ", ".join(shown) + ", ..." * (len(keys) > SHOWN)


def _check_names(record: Record, job: Job) -> None:
    """Metrics are of the row itself, and of the other tables that its method measures."""
    views = [f"{job.name} {view.name}" for view in job.experiment().method.views()]
    if job.name not in record["metrics"]:
        raise DataError(f"metrics: {job.name!r} is missing; found {', '.join(record['metrics'])}")
    for name in record["metrics"]:
        if name not in (job.name, *views):
            raise DataError(f"metrics: expected {' or '.join((job.name, *views))}, found {name!r}")
