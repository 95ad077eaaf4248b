"""Parcels between two parties over a socket, or over whatever carries packets between two sockets.

A parcel is a list of frames, as processes exchange them. It travels in packets of at most `PACKET` bytes, so
that whoever carries packets never holds a large message as a whole.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Frame: TypeAlias = tuple[bytes, bytes]  #: a letter for what it is, and its content
PACKET = 16 << 20  #: bytes
_PACKET, _PARCEL, _FRAME = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<cQ")


class Oversized(ValueError):  # noqa: N818 - reads as what it says
    """A parcel that is larger than allowed, or a packet that is none."""


class Link:
    """One end of a socket."""

    def __init__(self, own: socket.socket) -> None:
        self.socket, self.last = own, time.time()  # when a packet last came or went

    @classmethod
    def to(cls, path: str) -> Link:
        """Connect to who listens at a path."""
        own = socket.socket(socket.AF_UNIX)
        own.connect(path)
        return cls(own)

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    # Packets

    def send(self, packet: bytes) -> None:
        self.socket.sendall(_PACKET.pack(len(packet)))
        self.socket.sendall(packet)
        self.last = time.time()

    def receive(self, wait: float | None = None) -> bytes | None:
        """The next packet; None at the end; empty when none has begun to come in so many seconds."""
        if wait is not None and not select.select([self.socket], [], [], wait)[0]:
            return b""
        head = self._exactly(_PACKET.size)
        if head is None:
            return None
        (size,) = _PACKET.unpack(head)
        if not 0 < size <= PACKET:
            raise Oversized(f"a packet of {size:,} bytes, expected 1 to {PACKET:,}")
        self.last = time.time()
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes | None:
        content, there = bytearray(size), 0
        view = memoryview(content)
        while there < size:
            try:
                read = self.socket.recv_into(view[there:])
            except OSError:
                return None
            if not read:
                return None
            there += read
        return bytes(content)

    # Parcels

    def send_parcel(self, frames: Sequence[Frame]) -> None:
        for packet in packets(frames):
            self.send(packet)

    def receive_parcel(self, limit: int) -> list[Frame] | None:
        """The next parcel; None at the end. Nothing is allocated for what is over the limit."""
        first = self.receive()
        if first is None:
            return None
        size = _PARCEL.unpack_from(first)[0] if len(first) >= _PARCEL.size else -1
        if not 0 <= size <= limit:
            raise Oversized(f"a message of {size:,} bytes, expected at most {limit:,}")
        content, there = bytearray(size), 0
        packet: bytes | None = first[_PARCEL.size :]
        while True:
            if packet is None:
                return None
            if there + len(packet) > size:
                raise Oversized(f"a message of more than the {size:,} bytes that it said")
            content[there : there + len(packet)] = packet
            there += len(packet)
            if there == size:
                return list(_frames(memoryview(content)))
            packet = self.receive()


def packets(frames: Sequence[Frame]) -> Iterator[bytes]:
    """A parcel, cut into packets."""
    buffers = [
        memoryview(part) for kind, content in frames for part in (_FRAME.pack(kind, len(content)), content)
    ]
    pieces: list[memoryview] = [memoryview(_PARCEL.pack(sum(map(len, buffers))))]
    room = PACKET - _PARCEL.size
    for buffer in buffers:
        while len(buffer):
            pieces.append(buffer[:room])
            buffer = buffer[room:]  # what is left of it
            room -= len(pieces[-1])
            if not room:
                yield b"".join(pieces)
                pieces, room = [], PACKET
    if pieces:
        yield b"".join(pieces)


def _frames(content: memoryview) -> Iterator[Frame]:
    while len(content):
        if len(content) < _FRAME.size:
            raise Oversized("a frame without a head")
        kind, size = _FRAME.unpack_from(content)
        content = content[_FRAME.size :]
        if size > len(content):
            raise Oversized(f"a frame of {size:,} bytes in a message with {len(content):,} left")
        yield kind, bytes(content[:size])
        content = content[size:]


def listen(path: Path) -> socket.socket:
    """A socket that others of the same user connect to."""
    own = socket.socket(socket.AF_UNIX)
    own.bind(str(path))
    own.listen(16)
    return own
