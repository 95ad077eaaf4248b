"""`fedkge paper`: tables and figures of the papers, run and written beside what the papers report."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Device, Json, Threads
from fedkge.cli.output import command, print_json, show
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.papers.protocols import Protocol
    from fedkge.papers.records import Record

#: words that stand for a command instead of a table, and the options that they take
WORDS: Mapping[str, tuple[str, ...]] = {"list": ("--json",), "docs": (), "add": ()}


def paper(
    context: typer.Context,
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
        _check_word(names, _given(context))
        from fedkge.cli.experiments import listed, numbers
        from fedkge.papers.incoming import gone_on_with, replaced, taken_in
        from fedkge.papers.missing import Asked, fill, missing
        from fedkge.papers.pages import page, write_pages
        from fedkge.papers.protocols import checkout, read_protocols
        from fedkge.papers.records import read_records, write_records
        from fedkge.papers.running import How

        root = checkout()
        protocols, known = read_protocols(root), read_records(root)
        if names == ["list"]:
            _list(root, protocols, known, json)
            return
        if names[0] == "add":
            found = taken_in(root, list(map(Path, names[1:])))
            for told in replaced(known, found):
                print(f"note: {told}", file=sys.stderr)
            write_records(root, found.values())
        if names[0] in ("add", "docs"):
            print("\n".join(map(str, write_pages(root, read_records(root)))))
            return
        if records is not None:
            known |= gone_on_with(root, records)
        what = Asked(
            names,
            listed("--rows", rows, "c3-*/fedlu") if rows else (),
            numbers(seeds),
            set_,
            curves,
        )
        lacking = missing(root, protocols, known, what)
        if dry_run:
            runs = [{"row": job.row, "seed": job.seed} for job in lacking.jobs]
            show(runs, json, f"{len(runs)} runs to do")
            return
        until = None if seconds is None else time.time() + seconds
        failed = fill(lacking, root, records, How(out, device, until), lanes)
        if records is None:
            write_pages(root, known)
        if json:
            print_json({"missing": lacking.left, "failed": failed})
        else:
            for table in lacking.tables:
                print(page(table, protocols[table.protocol], known))
        if failed:
            raise typer.Exit(2)


def _given(context: typer.Context) -> list[str]:
    """Options on this command line, as users write them."""
    found = []
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")  # typer brings a click of its own
        if one.param_type_name == "option" and source is not None and source.name == "COMMANDLINE":
            found.append(max(one.opts, key=len))
    return found


def _check_word(names: Sequence[str], options: Sequence[str]) -> None:
    """`list` and `docs` stand alone, `add` before files; none of them runs anything."""
    first, others = names[0], names[1:]
    if first not in WORDS:
        if misplaced := [name for name in others if name in WORDS]:
            raise ConfigError(
                f"paper: {misplaced[0]!r} is no table; expected tables and figures, or "
                f"`fedkge paper {misplaced[0]}` in a command of its own"
            )
        return
    if others and first != "add":
        raise ConfigError(f"paper {first}: expected nothing after it, got {', '.join(map(repr, others))}")
    if unused := [option for option in options if option not in WORDS[first]]:
        taken = ", ".join(WORDS[first]) or "none"
        raise ConfigError(
            f"paper {first}: {', '.join(unused)} has no effect, because nothing is run; "
            f"expected options: {taken}"
        )


def _list(root: Path, protocols: Mapping[str, Protocol], known: Mapping[str, Record], as_json: bool) -> None:
    from fedkge.papers.catalogue import read_tables, recorded

    found: list[dict[str, Any]] = []
    for table in read_tables(root).values():
        done, every = recorded(table, protocols[table.protocol], known)
        runs = f"{done} of {every}" if every else "–"
        found.append({"name": table.name, "seed 0": runs, "what": table.instead or table.title})
    show(found, as_json, "Tables and figures; `fedkge paper NAME` runs what is missing")
