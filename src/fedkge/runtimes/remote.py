"""The hub's end of its streams: sites that come and go, and what each was asked and has not answered."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TypeAlias

from fedkge.errors import FedkgeError
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.hello import HELLO, LONGEST, REFUSAL, HubHello, Refused, SiteHello
from fedkge.runtimes.stream import Frame, Link, Oversized

LAST = 5.0  #: seconds that a refusal has to leave
#: who it is about, over which stream, and what it said; an empty list: it is here; None: it is gone
News: TypeAlias = "tuple[str, Stream | None, list[Frame] | Exception | None]"


@dataclass(eq=False, slots=True)
class Reply:
    """What a site says to one request."""

    site: str
    frames: list[Frame] = field(default_factory=list)
    done: bool = False  #: nothing more will come: it was answered, or is asked again
    answered: bool = False
    opens: bool = False  #: the request was to join


@dataclass(eq=False)
class Stream:
    """A stream to a site that has shown its certificate."""

    link: Link
    fingerprint: str = ""
    outbox: queue.Queue[Sequence[Frame] | None] = field(default_factory=queue.Queue)

    def write_all(self) -> None:
        with suppress(OSError):
            while (frames := self.outbox.get()) is not None:
                self.link.send_parcel(frames)


@dataclass(eq=False)
class Remote:
    """A site as the hub knows it. Its requests are answered in order."""

    id: str
    stream: Stream | None = None
    replies: deque[Reply] = field(default_factory=deque)  #: to requests that it has and has not answered
    lost: list[Reply] = field(default_factory=list)  #: to requests that it does not have: it is away, or was

    def ask(self, frames: Sequence[Frame]) -> Reply:
        reply = Reply(self.id)
        if self.stream is None:
            self.lost.append(reply)
        else:
            self.replies.append(reply)
            self.stream.outbox.put(frames)
        return reply

    def is_busy(self, reply: Reply) -> bool:
        """Whether it has to answer something else first, or is away."""
        return self.stream is None or not self.replies or self.replies[0] is not reply

    def answered(self, frames: list[Frame]) -> Reply | None:
        if not self.replies:
            return None
        reply = self.replies.popleft()
        reply.frames, reply.done, reply.answered = frames, True, True
        return reply

    def leave(self) -> None:
        self.lost += self.replies
        self.replies.clear()
        if self.stream is not None:
            self.stream.outbox.put(None)
            self.stream.link.close()
        self.stream = None

    def settle(self) -> None:
        """It has joined again: what it was asked before is asked again by the hub, and answered then."""
        for reply in self.lost:
            reply.done = True
        self.lost.clear()


class Door:
    """Lets in who connects with a good certificate; what they say, in order, is in `news`."""

    def __init__(
        self,
        listener: socket.socket,
        authority: Authority,
        sites: Sequence[str],
        hello: Callable[[str, str], HubHello],
        most: int,
    ) -> None:
        self.listener, self.authority, self.sites = listener, authority, frozenset(sites)
        self.hello, self.most = hello, most
        self.news: queue.Queue[News] = queue.Queue()
        self.ended: dict[str, float] = {}  # when a site's last stream ended that was not refused
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                own, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Stream(Link(own)),), daemon=True).start()

    def _serve(self, stream: Stream) -> None:
        site = (stream.link.receive() or b"?").decode(errors="replace")[:80]
        writer = threading.Thread(target=stream.write_all, daemon=True)
        writer.start()
        try:
            if site not in self.sites:
                raise Refused(f"site {site!r} is not one of this run's: {', '.join(sorted(self.sites))}")
            stream.fingerprint = self._welcomed(stream, site)
            self.news.put((site, stream, []))
            while (parcel := stream.link.receive_parcel(self.most)) is not None:
                if stream.fingerprint in self.authority.revoked():
                    raise Refused(f"the certificate of {site!r} was revoked")
                self.news.put((site, stream, parcel or [(b"", b"")]))
        except (FedkgeError, Oversized) as error:
            stream.outbox.put([(REFUSAL, str(error).encode())])
            self.news.put((site, stream, error))
        except ConnectionError:
            self.ended[site] = time.time()
        else:
            self.ended[site] = time.time()
        stream.outbox.put(None)
        writer.join(LAST)
        stream.link.close()
        self.news.put((site, stream, None))

    def _welcomed(self, stream: Stream, site: str) -> str:
        """The fingerprint of the certificate that a site shows."""
        nonce = token_hex(16)
        hello = self.hello(site, nonce)
        stream.outbox.put([(HELLO, hello.packed())])
        answer = stream.link.receive_parcel(LONGEST)
        if answer is None:
            raise ConnectionError(site)
        kinds = [kind for kind, _ in answer]
        if kinds == [REFUSAL]:
            raise Refused(f"site {site!r} refuses: {answer[0][1].decode(errors='replace')[:2000]}")
        if kinds != [HELLO]:
            raise Refused(f"site {site!r} does not say who it is")
        fingerprint = SiteHello.check(answer[0][1], self.authority, site, hello.run, nonce)
        if fingerprint in self.authority.revoked():
            raise Refused(f"the certificate of {site!r} was revoked")
        return fingerprint
