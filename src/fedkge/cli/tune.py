"""`fedkge tune`, and `compare --tune`: options that a search chooses by validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from fedkge.cli.arguments import Config, Device, Json, NoStack, Out, Resume, Set, Threads, Trust, Variant
from fedkge.cli.output import command, print_json, show

if TYPE_CHECKING:
    from fedkge.front.searching import Axis
    from fedkge.front.tuning import Search, Tried
    from fedkge.runs.experiment import Experiment

    Make: TypeAlias = Callable[[Mapping[str, str]], Experiment]

Over = Annotated[
    list[str],
    typer.Option(
        help="An option to search: --over trainer.lr=1e-4..1e-2:log, --over model.dim=64..256:64, "
        "--over method.mu=0,0.1,1; again for another.",
        show_default=False,
    ),
]
NoPrune = Annotated[bool, typer.Option("--no-prune", help="Run every trial to its end.")]


def tune(
    config: Config,
    over: Over,
    trials: Annotated[int, typer.Option(min=1, help="How many points are tried, in all.")] = 20,
    variant: Variant = None,
    out: Out = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    device: Device = "auto",
    threads: Threads = None,
    resume: Resume = False,
    no_stack: NoStack = False,
    no_prune: NoPrune = False,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Search for the options that validate best; trials are runs, and those without hope are ended early."""
    with command(trust):
        from fedkge.cli.results import said_page, say_spent, write_best, write_page
        from fedkge.front.tuning import best_of
        from fedkge.front.tuning import tune as searched
        from fedkge.reports.folders.load import load_runs
        from fedkge.reports.folders.options import valued

        folder = out or Path("runs") / config.stem / "tune"
        make = maker(config, set_, variant, folder.parent)
        axes = axes_of(over, [make({})])
        search = search_in(folder, axes, make, trials, device, resume, not no_stack, not no_prune)
        found = searched(search)
        best = best_of(found, folder)
        runs = load_runs(dict.fromkeys(one.folder for one in found if one.state == "complete"))
        say_spent(runs)
        chosen = load_runs([best.folder])
        page, file = write_page(runs, folder / "report.html"), write_best(chosen, folder)
        test = chosen[0].metrics(chosen[0].headline())
        rows = trial_rows(found, axes, best)
        if json:
            print_json({"report": page, "best": file, "trials": rows, "test": dict(test)})
        else:
            keys = [axis.key for axis in axes]
            shown = [
                row
                | {key: valued(row[key]) for key in keys if row[key] is not None}
                | {"best": "best" * row["best"]}
                for row in rows
            ]
            show(shown, False, f"{Path(chosen[0].dataset).name}: validation MRR of each trial")
            print(f"test of the best: MRR {test['mrr']:.4f}, Hits@10 {test['hits@10']:.4f}")
            print(f"trials: {folder}    best: {file}{said_page(page)}")


def maker(path: Path, assignments: Sequence[str], variant: str | None, beside: Path) -> Make:
    """From points to experiments of a file, or of one of its variants; others' runs are in `beside`."""
    from fedkge.cli.experiments import Origin, varied

    origin = Origin(path, assignments, "--over", variant, beside)
    return lambda point: next(varied(origin, [point]))[1]


def makers(
    path: Path, assignments: Sequence[str], methods: str | None, variant: str | None, beside: Path
) -> dict[str, Make]:
    """The same for each method that is compared, or else for each variant of the file."""
    from fedkge.cli.experiments import Origin, by_variant, called, listed, varied

    if methods is None:

        def named(name: str) -> Make:
            make = maker(path, assignments, name, beside)
            return lambda point: called(make(point), name)

        return {name: named(name) for name in by_variant(path, assignments, variant, beside)}
    names = listed("--method", methods, "single,fede")
    origin = Origin(path, assignments, "--over", variant, beside)

    def of(name: str) -> Make:
        def make(point: Mapping[str, str]) -> Experiment:
            points = [{"method.name": one, **(point if one == name else {})} for one in names]
            return [experiment for _, experiment in varied(origin, points)][names.index(name)]

        return make

    return {name: of(name) for name in names}


def tuned(
    makes: Mapping[str, Make],
    over: Sequence[str],
    trials: int,
    folder: Path,
    device: str,
    resume: bool,
    stacked: bool,
) -> dict[str, tuple[Path, Experiment]]:
    """For each method the run and the experiment that validation chooses of equally many trials."""
    from fedkge.errors import ConfigError
    from fedkge.front.tuning import best_of
    from fedkge.front.tuning import tune as searched
    from fedkge.runs.folder import RunFolder

    if not over:
        raise ConfigError("--tune: which options? name them, as in --over trainer.lr=1e-4..1e-2:log")
    axes = axes_of(over, [make({}) for make in makes.values()])
    searches = {
        name: search_in(folder / name, axes, make, trials, device, resume, stacked, True)
        for name, make in makes.items()
    }
    best = {name: best_of(searched(search), search.folder).folder for name, search in searches.items()}
    return {name: (run, RunFolder.open(run).experiment()) for name, run in best.items()}


def repeated(
    chosen: Mapping[str, tuple[Path, Experiment]], folder: Path, seeds: str | None
) -> dict[Path, Experiment]:
    """The chosen experiments with each seed; the trial itself is the run of its own seed."""
    from fedkge.cli.experiments import numbers

    if seeds is None:
        return dict(chosen.values())
    return {
        run if seed == experiment.seed else folder / name / f"seed-{seed}": replace(experiment, seed=seed)
        for name, (run, experiment) in chosen.items()
        for seed in numbers(seeds)
    }


def axes_of(over: Sequence[str], experiments: Sequence[Experiment]) -> list[Axis]:
    """What `--over` names; a key that none of the experiments has is an error."""
    from fedkge.cli.grid import axis
    from fedkge.errors import ConfigError
    from fedkge.front.searching import Axis, check_question, check_used

    found = [Axis.parse(text, axis(text, "--over")[1]) for text in over]
    keys = [one.key for one in found]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"--over: {key} stands twice")
    check_question(found)
    check_used(found, [one.config() for one in experiments])
    return found


def search_in(
    folder: Path,
    axes: Sequence[Axis],
    make: Make,
    trials: int,
    device: str,
    resume: bool,
    stacked: bool,
    prune: bool,
) -> Search:
    """A search in a folder; one that is there already is an error unless it is resumed."""
    from fedkge.cli.training import interruptible
    from fedkge.errors import ConfigError
    from fedkge.front.training import Manner
    from fedkge.front.tuning import STORE, Search

    if (folder / STORE).exists() and not resume:
        raise ConfigError(f"{folder}: holds a search already; choose another folder or give --resume")
    how = Manner(device, True, stacked, around=interruptible)
    return Search(folder, axes, make, trials, prune, how)


def trial_rows(found: Sequence[Tried], axes: Sequence[Axis], best: Tried) -> list[dict[str, Any]]:
    """A row for each trial: what was tried, how it ended, what it validated."""
    return [
        {
            "trial": one.number,
            **{axis.key: one.point.get(axis.key) for axis in axes},
            "state": one.state,
            "valid_mrr": one.valid_mrr,
            "best": one is best,
        }
        for one in found
    ]
