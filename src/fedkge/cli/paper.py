"""`fedkge paper`: tables and figures of the papers, run and written beside what the papers report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Device, Json, Threads
from fedkge.cli.output import command, print_json, show

if TYPE_CHECKING:
    from fedkge.papers.catalogue import Job, Table
    from fedkge.papers.protocols import Protocol
    from fedkge.papers.records import Record


def paper(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Tables and figures to run, as in fedlu-table1, or patterns. `list` shows all, `docs` "
            "writes docs/results, `add FILE...` takes in records that were made elsewhere.",
            show_default=False,
        ),
    ],
    rows: Annotated[
        str | None,
        typer.Option(help="Only rows that match one of these patterns, as in 'c3-*/fedlu,r3-rotate'."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds to run, as in 0,1,2.")] = "0",
    set_: Annotated[
        list[str],
        typer.Option(
            "--set",
            help="Share negatives in runs that are missing: --set trainer.chunk=128. Pages say so in their "
            "rows. No other option is accepted.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer copies it
    device: Device = "auto",
    threads: Threads = None,
    lanes: Annotated[int, typer.Option(min=1, help="Runs at a time, which share the device.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after this long; the same command goes on later.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of run folders.")] = Path("runs") / "papers",
    records: Annotated[
        Path | None,
        typer.Option(
            help="A JSON Lines file for new records. Unset: papers/records, and docs/results follow."
        ),
    ] = None,
    curves: Annotated[
        bool, typer.Option("--curves", help="Run again what is recorded without its curve.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, in this order.")
    ] = False,
    json: Json = False,
) -> None:
    """Run what is missing of a paper's table or figure, and write it beside the paper's numbers."""
    with command():
        from fedkge.papers.pages import page, write_pages
        from fedkge.papers.protocols import checkout, read_protocols
        from fedkge.papers.records import read_lines, read_records, write_records

        root = checkout()
        protocols, known = read_protocols(root), read_records(root)
        if names == ["list"]:
            _list(root, protocols, known, json)
            return
        if names[0] == "add":
            for file in names[1:]:
                write_records(root, read_lines(Path(file)).values())
        if names[0] in ("add", "docs"):
            print("\n".join(map(str, write_pages(root, read_records(root)))))
            return
        if records is not None:
            known |= read_lines(records)
        lacking = partial(_lacking, known=known, curves=curves)
        tables, missing = _plan(root, protocols, known, names, rows, seeds, set_, lacking)
        if dry_run:
            show([{"row": job.row, "seed": job.seed} for job in missing], json, f"{len(missing)} runs to do")
            return
        failed = _train(missing, known, root, records, out, device, lanes, seconds, lacking)
        if records is None:
            write_pages(root, known)
        if json:
            print_json({"missing": sum(map(lacking, missing)), "failed": failed})
        else:
            for table in tables:
                print(page(table, protocols[table.protocol], known))
        if failed:
            raise typer.Exit(2)


def _lacking(job: Job, known: Mapping[str, Record], curves: bool) -> bool:
    """Whether a run is not recorded; with `curves`, whether its curve is not.

    Shared negatives are as good, unless own ones are asked for (`--set trainer.chunk=1`).
    """
    from fedkge.papers.records import shared_by

    found = [record for record in job.recorded(known) if job.chunk != 1 or shared_by(record) == 1]
    return not found or (curves and not any("curve" in record for record in found))


def _plan(
    root: Path,
    protocols: Mapping[str, Protocol],
    known: Mapping[str, Record],
    names: Sequence[str],
    rows: str | None,
    seeds: str,
    assignments: Sequence[str],
    lacking: Callable[[Job], bool],
) -> tuple[list[Table], list[Job]]:
    """The tables, and the runs that they lack; seed by seed, in the order of names and rows."""
    from fedkge.cli.experiments import listed, numbers
    from fedkge.papers.catalogue import chosen_tables, jobs, matching, read_tables, with_negatives
    from fedkge.papers.records import of_key

    tables = chosen_tables(read_tables(root), names)
    every = [job for table in tables for job in jobs(table, protocols[table.protocol], numbers(seeds))]
    asked = matching(every, listed("--rows", rows, "c3-*/fedlu") if rows else [])
    missing = [job for job in with_negatives(asked, assignments) if lacking(job)]
    stale = sum(bool(of_key(known, job.key)) and not job.recorded(known) for job in missing)
    more = f"; {stale} have records of other options than their presets have now" if stale else ""
    print(f"note: {len(asked) - len(missing)} of {len(asked)} runs are recorded{more}", file=sys.stderr)
    return tables, missing


def _train(
    missing: Sequence[Job],
    known: dict[str, Record],
    root: Path,
    records: Path | None,
    out: Path,
    device: str,
    lanes: int,
    seconds: float | None,
    lacking: Callable[[Job], bool],
) -> list[str]:
    """Run; every record is on the disk before the next run begins. What failed, in words."""
    from fedkge.front.progress import progress
    from fedkge.front.training import device_named
    from fedkge.papers.records import append, place_of, write_records
    from fedkge.papers.running import How, check_data, run_all

    device_named(device)  # before anything is begun
    check_data(missing)
    failed = []
    how = How(out, device, None if seconds is None else time.time() + seconds)
    for outcome in run_all(missing, how, lanes, progress):
        if outcome.failure:
            failed.append(f"{outcome.job.row}: {outcome.failure}")
            print(f"error: {failed[-1]}", file=sys.stderr)
        elif outcome.record is None:
            print(f"note: {outcome.job.row}: interrupted; the same command goes on with it", file=sys.stderr)
        else:
            known[place_of(outcome.record)] = outcome.record
            if records is None:
                write_records(root, [outcome.record])
            else:
                append(records, outcome.record)
    left = sum(map(lacking, missing))
    if left:
        print(f"note: {left} runs are left; the same command goes on", file=sys.stderr)
    return failed


def _list(root: Path, protocols: Mapping[str, Protocol], known: Mapping[str, Record], as_json: bool) -> None:
    from fedkge.papers.catalogue import jobs, read_tables

    found: list[dict[str, Any]] = []
    for table in read_tables(root).values():
        every = jobs(table, protocols[table.protocol], [0]) if table.runs else []
        done = f"{sum(bool(job.recorded(known)) for job in every)} of {len(every)}" if every else "–"
        found.append({"name": table.name, "seed 0": done, "what": table.instead or table.title})
    show(found, as_json, "Tables and figures; `fedkge paper NAME` runs what is missing")
