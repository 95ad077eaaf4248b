"""Carries messages between nodes until nobody has anything left to say. Every runtime plays this loop."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from fedkge.errors import FedkgeError
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.tally import Tally
from fedkge.methods import Member
from fedkge.nodes.clock import Clock
from fedkge.nodes.terms import Participation
from fedkge.randomness import generator
from fedkge.runtimes.record import Record
from fedkge.runtimes.rhythm import Rhythm
from fedkge.runtimes.signals import on_signals

Tap: TypeAlias = Callable[[Message], None]  #: hears every message that is sent, in order
QUESTIONS = ("train", "stop")


class Interrupted(FedkgeError):  # noqa: N818 - reads as what it says
    """A signal asked for the end; everything is on the disk."""


class Carrier(ABC):
    """Where the nodes of a run are: in this process, or in others."""

    members: Mapping[str, Member]
    record: Record
    start: dict[str, Any] | None  #: what is told of the run whose tables this one began with
    round: int  #: the last that was closed before it was resumed
    loop: Loop

    def play(self, until: Callable[[int], bool] = lambda round: False) -> None:
        """See `Loop.play`."""
        self.loop.play(until)

    @abstractmethod
    def open(self) -> list[Message]:
        """What the sites say first."""

    @abstractmethod
    def deliver(self, messages: Sequence[Message]) -> list[Message]:
        """The answers; those to questions to train come last, in the order of the sites' names."""

    def reaches(self, message: Message) -> bool:
        """Whether a message can leave now. A site that is away is asked again when it is back."""
        return True

    @abstractmethod
    def expire(self, round: int) -> list[Message]:
        """What the hub says when the time for a round's answers is up."""

    @abstractmethod
    def save(self, round: int) -> None:
        """Have every node write its state, as it is between two rounds."""


class Loop:
    """Rounds, from the first announcement to the end; `tap` hears every message.

    Between rounds nothing is under way but questions, which the hub would ask again: then nodes are saved,
    if `save_every` seconds or more have passed (`Rhythm`), and a signal ends the run.
    """

    def __init__(
        self,
        carrier: Carrier,
        participation: Participation,
        seed: int,
        record: Record,
        save_every: float,
        resumed: bool = False,
        tap: Tap | None = None,
    ) -> None:
        self.carrier, self.participation, self.seed = carrier, participation, seed
        self.record, self.rhythm, self.tap = record, Rhythm(save_every), tap
        self.round = 0
        self._again = (
            resumed  # what is said before the first question was counted before the run was interrupted
        )
        self._signal: int | None = None

    @property
    def tally(self) -> Tally:
        return self.record.tally

    @property
    def clock(self) -> Clock:
        return self.record.clock

    def play(self, until: Callable[[int], bool] = lambda round: False) -> None:
        """Until everyone has stopped, or before the first round that `until` holds for."""
        with self._signals():
            mail = self.carrier.open() or self.carrier.expire(0)
            while mail:
                mail = self._settled(mail)
                if any(message.kind == "train" and until(message.round) for message in mail):
                    self.sent(mail)
                    return
                if all(message.kind in QUESTIONS for message in mail):
                    self._between_rounds(mail)
                mail = self._arrivals(self._deliver(mail))
                if not mail:
                    mail = self.carrier.expire(self.round)
        if self.record.failed is not None:
            raise FedkgeError(self.record.failed)
        if not self.record.courses:
            raise FedkgeError(
                "the hub does not answer any more; --resume goes on from what all nodes have saved"
            )

    def _settled(self, mail: list[Message]) -> list[Message]:
        """Who shares what is told before anything is asked."""
        first = [message for message in mail if message.kind == "shared"]
        rest = [message for message in mail if message.kind != "shared"]
        return self._deliver(first) + rest if first else rest

    def _deliver(self, mail: Sequence[Message]) -> list[Message]:
        self.sent(
            [message for message in mail if message.kind != "stop"]
        )  # these were counted between rounds
        return self.carrier.deliver(mail)

    def sent(self, mail: Sequence[Message]) -> None:
        """Count what is sent, and let who listens hear it."""
        for message in mail:
            if message.sender == HUB:
                self.round = max(self.round, message.round)
            if not self.carrier.reaches(message):
                continue
            again = self._again and message.kind in ("join", "shared", "stop")
            self.tally.count(message, again, self.round)
            if self.tap is not None:
                self.tap(message)

    def _arrivals(self, answers: list[Message]) -> list[Message]:
        """Where not everyone is waited for, uploads come in a random order, and some get lost."""
        uploads = [message for message in answers if message.kind == "upload"]
        if not uploads or (self.participation.quorum == 1 and self.participation.dropout == 0):
            return answers
        random = generator(self.seed, "arrivals", uploads[0].round)
        lost = random.random(len(uploads)) < self.participation.dropout
        self.sent(
            [message for message, gone in zip(uploads, lost.tolist(), strict=True) if gone]
        )  # all the same
        here = [uploads[i] for i in random.permutation(len(uploads)).tolist() if not lost[i]]
        return [message for message in answers if message.kind != "upload"] + here

    def _between_rounds(self, mail: Sequence[Message]) -> None:
        self.sent([message for message in mail if message.kind == "stop"])
        final = not any(message.kind == "train" for message in mail)
        self._again = self._again and final
        self.record.write()
        if final or self._signal is not None or self.rhythm.due:
            with self.rhythm.saving():
                self.carrier.save(self.round)
        if self._signal is not None and not final:
            raise Interrupted(signal.Signals(self._signal).name)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first signal lets the round end and writes a checkpoint; a second one is not waited for."""

        def asked(number: int) -> None:
            if self._signal is not None:
                raise KeyboardInterrupt
            self._signal = number
            self.record.say("the round is ended and saved before this run is left; once more leaves at once")

        with on_signals(asked):
            yield
