"""A site and the hub's questions: each is read whole, checked for its order, and heeded only then."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import replace
from hashlib import blake2b

from fedkge.errors import DataError
from fedkge.exchange.channel import serial
from fedkge.exchange.rows import Message
from fedkge.exchange.wire import encode
from fedkge.nodes.accept import Accept
from fedkge.nodes.announcing import Announcing
from fedkge.nodes.base import Setting
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import Learner
from fedkge.nodes.notes import Declined, Question, Refusal, question, reading
from fedkge.nodes.terms import Terms

AGAIN = 8  #: times that a round is measured again for a hub that says something else each time


class Hearing(Announcing):
    """A site that is asked. What it does with a question that it has heard is `SiteNode`."""

    def __init__(
        self,
        id: str,
        terms: Terms,
        learner: Learner,
        identity: Identity,
        setting: Setting,
        accept: Accept,
    ) -> None:
        super().__init__(id, terms, learner, identity, setting, accept)
        self.measured = -1  # the round that was last measured
        self.kept: dict[str, int] = {}  # view -> the round whose tables are kept
        self.answers: dict[str, Message] = {}  # kind of question -> what was answered to the last one
        self.words: str | None = None  # a digest of the last question to measure, in a process of its own
        self.again = 0  # times that it was asked in other words
        self.stopped = False

    @abstractmethod
    def _heed(self, asked: Question, kind: str, again: bool = False) -> None:
        """Do what a question says of the answers before it."""

    def _heard(self, message: Message) -> Question | None:
        """A question, read as a whole and only then heeded; none if it was answered before."""
        if self.unwilling is not None:
            raise Declined(self.unwilling)
        if not self.ready:
            raise Refusal("asks before it has said which rows are shared")
        words, answered = self._words(message), bool(self._answered(message))
        again = answered and words is not None and words != self.words
        if answered and not again:
            self.note({"event": "repeated", "kind": message.kind, "round": message.round})
            return None
        self._check_order(message, again)
        with reading():
            asked = self._question(message, self.site.dials)
            read = self.channel.read(message.body)
            if asked.held and message.body:
                raise DataError("says that the answer before still holds, and sends rows")
        self.words, self.again = words, self.again + 1 if again else 0
        self._heed(asked, message.kind, again)
        self.asked = message.round
        update = {} if asked.held else self.channel.accept(read, serial(message.kind, message.round))
        return replace(asked, update=update)

    def _words(self, message: Message) -> str | None:
        """A digest of a question to measure.

        A hub that was gone may close a round with other answers, and have other rows measured. Training is
        not repeated, whatever the hub says: that would spend privacy again. Nodes that are saved together
        go back together, and need no digest.
        """
        often = self.setting.often and message.kind == "measure"
        return blake2b(encode(message), digest_size=16).hexdigest() if often else None

    def _check_order(self, message: Message, again: bool) -> None:
        now, last = (message.round, message.kind == "measure"), (self.asked, self.measured == self.asked)
        first = int(message.kind == "train")  # before the first round a site may be measured
        early = now < last or (now == last and not again)
        if message.round > self.terms.rounds and not self.stopped:
            raise Declined(f"asks for round {message.round} after round {self.asked}, of {self.terms.rounds}")
        if self.stopped or early or message.round < first:
            raise Refusal(f"asks for round {message.round} after round {self.asked}, of {self.terms.rounds}")
        if again and self.again >= AGAIN:
            raise Refusal(f"has had round {message.round} measured {self.again + 1} times")

    def _question(self, message: Message, dials: Collection[str]) -> Question:
        asked = question(message, dials, self._watched)
        for view, round in asked.best.items():
            if self.kept.get(view) != round and not (self._is_measured and round == self.measured):
                raise DataError(f"best: round {round}, and its tables are gone in round {self.asked}")
        if asked.held and not self._is_measured:
            raise DataError(
                f"says that the answer before still holds, and none came since round {self.asked}"
            )
        return asked

    @property
    def _is_measured(self) -> bool:
        """Whether the tables are those that were measured last."""
        return 0 <= self.measured == self.asked

    @property
    def _watched(self) -> list[str]:
        return [view.name for view in self.method.views() if view.watched]

    def _answered(self, message: Message) -> list[Message]:
        """What was answered to this very question, if it was."""
        stored = self.answers.get(message.kind)
        return [stored] if stored is not None and stored.round == message.round else []
