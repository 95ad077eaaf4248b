"""One node in a process of its own: `python -m fedkge.runtimes.node FOLDER`, frames in, frames out."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import IO

from fedkge.errors import FedkgeError
from fedkge.exchange.wire import encode
from fedkge.nodes.base import Event, Node
from fedkge.nodes.store import locked
from fedkge.runs.kit import unpack
from fedkge.runtimes.processes import (
    DONE,
    END,
    EVENT,
    EXPIRE,
    FAILURE,
    MESSAGE,
    OPEN,
    read_frame,
    write_frame,
)

LOCK = ".lock"
LOCKED = 60.0  #: seconds that a process waits for another one of the same node to end


def serve(home: Path, requests: IO[bytes], answers: IO[bytes]) -> int:
    """Answer until told to end, or until whoever asks is gone. One process at a time is a node."""
    with locked(home / LOCK, wait=LOCKED) as free:
        if not free:
            why = f"{home}: another process has been this node for {LOCKED:.0f} s; wait for it, or end it"
            write_frame(answers, FAILURE, why.encode())
            return 2
        return _answer(home, requests, answers)


def _answer(home: Path, requests: IO[bytes], answers: IO[bytes]) -> int:
    events: list[Event] = []
    node: Node | None = None
    while (frame := read_frame(requests)) is not None and frame[0] != END:
        kind, content = frame
        try:
            node = node or unpack(home, lambda _, event: events.append(event))
            if kind == OPEN:
                out = node.open()
            elif kind == EXPIRE:
                out = node.expire(int(content))
            else:
                assert kind == MESSAGE
                out = node.read(content)
        except FedkgeError as error:
            write_frame(answers, FAILURE, str(error).encode())
            return 2
        for event in events:
            write_frame(answers, EVENT, json.dumps(event).encode())
        events.clear()
        for message in out:
            write_frame(answers, MESSAGE, encode(message))
        write_frame(answers, DONE)
    return 0


def main() -> None:
    """Standard output carries frames; what is printed goes to standard error.

    Signals are for the process that carries the messages, which ends this one in order.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.exit(serve(Path(sys.argv[1]), sys.stdin.buffer, answers))


if __name__ == "__main__":
    main()
