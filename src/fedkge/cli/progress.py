"""A bar for a run under way: round, loss, metric, speed, bytes, time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkge.runtimes.run import Progress, Watch


@contextmanager
def progress(name: str) -> Iterator[Watch]:
    """A bar on standard error while it is a terminal, else a line per round."""
    from rich import progress as bars
    from rich.console import Console

    if not sys.stderr.isatty():
        yield lambda at: print(
            f"{name}: round {at.round}/{at.rounds}  {told(at)}", file=sys.stderr, flush=True
        )
        return
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(bar_width=20),
        bars.TextColumn("round"),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[now]}", markup=False),
        bars.TimeRemainingColumn(compact=True),
        bars.TextColumn("left at most"),  # a run may stop early
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, now="")

        def watch(at: Progress) -> None:
            bar.update(task, total=at.rounds, completed=at.round, now=told(at))

        yield watch


@contextmanager
def in_turn() -> Iterator[Callable[[str], Watch]]:
    """Bars for runs that are named one after another: a new one ends the one before."""
    with ExitStack() as bars:

        def begin(name: str) -> Watch:
            bars.close()
            return bars.enter_context(progress(name))

        yield begin


def told(at: Progress) -> str:
    """Where a run is, in words."""
    from rich.filesize import decimal

    words = [f"loss {at.loss:.4f}"]
    words += [] if at.mrr is None else [f"valid MRR {at.mrr:.4f}"]
    words += [f"{at.triples_per_s:,.0f} triples/s"]
    words += [f"{decimal(at.bytes)} sent"] if at.bytes else []
    return "  ".join(words)
