"""`fedkge run`, `compare` and `sweep`: one experiment, by several methods, or over a grid of options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkge.cli.arguments import (
    Config,
    Device,
    Json,
    Name,
    NoStack,
    Out,
    Reference,
    Resume,
    Seeds,
    Set,
    ShowTest,
    Threads,
    Trust,
    Variant,
)
from fedkge.cli.output import check, command, print_json, show
from fedkge.cli.tune import Over
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.reports.folders.run import Run
    from fedkge.runs.experiment import Experiment

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@10")


def run(
    config: Config,
    variant: Variant = None,
    out: Out = None,
    name: Name = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    seeds: Seeds = None,
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    no_stack: NoStack = False,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Train an experiment and measure it; everything it made goes into one folder."""
    with command(trust):
        from fedkge.cli.experiments import one, seeded
        from fedkge.cli.results import readable, said_page, sent, show_tables, warn
        from fedkge.reports.compared.tables import seed_rows, views

        folder = out or Path("runs") / config.stem / (variant or "")
        made = one(config, set_, variant, folder.parent)
        made = made if name is None else replace(made, name=name)
        experiments = seeded({folder: made}, seeds)
        runs, page, failed = _trained(experiments, folder, device, resume, stacked=not no_stack)
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
            _print_lines(sent(runs), f"{'run' if seeds is None else 'runs'}: {folder}{said_page(page)}")
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
    tune: Annotated[
        int | None,
        typer.Option(min=1, help="Choose the options of --over by validation: trials of each method."),
    ] = None,
    over: Over = [],  # noqa: B006
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    no_stack: NoStack = False,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Run one experiment by several methods with the same budget, or a file's variants, site by site."""
    with command(trust):
        from fedkge.cli.experiments import by_method, by_variant, seeded
        from fedkge.cli.results import (
            beside_alone,
            brackets,
            cost_rows,
            joining,
            reference_json,
            said_page,
            show_differences,
            show_reference,
            show_tables,
            warn,
            write_best,
        )
        from fedkge.cli.tune import makers, repeated, tuned
        from fedkge.reports.compared.baseline import against_alone, paired_rows
        from fedkge.reports.compared.experiments import experiments
        from fedkge.reports.compared.tables import joining_rows, metric_rows, site_rows

        folder = out or Path("runs") / config.stem
        if method is None:
            found = by_variant(config, set_, variant, folder)
        else:
            found = by_method(config, set_, method, variant, folder)
        if reference is not None:
            check("--reference", reference, list(found))
            reference = reference if method is not None else found[reference].name
        if over and tune is None:
            raise ConfigError("--over: of no use without --tune; how many trials shall each method have?")
        if tune is None:
            points = seeded({folder / name: one for name, one in found.items()}, seeds)
        else:
            makes = makers(config, set_, method, variant, folder)
            points = repeated(tuned(makes, over, tune, folder, device, resume, not no_stack), folder, seeds)
        again = resume or tune is not None  # a trial is a run that is there
        runs, page, failed = _trained(points, folder, device, again, not no_stack, reference, True)
        if tune is not None:
            write_best(runs, folder)
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
            _print_lines(*joining(runs, beyond), f"runs: {folder}{said_page(page)}")
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
    show_test: ShowTest = False,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Run an experiment at every point of a grid over any of its options, and choose by validation."""
    with command(trust):
        from fedkge.cli.experiments import seeded
        from fedkge.cli.grid import by_grid
        from fedkge.cli.results import HIDDEN, point_rows, said_page, say_edges, write_best
        from fedkge.reports.compared.choosing import hides
        from fedkge.reports.pages.sweep_section import sweep_rows

        folder = out or Path("runs") / config.stem
        points = {
            folder / name: one for name, one in by_grid(config, set_, grid, variant, folder.parent).items()
        }
        runs, page, failed = _trained(
            seeded(points, seeds), folder, device, resume, not no_stack, show_test=show_test
        )
        best = write_best(runs, folder)
        keys = [one.partition("=")[0].strip() for one in grid]
        rows = sweep_rows(runs, keys, show_test)
        say_edges(rows, keys, next(iter(points.values())).trainer.batch_size)
        if json:
            print_json({"report": page, "best": best, "points": rows})
        else:
            hidden = HIDDEN if hides(runs, show_test) else ""
            show(point_rows(rows, keys), False, f"{_what(runs)}: {_protocol(runs)}{hidden}")
            _print_lines(f"runs: {folder}    best: {best}{said_page(page)}")
        _end(failed)


def _trained(
    experiments: Mapping[Path, Experiment],
    out: Path,
    device: str,
    resume: bool,
    stacked: bool,
    reference: str | None = None,
    show_test: bool = False,
) -> tuple[list[Run], str | None, bool]:
    """Train all experiments: the runs, where the report is, and whether any of them failed."""
    from fedkge.cli.results import say_spent, write_page
    from fedkge.cli.training import train
    from fedkge.reports.folders.load import load_runs

    failures = train(experiments, out, device, resume, stacked)
    runs = load_runs([folder for folder in experiments if (folder / "run.jsonl").exists()])
    say_spent(runs)
    page = write_page(runs, out / "report.html", _among(runs, reference), show_test)
    return runs, page, bool(failures)


def _among(runs: list[Run], reference: str | None) -> str | None:
    """The reference, unless it failed before it began: that has been said, and the others are shown."""
    known = {name for run in runs for name in (run.method, run.config.get("name"))}
    return reference if reference in known else None


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
