"""NVIDIA FLARE's processes: started, watched and stopped by us. They end with whoever started them."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedkge.errors import FedkgeError, MissingPackage

SOCKET = "FEDKGE_SOCKET"  #: environment variable: where the ends of a stream connect to
ADMIN = "admin@fedkge.hub"  #: who submits jobs: the hub itself; FLARE wants an address
MODULE = "fedkge.runtimes.flare"
BEAT = 2.0  #: seconds between two signs of life of a site's FLARE, which waits not at all below 2
ANSWER = 40.0  #: seconds that the administrator may take for an answer


def check_installed() -> None:
    """An error if FLARE is not there."""
    if find_spec("nvflare") is None:
        raise MissingPackage("nvflare", "a hub with sites on a network", "network")


def end_tree(pid: int) -> None:
    """A process and all that it has started: FLARE's jobs have sessions of their own."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for one in [*top.children(recursive=True), top]:
            with suppress(psutil.NoSuchProcess):
                one.kill()


class Engine:
    """FLARE's server at the hub, or its client at a site, with all that it starts."""

    def __init__(self, role: str, workspace: Path, name: str, path: Path) -> None:
        given = ["secure_train=true", "config_folder=config", "org=fedkge"]
        given += [f"uid={name}", f"heart_beat_interval={BEAT}"] if role == "client" else []
        own = ["-m", str(workspace.resolve()), "-s", f"fed_{role}.json", "--set", *given]
        self.command = [sys.executable, "-m", MODULE, role, *own]
        self.workspace, self.path = workspace, path
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {**os.environ, SOCKET: str(self.path), "MALLOC_ARENA_MAX": "4"}
        with (self.workspace / "output.txt").open("ab") as out:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=env, start_new_session=True
            )

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def listens(self, port: int) -> bool:
        """Whether somebody takes connections on this machine."""
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1.0):
            return True
        return False

    def stop(self) -> None:
        """At once: nothing that FLARE knows is needed again."""
        if self.process is not None:
            end_tree(self.process.pid)
            self.process.wait()

    def said(self) -> str:
        """The last thing that it complained about."""
        for name in ("log.txt", "output.txt"):
            with suppress(OSError):
                lines = (self.workspace / name).read_text(encoding="utf-8", errors="replace").splitlines()
                if found := [line for line in lines if "ERROR" in line or "Error" in line]:
                    return found[-1][-300:]
        return "it says nothing"


class Administrator:
    """Who submits the hub's jobs, in a process that is asked line by line. One that hangs is replaced."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str] = queue.Queue()

    def online(self) -> dict[str, float]:
        """When each site last gave a sign of life, by this machine's clock."""
        found: dict[str, float] = self._ask({"online": ""})
        return found

    def submit(self, job: Path) -> str:
        """Have a job started; its id."""
        return str(self._ask({"submit": str(job.resolve())}))

    def abort(self, job: str) -> None:
        with suppress(FedkgeError):  # it may have ended by itself
            self._ask({"abort": job})

    def _ask(self, asked: dict[str, str]) -> Any:
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
            found = json.loads(self.answers.get(timeout=ANSWER))
        except (OSError, queue.Empty, ValueError) as error:
            self.stop()
            raise FedkgeError(f"FLARE's administrator does not answer ({type(error).__name__})") from None
        if "error" in found:
            raise FedkgeError(f"FLARE: {found['error'][:300]}")
        return found["found"]

    def _start(self) -> None:
        with (self.workspace / "output.txt").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", MODULE, "admin", str(self.workspace.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                cwd=self.workspace,
                start_new_session=True,
            )
        self.answers = queue.Queue()
        threading.Thread(target=_lines, args=(self.process.stdout, self.answers), daemon=True).start()

    def stop(self) -> None:
        if self.process is not None:
            end_tree(self.process.pid)
            self.process.wait()
            self.process = None


def _lines(source: Any, to: queue.Queue[str]) -> None:
    for line in source:
        to.put(line)
    to.put("")
