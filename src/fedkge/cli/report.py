"""`fedkge report`: what runs found, as a table and as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedkge.cli.arguments import Reference
from fedkge.cli.output import command, show

COLUMNS = 6  #: points of a sweep that fit side by side


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or folders of such; several are compared."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; report.html in the run's folder, or here when runs are compared."
        ),
    ] = None,
    reference: Reference = None,
    tsne: Annotated[
        bool, typer.Option("--tsne", help="Draw entities in a plane too; takes seconds for each experiment.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what runs found, and write a page that works offline."""
    with command():
        from fedkge.cli.results import (
            beside_alone,
            brackets,
            joining,
            point_rows,
            readable,
            reference_json,
            show_differences,
            show_reference,
            show_tables,
            warn,
        )
        from fedkge.reports.experiments import experiments
        from fedkge.reports.html import write_report
        from fedkge.reports.load import load_runs
        from fedkge.reports.paired import against_alone, paired_rows
        from fedkge.reports.run import asked
        from fedkge.reports.sweep import sweep_rows, swept
        from fedkge.reports.tables import metric_rows, own_rows, site_rows
        from fedkge.reports.views import view_rows

        loaded = load_runs(runs)
        page = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
        if page.is_dir():
            page /= "report.html"
        write_report(loaded, page, reference, tsne)
        keys = swept(loaded)
        metrics, points = metric_rows(loaded), sweep_rows(loaded) if keys else []
        sites = site_rows(loaded) if len(loaded) > 1 else own_rows(loaded[0])
        groups = experiments(loaded)
        beyond = against_alone(groups)
        warn(loaded)
        if as_json:
            found = {"report": str(page), "metrics": metrics, "sites": sites} | (
                {"points": points} if points else {}
            )
            found |= {"tables": tables} if (tables := view_rows(loaded)) else {}
            found |= {"paired": paired_rows(beyond)} if any(beyond.values()) else {}
            found |= reference_json(loaded, reference)
            print(json.dumps(found, indent=2, ensure_ascii=False))
            return
        title = f"Test metrics over all sites: filtered, {asked(loaded)}, realistic ties"
        show(point_rows(points, keys) if points else readable(metrics), False, title)
        show_tables(loaded)
        if len(loaded) == 1:
            show(readable(sites), False, "Each site")
        elif not points or len(groups) <= COLUMNS:
            show(beside_alone(sites), False, f"Test MRR of each site{brackets(sites)}")
            show_differences(loaded, beyond)
        for sentence in joining(loaded, beyond):
            print(sentence)
        show_reference(loaded, reference)
        print(f"report: {page}")
