"""`fedkge report`: what runs found, as a table and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Reference, ShowTest
from fedkge.cli.output import check, command, print_json, show

if TYPE_CHECKING:
    from fedkge.reports.compared.experiments import Row
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
    no_examples: Annotated[bool, typer.Option("--no-examples", help="Show no triples of the sites.")] = False,
    form: Annotated[
        str, typer.Option("--format", help="html, or a folder of files: csv, latex, markdown, svg.")
    ] = "html",
    show_test: ShowTest = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what runs found, and write a page that works offline."""
    with command():
        from fedkge.cli.results import warn
        from fedkge.reports.compared.choosing import revealed
        from fedkge.reports.folders.load import load_runs
        from fedkge.reports.pages.html import write_report
        from fedkge.reports.pages.sections import Shown

        check("--format", form, ("html", "csv", "latex", "markdown", "svg"))
        loaded = load_runs(runs)
        shown = Shown(reference, tsne, show_test, not no_examples)
        if form != "html":
            from fedkge.reports.files.sheets import write_tables

            folder = out or Path(f"report-{form}")
            made = write_tables(loaded, folder, form, shown)
            files = list(map(str, made))
            if as_json:
                print_json({"files": files})
            else:
                print("\n".join(files))
            return
        page = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
        if page.is_dir():
            page /= "report.html"
        write_report(loaded, page, shown)
        warn(revealed(loaded, show_test))
        if as_json:
            found = {"report": str(page), **_found(loaded, reference, show_test)}
            print_json(found)
        else:
            _show(loaded, reference, show_test)
            print(f"report: {page}")


def _found(every: Sequence[Run], reference: str | None, show_test: bool) -> dict[str, Any]:
    """What `--json` prints; what there is nothing of is left out."""
    from fedkge.cli.results import reference_json
    from fedkge.reports.compared.baseline import against_alone, paired_rows
    from fedkge.reports.compared.choosing import revealed
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.compared.tables import metric_rows, view_rows
    from fedkge.reports.pages.sweep_section import sweep_rows, swept

    runs = revealed(every, show_test)
    found = {"metrics": metric_rows(runs), "sites": _sites(runs)}
    some = {
        "points": sweep_rows(every, show_test=show_test) if swept(every) else [],
        "tables": view_rows(runs),
        "paired": paired_rows(against_alone(experiments(runs))),
    }
    return {**found, **{name: rows for name, rows in some.items() if rows}, **reference_json(runs, reference)}


def _show(every: Sequence[Run], reference: str | None, show_test: bool) -> None:
    from fedkge.cli.results import (
        HIDDEN,
        beside_alone,
        brackets,
        joining,
        point_rows,
        readable,
        show_differences,
        show_reference,
        show_tables,
    )
    from fedkge.reports.compared.baseline import against_alone
    from fedkge.reports.compared.choosing import hides, revealed
    from fedkge.reports.compared.experiments import experiments
    from fedkge.reports.compared.tables import metric_rows
    from fedkge.reports.folders.run import asked
    from fedkge.reports.pages.sweep_section import sweep_rows, swept

    runs, keys = revealed(every, show_test), swept(every)
    groups, sites = experiments(runs), _sites(runs)
    beyond = against_alone(groups)
    title = f"Test metrics over all sites: filtered, {asked(runs)}, realistic ties"
    if keys:
        title += HIDDEN if hides(every, show_test) else ""
        show(point_rows(sweep_rows(every, show_test=show_test), keys), False, title)
    else:
        show(readable(metric_rows(runs)), False, title)
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
