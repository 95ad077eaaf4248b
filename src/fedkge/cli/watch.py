"""`fedkge watch`: a running federation in the terminal, read from its folder."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json
from fedkge.cli.output import command, print_json, show

if TYPE_CHECKING:
    from fedkge.reports.folders.watching import SiteNow, Watched


def watch(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run, of a hub or of a site.", show_default=False)
    ],
    once: Annotated[bool, typer.Option("--once", help="Show it as it is now, and do not wait.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the folder.")] = 1.0,
    json: Json = False,
) -> None:
    """Show where a run is: rounds, metrics, traffic, privacy spent, and who is late."""
    with command():
        from fedkge.errors import ConfigError
        from fedkge.reports.folders.load import find_runs

        if not every > 0:
            raise ConfigError(f"--every: expected a number above 0, got {every}")
        folders = find_runs(run)
        if len(folders) > 1:
            names = ", ".join(str(folder) for folder in folders[:5])
            raise ConfigError(f"{run}: {len(folders)} runs are in it ({names}); expected one of them")
        try:
            if json:
                _lines(folders[0], once, every, lambda now: print_json(now.plain(), None))
            elif once or not sys.stdout.isatty():
                now = _lines(folders[0], once, every, lambda now: print(line(now), flush=True))
                show([row(one, now) for one in now.sites], False)
                print("\n".join(notes(now)), end="\n" if notes(now) else "")
            else:
                _live(folders[0], every)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _look(folder: Path) -> Watched:
    from fedkge.reports.folders.watching import watched

    return watched(folder, time.time())


def _lines(folder: Path, once: bool, every: float, said: Callable[[Watched], None]) -> Watched:
    """A line whenever a round is closed, or something else begins, until the run is over; how it is then."""
    before: tuple[str, int] | None = None
    while True:
        now = _look(folder)
        if (now.state, now.round) != before:
            said(now)
        if once or now.over:
            return now
        before = (now.state, now.round)
        time.sleep(every)


def _live(folder: Path, every: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def drawn(now: Watched) -> Group:
        rows = [row(one, now) for one in now.sites]
        table = Table(*(rows[0] if rows else ()))
        for own in rows:
            table.add_row(*(Text("–" if value is None else str(value)) for value in own.values()))
        return Group(Text(line(now)), table, *map(Text, notes(now)))

    now = _look(folder)
    with Live(drawn(now), auto_refresh=False) as live:
        while not now.over:
            time.sleep(every)
            now = _look(folder)
            live.update(drawn(now), refresh=True)


def line(now: Watched) -> str:
    """A run in one line."""
    from rich.filesize import decimal

    words = [f"{Path(now.run).name}: {now.state}, round {now.round}/{now.rounds}"]
    words += [] if now.loss is None else [f"loss {now.loss:.4f}"]
    words += [] if now.mrr is None else [f"valid MRR {now.mrr:.4f}"]
    words += [] if now.best is None else [f"best {now.best:.4f} in round {now.best_round}"]
    words += [f"{decimal(now.up_bytes)} up", f"{decimal(now.down_bytes)} down"] if now.up_bytes else []
    late = [one.site for one in now.sites if one.now.startswith("is waited for")]
    words += [f"waits for {', '.join(late)}"] if late and len(late) < len(now.sites) else []
    return "  ".join(words)


def row(one: SiteNow, now: Watched) -> dict[str, Any]:
    """A site in a table; columns that nothing is known for are left out."""
    from rich.filesize import decimal

    def known(name: str) -> bool:
        return any(getattr(site, name) is not None for site in now.sites)

    found: dict[str, Any] = {"site": one.site, "last round": one.round}
    found |= {"loss": None if one.loss is None else f"{one.loss:.4f}"} if known("loss") else {}
    found |= {"valid MRR": None if one.mrr is None else f"{one.mrr:.4f}"} if known("mrr") else {}
    found |= {"up": decimal(one.up_bytes), "down": decimal(one.down_bytes)} if now.up_bytes else {}
    found["late"] = one.late
    if known("epsilon"):
        found["ε"] = None if one.epsilon is None else f"{one.epsilon:.3g}"
    return found | {"now": one.now}


def notes(now: Watched) -> list[str]:
    """What is to be said besides."""
    said = [now.why] if now.why else []
    said += now.notes
    if now.delta is not None and any(one.epsilon is not None for one in now.sites):
        said.append(f"ε at δ = {now.delta:g}, from the ledgers in this folder")
    if not now.over and now.quiet > 60:
        said.append(f"nothing was written down for {now.quiet:.0f} s")
    return said
