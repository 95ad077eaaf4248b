"""`fedkge peer`: one site of a federation without a hub, over the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Device, Threads
from fedkge.cli.output import command

if TYPE_CHECKING:
    from fedkge.nodes.base import Event


def peer(
    file: Annotated[Path, typer.Argument(metavar="PEER.toml", help="Who this peer is, and whom it knows.")],
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train, meet other peers, and end when nobody improves any more; started again, it goes on."""
    with command():
        from fedkge.cli.training import device_named
        from fedkge.nodes.result import read_result
        from fedkge.runs.peering import PeerFile
        from fedkge.runtimes.p2p import PeerRuntime, alone

        read = PeerFile.read(file)
        with alone(read):
            runtime = PeerRuntime(read, device_named(device), _print)
            print(f"{read.name}: listens on {read.listen}{', goes on' * runtime.resumed}", flush=True)
            runtime.play()
        if not runtime.node.stopped:
            print(f"interrupted: {read.folder}: the same command goes on", file=sys.stderr)
            raise typer.Exit(130)
        found = read_result(read.folder)["peer"]
        told = [f"{k} {found['before'][k]:.4f} -> {found['after'][k]:.4f}" for k in ("accuracy",)]
        print(f"{read.name}: {found['talks']} conversations; test {', '.join(told)}; {read.folder}")


def _print(node: str, event: Event) -> None:
    """One line for what somebody who waits should know."""
    told: dict[str, Any] = {
        "update": lambda: f"{event['by']}: {event['score']:.4f}{' (kept)' if event['gained'] else ''}",
        "meets": lambda: f"begins conversation {event['talk']} with {event['partner']}",
        "conversation": lambda: f"has talked to {event['partner']}: {event['aligned']}",
        "aborted": lambda: f"conversation {event['talk']} with {event['partner']} was given up",
        "refused": lambda: f"refused {event['kind']} of {event['site']}: {event['why']}",
        "nothing in common": lambda: f"has nothing in common with {event['partner']}",
        "unreachable": lambda: f"{event['partner']} cannot be reached: {event['why']}",
        "absent": lambda: f"{event['partner']} was not heard of for {event['seconds']} s",
    }
    if event["event"] in told:
        print(f"{node}: {told[event['event']]()}", flush=True)
