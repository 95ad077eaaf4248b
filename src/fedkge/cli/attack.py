"""`fedkge attack`: what whoever holds a run's tables, or sits at another site, can find out."""

from __future__ import annotations

import json as text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, View
from fedkge.cli.output import check, command, show

if TYPE_CHECKING:
    from fedkge.audits.targets import Target

ATTACKS = ("membership", "ranks", "pairs")
FOUND, PAGE = "attack.json", "attack.html"


def attack(
    run: Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)],
    against: Annotated[
        Path | None, typer.Option(help="A second run on the same data, with protection.", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option(help="Which attacks, as in membership,ranks.")] = ",".join(ATTACKS),
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
    json: Json = False,
) -> None:
    """Try attacks on a run, and on a protected one beside it: tables, plots, and how sure they are."""
    with command():
        from fedkge.audits.pairs import noise_note
        from fedkge.audits.targets import Target, pair, told_apart
        from fedkge.audits.words import explained
        from fedkge.cli.experiments import listed

        names = listed("--name", name, "membership,ranks")
        for one in names:
            check("--name", one, ATTACKS)
        sites = [] if site is None else [site]
        paths = [path for path in (run, against) if path is not None]
        targets = [
            Target.open(path, sites, called, view)
            for path, called in zip(paths, told_apart(paths), strict=True)
        ]
        if len(targets) == 2:
            targets = list(pair(targets[0], targets[1]))
        codecs = [] if codec is None else listed("--codec", codec, "int8,ternary")
        found = {one: _tried(one, targets, sample, seed, rounds, codecs) for one in names}
        said = {one: explained(one, rows) for one, rows in found.items()}
        if (note := noise_note(found.get("pairs", []))) is not None:
            said["pairs"] += f"\n{note}"
        page = _write(run, found, said)
        if json:
            whole = {"run": str(run), "against": None if against is None else str(against), **found}
            print(text.dumps(whole | {"words": said, "page": page}, indent=2, ensure_ascii=False))
            return
        _print(found, said)
        if page is not None:
            print(f"page: {page}")


def _tried(
    name: str, targets: list[Target], sample: int, seed: int, rounds: int, codecs: list[str]
) -> list[dict[str, Any]]:
    from fedkge.audits.membership import membership
    from fedkge.audits.pairs import reconstruct
    from fedkge.audits.tail_ranks import tail_ranks

    if name == "membership":
        return [one.plain() for target in targets for one in membership(target, sample, seed)]
    if name == "ranks":
        return [one.plain() for one in tail_ranks(targets, sample, seed)]
    return [
        one.plain()
        for target in targets
        for codec in (None, *codecs)
        for one in reconstruct(target, rounds, codec)
    ]


def _print(found: dict[str, list[dict[str, Any]]], said: dict[str, str]) -> None:
    from fedkge.reports.attack import membership_rows, pair_rows, rank_rows

    forms = {
        "membership": ("Membership of triples, 95 % intervals", membership_rows),
        "ranks": ("Ranks of confidential tails", rank_rows),
        "pairs": ("Rows of others, computed from the hub's means", pair_rows),
    }
    for name, rows in found.items():
        title, form = forms[name]
        if rows:
            show(form(rows), False, title)
        print(said[name])


def _write(run: Path, found: dict[str, list[dict[str, Any]]], said: dict[str, str]) -> str | None:
    """The outcome as data, and as a page where plotly is installed, in the run's folder."""
    from fedkge.errors import MissingPackage
    from fedkge.reports.attack import attack_page
    from fedkge.reports.html import write_page
    from fedkge.runtimes.folder import write_whole

    write_whole(run / FOUND, text.dumps(found, indent=2, ensure_ascii=False).encode())
    try:
        write_page(attack_page(found, f"Attacks on {run.name}", said), run / PAGE)
    except MissingPackage as error:
        print(f"warning: {error}", file=sys.stderr)
        return None
    return str(run / PAGE)
