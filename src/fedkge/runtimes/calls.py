"""Messages between peers: gRPC with mutual TLS, in which everybody is known by the certificate on file."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.exchange.rows import Message
from fedkge.exchange.wire import encode
from fedkge.nodes.base import Event
from fedkge.nodes.notes import fit_to_show
from fedkge.runs.peering import PeerFile
from fedkge.runtimes.keys import Certificate, fingerprint_of_pem

SERVICE, METHOD = "fedkge.Peer", "Say"
WAITING = 256  #: messages of one peer that wait to be read; more are refused until there is room
TRIES, PAUSE = 5, 0.3  #: a message is sent so often, with pauses that double, before it is lost
CLOSING = 5.0  #: seconds in which a peer that leaves sends what still waits


def grpc_package() -> Any:
    """Imported where it is used."""
    try:
        import grpc
    except ImportError:
        raise MissingPackage("grpcio", "a network of peers", "peers") from None
    return grpc


@dataclass(frozen=True)
class Credentials:
    """A peer's own key and certificate, and those of its partners."""

    key: bytes
    own: Certificate
    partners: Mapping[str, Certificate]

    @classmethod
    def of(cls, file: PeerFile) -> Credentials:
        try:
            key = file.key.read_bytes()
        except OSError as error:
            raise DataError(f"key: {file.key}: {error.strerror}; make one with `fedkge keys new`") from None
        partners = {name: Certificate.read(one.certificate) for name, one in file.peers.items()}
        for name, certificate in partners.items():
            if certificate.name != name:
                raise ConfigError(
                    f"peers.{name}: its certificate is of {certificate.name!r}; expected one of {name!r}"
                )
        own = Certificate.read(file.certificate)
        if own.name != file.name:
            raise ConfigError(f"certificate: {file.certificate} is of {own.name!r}; expected {file.name!r}")
        if not own.fits(key):
            raise ConfigError(f"key: {file.key} is not the key of {file.certificate}")
        return cls(key, own, partners)

    def sender(self, context: Any) -> str | None:
        """Who is on the other end: the peer whose certificate it showed, not what it says."""
        shown = fingerprint_of_pem((context.auth_context().get("x509_pem_cert") or [b""])[0])
        return next((n for n, one in self.partners.items() if one.fingerprint == shown), None)


class Inbox:
    """Messages that came, in order; of one peer only so many, and so many bytes, wait."""

    def __init__(self, most: int) -> None:
        self.messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._lock, self._waiting, self._bytes = threading.Lock(), Counter[str](), Counter[str]()
        self._most = 2 * most  # bytes: one is answered while another comes

    def put(self, sender: str, data: bytes) -> bool:
        with self._lock:
            if self._waiting[sender] >= WAITING or self._bytes[sender] + len(data) > self._most:
                return False
            self._waiting[sender] += 1
            self._bytes[sender] += len(data)
        self.messages.put((sender, data))
        return True

    def get(self, timeout: float) -> tuple[str, bytes] | None:
        try:
            sender, data = self.messages.get(timeout=timeout)
        except queue.Empty:
            return None
        with self._lock:
            self._waiting[sender] -= 1
            self._bytes[sender] -= len(data)
        return sender, data


class Outbox(threading.Thread):
    """Sends what is for one peer, in order; what cannot be delivered is lost, and the handshake copes."""

    def __init__(self, address: str, credentials: Credentials, name: str, most: int) -> None:
        super().__init__(daemon=True)
        self.grpc = grpc_package()
        self.waiting: queue.Queue[Message | None] = queue.Queue()
        self.lost, self.ended = 0, False
        self.why = ""  #: why the last message was lost; empty if it was not
        there = credentials.partners[name]
        secure = self.grpc.ssl_channel_credentials(there.pem, credentials.key, credentials.own.pem)
        options = [
            ("grpc.ssl_target_name_override", there.host),
            ("grpc.max_send_message_length", most),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        self.channel = self.grpc.secure_channel(address, secure, options)
        self._say = self.channel.unary_unary(f"/{SERVICE}/{METHOD}")

    def run(self) -> None:
        while (message := self.waiting.get()) is not None and not self.ended:
            if not self._sent(encode(message)):
                self.lost += 1

    def _sent(self, data: bytes) -> bool:
        why = "the peer ends"
        for attempt in range(TRIES):
            try:
                self._say(data, timeout=30)
                self.why = ""
                return True
            except self.grpc.RpcError as error:
                why = fit_to_show(str(error.details()))
                time.sleep(PAUSE * 2**attempt)
            except ValueError:  # the channel was closed meanwhile
                break
        self.why = why
        return False

    def end(self, seconds: float) -> None:
        """What waits is sent, for so many seconds; the rest is lost."""
        self.waiting.put(None)
        self.join(seconds)
        self.ended = True
        self.channel.close()


class Network:
    """A peer's server, and a way to each partner."""

    def __init__(self, file: PeerFile) -> None:
        self.grpc, self.credentials, most = grpc_package(), Credentials.of(file), file.most << 20
        self.inbox = Inbox(most)
        self.refused: Counter[tuple[str, str]] = Counter()  # by peer and reason; strangers fail in TLS
        self._said: Counter[tuple[str, str]] = Counter()  # the same, as far as it was told
        self._down: set[str] = set()  # peers that could not be reached, as far as it was told
        self.most = file.most
        self.server = self.grpc.server(
            ThreadPoolExecutor(4 + len(file.peers)),
            options=[("grpc.max_receive_message_length", most), ("grpc.so_reuseport", 0)],
        )
        handler = self.grpc.stream_unary_rpc_method_handler(self._received)
        self.server.add_generic_rpc_handlers(
            (self.grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )
        roots = b"".join(one.pem for one in self.credentials.partners.values())
        own = (self.credentials.key, self.credentials.own.pem)
        secure = self.grpc.ssl_server_credentials([own], roots, require_client_auth=True)
        try:
            self.port = self.server.add_secure_port(file.listen, secure)
        except RuntimeError as error:
            raise ConfigError(f"listen: {file.listen}: {error}") from None
        self.server.start()
        self.ways = {
            name: Outbox(one.address, self.credentials, name, most) for name, one in file.peers.items()
        }
        for way in self.ways.values():
            way.start()

    def _received(self, stream: Iterator[bytes], context: Any) -> bytes:
        """One message. It is read as a stream, which has none where gRPC found it too large."""
        codes, sender = self.grpc.StatusCode, self.credentials.sender(context)
        if sender is None:
            self._abort("", codes.UNAUTHENTICATED, "unknown key", context)
        elif (data := self._first(stream)) is None:
            why = f"a message of more than {self.most} megabytes (most), or none"
            self._abort(sender, codes.RESOURCE_EXHAUSTED, why, context)
        elif not self.inbox.put(sender, data):
            self._abort(sender, codes.RESOURCE_EXHAUSTED, "too many messages wait already", context)
        return b""

    def _first(self, stream: Iterator[bytes]) -> bytes | None:
        try:
            return next(stream, None)
        except self.grpc.RpcError:
            return None

    def _abort(self, sender: str, code: Any, why: str, context: Any) -> None:
        self.refused[sender, why] += 1
        context.abort(code, why)

    def news(self) -> list[Event]:
        """What was refused, and who can no longer be reached, since this was last asked."""
        events: list[Event] = []
        for (sender, why), count in list(self.refused.items()):
            if new := count - self._said[sender, why]:
                self._said[sender, why] = count
                what = {"site": sender, "kind": "?", "round": 0, "why": why, "times": new}
                events.append({"event": "refused", **what})
        for name, way in self.ways.items():
            if not way.why:
                self._down.discard(name)
            elif name not in self._down:
                self._down.add(name)
                events.append({"event": "unreachable", "partner": name, "why": way.why})
        return events

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.ways[message.recipient].waiting.put(message)

    def close(self) -> None:
        until = time.monotonic() + CLOSING
        for way in self.ways.values():
            way.end(max(0.0, until - time.monotonic()))
        self.server.stop(1).wait()
