"""`fedkge site`: one site in one long-lived process, which answers what a hub asks over NVIDIA FLARE."""

from __future__ import annotations

import json
import queue
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from fedkge.config import read_toml
from fedkge.errors import ConfigError, DataError, FedkgeError
from fedkge.exchange.rows import HUB
from fedkge.exchange.wire import encode
from fedkge.nodes.base import Event
from fedkge.nodes.ledgers import ledger_at
from fedkge.nodes.site import SiteNode
from fedkge.nodes.store import locked
from fedkge.nodes.terms import Terms
from fedkge.privacy.ledger import Ledger
from fedkge.runs.account import account_of
from fedkge.runs.aligning import checked_secret
from fedkge.runs.kit import NODE, pack_site, unpack
from fedkge.runs.network import SiteFile
from fedkge.runs.peering import read_own_graph
from fedkge.runtimes.engine import Engine, check_installed
from fedkge.runtimes.flare_files import write_site
from fedkge.runtimes.hello import END, HELLO, MESSAGE, OPEN, REFUSAL, HubHello, Refused, SiteHello
from fedkge.runtimes.kits import Kit
from fedkge.runtimes.node import LOCK
from fedkge.runtimes.signals import on_signals
from fedkge.runtimes.stream import Frame, Link, Oversized, listen

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)  #: seconds before FLARE is started again, the first times
UNFIT = "cannot take part in this run; the site's own console says why"  #: all that a hub is told
LINGER = 3.0  #: seconds that the last words have to reach the hub


class Site:
    """A site's process: the node, a socket that FLARE's process connects to, and FLARE.

    Streams come and go with FLARE's jobs; the node stays. What was asked over an earlier stream is answered
    to nobody: a hub that comes back asks again, and the node knows what it has answered.
    """

    def __init__(self, file: SiteFile, device: torch.device, say: Callable[[str], None] = print) -> None:
        check_installed()
        self.file, self.device, self.say = file, device, say
        self.kit, self.key = Kit.read(file.kit), _read_key(file.key)
        self.kit.check_key(self.key, file.key)
        self.name = self.kit.name
        self.graph = read_own_graph(file.graph)
        if file.align.secret is not None:
            checked_secret(file.align.secret)
        self.node: SiteNode | None = None
        self.inbox: queue.Queue[tuple[Link, list[Frame] | None]] = queue.Queue()
        self.link: Link | None = None
        self.ended, self._signals = False, 0

    # Processes

    def play(self) -> bool:
        """Until the hub says that the run is over, or a signal asks for the end; whether the run is over."""
        self.file.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.file.folder / LOCK) as free, on_signals(self._asked):
            if not free:
                raise ConfigError(f"folder: {self.file.folder}: another process is this site; wait for it")
            workspace = self.file.folder / "flare"
            shutil.rmtree(workspace, ignore_errors=True)
            write_site(workspace, self.kit, self.key)
            with tempfile.TemporaryDirectory(prefix="fedkge-") as place:  # the path of a socket must be short
                path = Path(place) / "site"
                listener = listen(path)
                threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
                engine = Engine("client", workspace, self.name, path)
                try:
                    self._talk(engine)
                finally:
                    engine.stop()
                    listener.close()
        return self.ended

    def _asked(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            raise KeyboardInterrupt
        self.say(f"{self.name}: leaves when the question at hand is answered; once more leaves at once")

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                own, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(Link(own),), daemon=True).start()

    def _read(self, link: Link) -> None:
        try:
            while (parcel := link.receive_parcel(self.file.most << 20)) is not None:
                self.inbox.put((link, parcel))
        except Oversized as error:
            self.say(f"{self.name}: the hub sends {error}: cut off")
            link.close()
        self.inbox.put((link, None))

    def _talk(self, engine: Engine) -> None:
        starts, since = 0, 0.0
        while not (self.ended or self._signals):
            if not engine.runs and time.monotonic() >= since:
                if starts:
                    self.say(f"{self.name}: FLARE has ended ({engine.said()}); it is started again")
                engine.start()
                since = time.monotonic() + PAUSES[min(starts, len(PAUSES) - 1)]
                starts += 1
            try:
                link, parcel = self.inbox.get(timeout=0.5)
            except queue.Empty:
                continue
            if parcel is not None:
                starts = 1
                self._hear(link, parcel)
        if self.ended:  # the hub hears that this site knows
            with suppress(queue.Empty):
                while self.inbox.get(timeout=LINGER)[1] is not None:
                    pass

    # Messages

    def _hear(self, link: Link, parcel: list[Frame]) -> None:
        kinds = [kind for kind, _ in parcel]
        if kinds == [REFUSAL]:
            raise Refused(f"the hub refuses this site: {parcel[0][1].decode(errors='replace')[:2000]}")
        if kinds == [HELLO]:
            self._welcome(link, parcel[0][1])
        elif link is not self.link or self.node is None:
            return  # of a stream that another one has replaced
        else:
            said = [one for kind, content in parcel for one in self._answers(kind, content)]
            self._send(link, [(MESSAGE, one) for one in said])
            if why := self.node.unwilling or self.node.turned_down:
                time.sleep(LINGER)
                raise Refused(f"takes no part: {why}")

    def _send(self, link: Link, frames: list[Frame]) -> None:
        with suppress(OSError):  # a hub that comes back asks again
            link.send_parcel(frames)

    def _answers(self, kind: bytes, content: bytes) -> list[bytes]:
        assert self.node is not None
        if kind == END:
            self.ended = True
            return []
        if kind not in (OPEN, MESSAGE):
            return []
        said = self.node.open() if kind == OPEN else self.node.read(content, HUB)
        return [encode(message) for message in said]

    def _welcome(self, link: Link, content: bytes) -> None:
        """A new stream: the hub says what is trained, and this site whether it takes part.

        The hub is told what is wrong with its own words. An error about the site's data may name a person.
        """
        told = None
        try:
            hub = HubHello.read(content)
            terms = Terms.parse(hub.terms)
            told = UNFIT
            self._begin(hub, terms)
        except FedkgeError as error:
            self._send(link, [(REFUSAL, (told or str(error))[:2000].encode())])
            time.sleep(LINGER)
            raise Refused(f"refuses the hub: {error}") from None
        self.link = link
        self._send(link, [(HELLO, SiteHello.of(hub, self.name, self.kit.certificate, self.key).packed())])

    def _begin(self, hub: HubHello, terms: Terms) -> None:
        """Be the node of this run: the one at hand, the one in the folder, or a new one."""
        home = self.file.folder
        if (home / NODE).exists():
            about = json.loads((home / NODE).read_text(encoding="utf-8"))
            if about["run"] != hub.run:
                raise ConfigError(f"folder: {home}: holds another run of this site; choose another folder")
            if Terms.parse(read_toml(home / "config.toml")) != terms:
                raise ConfigError(
                    f"folder: {home}: the run had other terms when it began; choose another folder"
                )
        if self.node is not None:
            return
        experiment = self.file.experiment(terms)
        member, identity = self.file.sources(self.name, self.graph, experiment)
        if hub.round and terms.privacy.noisy:
            Ledger(ledger_at(home)).check_begun(home)
        account = account_of(experiment, self.name)
        accept = self.file.accept
        pack_site(home, terms, hub.run, self.name, identity, member, None, self.device, account, accept)
        node = unpack(home, self._tell)
        assert isinstance(node, SiteNode)
        self.node = node

    def _tell(self, node: str, event: Event) -> None:
        words = told(event)
        if words:
            self.say(f"{self.name}: {words}")


def told(event: Event) -> str | None:
    """An event in a line, for whoever waits."""
    words: dict[str, Callable[[], str]] = {
        "trained": lambda: f"round {event['round']}: trained in {event['seconds']:.1f} s",
        "diverged": lambda: f"round {event['round']}: {event['why']}; it goes on without this site",
        "refused": lambda: f"refused {event['kind']} of {event['site']}: {event['why']}",
        "repeated": lambda: f"round {event['round']}: {event['kind']} was asked again",
    }
    found = words.get(event["event"])
    return None if found is None else found()


def _read_key(path: Path) -> bytes:
    try:
        if path.stat().st_mode & 0o077:
            raise DataError(f"key: {path}: others may read it; chmod 600")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"key: {path}: {error.strerror}; make one with `fedkge keys request`") from None
