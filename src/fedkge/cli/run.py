"""`fedkge run` and `fedkge compare`: train an experiment, or one experiment by several methods."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.output import command, show

if TYPE_CHECKING:
    import torch

    from fedkge.runtimes.experiment import Experiment
    from fedkge.runtimes.local import Progress as At
    from fedkge.runtimes.local import Watch

Config = Annotated[Path, typer.Argument(help="An experiment: a TOML file.", show_default=False)]
Set = Annotated[
    list[str], typer.Option("--set", help="Override an option: --set model.dim=64", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Resume = Annotated[bool, typer.Option(help="Go on where an interrupted run stopped.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def run(
    config: Config,
    out: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/NAME")] = None,
    set_: Set = [],  # noqa: B006 - typer copies it
    device: Device = "auto",
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Train an experiment and measure it; everything it made goes into one folder."""
    with command():
        folder = out or Path("runs") / config.stem
        (summary,) = _run({folder: _experiment(config, set_)}, device, resume)
        report = _report([folder], folder / "report.html")
        if json:
            show([summary], True)
        else:
            show(_rows([summary]), False, f"{summary['dataset']}: test, filtered, both sides")
            print(f"run: {folder}    report: {report}")


def compare(
    config: Config,
    method: Annotated[str, typer.Option(help="Methods to compare, as in single,collective.")],
    out: Annotated[Path | None, typer.Option(help="A folder for the runs.", show_default="runs/NAME")] = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Run one experiment by several methods with the same budget, and show them site by site."""
    with command():
        from fedkge.errors import ConfigError

        folder = out or Path("runs") / config.stem
        if (folder / "config.toml").exists():
            raise ConfigError(f"{folder}: holds a run already; choose another folder for the runs to compare")
        experiments = {
            folder / name: _experiment(config, [*set_, f'method.name="{name}"']) for name in _names(method)
        }
        summaries = _run(experiments, device, resume)
        report = _report(list(experiments), folder / "report.html")
        show(_rows(summaries), json, f"{summaries[0]['dataset']}: test MRR, filtered, both sides")
        if not json:
            print(f"runs: {folder}    report: {report}")


def _names(methods: str) -> list[str]:
    from fedkge.errors import ConfigError

    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--method: expected names, as in single,collective, got {methods!r}")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--method: {name} stands twice")
    return names


def _experiment(config: Path, assignments: list[str]) -> Experiment:
    from fedkge.config import override, read_toml
    from fedkge.runtimes.experiment import Experiment

    options = override(read_toml(config), assignments)
    data = options.get("data")
    if isinstance(data, dict) and isinstance(data.get("path"), str):
        data["path"] = str(Path(data["path"]).resolve())  # a run is used from other folders too
    return Experiment.parse(options)


def _run(experiments: Mapping[Path, Experiment], device: str, resume: bool) -> list[dict[str, Any]]:
    """Train each in its folder, all on the same data; what stands in the way of one is said before any."""
    from fedkge.runtimes.folder import RunFolder
    from fedkge.runtimes.local import run

    on = _device(device)
    # With --resume, runs that are not there yet are started.
    taken = {
        folder: RunFolder.taken(folder, experiment, resume) for folder, experiment in experiments.items()
    }
    for folder, known in taken.items():
        if resume and not known:
            print(f"note: {folder}: nothing to resume, a new run", file=sys.stderr)
    federation = next(iter(experiments.values())).load()
    summaries = []
    for folder, experiment in experiments.items():
        run_folder = RunFolder.create(folder, experiment, taken[folder])
        with _progress(experiment.method.name) as watch:
            summaries.append(run(experiment, run_folder, on, federation, watch))
    return summaries


def _device(name: str) -> torch.device:
    import torch

    from fedkge.errors import ConfigError

    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device: expected auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: this machine has no CUDA device, or torch was built without CUDA")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@contextmanager
def _progress(method: str) -> Iterator[Watch]:
    """A bar per course when standard error is a terminal, else nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
    ) as bars:
        tasks: dict[str, Any] = {}

        def watch(at: At) -> None:
            if at.course not in tasks:
                tasks[at.course] = bars.add_task(f"{method} {at.course}", total=at.rounds, now="")
            mrr = "" if at.mrr is None else f"  valid MRR {at.mrr:.4f}"
            now = f"loss {at.loss:.4f}{mrr}  {at.triples_per_s:,.0f} triples/s"
            bars.update(tasks[at.course], completed=at.round, now=now)

        yield watch


def _rows(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per site and one for all: one run's metrics, or several runs' MRR side by side."""
    sites = list(summaries[0]["sites"])
    if len(summaries) == 1:
        found = {site: summaries[0]["sites"][site]["metrics"]["test"] for site in sites}
        found["all"] = summaries[0]["metrics"]["test"]
        names = ("mrr", "mr", "hits@1", "hits@3", "hits@10")
        return [{"site": site, **{name: found[site][name] for name in names}} for site in found]
    rows = [
        {"site": site, **{s["method"]: s["sites"][site]["metrics"]["test"]["mrr"] for s in summaries}}
        for site in sites
    ]
    return [*rows, {"site": "all", **{s["method"]: s["metrics"]["test"]["mrr"] for s in summaries}}]


def _report(folders: list[Path], path: Path) -> str:
    """Write the page and say where; a machine without plotly still trains, and says that there is no page."""
    from fedkge.errors import MissingPackage
    from fedkge.reports.html import write_report
    from fedkge.reports.load import load_runs

    try:
        write_report(load_runs(folders), path)
    except MissingPackage as error:
        print(f"warning: {error}; `fedkge report` makes the page where it is installed", file=sys.stderr)
        return "none"
    return str(path)
