"""`fedkge account`: what all runs of each site have spent together, and the limit for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Config, Json, Set, Trust, Variant
from fedkge.cli.output import command, show
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.runs.experiment import Experiment


def account(
    config: Config,
    set_: Set = [],  # noqa: B006 - typer copies it
    variant: Variant = None,
    site: Annotated[str | None, typer.Option(help="One site; unset: all.", show_default=False)] = None,
    limit: Annotated[float | None, typer.Option(help="Set what all runs together may cost: ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of the limit, or of what is shown.")] = None,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Show what all runs of each site have spent of its confidential triples, or set a limit for it."""
    with command(trust):
        from fedkge.cli.experiments import one
        from fedkge.privacy import Account
        from fedkge.runs.account import delta_of

        experiment = one(config, set_, variant)
        at = delta if delta is not None else delta_of(experiment)
        if at is None:
            raise ConfigError("--delta: which δ is ε meant at? the experiment has no privacy.delta")
        folders = _folders(experiment, site)
        if limit is not None:
            for folder in folders:
                Account(folder).set_limit(limit, at)
        rows = [row for folder in folders for row in _rows(Account(folder), at)]
        show(rows, json, "What all runs have spent, by site")


def _folders(experiment: Experiment, site: str | None) -> list[Path]:
    """Those of the sites that the experiment's data has, or of one of them."""
    from fedkge.errors import suggest
    from fedkge.runs.account import account_of
    from fedkge.runs.data import load

    sites = list(load(experiment).named)
    if site is not None and site not in sites:
        raise ConfigError(f"--site: no site is named {site!r}{suggest(site, sites)}")
    return [account_of(experiment, name) for name in sites if site in (None, name)]


def _rows(own: Any, delta: float) -> list[dict[str, Any]]:
    from fedkge.privacy.words import number

    limit = own.limit
    about = {
        "limit": None if limit is None else limit.epsilon,
        "id": own.id,
        "folder": str(own.folder),
    }
    names = ("site", "epsilon", "delta", "unit", "neighbours", "accountant", "guarantee", "releases", "runs")
    costs = own.costs(own.folder.name, delta)
    found = [cost.plain() | {"runs": len(own.runs(cost.unit))} for cost in costs]
    rows = [
        {name: cost[name] for name in names} | {"epsilon": number(cost["epsilon"])} | about for cost in found
    ]
    at = delta if limit is None else limit.delta
    return rows or [
        dict.fromkeys(names) | {"site": own.folder.name, "epsilon": "0", "delta": at, "runs": 0} | about
    ]
