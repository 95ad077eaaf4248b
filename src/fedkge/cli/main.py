"""`fedkge`: every command, each in a file of its own."""

from __future__ import annotations

import typer

from fedkge.cli import data

app = typer.Typer(
    name="fedkge",
    help=__import__("fedkge").__doc__,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")


def main() -> None:
    """Run the command line."""
    app()
