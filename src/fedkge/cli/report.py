"""`fedkge report`: what runs found, as a table and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Reference
from fedkge.cli.output import check, command, print_json, show

if TYPE_CHECKING:
    from fedkge.reports.compared.details import Row
    from fedkge.reports.folders.run import Run

COLUMNS = 6  #: points of a sweep that fit side by side


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or folders of such; several are compared."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; report.html in the run's folder, or here when runs are compared. "
            "With another format a folder, report-FORMAT if unset."
        ),
    ] = None,
    reference: Reference = None,
    tsne: Annotated[
        bool, typer.Option("--tsne", help="Draw entities in a plane too; takes seconds for each experiment.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", help="html, or a folder of files: csv, latex, markdown, svg.")
    ] = "html",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what runs found, and write a page that works offline."""
    with command():
        from fedkge.cli.results import warn
        from fedkge.reports.folders.load import load_runs
        from fedkge.reports.pages.html import write_report

        check("--format", form, ("html", "csv", "latex", "markdown", "svg"))
        loaded = load_runs(runs)
        if form != "html":
            _write_tables(loaded, out or Path(f"report-{form}"), form, reference, tsne, as_json)
            return
        page = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
        if page.is_dir():
            page /= "report.html"
        write_report(loaded, page, reference, tsne)
        warn(loaded)
        if as_json:
            found = {"report": str(page), **_found(loaded, reference)}
            print_json(found)
        else:
            _show(loaded, reference)
            print(f"report: {page}")


def _write_tables(
    runs: Sequence[Run], folder: Path, form: str, reference: str | None, tsne: bool, as_json: bool
) -> None:
    from fedkge.reports.files.sheets import write_tables

    made = write_tables(runs, folder, form, reference, tsne)
    if as_json:
        print_json({"files": [str(path) for path in made]})
    else:
        print("\n".join(map(str, made)))


def _found(runs: Sequence[Run], reference: str | None) -> dict[str, Any]:
    """What `--json` prints; what there is nothing of is left out."""
    from fedkge.cli.results import reference_json
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.compared.paired import against_alone, paired_rows
    from fedkge.reports.compared.sweep import sweep_rows, swept
    from fedkge.reports.compared.tables import metric_rows
    from fedkge.reports.compared.views import view_rows

    found = {"metrics": metric_rows(runs), "sites": _sites(runs)}
    some = {
        "points": sweep_rows(runs) if swept(runs) else [],
        "tables": view_rows(runs),
        "paired": paired_rows(against_alone(experiments(runs))),
    }
    return {**found, **{name: rows for name, rows in some.items() if rows}, **reference_json(runs, reference)}


def _show(runs: Sequence[Run], reference: str | None) -> None:
    from fedkge.cli.results import (
        beside_alone,
        brackets,
        joining,
        point_rows,
        readable,
        show_differences,
        show_reference,
        show_tables,
    )
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.compared.paired import against_alone
    from fedkge.reports.compared.sweep import sweep_rows, swept
    from fedkge.reports.compared.tables import metric_rows
    from fedkge.reports.folders.run import asked

    keys, groups, sites = swept(runs), experiments(runs), _sites(runs)
    beyond = against_alone(groups)
    title = f"Test metrics over all sites: filtered, {asked(runs)}, realistic ties"
    show(point_rows(sweep_rows(runs), keys) if keys else readable(metric_rows(runs)), False, title)
    show_tables(runs)
    if len(runs) == 1:
        show(readable(sites), False, "Each site")
    elif not keys or len(groups) <= COLUMNS:
        show(beside_alone(sites), False, f"Test MRR of each site{brackets(sites)}")
        show_differences(runs, beyond)
    for sentence in joining(runs, beyond):
        print(sentence)
    show_reference(runs, reference)


def _sites(runs: Sequence[Run]) -> list[Row]:
    from fedkge.reports.compared.tables import own_rows, site_rows

    return site_rows(runs) if len(runs) > 1 else own_rows(runs[0])
