"""`fedkge report`: what runs found, as a table and as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedkge.cli.output import command, show


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; report.html in the run's folder, or here when runs are compared."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what runs found, and write a page that works offline."""
    with command():
        from fedkge.reports.html import write_report
        from fedkge.reports.load import load_runs
        from fedkge.reports.tables import metric_rows, own_rows, site_rows

        loaded = load_runs(runs)
        page = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
        if page.is_dir():
            page /= "report.html"
        write_report(loaded, page)
        metrics = metric_rows(loaded)
        sites = site_rows(loaded) if len(loaded) > 1 else own_rows(loaded[0])
        if as_json:
            print(
                json.dumps(
                    {"report": str(page), "metrics": metrics, "sites": sites}, indent=2, ensure_ascii=False
                )
            )
            return
        show(
            _readable(metrics), False, "Test metrics over all sites: filtered, head and tail, realistic ties"
        )
        show(_readable(sites), False, "Test MRR of each site" if len(loaded) > 1 else "Each site")
        print(f"report: {page}")


def _readable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For people: whole triples, and a dash for what is not known."""
    whole = {"triples_per_s"}
    return [
        {key: "–" if value is None else round(value) if key in whole else value for key, value in row.items()}
        for row in rows
    ]
