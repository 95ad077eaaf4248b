"""`fedkge privacy`: what runs have revealed of confidential triples, and what that means."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json
from fedkge.cli.output import command, print_json, show

if TYPE_CHECKING:
    from fedkge.privacy import Cost
    from fedkge.reports.folders.run import Run
    from fedkge.reports.pages.privacy import Spent

PAGE = "privacy.html"


def privacy(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several add up.")],
    delta: Annotated[float | None, typer.Option(help="The δ of ε; unset, as the run has it.")] = None,
    accountant: Annotated[
        str | None, typer.Option(help="pld, rdp or rdp-paper; unset, as the run has it.")
    ] = (None),
    json: Json = False,
) -> None:
    """Say whose data a run protects, against whom and how much, and draw ε over epochs."""
    with command():
        from fedkge.reports.folders.load import load_runs
        from fedkge.reports.pages.privacy import alike, not_together, spent, together

        loaded = load_runs(runs)
        found = [spent(run, delta, accountant) for run in loaded]
        several = len(loaded) > 1 and any(one.costs for one in found)
        reason = not_together(loaded, found) if several else None
        found, note = alike(loaded, found) if several and reason is None else (found, None)
        sums = together(found) if several and reason is None else []
        pages = [_write(run, one) for run, one in zip(loaded, found, strict=True)]
        if json:
            _print_json(loaded, found, pages, {"together": sums, "not_together": reason, "note": note})
            return
        for run, one, page in zip(loaded, found, pages, strict=True):
            if one.costs:
                show([_row(cost) for cost in one.costs], False, f"{run.path.name}: what was spent")
            if accounts := (run.summary or {}).get("accounts"):
                title = "All runs of each site together, by its own account when this run ended"
                show([_all_runs(row) for row in accounts], False, title)
            print("\n".join(one.words))
            if page is not None:
                print(f"plot: {page}")
        if sums:
            title = "All runs together, if sites of one name hold the same confidential triples"
            show([_row(cost) for cost in sums], False, title)
        for said in (reason, note):
            if said is not None:
                print(said)


def _row(cost: Cost) -> dict[str, Any]:
    from fedkge.privacy.words import number

    return cost.plain() | {"epsilon": number(cost.epsilon), "delta": f"{cost.delta:g}"}


def _all_runs(row: Mapping[str, Any]) -> dict[str, Any]:
    from fedkge.privacy.words import number

    names = ("delta", "unit", "neighbours", "runs", "limit", "accountant", "guarantee", "releases")
    return {"site": row["site"], "epsilon": number(row["epsilon"])} | {name: row[name] for name in names}


def _write(run: Run, found: Spent) -> Path | None:
    """The page with ε over epochs in the run's folder; none when nothing was released."""
    from fedkge.errors import MissingPackage
    from fedkge.reports.drawing.figure import Canvas
    from fedkge.reports.pages.html import document, write_page
    from fedkge.reports.pages.privacy import privacy_part

    if not found.costs:
        return None
    page = Canvas()
    part = privacy_part(page, found, (run.summary or {}).get("accounts", ()))
    try:
        write_page(document(f"Privacy of {run.name}", "", {"What was spent": part}, page), run.path / PAGE)
    except MissingPackage as error:
        print(f"warning: {error}", file=sys.stderr)
        return None
    return run.path / PAGE


def _print_json(
    runs: list[Run], found: list[Spent], pages: list[Path | None], together: dict[str, Any]
) -> None:
    plain = [
        {
            "run": str(run.path),
            "mode": one.mode,
            "sites": [cost.plain() for cost in one.costs],
            "accounts": (run.summary or {}).get("accounts", []),
            "words": one.words,
            "plot": None if page is None else str(page),
        }
        for run, one, page in zip(runs, found, pages, strict=True)
    ]
    sums = [cost.plain() for cost in together["together"]]
    print_json({"runs": plain, **together, "together": sums})
