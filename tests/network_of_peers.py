"""Peers as processes on this machine: their files, keys and graphs, and how they are started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fedkge.graphs.graph import Federation
from fedkge.graphs.writing import write_federation
from fedkge.runtimes.keys import new_keys

FILE = """name = "{name}"
federation = "test"
graph = "graphs/{name}"
folder = "homes/{name}"
listen = "127.0.0.1:{port}"
key = "keys/{name}.key"
certificate = "keys/{name}.crt"
rounds = {rounds}
nap = 0.3
timeout = 20.0
absence = 60.0
model = {{ name = "{model}", dim = 8 }}
trainer = {{ epochs = 2, batch_size = 16, negatives = 4, lr = 0.01 }}
evaluate = {{ every = 2, patience = 1 }}
[method]
name = "fkge"
teachers = 2
hidden = 8
batch = 4
passes = {passes}
first = 2
intersect = "psi"
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def lay_out(
    folder: Path,
    graphs: Federation,
    rounds: int = 10,
    passes: int = 2,
    models: Mapping[str, str] | None = None,
) -> dict[str, Path]:
    """A folder in which `fedkge peer NAME.toml` works for every site."""
    write_federation(graphs, folder / "graphs")
    ports = dict(zip(graphs, free_ports(len(graphs)), strict=True))
    files = {}
    for name, port in ports.items():
        new_keys(name, folder / "keys")
        model = (models or {}).get(name, "transe")
        text = FILE.format(name=name, port=port, rounds=rounds, passes=passes, model=model)
        for other, there in ports.items():
            if other != name:
                text += f'[peers.{other}]\naddress = "127.0.0.1:{there}"\ncertificate = "keys/{other}.crt"\n'
        files[name] = folder / f"{name}.toml"
        files[name].write_text(text)
    return files


def start(file: Path) -> subprocess.Popen[bytes]:
    """A peer as a process of its own; what it says goes into a file beside."""
    with file.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fedkge", "peer", str(file), "--device", "cpu"],
            stdout=log,
            stderr=log,
            env={**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )


def said(file: Path) -> str:
    log = file.with_suffix(".log")
    return log.read_text() if log.exists() else ""
