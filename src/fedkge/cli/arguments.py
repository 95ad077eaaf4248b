"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkge.machine import use_threads

Config = Annotated[Path, typer.Argument(help="An experiment: a TOML file.", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="A folder for what is made.", show_default="runs/NAME")]
Set = Annotated[
    list[str], typer.Option("--set", help="Override an option: --set model.dim=64", show_default=False)
]
Variant = Annotated[
    str | None,
    typer.Option(help="Which variant of the file, as in fedep.", show_default=False),
]
Name = Annotated[str | None, typer.Option(help="What reports call the run.", show_default=False)]
Seeds = Annotated[
    str | None, typer.Option(help="Repeat with each of these seeds, as in 0,1,2.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="CPU threads, for all nodes together; results do not depend on it.",
        callback=lambda count: count if count is None else use_threads(count),
        show_default="all cores",
    ),
]
Resume = Annotated[bool, typer.Option(help="Go on where it was interrupted; what is done is not repeated.")]
NoStack = Annotated[
    bool,
    typer.Option(
        "--no-stack",
        help="Train site by site; on a CPU the results are the same, of transr and rescal up to rounding.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Trust = Annotated[
    list[Path],
    typer.Option(
        "--trust",
        help="Run this Python file: a plugin with parts of your own.",
        show_default=False,
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        help="Say what others take to converge beside this: a method, as in fedep, a run's folder or label.",
        show_default=False,
    ),
]
ShowTest = Annotated[
    bool,
    typer.Option(
        "--show-test",
        help="Show test metrics of all points of a sweep, not only of the one that validation chooses.",
    ),
]
View = Annotated[
    str,
    typer.Option(
        help="Tables beside those that the run is measured by: FedLU's global or hub, FedE-KD's small."
    ),
]
