"""What commands print: a table for people, JSON for machines, errors with exit code 2."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from fedkge.errors import ConfigError, DataWarning, FedkgeError, suggest


@contextmanager
def command() -> Iterator[None]:
    """Run a command's body: data warnings go to standard error, a user's error ends it with exit code 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        plain = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, DataWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                plain(message, category, *rest, **named)

        warnings.showwarning = show
        try:
            yield
        except FedkgeError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except BrokenPipeError:  # whoever read the output has enough of it
            raise typer.Exit(0) from None
        except OSError as error:  # a full disk, a folder without rights: the user's to mend
            print(f"error: {error.filename or 'files'}: {error.strerror or error}", file=sys.stderr)
            raise typer.Exit(2) from None


def show(rows: Sequence[Mapping[str, Any]], as_json: bool, title: str = "") -> None:
    """Print `rows`: one JSON array, or a table with a column per key of the first row."""
    if as_json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    columns = list(rows[0]) if rows else []
    for column in columns:
        number = all(_number(row[column]) for row in rows)
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    width = None if sys.stdout.isatty() else 160
    console = Console(width=width, markup=False, emoji=False, highlight=False)  # names may look like markup
    if title:
        console.print(title)
    console.print(table)


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
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def check(where: str, value: str, allowed: Sequence[str]) -> None:
    """An error unless `value` is one of those allowed."""
    if value not in allowed:
        raise ConfigError(
            f"{where}: expected one of {', '.join(allowed)}, got {value!r}{suggest(value, allowed)}"
        )
