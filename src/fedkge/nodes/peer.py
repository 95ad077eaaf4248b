"""A peer: a site without a hub. It trains, meets others, adopts, and goes back where that was no gain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from torch import Tensor

from fedkge.durable import json_text
from fedkge.errors import DataError
from fedkge.exchange.hops import Parcel
from fedkge.exchange.rows import Message, under
from fedkge.graphs.graph import Axis
from fedkge.methods.conversation import converse
from fedkge.methods.ends import Aligned, End, Heard, Keys
from fedkge.methods.fkge import FKGE
from fedkge.methods.handshake import Handshake
from fedkge.methods.lines import Effect, Line
from fedkge.nodes.backtrack import Backtracking
from fedkge.nodes.base import Node, Setting
from fedkge.nodes.chat import Chat
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import Learner
from fedkge.nodes.ledgers import RESULT
from fedkge.nodes.notes import Refusal, reading
from fedkge.nodes.peer_notes import checked_line, checked_parcel, packed, unpacked
from fedkge.nodes.peer_result import measured, save_outcome
from fedkge.nodes.peer_spending import PeerSpending
from fedkge.nodes.store import write_whole
from fedkge.nodes.terms import Terms

LINES = ("status", "call", "accept", "refuse", "bye", "prepared", "commit", "ask")


class PeerNode(Node):
    """A peer with its training and its folder. A runtime carries messages, and calls `work` between them.

    What has counted is on the disk before the other end is told.
    """

    def __init__(
        self,
        id: str,
        terms: Terms,
        learner: Learner,
        identity: Identity,
        others: Collection[str],
        keys: Keys,
        nonce: Callable[[str], str],
        setting: Setting = Setting(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(id, terms, setting)
        assert isinstance(terms.method, FKGE)
        self.kinds = dict.fromkeys(LINES, self._line) | {"say": self._say}
        self.method, self.learner, self.identity = terms.method, learner, identity
        self.keys, self.nonce = keys, nonce
        self.shakes = Handshake(id, others)
        self.own = Backtracking(terms, learner, identity.ids)
        self.aligned: dict[str, Aligned] = {}  # by partner
        self.staged: dict[str, Heard] = {}  # conversations that are whole here, and may count
        self.todo: list[tuple[str, str]] = []  # conversations that count, to be adopted: talk and partner
        self.chat: Chat | None = None
        self.talks = 0
        self.stopped = False
        self._saves = 0
        signing = blake2b(b"ledger", key=keys.own.content, digest_size=32).digest()
        self.spending = PeerSpending(id, self.method, setting, signing)

    @property
    def round(self) -> int:
        return self._saves

    def partners(self) -> Collection[str]:
        return self.shakes.news.everyone - {self.id}

    # What it does of itself

    def open(self) -> list[Message]:
        """After a restart: what it is, and what it is in doubt about."""
        super().open()
        if self.shakes.working and not self.own.rounds:
            return []
        self.shakes.restarted()
        lines, _ = self.shakes.expired()
        said = self._messages([*self.shakes.status(), *lines])
        self._write()
        return said

    def config(self) -> Mapping[str, Any]:
        """On a network its folder is all that there is of a run: commands read it as one."""
        alone = {"peer": self.id, "data": {"name": self.setting.run}} if self.setting.often else {}
        return {**super().config(), **alone}

    @property
    def rests(self) -> bool:
        """Whether `work` would do nothing."""
        shakes = self.shakes
        if self.stopped:
            return True
        if self.chat is None and (self.todo or shakes.working or shakes.finished):
            return False
        if self.chat is not None or shakes.calling is not None:
            return True
        return (not shakes.ready or shakes.left) and shakes.content

    @property
    def awaits(self) -> tuple[str, int] | None:
        """Which conversation it waits for, and which hop of it: this changes with every step forward."""
        waiting = self.shakes.calling or self.shakes.talk
        if waiting is None:
            return None
        return waiting.id, -1 if self.chat is None else self.chat.got

    def work(self) -> list[Message]:
        """The next thing to do without being asked: an update, a call, training, or the end."""
        shakes = self.shakes
        if self.rests:
            return []
        if self.todo:
            return self._adopt()
        if shakes.finished:
            return self._stop()
        if shakes.working and not self.own.rounds:
            return self._trained("first", self.own.alone(self.method.first))
        if lines := shakes.act():
            return self._messages(lines)
        if shakes.content or shakes.talk is not None or shakes.calling is not None:
            return []
        shakes.train()
        return self._trained("alone", self.own.alone())

    def _adopt(self) -> list[Message]:
        talk, partner = self.todo.pop(0)
        heard = self.staged.pop(talk)
        if not heard.rows:
            done = {
                "round": self.own.rounds,
                "gained": False,
                "score": self.own.score,
                "best": self.own.score,
            }
            return self._trained(f"nothing from {partner}", done)
        self.shakes.train()
        return self._trained(partner, self.own.after(heard), talk)

    def _trained(self, why: str, done: Mapping[str, Any], talk: str = "") -> list[Message]:
        """Training is over: tell everybody whether it was a gain."""
        if "loss" in done:
            own = {name: done[name] for name in ("round", "loss", "triples", "seconds")}
            self.note({"event": "trained", **own, **self.spending.seal})
        rest = {name: done[name] for name in ("round", "score", "best", "gained")}
        self.note({"event": "update", "by": why, "talk": talk, **rest})
        lines = self.shakes.trained(bool(done["gained"]), self.own.content)
        if self.own.spent and not self.shakes.left:
            lines = self.shakes.leave()
        self._write()
        return self._messages(lines)

    def expire(self, round: int) -> list[Message]:
        """Time is up for whatever it waits for; a sleeping peer wakes."""
        if self.stopped:
            return self._messages(self.shakes.status())
        lines, effects = self.shakes.expired()
        return self._messages([*lines, *self.shakes.status()]) + self._do(effects)

    # What it hears

    def _line(self, message: Message) -> list[Message]:
        with reading():
            talk, note = checked_line(message)
        if self.stopped and message.kind != "status":
            return []
        lines, effects = self.shakes.hear(message.sender, message.kind, talk, note)
        if counted := [(one.talk, one.partner) for one in effects if one.kind == "commit"]:
            self.todo += counted
            self.shakes.train()  # busy, until what was heard is adopted
            self._write()  # before the other end is told
        return self._messages(lines) + self._do(effects)

    def _do(self, effects: Sequence[Effect]) -> list[Message]:
        out: list[Message] = []
        for effect in effects:
            if effect.kind == "begin":
                out += self._begin(effect.talk, effect.partner)
            elif effect.kind == "abort":
                self.note({"event": "aborted", "talk": effect.talk, "partner": effect.partner})
                self.staged.pop(effect.talk, None)
            if effect.kind != "begin" and self.chat is not None and self.chat.talk == effect.talk:
                self.chat = None
        return out

    def _begin(self, talk: str, partner: str) -> list[Message]:
        """Only the caller speaks before it has heard something."""
        end = End(
            self.method,
            self.own.best,
            self.learner.member.graph,
            self.identity.ids,
            self.keys,
            self.nonce(talk),
            self.aligned.get(partner),
            lambda votes: self.spending.votes(votes, self._at),
            self.spending.gives,
            lambda: self.spending.rows(self._at),
            self.identity.withheld,
        )
        calls = talk.split("/")[0] == self.id
        self.chat = Chat(talk, partner, converse(end, calls))
        self.note({"event": "meets", "talk": talk, "partner": partner})
        return self._advance(None)

    @property
    def _at(self) -> int:
        """The round that releases are recorded under."""
        return max(1, self.own.rounds)

    def _say(self, message: Message) -> list[Message]:
        chat = self.chat
        with reading():
            talk, note = checked_parcel(message)
        if chat is None or (chat.talk, chat.partner) != (talk, message.sender):
            return self._messages([Line(message.sender, "bye", talk)])
        if message.round != chat.got:
            raise Refusal(f"says hop {message.round} of {talk}, expected {chat.got}")
        chat.got += 1
        return self._advance(Parcel(message.body, note))

    def _advance(self, parcel: Parcel | None) -> list[Message]:
        """Let this end of the conversation go on until it waits, or has said and heard everything."""
        chat, out = self.chat, list[Message]()
        assert chat is not None
        try:
            with self.setting.clock.spending("exchange"), reading():
                for number, found in chat.advance(parcel):
                    note = {"talk": chat.talk, "note": dict(found.note)}
                    out.append(self.message(chat.partner, "say", number, found.body, **note))
        except Refusal as error:
            what = {"site": chat.partner, "kind": "say", "round": chat.got, "why": str(error)}
            self.note({"event": "refused", **what})
            lines, effects = self.shakes.hang_up()
            return self._messages(lines) + self._do(effects)
        return out if chat.heard is None else out + self._whole(chat, chat.heard)

    def _whole(self, chat: Chat, heard: Heard) -> list[Message]:
        """This end is complete: it stages what it has heard, and says so."""
        self.chat = None
        self.talks += 1
        self.aligned[chat.partner] = heard.aligned
        self.note(chat.event(heard))
        if not any(len(rows) for rows in heard.aligned.values()):
            self.note({"event": "nothing in common", "partner": chat.partner})
            self.shakes.drop(chat.partner)
        self.staged[chat.talk] = heard
        lines = self.shakes.said_all()
        if lines:
            self._write()  # a caller that dies now is in doubt when it comes back
        return self._messages(lines)

    def _messages(self, lines: Sequence[Line]) -> list[Message]:
        return [self.message(line.to, line.kind, 0, None, talk=line.talk, **line.note) for line in lines]

    # The end

    def _stop(self) -> list[Message]:
        """Nobody improves any more."""
        self.stopped = True
        lines = self.shakes.end()
        self.note({"event": "done", "round": self.own.rounds})
        self.conclude()
        self._write()
        return self._messages(lines)

    def conclude(self) -> None:
        """Measure what was kept, and what there was before anybody was met; all of it stays in the folder."""
        if self.store is None:
            return
        own, clock = self.own, self.setting.clock
        with clock.spending("evaluate"):
            found = measured(own)
        if self.setting.tables:
            save_outcome(own, self.identity, found, self.store.path)
        talks = {
            "talks": self.talks,
            "version": self.shakes.news.own.version,
            "exchange": clock.seconds["exchange"],
        }
        spent = {"best_round": own.best_at, "seconds": own.seconds}
        plain = {
            "rounds": own.rounds,
            "kept": {"": own.best_at},
            "metrics": found.metrics,
            "peer": {**found.views, **talks, **spent},
            **self.spending.seal,
        }
        write_whole(self.store.path / RESULT, json_text(plain, indent=1).encode())

    # What lasts

    def _write(self) -> None:
        if self.setting.often:
            self._saves += 1
            self.save()

    @property
    def _of(self) -> dict[str, str]:
        """What a checkpoint belongs to, in digests."""
        parts = {
            "other options": json_text(self.terms.terms()),
            "another graph": self.learner.member.graph.digest(),
            "other partners": json_text(sorted(self.shakes.news.everyone)),
        }
        return {what: blake2b(part.encode(), digest_size=8).hexdigest() for what, part in parts.items()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"own.{name}": tensor for name, tensor in self.own.tensors().items()}
        for partner, rows in self.aligned.items():
            tensors |= {f"aligned.{partner}.{axis}": own for axis, own in rows.items()}
        staged = {}
        for talk, heard in self.staged.items():
            staged[talk] = heard.session
            tensors |= {f"staged.{talk}.{name}": tensor for name, tensor in packed(heard).items()}
        return tensors, {
            "of": self._of,
            "own": self.own.plain(),
            "shakes": self.shakes.kept(),
            "staged": staged,
            "todo": self.todo,
            "talks": self.talks,
            "stopped": self.stopped,
            "saves": self._saves,
            **self.spending.seal,
        }

    def load_state(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        for what, digest in self._of.items():
            if plain.get("of", {}).get(what) != digest:
                raise DataError(
                    f"{self.setting.home}: holds a peer with {what}; to go on it needs the same, to begin "
                    "anew another folder"
                )
        self.spending.check(plain)
        self.own.load(under("own", tensors), plain["own"])
        self.todo = [(talk, partner) for talk, partner in plain["todo"]]
        self.talks, self.stopped, self._saves = plain["talks"], plain["stopped"], plain["saves"]
        self.shakes.load(plain["shakes"])
        for partner in self.partners():
            rows = {Axis(a): t for a, t in under(f"aligned.{partner}", tensors).items()}
            if rows:
                self.aligned[partner] = rows
        for talk, session in plain["staged"].items():
            self.staged[talk] = unpacked(session, under(f"staged.{talk}", tensors))
