"""Hub and sites as processes on one machine, which exchange bytes and have nothing but their folders."""

from __future__ import annotations

import json
import queue
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

import torch

from fedkge.errors import ConfigError, DataError, FedkgeError
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.tally import Tally
from fedkge.exchange.wire import decode, encode
from fedkge.machine import environment
from fedkge.machine import threads as threads_here
from fedkge.nodes.accept import Accept
from fedkge.nodes.clock import Clock
from fedkge.nodes.ledgers import check_begun
from fedkge.nodes.store import Store
from fedkge.runs.account import account_of
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.kit import pack_hub, pack_site
from fedkge.runs.start import started
from fedkge.runtimes.loop import Carrier, Loop, Tap
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.record import Record
from fedkge.runtimes.simulate import Simulation
from fedkge.training.confidential import marked

OPEN, MESSAGE, EXPIRE, END = b"O", b"M", b"X", b"Q"  #: frames to a node
EVENT, FAILURE, DONE = b"E", b"F", b"."  #: and from one, besides messages
RESTARTS = 3  #: times that a process which ended by itself is started again
PATIENCE = 10  #: times `runtime.timeout` that the hub has, and a site for its last measurements
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


@dataclass(eq=False, slots=True)
class Reply:
    """What a node says to one request."""

    messages: list[Message] = field(default_factory=list)
    done: bool = False  #: nothing more will come: all was said, or the process has ended


class Child:
    """A node in a process. Its requests are answered in order; frames of all children meet in one queue."""

    def __init__(self, id: str, home: Path, threads: int, frames: Frames) -> None:
        self.id, self.home, self.threads, self.frames, self.starts = id, home, threads, frames, 0
        self.replies: deque[Reply] = deque()  # to requests that are not answered yet
        self.start()

    def start(self) -> None:
        """By exec, with no more than the folder's name; kernels get a fair part of the cores."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedkge.runtimes.node", str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(self.threads),
            start_new_session=True,  # a terminal's signals reach the parent, which ends its children in order
        )
        self.starts += 1
        self.requests: queue.Queue[tuple[bytes, bytes] | None] = queue.Queue()
        process, requests = self.process, self.requests
        threading.Thread(target=_write_all, args=(requests, process.stdin), daemon=True).start()
        threading.Thread(target=_read_all, args=(self, process, self.frames), daemon=True).start()

    def ask(self, kind: bytes, content: bytes = b"") -> Reply:
        reply = Reply()
        self.replies.append(reply)
        self.requests.put((kind, content))
        return reply

    def gone(self) -> None:
        """The process has ended by itself: what it was asked gets no answer."""
        self.process.wait()
        for reply in self.replies:
            reply.messages, reply.done = [], True
        self.replies.clear()

    def end(self) -> None:
        self.requests.put((END, b""))
        self.requests.put(None)
        try:
            self.process.wait(LEAVE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


Frame: TypeAlias = tuple[Child, Any, tuple[bytes, bytes] | None]  #: whose, of which process; None: its end
Frames: TypeAlias = "queue.Queue[Frame]"


def _write_all(requests: queue.Queue[Any], to: Any) -> None:
    with suppress(OSError, ValueError):
        while (frame := requests.get()) is not None:
            write_frame(to, *frame)


def _read_all(child: Child, process: Any, frames: Frames) -> None:
    try:
        with suppress(OSError, ValueError, OverflowError, MemoryError):
            while (frame := read_frame(process.stdout)) is not None:
                frames.put((child, process, frame))
    finally:
        frames.put((child, process, None))


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
        devices = _devices(device)
        pseudonyms = experiment.align.secret is not None
        pack_hub(homes[HUB], experiment, run, list(self.members), devices[0], pseudonyms)
        for number, (name, member) in enumerate(self.members.items()):
            first = None if start is None else start.rows(member, name)
            pack_site(
                homes[name],
                experiment,
                run,
                name,
                sources.identity(experiment, member),
                member,
                first,
                devices[number % len(devices)],
                account_of(experiment, name),
                experiment.accept.get(name, Accept()),
            )
        self.round = rounds[-1] if rounds else 0
        if rounds:
            self.record.resume(self.round)
        participation = (
            experiment.participation if experiment.method.shares else type(experiment.participation)()
        )
        self.loop = Loop(self, participation, experiment.seed, self.record, how.save_every, bool(rounds), tap)
        threads = max(1, threads_here() // len(self.members))
        self.frames: Frames = queue.Queue()
        self.children = {name: Child(name, home, threads, self.frames) for name, home in homes.items()}

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
        """Each node starts, or goes on from its folder, before it says anything; the hub is there first."""
        hub, *sites = ((child, OPEN, b"") for child in self.children.values())
        said = [*self._answers([hub]), *self._answers(sites)]
        return [message for messages in said for message in messages]

    def deliver(self, messages: Sequence[Message]) -> list[Message]:
        messages = [message for message in messages if message.recipient in self.children]
        kinds = {message.kind for message in messages}
        work = "train" if "train" in kinds else "evaluate" if kinds & {"measure", "stop"} else "exchange"
        asked = [(self.children[message.recipient], MESSAGE, encode(message)) for message in messages]
        with self.clock.spending(work):
            answers = self._answers(asked, {i for i, m in enumerate(messages) if m.kind == "stop"})
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

    def _answers(
        self, asked: Sequence[tuple[Child, bytes, bytes]], last: Collection[int] = ()
    ) -> list[list[Message]]:
        """What is answered to each request; then what others say that were slow, or had to be started again.

        Who has not answered when the time is up answers later: a site may also join late. The hub, and sites
        that rank their test triples at the end (`last`), have more time.
        """
        began, timeout = time.monotonic(), self.experiment.runtime.timeout
        replies = [child.ask(kind, content) for child, kind, content in asked]
        slow = [i in last or child.id == HUB for i, (child, _, _) in enumerate(asked)]
        beside: list[list[Message]] = []  # answers to earlier requests
        gone: dict[str, Child] = {}
        while waiting := [more for reply, more in zip(replies, slow, strict=True) if not reply.done]:
            left = began + timeout * (PATIENCE if any(waiting) else 1) - time.monotonic()
            try:
                child, process, frame = self.frames.get(timeout=max(0.0, left))
            except queue.Empty:
                break
            if process is not child.process:
                continue
            if frame is None:
                child.gone()
                gone[child.id] = child
            elif (reply := self._heard(child, *frame)) is not None and reply not in replies:
                beside.append(reply.messages)
        found = [reply.messages if reply.done else [] for reply in replies]
        return [*found, *beside, *(self._restarted(gone) if gone else ())]

    def _heard(self, child: Child, kind: bytes, content: bytes) -> Reply | None:
        """Take a frame in; the reply that it ends."""
        if kind == FAILURE:
            raise FedkgeError(content.decode(errors="replace"))
        if kind == EVENT:
            with suppress(ValueError, KeyError, TypeError):  # what is none goes nowhere
                self.record.hear(child.id, json.loads(content))
        elif kind == DONE and child.replies:
            reply = child.replies.popleft()
            reply.done = True
            return reply
        elif (message := _read(content, child.id)) is not None and child.replies:
            child.replies[0].messages.append(message)
        return None

    def _restarted(self, gone: Mapping[str, Child]) -> list[list[Message]]:
        """Start nodes again that have ended by themselves: they go on from their folders, and join again."""
        for child in gone.values():
            if child.starts > RESTARTS:
                raise FedkgeError(
                    f"{child.id}: its process has ended {child.starts} times, "
                    f"with status {child.process.returncode}"
                )
            child.start()
        joins = self.children if HUB in gone else gone  # a new hub has to be told who is there
        return self._answers([(child, OPEN, b"") for child in joins.values()])


def _devices(device: torch.device) -> list[torch.device]:
    """Where nodes train: on all GPUs in turn, unless one was named."""
    if device.type != "cuda" or device.index is not None:
        return [device]
    return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]


def _read(content: bytes, sender: str) -> Message | None:
    """A message that is to be carried; bytes that are none, or in another's name, go nowhere."""
    try:
        message = decode(content)
    except DataError:
        return None
    fits = message.sender == sender and (message.recipient == HUB) != (sender == HUB)
    return message if fits else None
