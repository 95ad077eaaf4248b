"""`fedkge`: every command, each in a file of its own."""

from __future__ import annotations

from typing import Annotated

import typer

import fedkge
from fedkge.cli import data, explain, inspect, keys
from fedkge.cli.account import account
from fedkge.cli.attack import attack
from fedkge.cli.cluster import cluster
from fedkge.cli.front import Group, any_encoding
from fedkge.cli.network import hub, site
from fedkge.cli.paper import paper
from fedkge.cli.peer import peer
from fedkge.cli.privacy import privacy
from fedkge.cli.report import report
from fedkge.cli.run import compare, run, sweep
from fedkge.cli.track import track
from fedkge.cli.tune import tune
from fedkge.cli.unlearn import unlearn, yardsticks
from fedkge.cli.watch import watch
from fedkge.machine import prepare

app = typer.Typer(
    name="fedkge",
    cls=Group,
    help=fedkge.__doc__,
    epilog="Options can be set by environment variables: FEDKGE_DEVICE=cpu, or for one command "
    "FEDKGE_RUN_DEVICE=cpu.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(keys.app, name="keys")
for body in (
    run,
    compare,
    sweep,
    tune,
    paper,
    unlearn,
    yardsticks,
    hub,
    site,
    peer,
    watch,
    track,
    report,
    privacy,
    account,
    attack,
    cluster,
    inspect.evaluate,
    inspect.predict,
    inspect.pack,
    inspect.embeddings,
):
    app.command()(body)
app.command("list")(explain.list_)
app.command()(explain.explain)


def _version(asked: bool) -> None:
    if asked:
        print(f"fedkge {fedkge.__version__}")
        raise typer.Exit


@app.callback()
def _fedkge(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    any_encoding()
    prepare()
    app()
