"""`fedkge hub`: the hub in one process, its sites on other machines, NVIDIA FLARE in between."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedkge.config import read_toml, to_toml
from fedkge.errors import ConfigError, DataError, FedkgeError
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.tally import Tally
from fedkge.exchange.wire import decode, encode
from fedkge.nodes.base import Setting
from fedkge.nodes.clock import Clock
from fedkge.nodes.hub import HubNode
from fedkge.nodes.store import write_whole
from fedkge.nodes.terms import Participation, Terms
from fedkge.runs.folder import RunFolder
from fedkge.runs.network import HubFile
from fedkge.runs.summary import environment
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.engine import Administrator, Engine, check_installed
from fedkge.runtimes.flare_files import write_admin, write_server
from fedkge.runtimes.hello import END, MESSAGE, OPEN, HubHello
from fedkge.runtimes.loop import Carrier, Loop, Tap
from fedkge.runtimes.processes import PATIENCE
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.record import Record
from fedkge.runtimes.remote import Door, Remote, Reply, Stream
from fedkge.runtimes.steward import Steward
from fedkge.runtimes.stream import Frame, listen

LEAVE = 15.0  #: seconds that sites have to hear that the run is over


class NetworkHub(Carrier):
    """The hub's node, and its sites as far as they are there.

    A site that is lost in a round is waited for, as long as the quorum needs it. When it is back it joins
    again, and the hub asks again what it has not answered.
    """

    def __init__(
        self,
        file: HubFile,
        device: torch.device,
        watch: Watch = ignored,
        tap: Tap | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        check_installed()
        self.file, self.say, self.authority = file, say, Authority(file.authority)
        self.port = self.authority.address.port  # an error before there is a folder, if there is no authority
        self.folder = _folder(file)
        self.clock = Clock()
        self.record = Record(
            self.folder.journal, file.rounds, Tally(file.coding, file.widths), self.clock, watch
        )
        self.run = self.folder.begin({})
        setting = Setting(
            self.run, self.folder.home(HUB), often=True, tell=self.record.hear, clock=self.clock
        )
        self.node = HubNode(file, file.sites, setting, device=device, pseudonyms=file.pseudonyms)
        resumed = self.node.resume()
        self.round, self.start, self.members = self.node.round, None, {}
        self.folder.journal.write(
            "start", environment=environment(device), kind=file.method.kind, sites=sorted(file.sites)
        )
        if resumed:
            self.record.resume(self.round)
            self.folder.journal.write("resumed", round=self.round)
        self.loop = Loop(self, Participation(), file.seed, self.record, float("inf"), resumed, tap)
        self.remotes = {site: Remote(site) for site in sorted(file.sites)}
        self._asked_before = set(self.node.roster.joined)
        self._asked: list[Reply] = []  # what was asked last, and until when it is waited for
        self._until, self._everyone = 0.0, True

    def play(self, until: Callable[[int], bool] = lambda round: False) -> None:
        with self.folder.alone(), self._flare():
            try:
                super().play(until)
            except FedkgeError:
                self.node.flush()
                raise
            if self.record.courses:
                self._end()
                self.folder.journal.write("end")

    # FLARE

    @contextmanager
    def _flare(self) -> Iterator[None]:
        workspace = self.folder.path / "flare"
        shutil.rmtree(workspace, ignore_errors=True)
        write_server(workspace / "server", self.authority, len(self.remotes))
        write_admin(workspace / "admin", self.authority)
        with tempfile.TemporaryDirectory(prefix="fedkge-") as place:  # the path of a socket must be short
            listener = listen(Path(place) / "hub")
            self.door = Door(listener, self.authority, self.file.sites, self._hello, self.file.most << 20)
            self.engine = Engine("server", workspace / "server", HUB, Path(place) / "hub")
            ended = threading.Event()
            administrator = Administrator(workspace / "admin")
            steward = Steward(self.engine, administrator, self.remotes, ended, self.door, self.port)
            steward.start()
            try:
                yield
            finally:
                ended.set()
                listener.close()
                for remote in self.remotes.values():
                    remote.leave()
                self.engine.stop()
                administrator.stop()
                steward.join(LEAVE)

    def _hello(self, site: str, nonce: str) -> HubHello:
        asked = self.node.round if site in self._asked_before else 0
        return HubHello.of(self.run, nonce, asked, self.file.terms())

    def _end(self) -> None:
        """Tell everyone who is there that the run is over."""
        told = [remote.ask([(END, b"")]) for remote in self.remotes.values() if remote.stream is not None]
        self._unheeded(self._replies(told, LEAVE, len(told), everyone=True))
        self.record.write()
        if missed := sorted(self.node.stopped - self.told):
            self.say(
                f"{', '.join(missed)}: not there at the end; the same command tells them when they are back"
            )

    # What the loop asks for

    told: set[str]  #: sites that were told that the run is over

    def open(self) -> list[Message]:
        """Wait for all sites, as long as the file says."""
        self.told = set()
        self.node.open()
        opened = [remote.ask([(OPEN, b"")]) for remote in self.remotes.values()]
        return self._messages(self._replies(opened, self.file.assembly, len(opened), everyone=True))

    def deliver(self, messages: Sequence[Message]) -> list[Message]:
        first = [said for m in messages if m.recipient == HUB for said in self.node.receive(m)]
        asked = [message for message in messages if message.recipient in self.remotes]
        kinds = {message.kind for message in asked}
        work = "train" if "train" in kinds else "evaluate" if kinds & {"measure", "stop"} else "exchange"
        timeout = self.file.timeout * (PATIENCE if "stop" in kinds else 1)
        needed = self.node.participation.needed(len(asked)) if "train" in kinds else len(asked)
        with self.clock.spending(work):
            replies = [self.remotes[m.recipient].ask([(MESSAGE, encode(m))]) for m in asked]
            everyone = "train" in kinds or self.node.participation.quorum == 1
            if replies:
                self._asked, self._until, self._everyone = replies, time.monotonic() + timeout, everyone
            beside = self._replies(replies, timeout, needed, everyone)
        self.told |= {
            m.recipient for m, r in zip(asked, replies, strict=True) if m.kind == "stop" and r.answered
        }
        pairs = sorted(
            (
                (m.kind == "train", m.recipient if m.kind == "train" else "", r)
                for m, r in zip(asked, replies, strict=True)
            ),
            key=lambda pair: pair[:2],
        )
        return first + self._messages([reply for _, _, reply in pairs if reply.done]) + self._messages(beside)

    def reaches(self, message: Message) -> bool:
        remote = self.remotes.get(message.recipient)
        return remote is None or remote.stream is not None

    def expire(self, round: int) -> list[Message]:
        """As long as time is left, an answer that was refused leaves room for another one."""
        while left := [reply for reply in self._asked if not reply.done]:
            time_left = self._until - time.monotonic()
            beside = self._replies(self._asked, time_left, len(self._asked) - len(left) + 1, self._everyone)
            new = [reply for reply in left if reply.done]
            if found := self._messages([*new, *beside]):
                return found
            if not new:
                break
        return self.node.expire(round)

    def save(self, round: int) -> None:
        """The hub writes its state before it asks."""

    # Sites

    def _replies(self, replies: list[Reply], timeout: float, needed: int, everyone: bool) -> list[Reply]:
        """Wait for answers; what others said meanwhile: answers to earlier requests, and who joined again.

        Unless everyone is, who is away or has something else to answer first is not waited for.
        """
        until, beside = time.monotonic() + timeout, []
        while waiting := [reply for reply in replies if not reply.done]:
            here = everyone or not all(self.remotes[reply.site].is_busy(reply) for reply in waiting)
            if len(replies) - len(waiting) >= needed or not here or time.monotonic() >= until:
                break
            reply = self._next(until)
            if reply is not None and reply not in replies:
                beside.append(reply)
        return beside

    def _next(self, until: float) -> Reply | None:
        """Take in what happens next: a site speaks, comes or goes; the reply that is complete now."""
        try:
            site, stream, said = self.door.news.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        if stream is None and isinstance(said, Exception):
            raise said
        if site not in self.remotes or stream is None:
            self.say(str(said))
            return None
        remote = self.remotes[site]
        if isinstance(said, Exception):
            self._refuse(remote, stream, said)
        elif said is None:
            if stream is remote.stream:
                remote.leave()
                self.say(f"{site}: away")
        elif not said:
            self._greet(remote, stream)
        elif stream is remote.stream:
            return self._answered(remote, said)
        else:  # over a stream that another one has replaced: what is open is asked again
            self._unheeded([Reply(site, _whole(said))])
        return None

    def _greet(self, remote: Remote, stream: Stream) -> None:
        """A site is here: it joins, at first or again."""
        remote.leave()
        remote.stream = stream
        self.say(f"{remote.id}: here")
        opening = remote.ask([(OPEN, b"")])
        opening.opens = True

    def _answered(self, remote: Remote, frames: list[Frame]) -> Reply | None:
        reply = remote.answered(_whole(frames))
        if reply is not None and reply.opens:
            remote.settle()
        return reply

    def _refuse(self, remote: Remote, stream: Stream, error: Exception) -> None:
        self.node.refuse(Message(remote.id, HUB, "?", 0), str(error))
        self.say(f"refused: {error}")
        if stream is remote.stream:
            remote.stream = None
            remote.leave()

    def _unheeded(self, replies: Sequence[Reply]) -> None:
        """What has come was sent, also where nobody waits for it any more."""
        self.loop.sent(self._messages(replies))

    def _messages(self, replies: Sequence[Reply]) -> list[Message]:
        """What was said; bytes that are no message of that site's are refused."""
        found = []
        for reply in replies:
            for _, content in reply.frames:
                try:
                    message = decode(content)
                except DataError:
                    message = None
                if message is None or message.sender != reply.site:
                    self.node.read(content, reply.site)  # says why
                    self.loop.tally.unread(reply.site, len(content), self.loop.round)
                else:
                    found.append(message)
        return found


def _whole(frames: Sequence[Frame]) -> list[Frame]:
    """Without the frame that stands for an answer of none."""
    return [frame for frame in frames if frame[0]]


def _folder(file: HubFile) -> RunFolder:
    """A new run, or the one that is there: a hub goes on by itself."""
    path = file.folder / "config.toml"
    plain: dict[str, Any] = {**file.terms(), "data": {"name": "network"}}
    if not path.exists():
        write_whole(path, to_toml(plain).encode())
    known = read_toml(path)
    known.pop("data", None)
    if Terms.parse(known).terms() != file.terms():
        raise ConfigError(f"{path}: another run; a run goes on with the same terms: choose another folder")
    return RunFolder(file.folder)
