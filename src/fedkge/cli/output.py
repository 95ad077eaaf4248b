"""What commands print: a table for people, JSON for machines, errors with exit code 2."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any

import typer

from fedkge import plugins
from fedkge.durable import json_text
from fedkge.errors import ConfigError, DataWarning, FedkgeError, suggest, visible

if TYPE_CHECKING:
    from rich.table import Table

FOLDED = 24  #: characters from which a cell may be folded
NO_ROOM = ("can't allocate memory", "Storage size calculation overflowed")  #: as torch says it on a CPU
SMALL = 5e-5  #: four digits after the point would show smaller numbers, such as δ, as 0


@contextmanager
def command(trust: Sequence[Path] = ()) -> Iterator[None]:
    """Run a command's body: data warnings go to standard error, a user's error ends it with exit code 2.

    `trust` are plugins that the user names for it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, DataWarning):
                print(f"warning: {visible(str(message))}", file=sys.stderr)
            else:
                plain(message, category, *rest, **named)

        warnings.showwarning = show
        try:
            if trust:
                plugins.trust(trust)
            yield
        except FedkgeError as error:
            print(f"error: {visible(str(error))}", file=sys.stderr)
            raise typer.Exit(2) from None
        except BrokenPipeError:  # whoever read the output has enough of it
            raise typer.Exit(0) from None
        except OSError as error:  # a full disk, a folder without rights: the user's to mend
            print(f"error: {error.filename or 'files'}: {error.strerror or error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except (MemoryError, RuntimeError) as error:
            if not _of_memory(error):
                raise
            print(f"error: not enough memory for these options: {_reason(error)}", file=sys.stderr)
            raise typer.Exit(2) from None


def _of_memory(error: Exception) -> bool:
    """Whether numpy, torch or a GPU has no room; on a CPU torch says so in words only."""
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    return isinstance(error, MemoryError) or named or any(word in str(error) for word in NO_ROOM)


def _reason(error: Exception) -> str:
    return str(error).rpartition("DefaultCPUAllocator: ")[2] or "a part of the program got none"


def print_json(result: Any, indent: int | None = 2) -> None:
    """Print what a command found, for machines; output that is not UTF-8 gets escapes."""
    from fedkge.front.writing import versioned

    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json_text(versioned(result), indent, ascii=not unicode), flush=True)


def show(rows: Sequence[Mapping[str, Any]], as_json: bool, title: str = "") -> None:
    """Print `rows`: as JSON, or as a table with a column per key of the first row."""
    if as_json:
        print_json(list(rows))
        return
    from rich.console import Console

    console = Console(
        width=columns(), markup=False, emoji=False, highlight=False
    )  # names may look like markup
    if title:
        console.print(title)
    for names in _side_by_side(rows, console.width) or [[]]:
        console.print(_table(rows, names))


def columns() -> int | None:
    """How wide output may be; None: as wide as the terminal."""
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160


def reflowed(text: str) -> str:
    """Paragraphs of a docstring in lines that fit; indented lines stay as they are."""
    width = columns() or get_terminal_size().columns
    return "\n\n".join(
        part if "\n " in f"\n{part}" else fill(part, width, break_long_words=False, break_on_hyphens=False)
        for part in text.split("\n\n")
    )


def _side_by_side(rows: Sequence[Mapping[str, Any]], width: int) -> list[list[str]]:
    """The columns of each table that fits; the first one stands in all of them. Long text can be folded."""
    names = list(rows[0]) if rows else []
    needs = {
        name: max(len(name), *(min(FOLDED, len(_cell(row[name]))) for row in rows)) + 3 for name in names
    }
    tables: list[list[str]] = []
    room = 0
    for name in names:
        if not tables or needs[name] > room:
            tables.append([*names[:1], name] if tables else [name])
            room = width - 1 - (needs[names[0]] if name != names[0] else 0)
        else:
            tables[-1].append(name)
        room -= needs[name]
    return tables


def _table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table()
    for name in names:
        number = all(_number(row[name]) for row in rows)
        whole = all(len(_cell(row[name])) <= FOLDED for row in rows)
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    return table


def _number(value: Any) -> bool:
    """Whether it is read from its end: numbers, numbers with more behind them, and what is not known."""
    if isinstance(value, str):
        return value.lstrip("+-−")[:1].isdigit()
    return value is None or isinstance(value, int | float)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}" if 0 < abs(value) < SMALL else f"{value:.4f}"
    return visible(str(value))


def check(where: str, value: str, allowed: Sequence[str]) -> None:
    """An error unless `value` is one of those allowed."""
    if value not in allowed:
        raise ConfigError(
            f"{where}: expected one of {', '.join(allowed)}, got {value!r}{suggest(value, allowed)}"
        )
