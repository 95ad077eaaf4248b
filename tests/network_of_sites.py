"""A hub and sites on this machine: their files, keys and graphs, and how they are started."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fedkge.config import to_toml
from fedkge.exchange.rows import Message
from fedkge.exchange.tally import Tally
from fedkge.graphs.graph import Federation
from fedkge.graphs.writing import write_federation
from fedkge.methods import METHODS
from fedkge.nodes.terms import Terms
from fedkge.runs.network import HubFile, SiteFile
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.kits import Address
from fedkge.runtimes.network_hub import NetworkHub
from fedkge.runtimes.network_site import Site
from fedkge.runtimes.signing import make_request
from fedkge.runtimes.stream import Link
from network_of_peers import free_ports
from small_federations import small_federation

HUB, SECRET = "hub", "sites.secret"
OWN = {"align": {"secret": SECRET}}
TERMS: dict[str, Any] = {
    "seed": 3,
    "rounds": 4,
    "model": {"name": "transe", "dim": 8},
    "method": {"name": "fedep"},
    "trainer": {"epochs": 1, "batch_size": 32, "negatives": 4, "lr": 0.01},
    "evaluate": {"every": 2, "patience": 0},
}


@dataclass
class Network:
    """A folder in which `fedkge hub hub.toml` and `fedkge site NAME.toml` work."""

    folder: Path
    sites: list[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    expected: dict[str, dict[str, bytes]] = field(
        default_factory=dict
    )  #: tables of the same run in one process

    def start(self, *names: str, env: Mapping[str, str] | None = None, script: Path | None = None) -> None:
        for name in names or (HUB, *self.sites):
            what = [str(script)] if script else ["-m", "fedkge", "hub" if name == HUB else "site"]
            with (self.folder / f"{name}.log").open("ab") as out:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, *what, f"{name}.toml", *([] if script else ["--device", "cpu"])],
                    cwd=self.folder,
                    stdout=out,
                    stderr=out,
                    env=ENV | dict(env or {}),
                )

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        self.processes[name].send_signal(number)
        return self.processes[name].wait(60)

    def said(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def wait_for(self, name: str, text: str, seconds: float = 60.0, times: int = 1) -> None:
        until = time.monotonic() + seconds
        while self.said(name).count(text) < times:
            if time.monotonic() > until:
                raise TimeoutError(f"{name} has not said {text!r}: {self.said(name)[-2000:]}")
            time.sleep(0.05)

    def wait_for_file(self, name: str, text: str, seconds: float) -> None:
        until, path = time.monotonic() + seconds, self.folder / name
        while not (path.exists() and text in path.read_text()):
            if time.monotonic() > until:
                raise TimeoutError(f"{path} does not have {text!r}: {self.said(HUB)[-2000:]}")
            time.sleep(0.05)

    def wait(self, *names: str, seconds: float = 90.0) -> dict[str, int]:
        until = time.monotonic() + seconds
        return {
            name: self.processes[name].wait(max(0.1, until - time.monotonic()))
            for name in names or (HUB, *self.sites)
        }

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def tables(self, site: str) -> dict[str, bytes]:
        home = self.folder / "homes" / site
        return {path.name: path.read_bytes() for path in sorted(home.glob("*.safetensors"))}


ENV = {
    **os.environ,
    "PYTHONPATH": f"{Path(__file__).parents[1] / 'src'}:{Path(__file__).parent}",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@cache
def kits(sites: tuple[str, ...]) -> Path:
    """An authority and kits, made once for all tests: keys take a while."""
    folder = Path(tempfile.mkdtemp(prefix="fedkge-kits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (port,) = free_ports(1)
    authority = Authority.create(folder / "authority", Address("localhost", port))
    for name in sites:
        _, request = make_request(name, "", folder / "keys")
        (folder / f"{name}.kit").write_bytes(authority.approve(request.read_bytes()).packed())
    return folder


def lay_out(
    folder: Path,
    graphs: Federation,
    terms: Mapping[str, Any],
    hub: Mapping[str, Any] | None = None,
    site: Mapping[str, Any] | None = None,
) -> Network:
    """Keys, kits, graphs and files."""
    write_federation(graphs, folder / "graphs")
    shutil.copytree(kits(tuple(graphs)), folder, dirs_exist_ok=True)
    (folder / SECRET).write_bytes(bytes(range(32)))
    own = {"sites": list(graphs), "folder": "homes/hub", "authority": "authority"}
    own |= {"timeout": 60.0, "assembly": 90.0, **(hub or {})}
    (folder / "hub.toml").write_text(to_toml({**terms, **own}))
    for name in graphs:
        file: dict[str, Any] = {"graph": f"graphs/{name}", "folder": f"homes/{name}", "kit": f"{name}.kit"}
        (folder / f"{name}.toml").write_text(
            to_toml({**file, "key": f"keys/{name}.key", **OWN, **(site or {})})
        )
    return Network(folder, list(graphs))


def in_process(folder: Path, graphs: Federation, terms: Mapping[str, Any]) -> dict[str, dict[str, bytes]]:
    """The tables of the same run in one process."""
    from fedkge.runs.experiment import Experiment
    from fedkge.runs.folder import RunFolder
    from fedkge.runtimes.run import run

    own = {"data": {"path": str(folder / "graphs")}, "align": {"secret": str(folder / SECRET)}}
    experiment = Experiment.parse({**terms, **own})
    made = RunFolder.create(folder / "in-process", experiment, False)
    run(experiment, made, torch.device("cpu"))
    return {
        site: {
            path.name: path.read_bytes()
            for path in sorted((made.path / "sites" / site).glob("*.safetensors"))
        }
        for site in graphs
    }


class Wire:
    """Carries packets between a hub and sites that are threads of this process, where FLARE would."""

    def __init__(self, patch: Any) -> None:
        self.hub: Path | None = None
        self.sites: dict[str, Path] = {}
        self.links: dict[str, list[Link]] = {}
        wire = self

        class Engine:
            def __init__(self, role: str, workspace: Path, name: str, path: Path) -> None:
                self.name, self.path, self.runs, self.workspace = name, path, False, workspace

            def start(self) -> None:
                self.runs = True
                if self.name == HUB:
                    wire.hub = self.path
                else:
                    wire.sites[self.name] = self.path

            def stop(self) -> None:
                wire.sites.pop(self.name, None)
                wire.cut(*([self.name] if self.name != HUB else wire.links))

            def listens(self, port: int) -> bool:
                return True

            def said(self) -> str:
                return ""

        class Administrator:
            def __init__(self, workspace: Path) -> None:
                self.workspace = workspace

            def online(self) -> dict[str, float]:
                return dict.fromkeys(wire.sites, time.time() + 1)

            def submit(self, job: Path) -> str:
                wire.connect(job.name.removeprefix("to-"))
                return "job"

            def abort(self, job: str) -> None:
                pass

            def stop(self) -> None:
                pass

        for module in ("network_hub", "network_site"):
            patch.setattr(f"fedkge.runtimes.{module}.Engine", Engine)
        patch.setattr("fedkge.runtimes.network_hub.Administrator", Administrator)
        patch.setattr("fedkge.runtimes.steward.LOOK", 0.05)

    def connect(self, site: str) -> None:
        assert self.hub is not None
        with suppress(OSError, KeyError):
            there, here = Link.to(str(self.hub)), Link.to(str(self.sites[site]))
            there.send(site.encode())
            self.links[site] = [there, here]
            for source, to in ((there, here), (here, there)):
                threading.Thread(target=self._carry, args=(source, to), daemon=True).start()

    def _carry(self, source: Link, to: Link) -> None:
        with suppress(OSError):
            while packet := source.receive():
                to.send(packet)
        source.close()
        to.close()

    def cut(self, *sites: str) -> None:
        for site in sites:
            for link in self.links.get(site, ()):
                link.close()


def site_thread(
    network: Network, name: str, found: dict[str, Any], kind: Callable[..., Site] = Site
) -> threading.Thread:
    """A site of this process; what its end was lies in `found`."""

    def play() -> None:
        try:
            file = SiteFile.read(network.folder / f"{name}.toml")
            found[name] = kind(file, torch.device("cpu"), lambda text: None)
            found[name].play()
        except Exception as error:
            found[name] = error

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return thread


def hub_of(network: Network, **options: Any) -> NetworkHub:
    said: list[str] = []
    made = NetworkHub(
        HubFile.read(network.folder / "hub.toml"), torch.device("cpu"), say=said.append, **options
    )
    made.heard = said  # type: ignore[attr-defined]
    return made


def played(
    network: Network,
    odd: Mapping[str, Callable[..., Site]] | None = None,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """A run whose sites are threads; the hub, and each site or the error that it ended with."""
    found: dict[str, Any] = {}
    threads = [site_thread(network, name, found, (odd or {}).get(name, Site)) for name in network.sites]
    hub = hub_of(network, **options)
    try:
        hub.play()
    finally:
        for thread in threads:
            if not hub.node.failed:
                thread.join(60)
    return hub, found


def events(network: Network, kind: str) -> list[dict[str, Any]]:
    """What the hub has noted."""
    lines = (network.folder / "homes" / "hub" / "hub" / "journal.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


# What must hold, whoever carries the packets

WITH_HUB = sorted(name for name in METHODS if not METHODS[name].hubless and name != "collective")
FORGED = (
    "corrupt",
    "replay",
    "oversized",
    "another-run",
    "another-protocol",
    "another-name",
    "nan",
    "foreign-rows",
)


def assert_same_as_in_process(folder: Path, method: str) -> None:
    """A method ends with the tables of one process, bit by bit, and has sent as many bytes.

    On a busy machine a site may come twice. What is said again then counts again, and nothing else is.
    """
    graphs, terms = small_federation(relations_in_common=True), {**TERMS, "rounds": 3}
    terms["method"] = {"name": method}
    network = lay_out(folder, graphs, terms)
    said: list[Message] = []
    hub, found = played(network, tap=said.append)
    assert all(site.ended for site in found.values()), found
    expected = in_process(folder, graphs, terms)
    assert {name: network.tables(name) for name in graphs} == expected
    summary = json.loads((folder / "in-process" / "summary.json").read_text())
    assert traffic_of(hub.file, said) == hub.record.tally.summary()
    once = said_once(said)
    assert traffic_of(hub.file, once) == summary["traffic"]
    assert len(once) == len(said) or any(hub.heard.count(f"{site}: here") > 1 for site in graphs)


def traffic_of(terms: Terms, messages: Sequence[Message]) -> dict[str, Any]:
    tally = Tally(terms.coding, terms.widths)
    for message in messages:
        tally.round(max(1, message.round))  # it is listed where nothing counts, too
        tally.count(message)
    return tally.summary()


def said_once(messages: Sequence[Message]) -> list[Message]:
    """Without what was said before: a site joins, and hears what others share, once in a run."""
    first: dict[tuple[Any, ...], Message] = {}
    for message in messages:
        round = 0 if message.kind in ("join", "shared") else message.round
        first.setdefault((message.sender, message.recipient, message.kind, round), message)
    return list(first.values())


def assert_refused(folder: Path, odd: Callable[..., Site]) -> None:
    """A site forges its answers from the second round on: they are refused, and the others go on."""
    terms = {**TERMS, "rounds": 3, "participation": {"quorum": 0.6}}
    network = lay_out(folder, small_federation(), terms, {"timeout": 5.0, "most": 2})
    hub, _ = played(network, {"a": odd})
    assert hub.record.courses
    refused = [event for event in events(network, "refused") if event["site"] in ("a", "?")]
    assert refused, "nothing was refused"
    taken = {event["round"]: event["participants"] for event in events(network, "round")}
    assert {1, 2, 3} == taken.keys()
    assert set(taken[2]) == set(taken[3]) == {"b", "c"}
