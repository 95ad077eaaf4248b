"""`fedkge attack`: what whoever holds a run's tables, or sits at another site, can find out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, Trust, View
from fedkge.cli.output import check, command, print_json, show

if TYPE_CHECKING:
    from fedkge.audits.base import Attack, Row

FOUND, PAGE = "attack.json", "attack.html"


def attack(
    run: Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)],
    against: Annotated[
        Path | None, typer.Option(help="A second run on the same data, with protection.", show_default=False)
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Which attacks, as in membership,ranks; unset, all.", show_default=False),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="Whose triples; unset, all sites.", show_default=False)
    ] = None,
    sample: Annotated[
        int, typer.Option(help="Members, and as many others, that are tried at a site.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Of the triples that are drawn.")] = 0,
    rounds: Annotated[int, typer.Option(help="Rounds of the exchange that pairs plays again.")] = 1,
    codec: Annotated[
        str | None,
        typer.Option(
            help="Codecs that pairs tries besides the run's own, as in int8,ternary.", show_default=False
        ),
    ] = None,
    view: View = "",
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Try attacks on a run, and on a protected one beside it: tables, plots, and how sure they are."""
    with command(trust):
        from fedkge.audits.base import ATTACKS
        from fedkge.audits.targets import Target, pair, told_apart
        from fedkge.cli.experiments import listed
        from fedkge.front.progress import in_turn

        names = list(ATTACKS) if name is None else listed("--name", name, "membership,ranks")
        codecs = [] if codec is None else listed("--codec", codec, "int8,ternary")
        options = {"sample": sample, "seed": seed, "rounds": rounds, "codec": codecs}
        attacks = {one: _chosen(one, options) for one in names}
        sites = [] if site is None else [site]
        paths = [path for path in (run, against) if path is not None]
        targets = [
            Target.open(path, sites, called, view)
            for path, called in zip(paths, told_apart(paths), strict=True)
        ]
        if len(targets) == 2:
            targets = list(pair(targets[0], targets[1]))
        with in_turn() as watch:
            found = {one: attacks[one].run(targets, watch) for one in names}
        page = _write(run, found, attacks)
        if json:
            said = {one: attacks[one].words(rows) for one, rows in found.items()}
            whole = {"run": str(run), "against": None if against is None else str(against), **found}
            print_json(whole | {"words": said, "page": page})
            return
        for one, rows in found.items():
            if rows:
                show(list(map(attacks[one].shown, rows)), False, attacks[one].title)
            print(attacks[one].words(rows))
        if page is not None:
            print(f"page: {page}")


def _chosen(name: str, options: Mapping[str, Any]) -> Attack:
    """The attack of that name, with the options that it has."""
    from dataclasses import fields

    from fedkge.audits.base import ATTACKS
    from fedkge.config import build
    from fedkge.errors import ConfigError

    check("--name", name, list(ATTACKS))
    own = {field.name for field in fields(ATTACKS[name])}  # type: ignore[arg-type]
    try:
        return build(ATTACKS[name], {one: value for one, value in options.items() if one in own}, "")
    except ConfigError as error:
        raise ConfigError(f"--{error}") from None


def _write(run: Path, found: Mapping[str, Sequence[Row]], attacks: Mapping[str, Attack]) -> str | None:
    """The outcome as data, and as a page where plotly is installed, in the run's folder."""
    from fedkge.durable import json_text
    from fedkge.errors import MissingPackage
    from fedkge.nodes.store import write_whole
    from fedkge.reports.pages.audits import attack_page
    from fedkge.reports.pages.html import write_page

    write_whole(run / FOUND, json_text(found, indent=2, ascii=False).encode())
    try:
        page = attack_page(f"Attacks on {run.name}", {attacks[one]: rows for one, rows in found.items()})
        write_page(page, run / PAGE)
    except MissingPackage as error:
        print(f"warning: {error}", file=sys.stderr)
        return None
    return str(run / PAGE)
