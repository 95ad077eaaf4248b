"""`fedkge hub` and `fedkge site`: a federation over a real network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedkge.cli.arguments import Device, Threads
from fedkge.cli.output import command


def hub(
    file: Annotated[Path, typer.Argument(metavar="HUB.toml", help="What is trained, and by which sites.")],
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Be the hub until the run is over; started again, it goes on."""
    with command():
        from fedkge.cli.training import device_named, interruptible
        from fedkge.front.progress import progress
        from fedkge.runs.network import HubFile
        from fedkge.runtimes.network_hub import NetworkHub

        read = HubFile.read(file)
        with progress(read.folder.name) as watch, interruptible(read.folder, "goes on"):
            running = NetworkHub(read, device_named(device), watch, say=_say)
            _say(f"hub: run {running.run}, waits for {', '.join(sorted(read.sites))}")
            running.play()
        for name, course in running.record.courses.items():
            print(f"{name}: {course['rounds']} rounds, the best was {course['best_round']}; {read.folder}")


def site(
    file: Annotated[Path, typer.Argument(metavar="SITE.toml", help="This site's graph, key and kit.")],
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Be a site until the run is over; started again, it goes on."""
    with command():
        from fedkge.cli.training import device_named
        from fedkge.nodes.ledgers import RESULT
        from fedkge.nodes.result import read_result
        from fedkge.runs.network import SiteFile
        from fedkge.runtimes.network_site import Site

        read = SiteFile.read(file)
        running = Site(read, device_named(device), _say)
        _say(f"{running.name}: waits for the hub at {running.kit.address.host}:{running.kit.address.port}")
        if not running.play():
            print(f"interrupted: {read.folder}: the same command goes on", file=sys.stderr)
            raise typer.Exit(143)
        if (read.folder / RESULT).is_file():
            found = read_result(read.folder)["metrics"]["test"][running.name]["both"]
            print(
                f"{running.name}: test MRR {found['mrr']:.4f}, hits@10 {found['hits@10']:.4f}; {read.folder}"
            )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
