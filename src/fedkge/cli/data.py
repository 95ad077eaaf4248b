"""`fedkge data`: look at graphs, convert them, deal them out."""

from __future__ import annotations

import typer

app = typer.Typer(help="Look at graphs, convert them, deal them out.", no_args_is_help=True)
