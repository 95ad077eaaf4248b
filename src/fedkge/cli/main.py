"""`fedkge`: every command, each in a file of its own."""

from __future__ import annotations

import typer

from fedkge.cli import data, explain, inspect, keys
from fedkge.cli.account import account
from fedkge.cli.attack import attack
from fedkge.cli.cluster import cluster
from fedkge.cli.network import hub, site
from fedkge.cli.peer import peer
from fedkge.cli.privacy import privacy
from fedkge.cli.report import report
from fedkge.cli.run import compare, run, sweep
from fedkge.cli.unlearn import unlearn, yardsticks
from fedkge.cli.watch import watch
from fedkge.machine import prepare

app = typer.Typer(
    name="fedkge",
    help=__import__("fedkge").__doc__,
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
    unlearn,
    yardsticks,
    hub,
    site,
    peer,
    watch,
    report,
    privacy,
    account,
    attack,
    cluster,
    inspect.evaluate,
    inspect.predict,
    inspect.embeddings,
):
    app.command()(body)
app.command("list")(explain.list_)
app.command()(explain.explain)


def main() -> None:
    """Run the command line."""
    prepare()
    app()
