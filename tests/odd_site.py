"""A site that is slow, or says what it should not: `python odd_site.py SITE.toml`, with the oddity in ODD."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import fedkge
from fedkge.errors import FedkgeError
from fedkge.exchange.rows import Message
from fedkge.exchange.wire import decode, encode
from fedkge.nodes.learner import Learner
from fedkge.runs.network import SiteFile
from fedkge.runtimes.hello import MESSAGE
from fedkge.runtimes.network_site import Site


def values(message: Message, change: Callable[[torch.Tensor], torch.Tensor]) -> Message:
    body = {name: change(t) if t.is_floating_point() else t for name, t in message.body.items()}
    return replace(message, body=body)


#: what becomes of an upload's bytes
FORGERIES: dict[str, Callable[[Message, list[bytes]], bytes]] = {
    "corrupt": lambda m, before: encode(m)[:100] + b"\xff" * 40 + encode(m)[140:],
    "replay": lambda m, before: before[0],
    "oversized": lambda m, before: bytes(3 << 20),
    "another-run": lambda m, before: encode(replace(m, run="0123456789abcdef")),
    "another-protocol": lambda m, before: encode(replace(m, protocol=m.protocol + 1)),
    "another-name": lambda m, before: encode(replace(m, sender="b" if m.sender == "a" else "a")),
    "nan": lambda m, before: encode(values(m, lambda t: t * float("nan"))),
    "huge": lambda m, before: encode(values(m, lambda t: torch.full_like(t, 1e30))),
    "foreign-rows": lambda m, before: encode(
        replace(m, body={name: torch.cat([t, t[:1]]) for name, t in m.body.items()})
    ),
}


class OddSite(Site):
    """Answers as a site does; then its uploads after the first are forged."""

    def __init__(self, *given: Any, odd: str = "") -> None:
        super().__init__(*given)
        self.odd = odd or os.environ["ODD"]
        self.before: list[bytes] = []

    def _answers(self, kind: bytes, content: bytes) -> list[bytes]:
        if self.odd == "mute" and kind == MESSAGE and decode(content).kind != "shared":
            return []
        out = super()._answers(kind, content)
        for number, said in enumerate(out):
            message = decode(said)
            if message.kind == "upload" and self.odd in FORGERIES:
                self.before.append(said)
                if message.round > 1:
                    out[number] = FORGERIES[self.odd](message, self.before)
        return out


def counted(fit: Callable[..., Any], path: Path) -> Callable[..., Any]:
    """Training that notes, for itself, when a round begins and ends; and then waits before it answers."""

    def note(text: str) -> None:
        with path.open("a") as file:
            file.write(text + "\n")

    def counting(self: Learner, round: int, *given: Any) -> Any:
        note(f"begins {round}")
        found = fit(self, round, *given)
        note(f"ends {round}")
        time.sleep(2.0)
        return found

    return counting


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    odd, _, amount = os.environ["ODD"].partition(":")
    if odd == "slow":
        fit = Learner.fit

        def slowly(self: Learner, *given: Any) -> Any:
            time.sleep(float(amount))
            return fit(self, *given)

        Learner.fit = slowly  # type: ignore[method-assign]
    if odd == "counted":
        Learner.fit = counted(Learner.fit, Path(sys.argv[1]).with_suffix(".fits"))  # type: ignore[method-assign]
    if odd == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(amount), int(amount)))
    if odd == "version":
        fedkge.__version__ = amount
    try:
        OddSite(SiteFile.read(Path(sys.argv[1])), torch.device("cpu"), say).play()
    except FedkgeError as error:
        say(f"error: {error}")
        sys.exit(2)


if __name__ == "__main__":
    main()
