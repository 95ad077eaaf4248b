"""Hub and sites as processes on one machine, which exchange bytes and have nothing but their folders."""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch

from fedkge.errors import ConfigError, DataError, FedkgeError
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.tally import Tally
from fedkge.exchange.wire import decode, encode
from fedkge.nodes.clock import Clock
from fedkge.nodes.ledgers import check_begun
from fedkge.nodes.store import Store
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.kit import pack_hub, pack_site
from fedkge.runs.start import started
from fedkge.runtimes.loop import Carrier, Loop, Tap
from fedkge.runtimes.record import Record, Watch, ignored
from fedkge.runtimes.simulate import Simulation
from fedkge.training.confidential import marked

OPEN, MESSAGE, EXPIRE, END = b"O", b"M", b"X", b"Q"  #: frames to a node
EVENT, FAILURE, DONE = b"E", b"F", b"."  #: and from one, besides messages
RESTARTS = 3  #: times that a process which ended by itself is started again
LEAVE = 20.0  #: seconds that a process has to end when it is told to


def write_frame(to: IO[bytes], kind: bytes, content: bytes = b"") -> None:
    """A letter for what it is, the length of its content, and the content."""
    to.write(struct.pack("<cQ", kind, len(content)) + content)
    to.flush()


def read_frame(source: IO[bytes]) -> tuple[bytes, bytes] | None:
    """None at the end."""
    head = source.read(9)
    if len(head) < 9:
        return None
    kind, size = struct.unpack("<cQ", head)
    content = source.read(size)
    return (kind, content) if len(content) == size else None


class Child:
    """A node in a process: what is sent to it is answered in order, and its death is noticed."""

    def __init__(self, id: str, home: Path, threads: int) -> None:
        self.id, self.home, self.threads, self.starts = id, home, threads, 0
        self.answers: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue()
        self.waiting = 0  # requests that are not answered yet
        self.start()

    def start(self) -> None:
        """By exec, with no more than the folder's name; kernels get a fair part of the cores."""
        limits = {"NUMBA_NUM_THREADS": str(self.threads), "OMP_NUM_THREADS": str(self.threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedkge.runtimes.node", str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=limits | dict(os.environ),
            start_new_session=True,  # a terminal's signals reach the parent, which ends its children in order
        )
        self.starts, self.waiting = self.starts + 1, 0
        self.requests: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue()
        self.answers = queue.Queue()
        process, requests, answers = self.process, self.requests, self.answers
        threading.Thread(target=_write_all, args=(requests, process.stdin), daemon=True).start()
        threading.Thread(target=_read_all, args=(process.stdout, answers), daemon=True).start()

    def ask(self, kind: bytes, content: bytes = b"") -> None:
        self.waiting += 1
        self.requests.put((kind, content))

    def end(self) -> None:
        self.requests.put((END, b""))
        self.requests.put(None)
        try:
            self.process.wait(LEAVE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _write_all(requests: queue.Queue[Any], to: Any) -> None:
    with suppress(OSError, ValueError):
        while (frame := requests.get()) is not None:
            write_frame(to, *frame)


def _read_all(source: Any, answers: queue.Queue[Any]) -> None:
    try:
        with suppress(OSError, ValueError, OverflowError, MemoryError):
            while (frame := read_frame(source)) is not None:
                answers.put(frame)
    finally:
        answers.put(None)


class Processes(Carrier):
    """A run whose nodes are processes; this one only carries their messages."""

    def __init__(
        self,
        experiment: Experiment,
        sources: Sources,
        folder: RunFolder,
        device: torch.device,
        how: Simulation = Simulation(),  # noqa: B008 - frozen
        watch: Watch = ignored,
        tap: Tap | None = None,
    ) -> None:
        self.experiment, self.members, self.clock = experiment, sources.members(experiment), Clock()
        if any(name not in member.parts for name, member in self.members.items()):
            raise ConfigError("runtime.name: the method pools all graphs in one place; expected simulate")
        tally = Tally(experiment.coding, experiment.widths)
        self.record = Record(folder.journal, experiment.rounds, tally, self.clock, watch)
        run = folder.begin({name: member.graph.digest() for name, member in self.members.items()})
        homes = {HUB: folder.home(HUB)} | {
            name: folder.home(name, member) for name, member in self.members.items()
        }
        if experiment.privacy.noisy:
            hiding = [n for n, m in self.members.items() if marked(m.graph, experiment.privacy).any()]
            check_begun(homes[HUB], {name: homes[name] for name in hiding})
        rounds = Store(homes[HUB]).rounds()
        start, self.start = started(experiment, sources.named, folder, bool(rounds))
        pack_hub(homes[HUB], experiment, run, list(self.members), device)
        for name, member in self.members.items():
            first = None if start is None else start.rows(member, name)
            pack_site(
                homes[name],
                experiment,
                run,
                name,
                sources.identity(experiment, member),
                member,
                first,
                device,
            )
        self.round = rounds[-1] if rounds else 0
        if rounds:
            self.record.resume(self.round)
        participation = (
            experiment.participation if experiment.method.shares else type(experiment.participation)()
        )
        self.loop = Loop(self, participation, experiment.seed, self.record, how.save_every, bool(rounds), tap)
        threads = max(1, (os.cpu_count() or 1) // len(self.members))
        self.children = {name: Child(name, home, threads) for name, home in homes.items()}

    def play(self, until: Callable[[int], bool] = lambda round: False) -> None:
        try:
            super().play(until)
        finally:
            for child in self.children.values():
                child.requests.put((END, b""))
            for child in self.children.values():
                child.end()

    # What the loop asks for

    def open(self) -> list[Message]:
        """Each node starts, or goes on from its folder, before it says anything."""
        asked = [(child, OPEN, b"") for child in self.children.values()]
        return [message for messages in self._answers(asked) for message in messages]

    def deliver(self, messages: Sequence[Message]) -> list[Message]:
        messages = [message for message in messages if message.recipient in self.children]
        kinds = {message.kind for message in messages}
        work = "train" if "train" in kinds else "evaluate" if kinds & {"measure", "stop"} else "exchange"
        asked = [(self.children[message.recipient], MESSAGE, encode(message)) for message in messages]
        with self.clock.spending(work):
            answers = self._answers(asked)
        pairs = list(zip(messages, answers, strict=False))
        first = [message for question, own in pairs if question.kind != "train" for message in own]
        trained = sorted(
            (pair for pair in pairs if pair[0].kind == "train"), key=lambda pair: pair[0].recipient
        )
        again = [message for own in answers[len(messages) :] for message in own]
        return first + [message for _, own in trained for message in own] + again

    def expire(self, round: int) -> list[Message]:
        answers = self._answers([(self.children[HUB], EXPIRE, str(round).encode())])
        return [message for own in answers for message in own]

    def save(self, round: int) -> None:
        """Nodes write their state before every answer."""

    def _answers(self, asked: Sequence[tuple[Child, bytes, bytes]]) -> list[list[Message]]:
        """What is answered to each request; after these what nodes say that had to be started again."""
        for child, kind, content in asked:
            child.ask(kind, content)
        deadline = time.monotonic() + self.experiment.runtime.timeout
        found: list[list[Message]] = []
        gone: dict[str, Child] = {}
        later = Counter(child.id for child, _, _ in asked)  # requests of this call that are still to be read
        for child, _, _ in asked:
            later[child.id] -= 1
            own = [] if child.id in gone else self._one(child, deadline, later[child.id])
            if own is None:
                gone[child.id] = child
            found.append(own or [])
        return found + [self._restarted(child) for child in gone.values()]

    def _one(self, child: Child, deadline: float, later: int) -> list[Message] | None:
        """The answers to a node's next request; none of one that has ended. Who is slow answers later."""
        messages: list[Message] = []
        while True:
            try:
                frame = child.answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return messages
            if frame is None:
                return None
            kind, content = frame
            if kind == DONE:
                child.waiting -= 1
                if child.waiting <= later:  # what was asked before, and came too late, is answered too
                    return messages
            elif kind == FAILURE:
                raise FedkgeError(content.decode())
            elif kind == EVENT:
                self.record.hear(child.id, json.loads(content))
            elif (message := _read(content, child.id)) is not None:
                messages.append(message)

    def _restarted(self, child: Child) -> list[Message]:
        """Start a node again that has ended by itself: it goes on from its folder, and joins again."""
        child.process.wait()
        if child.starts > RESTARTS:
            raise FedkgeError(
                f"{child.id}: its process has ended {child.starts} times, "
                f"with status {child.process.returncode}"
            )
        child.start()
        joins = [child] if child.id != HUB else [child, *(c for c in self.children.values() if c.id != HUB)]
        return [message for own in self._answers([(one, OPEN, b"") for one in joins]) for message in own]


def _read(content: bytes, sender: str) -> Message | None:
    """A message that is to be carried; bytes that are none, or in another's name, go nowhere."""
    try:
        message = decode(content)
    except DataError:
        return None
    return message if message.sender == sender else None
