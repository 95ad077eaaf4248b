"""`fedkge track`: a run for TensorBoard, MLflow or Weights & Biases, live or afterwards."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fedkge.cli.arguments import Json
from fedkge.cli.output import check, command, print_json


def track(
    run: Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)],
    to: Annotated[str, typer.Option(help="tensorboard, mlflow, or wandb (offline).")],
    out: Annotated[
        Path | None, typer.Option(help="A folder for what is made.", show_default="RUN/TRACKER")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run has ended.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 5.0,
    json: Json = False,
) -> None:
    """Write a run's losses, metrics and traffic for an experiment tracker."""
    with command():
        from fedkge.reports.files.tracking import TRACKERS, Tracking

        check("--to", to, list(TRACKERS))
        folder = out or run / to
        tracking = Tracking(run, to, folder)
        told = tracking.read()
        while follow and not tracking.ended:
            time.sleep(every)
            told += tracking.read()
        told += tracking.read()
        tracking.tracker.close()
        if json:
            print_json({"run": str(run), "to": to, "out": str(folder), "numbers": told})
        else:
            print(f"{told:,} numbers of {run} for {to}: {folder}", file=sys.stderr)
