"""Train experiments from the command line: signals and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedkge.front.training import Manner, device_named
from fedkge.front.training import train as trained

if TYPE_CHECKING:
    from fedkge.runs.experiment import Experiment

__all__ = ["device_named", "interruptible", "train"]


def train(
    experiments: Mapping[Path, Experiment], out: Path, device: str, resume: bool, stacked: bool
) -> dict[Path, str]:
    """Train what is not done yet; why runs failed, by folder. Where all have, the command ends."""
    failures = trained(experiments, out, Manner(device, resume, stacked, around=interruptible))
    if len(failures) == len(experiments):
        raise typer.Exit(2)
    return failures


@contextmanager
def interruptible(folder: Path, again: str = "with --resume goes on") -> Iterator[None]:
    """A signal ends the command, and says how to go on."""
    from fedkge.runtimes.loop import Interrupted

    try:
        yield
    except (KeyboardInterrupt, Interrupted) as signal:
        print(f"interrupted: {folder}: the same command {again}", file=sys.stderr)
        raise typer.Exit(143 if str(signal) == "SIGTERM" else 130) from None
