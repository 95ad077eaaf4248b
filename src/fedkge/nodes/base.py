"""A node: a party that owns its state. It receives messages, returns messages, and raises on none of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.rows import PROTOCOL, Message
from fedkge.exchange.wire import decode
from fedkge.nodes.clock import Clock
from fedkge.nodes.journal import dated
from fedkge.nodes.notes import Declined, Refusal, fit_to_show
from fedkge.nodes.store import Store
from fedkge.nodes.terms import Terms

Event: TypeAlias = dict[str, Any]
UNKNOWN = "?"  #: who brought a message, where nobody says
REFUSALS = 20  #: events about refused messages of one sender that a node notes before the next round


@dataclass(frozen=True)
class Setting:
    """Where a node lives: the run it belongs to, its folder, and who is told what happens.

    Without a folder nothing lasts. `often`: state is written before every answer is given, so that a node
    that is killed answers a repeated question as it did before. A simulation writes all its nodes at once,
    from time to time.
    """

    run: str = ""
    home: Path | None = None
    often: bool = False
    tables: bool = True  #: false: results only; neither tables nor checkpoints are kept
    tell: Callable[[str, Event], None] = lambda node, event: None
    clock: Clock = field(default_factory=Clock)
    account: Path | None = None  #: the folder of its site's own account, for nodes that spend by themselves


class Node(ABC):
    """Someone who answers messages. No sockets, threads or timers: a runtime has those.

    What comes may be wrong in every way. A message is first checked and read, which changes nothing; what
    does not fit is refused with an event, and the run goes on.
    """

    kinds: Mapping[str, Callable[[Message], list[Message]]]  #: what it understands

    def __init__(self, id: str, terms: Terms, setting: Setting) -> None:
        self.id, self.terms, self.setting = id, terms, setting
        self.store = None if setting.home is None else Store(setting.home)
        self.unwritten: list[Event] = []  # for the journal
        self._refusals: Counter[str] = Counter()

    def open(self) -> list[Message]:
        """What is said first, and again after a restart."""
        if self.store is not None and not self.store.rounds():
            self.store.write_config(self.config())
        return []

    def config(self) -> Mapping[str, Any]:
        """What the folder says that the node is."""
        return self.terms.terms()

    @abstractmethod
    def partners(self) -> Collection[str]:
        """From whom messages are taken."""

    def receive(self, message: Message) -> list[Message]:
        """The answers to a message."""
        wrong = self._misaddressed(message)
        if wrong is not None:
            return self.refuse(message, wrong)
        try:
            return self.kinds[message.kind](message)
        except Declined as why:
            return self.decline(message, str(why))
        except Refusal as refusal:
            return self.refuse(message, str(refusal))

    def read(self, data: bytes, sender: str = UNKNOWN) -> list[Message]:
        """The answers to a message in bytes; `sender` is who brought it, as far as that is known."""
        try:
            message = decode(data)
        except DataError as error:
            return self.refuse(Message(sender, self.id, "?", 0), str(error))
        if sender not in (UNKNOWN, message.sender):
            claimed = f"claims to come from {message.sender[:80]!r}"
            return self.refuse(replace(message, sender=sender), claimed)
        return self.receive(message)

    def expire(self, round: int) -> list[Message]:
        """What is said when the time for a round's answers is up."""
        return []

    def _misaddressed(self, message: Message) -> str | None:
        """Why a message is not for this node, if it is not."""
        if message.protocol != PROTOCOL:
            return f"speaks protocol {message.protocol}, expected {PROTOCOL}: another version of fedkge?"
        if message.run != self.setting.run:
            return "belongs to another run"
        if message.recipient != self.id:
            return f"is for {message.recipient[:80]!r}"
        if message.sender not in self.partners():
            return "comes from a stranger"
        if message.kind not in self.kinds:
            return f"has the unknown kind {message.kind[:80]!r}"
        return None

    def refuse(self, message: Message, why: str) -> list[Message]:
        """Note why a message is not heeded."""
        self._unheeded("refused", message, why)
        return []

    def decline(self, message: Message, why: str) -> list[Message]:
        """Note that one's own policy forbids an answer, and say so to who has asked."""
        self._unheeded("declines", message, why)
        self.write_down()
        return [self.message(message.sender, "refusal", message.round, why=why)]

    def _unheeded(self, event: str, message: Message, why: str) -> None:
        """Whoever floods a node is noted some times only."""
        who = message.sender if message.sender in self.partners() else ""
        self._refusals[who] += 1
        if self._refusals[who] <= REFUSALS:
            sender, kind = fit_to_show(message.sender[:80]), fit_to_show(message.kind[:80])
            self.note({"event": event, "site": sender, "kind": kind, "round": message.round, "why": why})

    def note(self, event: Event) -> None:
        """Something happened: for the journal, and for whoever watches."""
        whole = dated(event)
        self.unwritten.append(whole)
        self.setting.tell(self.id, whole)

    def message(
        self, recipient: str, kind: str, round: int, body: Mapping[str, Tensor] | None = None, **note: Any
    ) -> Message:
        return Message(self.id, recipient, kind, round, body or {}, note, self.setting.run)

    # What lasts

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values that a new process goes on from."""

    @abstractmethod
    def load_state(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None: ...

    @property
    @abstractmethod
    def round(self) -> int:
        """The round that the state is of."""

    def save(self, label: int | None = None) -> None:
        """Write state and journal, and drop earlier checkpoints.

        With a label, as runtimes give it that write several nodes at once, these stay until they are told
        to go, and the runtime sees to it that all is on the disk.
        """
        if self.store is None:
            return
        with self.setting.clock.spending("checkpoint"):
            self.flush(sync=label is None)
            if not self.setting.tables:
                return
            tensors, plain = self.state()
            self.store.save(self.round if label is None else label, tensors, plain, sync=label is None)
            if label is None:
                self.store.forget(self.round)

    def flush(self, sync: bool = True) -> None:
        """Write down what happened; from now on refusals are noted again."""
        self.write_down(sync)
        self._refusals.clear()

    def write_down(self, sync: bool = True) -> None:
        """Write down what happened."""
        if self.store is not None and self.unwritten:
            self.store.journal.append(self.unwritten, sync)
        self.unwritten = []

    def resume(self, round: int | None = None) -> bool:
        """Go on from a checkpoint, the last one unless told; whether there was one."""
        rounds = self.store.rounds() if self.store is not None else []
        if not rounds:
            return False
        assert self.store is not None
        self.load_state(*self.store.load(rounds[-1] if round is None else round))
        return True

    def digest(self) -> str:
        """A short text that changes with anything that lasts."""
        tensors, plain = self.state()
        found = blake2b(repr(sorted(plain.items())).encode(), digest_size=16)
        for name in sorted(tensors):
            tensor = tensors[name].detach().cpu().contiguous()
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
        return found.hexdigest()
