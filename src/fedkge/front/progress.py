"""A bar for a run under way: round, loss, metric, speed, bytes, time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkge.runtimes.run import Progress, Watch


@contextmanager
def progress(name: str) -> Iterator[Watch]:
    """A bar in a notebook, or on standard error while it is a terminal, else a line per round."""
    if (notebook := _notebook()) is not None:
        with notebook(name) as watch:
            yield watch
        return
    if not sys.stderr.isatty():
        yield lambda at: print(
            f"{name}: round {at.round}/{at.rounds}  {told(at)}", file=sys.stderr, flush=True
        )
        return
    from rich import progress as bars
    from rich.console import Console

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


def _notebook() -> Callable[[str], AbstractContextManager[Watch]] | None:
    """A bar for the notebook that this process belongs to, if it does."""
    shell = sys.modules.get("IPython")
    own = shell.get_ipython() if shell is not None else None
    return _in_notebook if own is not None and hasattr(own, "kernel") else None


@contextmanager
def _in_notebook(name: str) -> Iterator[Watch]:
    """One line below the cell, drawn anew after every round, and gone at the end."""
    from html import escape

    from IPython.display import HTML, display

    handle = display(HTML(f"{escape(name)}: begins"), display_id=True)

    def watch(at: Progress) -> None:
        bar = f'<progress value="{at.round}" max="{at.rounds}"></progress>'
        words = f"round {at.round}/{at.rounds}  {told(at)}"
        handle.update(HTML(f"{escape(name)} {bar} {escape(words)}"))

    yield watch
    handle.update(HTML(""))


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
    words = [] if at.loss is None else [f"loss {at.loss:.4f}"]
    words += [] if at.mrr is None else [f"valid MRR {at.mrr:.4f}"]
    words += [f"{at.triples_per_s:,.0f} triples/s"] if at.triples_per_s else []
    words += [f"{size(at.bytes)} sent"] if at.bytes else []
    return "  ".join(words)


def size(count: int) -> str:
    """Bytes in words, as `rich.filesize.decimal` has them; machines that only train may lack rich."""
    if count < 1000:
        return f"{count} byte{'s' * (count != 1)}"
    power = min((len(str(count)) - 1) // 3, len("kMGT"))
    return f"{count / 1000**power:,.1f} {'kMGT'[power - 1]}B"
