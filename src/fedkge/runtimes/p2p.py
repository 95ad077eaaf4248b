"""A peer on the network: it reads what comes, works in between, and is told when time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fedkge.durable import locked
from fedkge.errors import ConfigError
from fedkge.exchange.rows import Message
from fedkge.nodes.base import Event
from fedkge.nodes.peer import PeerNode
from fedkge.runs.peering import PeerFile, peer_of
from fedkge.runtimes.calls import Network
from fedkge.runtimes.node import LOCK
from fedkge.runtimes.signals import on_signals

LINGER = 20.0  #: seconds that a peer that has ended tells the others so
BEAT = 0.05  #: seconds between two looks at the clock
AT_ONCE = 64  #: messages that are read before a peer does something of its own, whoever floods it
LOOK = 1.0  #: seconds between two looks at what the network has refused


@contextmanager
def alone(file: PeerFile) -> Iterator[None]:
    """Keep other processes out of a peer's folder; the lock is gone with the process, however it ends."""
    with locked(file.folder / LOCK) as free:
        if not free:
            raise ConfigError(f"{file.folder}: another process is this peer; wait for it, or end it")
        yield


class PeerRuntime:
    """Plays one peer: reads what comes, lets it work in between, and tells it when time is up."""

    def __init__(self, file: PeerFile, device: torch.device, tell: Any = lambda node, event: None) -> None:
        self.file, self._tell = file, tell
        self.heard: dict[str, float] = {}
        self.ended = False
        self.node: PeerNode = peer_of(file, device, self._event)
        self.resumed = self.node.resume()
        self.network = Network(file)

    def _event(self, node: str, event: Event) -> None:
        self._tell(node, event)

    def play(self) -> None:
        """Until nobody improves any more, or a signal asks for the end; the folder has all that matters."""
        began = time.monotonic()
        self.heard = dict.fromkeys(self.file.peers, began)
        with on_signals(self._asked):
            try:
                self.network.send(self.node.open())
                self._talk()
                self._linger()
            finally:
                self.node.flush()
                self.network.close()

    def _talk(self) -> None:
        node, since, beat, wait = self.node, time.monotonic(), time.monotonic(), 0.0
        looked, read = since, 0
        waits = node.awaits
        while not (node.stopped or self.ended):
            out = self._read(wait) if read < AT_ONCE else None
            if out is None:
                if read < AT_ONCE and time.monotonic() - looked > LOOK:  # all that came was read
                    looked = time.monotonic()
                    self._look(looked)
                out, read = node.work(), 0
                wait = 0.0 if out else BEAT
            else:
                wait, read = 0.0, read + 1
            now = time.monotonic()
            if waits != node.awaits:  # other messages, as reports are, do not prolong the wait
                waits, since = node.awaits, now
            if waits is not None and now - since > self.file.timeout:
                out, since = [*out, *node.expire(0)], now
            elif out:
                beat = now
            elif waits is None and now - beat > self.file.nap:
                out, beat = node.expire(0), now
            self.network.send(out)

    def _read(self, wait: float) -> list[Message] | None:
        """The answers to the next message; none if there is no message."""
        found = self.network.inbox.get(wait) if wait else self._at_hand()
        if found is None:
            return None
        sender, data = found
        self.heard[sender] = time.monotonic()
        return self.node.read(data, sender)

    def _at_hand(self) -> tuple[str, bytes] | None:
        return None if self.network.inbox.messages.empty() else self.network.inbox.get(BEAT)

    def _look(self, now: float) -> None:
        """What the network has refused, whom it does not reach, and who was not heard of for long."""
        for event in self.network.news():
            self.node.note(event)
        for name, last in self.heard.items():
            if now - last > self.file.absence and name not in self.node.shakes.news.gone:
                self.node.note({"event": "absent", "partner": name, "seconds": round(now - last)})
                self.node.shakes.lost(name)

    def _linger(self) -> None:
        """Tell the others, until they have all ended too or some time has passed."""
        until, told = time.monotonic() + LINGER, 0.0
        while time.monotonic() < until and not self.ended:
            if self._read(BEAT) is None and time.monotonic() - told > 1.0:
                self.network.send(self.node.expire(0))
                told = time.monotonic()
            if all(self._has_ended(name) for name in self.file.peers):
                break

    def _has_ended(self, name: str) -> bool:
        report = self.node.shakes.news.reports.get(name)
        return (report is not None and report.over) or self.network.ways[name].lost > 0

    def _asked(self, number: int) -> None:
        self.ended = True
