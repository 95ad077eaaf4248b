"""`fedkge run`, `compare` and `sweep`: one experiment, by several methods, or over a grid of options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkge.cli.arguments import (
    Config,
    Device,
    Json,
    NoStack,
    Out,
    Reference,
    Resume,
    Seeds,
    Set,
    Threads,
    Variant,
)
from fedkge.cli.output import check, command, print_json, show

if TYPE_CHECKING:
    from fedkge.reports.folders.run import Run
    from fedkge.runs.experiment import Experiment

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")


def run(
    config: Config,
    variant: Variant = None,
    out: Out = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    seeds: Seeds = None,
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    no_stack: NoStack = False,
    json: Json = False,
) -> None:
    """Train an experiment and measure it; everything it made goes into one folder."""
    with command():
        from fedkge.cli.experiments import one
        from fedkge.cli.results import readable, sent, show_tables, warn
        from fedkge.reports.compared.seeds import seed_rows
        from fedkge.reports.compared.tables import views

        folder = out or Path("runs") / config.stem / (variant or "")
        runs, page, failed = _trained(
            {folder: one(config, set_, variant)}, folder, seeds, device, resume, stacked=not no_stack
        )
        rows = seed_rows(runs)
        warn(runs)
        if json:
            summaries = [found.summary for found in runs]
            print_json(summaries if seeds is None else {"report": page, "sites": rows, "runs": summaries})
        else:
            names = (*METRICS, *(f"{view}_mrr" for view in views(runs)))
            shown = [
                {"site": row["site"]} | {k: v for k, v in row.items() if k.removesuffix("_std") in names}
                for row in rows
            ]
            over = "" if seeds is None else f", mean ± standard deviation over {len(runs)} seeds"
            show(readable(shown), False, f"{_what(runs)}: test, {_protocol(runs)}{over}")
            show_tables(runs)
            _print_lines(sent(runs), f"{'run' if seeds is None else 'runs'}: {folder}    report: {page}")
        _end(failed)


def compare(
    config: Config,
    method: Annotated[
        str | None,
        typer.Option(
            help="Methods to compare, as in single,collective,fede; unset: the file's variants.",
            show_default=False,
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="With --method: the variant to change. Without: variants to compare, as in single,fedep.",
            show_default=False,
        ),
    ] = None,
    out: Out = None,
    set_: Set = [],  # noqa: B006
    seeds: Seeds = None,
    reference: Reference = None,
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    no_stack: NoStack = False,
    json: Json = False,
) -> None:
    """Run one experiment by several methods with the same budget, or a file's variants, site by site."""
    with command():
        from fedkge.cli.experiments import by_method, by_variant
        from fedkge.cli.results import (
            beside_alone,
            brackets,
            cost_rows,
            joining,
            reference_json,
            show_differences,
            show_reference,
            show_tables,
            warn,
        )
        from fedkge.reports.compared.experiments import experiments
        from fedkge.reports.compared.paired import against_alone, paired_rows
        from fedkge.reports.compared.tables import joining_rows, metric_rows, site_rows

        folder = out or Path("runs") / config.stem
        if method is None:
            found = by_variant(config, set_, variant)
        else:
            found = by_method(config, set_, method, variant)
        points = {folder / name: one for name, one in found.items()}
        if reference is not None:
            check("--reference", reference, [point.name for point in points])
        runs, page, failed = _trained(points, folder, seeds, device, resume, not no_stack, reference)
        sites, beyond = site_rows(runs), against_alone(experiments(runs))
        warn(runs)
        if json:
            told = {
                "report": page,
                "sites": sites,
                "methods": metric_rows(runs),
                "joining": joining_rows(experiments(runs), beyond),
                "paired": paired_rows(beyond),
            }
            print_json(told | reference_json(runs, _among(runs, reference)))
        else:
            show(beside_alone(sites), False, f"{_what(runs)}: test MRR, {_protocol(runs)}{brackets(sites)}")
            show_tables(runs)
            show_differences(runs, beyond)
            show(cost_rows(runs), False, "What it took")
            show_reference(runs, _among(runs, reference))
            _print_lines(*joining(runs, beyond), f"runs: {folder}    report: {page}")
        _end(failed)


def sweep(
    config: Config,
    grid: Annotated[
        list[str],
        typer.Option(help="A key and its values: --grid method.mu=0,0.1,1; again for another key."),
    ],
    variant: Variant = None,
    out: Out = None,
    set_: Set = [],  # noqa: B006
    seeds: Seeds = None,
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    no_stack: NoStack = False,
    json: Json = False,
) -> None:
    """Run an experiment at every point of a grid over any of its options."""
    with command():
        from fedkge.cli.grid import by_grid
        from fedkge.cli.results import point_rows
        from fedkge.reports.compared.sweep import sweep_rows

        folder = out or Path("runs") / config.stem
        points = {folder / name: one for name, one in by_grid(config, set_, grid, variant).items()}
        runs, page, failed = _trained(points, folder, seeds, device, resume, stacked=not no_stack)
        keys = [one.partition("=")[0].strip() for one in grid]
        rows = sweep_rows(runs, keys)
        if json:
            print_json({"report": page, "points": rows})
        else:
            show(point_rows(rows, keys), False, f"{_what(runs)}: test, {_protocol(runs)}")
            _print_lines(f"runs: {folder}    report: {page}")
        _end(failed)


def _trained(
    points: Mapping[Path, Experiment],
    out: Path,
    seeds: str | None,
    device: str,
    resume: bool,
    stacked: bool,
    reference: str | None = None,
) -> tuple[list[Run], str | None, bool]:
    """Train every point with every seed: the runs, where the report is, and whether any of them failed."""
    from fedkge.cli.experiments import seeded
    from fedkge.cli.results import say_spent, write_page
    from fedkge.cli.training import train
    from fedkge.reports.folders.load import load_runs

    experiments = seeded(points, seeds)
    failures = train(experiments, out, device, resume, stacked)
    runs = load_runs([folder for folder in experiments if (folder / "run.jsonl").exists()])
    say_spent(runs)
    return runs, write_page(runs, out / "report.html", _among(runs, reference)), bool(failures)


def _among(runs: list[Run], reference: str | None) -> str | None:
    """The reference, unless it failed before it began: that has been said, and the others are shown."""
    return reference if any(run.method == reference for run in runs) else None


def _what(runs: list[Run]) -> str:
    return " and ".join(dict.fromkeys(Path(run.dataset).name for run in runs))


def _protocol(runs: list[Run]) -> str:
    from fedkge.reports.folders.run import asked

    return f"filtered, {asked(runs)}"


def _print_lines(*lines: str) -> None:
    print("\n".join(line for line in lines if line))


def _end(failed: bool) -> None:
    """Runs that failed have said why; the command says that not all is well."""
    if failed:
        raise typer.Exit(2)
