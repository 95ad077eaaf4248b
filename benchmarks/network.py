"""Hub and sites over NVIDIA FLARE on loopback: time that nobody works, random kills, and large messages.

    FEDKGE_DATA=... python benchmarks/network.py idle [--rounds 21]
    python benchmarks/network.py kills [--kills 20] [--seed 0] [--folder runs/kills --seconds 300]
    python benchmarks/network.py large [--megabytes 1024]
    python benchmarks/network.py memory [--megabytes 1024]

`idle`: FB15k-237-C3, TransE of width 256, three sites. The time of a round less the time in which any site
trains; training is made short, because only the rest counts. `kills`: sites and hub are killed at random and
started again; the tables must be those of one process. With a folder it goes on when it is called again.
`large`: one message each way through a stream, with the peak memory of FLARE's processes. `memory`: a run
with such messages, with the peak memory of the hub and of a site. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fedkge.graphs.datasets import load
from fedkge.graphs.indexing import graph_from_names
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.engine import Administrator, Engine
from fedkge.runtimes.flare_files import write_admin, write_job, write_server, write_site
from fedkge.runtimes.kits import Address, Kit
from fedkge.runtimes.signing import make_request
from fedkge.runtimes.stream import Link, listen
from network_of_sites import HUB, TERMS, Network, in_process, lay_out

START = 300.0  #: seconds that all have to be there, on a busy machine
C3: dict[str, Any] = {
    "model": {"name": "transe", "dim": 256, "margin": 10.0},
    "method": {"name": "fedep"},
    "trainer": {"epochs": 1, "batch_size": 4096, "negatives": 1, "lr": 1e-4},
}
ODD = Path(__file__).parents[1] / "tests" / "odd_site.py"


def idle(folder: Path, rounds: int) -> Mapping[str, Any]:
    terms = {**C3, "rounds": rounds, "evaluate": {"every": rounds, "patience": 0}}
    graphs = {f"site-{name}": graph for name, graph in load("fb15k-237-C3").items()}
    network = lay_out(folder, graphs, terms, {"assembly": START, "timeout": 600.0})
    network.start()
    try:
        network.wait_for(HUB, f"round {rounds}/", 3600.0)
    finally:
        network.close()
    closed = [event["time"] for event in events(folder / "homes" / "hub" / "hub", "round")]
    trained = {
        site: {
            e["round"]: (e["time"] - e["seconds"], e["time"])
            for e in events(folder / "homes" / site, "trained")
        }
        for site in network.sites
    }
    spent = []
    for number in range(2, rounds):  # the first compiles, the last is measured
        spans = sorted(of[number] for of in trained.values())
        spent.append(closed[number - 1] - closed[number - 2] - covered(spans))
    sent = [
        e for e in read(folder / "homes" / "hub" / "run.jsonl") if e["event"] == "traffic" and e["round"] > 1
    ]
    size = statistics.median((e["up_bytes"] + e["down_bytes"]) / 2 / len(network.sites) for e in sent)
    return {"idle_seconds": statistics.median(spent), "rounds": len(spent), "bytes_per_site_and_way": size}


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in any of the intervals."""
    total, end = 0.0, float("-inf")
    for begin, stop in spans:
        total += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return total


def kills(folder: Path, count: int, seed: int, seconds: float) -> Mapping[str, Any]:
    """A run that is disturbed for so many seconds; then everyone is killed, and the next call goes on."""
    notes = folder / "kills.json"
    known = json.loads(notes.read_text()) if notes.exists() else {"kills": [], "rounds": [], "seconds": 0.0}
    graphs, draw = load("atlas"), random.Random(f"{seed} {len(known['kills'])}")
    graphs = {name: graph for name, graph in graphs.items() if name != "mapping"}
    terms = {**TERMS, "rounds": 6 * count, "evaluate": {"every": 2, "patience": 0}}
    network = Network(folder, list(graphs))
    if not (folder / "hub.toml").exists():
        network = lay_out(folder, graphs, terms, {"assembly": START, "timeout": START})
    began = time.monotonic()
    try:
        for name in (HUB, *graphs):
            start(network, name)
        a_round(network)
        while len(known["kills"]) < count and time.monotonic() - began < seconds:
            victim = draw.choice([HUB, *network.sites])
            time.sleep(draw.uniform(0.0, 2.0))
            assert network.processes[HUB].poll() is None, "the run was over before the last kill"
            network.kill(victim)
            known["kills"].append(victim)
            known["rounds"].append(len(closed(network)))
            notes.write_text(json.dumps(known))
            start(network, victim)
            a_round(network)
        if len(known["kills"]) == count:
            assert set(network.wait(seconds=START).values()) == {0}, network.said(HUB)
    finally:
        network.close()
        known["seconds"] += time.monotonic() - began
        notes.write_text(json.dumps(known))
    if len(known["kills"]) < count:
        return {**known, "tables_equal": "not yet: the same command goes on"}
    expected = in_process(folder, graphs, terms)
    return {**known, "tables_equal": {site: network.tables(site) == expected[site] for site in graphs}}


def start(network: Network, name: str) -> None:
    """Sites take a third of a second more for a round, so that the run lasts longer than the kills."""
    network.start(name, **({} if name == HUB else {"script": ODD, "env": {"ODD": "slow:0.3"}}))


def closed(network: Network) -> list[dict[str, Any]]:
    home = network.folder / "homes" / "hub" / "hub"
    return events(home, "round") if (home / "journal.jsonl").exists() else []


def a_round(network: Network) -> None:
    """Wait until one more round is closed."""
    before, until = len(closed(network)), time.monotonic() + START
    while len(closed(network)) == before:
        if time.monotonic() > until:
            raise TimeoutError(network.said(HUB)[-2000:])
        time.sleep(0.1)


def memory(folder: Path, megabytes: int) -> Mapping[str, Any]:
    """Tables of so many megabytes as a message each way: the peak memory of `fedkge hub` and `fedkge site`.

    The second site announces the same rows and trains nothing, so that one machine has room for all.
    """
    width = 1024
    names = [f"e{i}" for i in range((megabytes << 20) // (4 * width))]
    train = [(a, "r", b) for a, b in zip(names[::2], names[1::2], strict=True)]
    held_out = [(names[i], "r", names[i + 3]) for i in range(0, 8, 2)]
    graph = graph_from_names(train, held_out[:2], held_out[2:])
    terms = {
        **TERMS,
        "rounds": 2,
        "model": {"name": "transe", "dim": width},
        "trainer": {"epochs": 1, "batch_size": 4096, "negatives": 1, "lr": 1e-4, "optimizer": "sgd"},
        "evaluate": {"every": 2, "patience": 0},
        "participation": {"quorum": 0.5},
    }
    network = lay_out(folder, {"large": graph, "mute": graph}, terms, {"assembly": START, "timeout": START})
    network.start(HUB, "large")
    network.start("mute", script=ODD, env={"ODD": "mute"})
    peaks: dict[str, int] = {}
    began = time.monotonic()
    try:
        while network.processes["large"].poll() is None and time.monotonic() - began < 1200:
            for name, process in network.processes.items():
                with suppress(psutil.Error, OSError):
                    for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]:
                        kind = name if one.pid == process.pid else f"{name}: {kind_of(one)}"
                        peaks[kind] = max(peaks.get(kind, 0), peak_of(one))
            time.sleep(0.2)
    finally:
        network.close()
    sent = [e for e in read(folder / "homes" / "hub" / "run.jsonl") if e["event"] == "traffic"]
    large = [{way: e["sites"].get("large", {}).get(way) for way in ("up_bytes", "down_bytes")} for e in sent]
    return {
        "ended": network.processes["large"].returncode,
        "seconds": time.monotonic() - began,
        "sent": large,
        "peak_megabytes": {kind: size >> 20 for kind, size in peaks.items()},
    }


def peak_of(one: psutil.Process) -> int:
    """Bytes: the largest resident size since the process began."""
    for line in Path(f"/proc/{one.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def kind_of(one: psutil.Process) -> str:
    words = " ".join(one.cmdline())
    kinds = {"runner_process": "stream's end", "worker_process": "stream's end", " admin ": "administrator"}
    return next((kind for word, kind in kinds.items() if word in words), "FLARE")


def large(folder: Path, megabytes: int) -> Mapping[str, Any]:
    """A message of so many megabytes each way, and the largest that every process became meanwhile."""
    port = 0
    import socket

    with socket.socket() as own:
        own.bind(("localhost", 0))
        port = own.getsockname()[1]
    authority = Authority.create(folder / "authority", Address("localhost", port))
    key, request = make_request("site", "", folder / "keys")
    kit: Kit = authority.approve(request.read_bytes())
    write_server(folder / "server", authority, 1)
    write_admin(folder / "admin", authority)
    write_site(folder / "client", kit, key.read_bytes())
    hub, site = listen(folder / "h"), listen(folder / "s")
    engines = [
        Engine("server", folder / "server", HUB, folder / "h"),
        Engine("client", folder / "client", "site", folder / "s"),
    ]
    admin = Administrator(folder / "admin")
    try:
        for engine in engines:
            engine.start()
        while not (engines[0].listens(port) and "site" in _online(admin)):
            time.sleep(1.0)
        admin.submit(write_job(folder / "admin" / "transfer", "site"))
        here, there = Link(hub.accept()[0]), Link(site.accept()[0])
        here.receive()
        peaks: dict[str, int] = {}
        threading.Thread(target=_watch, args=(peaks,), daemon=True).start()
        content, found = bytes(megabytes << 20), {}
        for name, source, to in (("down", here, there), ("up", there, here)):
            began = time.monotonic()
            sender = threading.Thread(target=source.send_parcel, args=([(b"M", content)],), daemon=True)
            sender.start()
            parcel = to.receive_parcel(1 << 40)
            assert parcel is not None
            assert len(parcel[0][1]) == len(content)
            del parcel
            found[f"{name}_seconds"] = time.monotonic() - began
    finally:
        admin.stop()
        for engine in engines:
            engine.stop()
    return {"megabytes": megabytes, **found, "peak_megabytes": {k: v >> 20 for k, v in peaks.items()}}


def _online(admin: Administrator) -> Mapping[str, float]:
    try:
        return admin.online()
    except Exception:
        return {}


def _watch(peaks: dict[str, int]) -> None:
    """The largest resident size of this process and of all that it started, by what they are."""
    while True:
        for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with suppress(psutil.Error, OSError):
                name = "both parties" if one.pid == psutil.Process().pid else kind_of(one)
                whose = {"runner_process": "hub: ", "flare server": "hub: ", "admin": "hub: "}
                words = " ".join(one.cmdline())
                side = next((side for word, side in whose.items() if word in words), "site: ")
                name = name if name == "both parties" else side + name
                peaks[name] = max(peaks.get(name, 0), peak_of(one))
        time.sleep(0.1)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(home: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read(home / "journal.jsonl") if event["event"] == kind]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["idle", "kills", "large", "memory"])
    parser.add_argument("--rounds", type=int, default=22)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # those that were started are ended
    with tempfile.TemporaryDirectory(prefix="fedkge-network-") as place:
        folder = given.folder or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        found = {
            "idle": lambda: idle(folder, given.rounds),
            "kills": lambda: kills(folder.resolve(), given.kills, given.seed, given.seconds),
            "large": lambda: large(folder, given.megabytes),
            "memory": lambda: memory(folder, given.megabytes),
        }[given.what]()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
