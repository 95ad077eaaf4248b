"""A peer: a site without a hub. It trains, meets others, adopts, and goes back where that was no gain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from torch import Tensor

from fedkge.durable import json_text
from fedkge.exchange.hops import Hops, Parcel
from fedkge.exchange.rows import Message, under
from fedkge.graphs.graph import Axis
from fedkge.methods.conversation import Aligned, End, Heard, Keys, converse
from fedkge.methods.fkge import FKGE
from fedkge.methods.handshake import Handshake
from fedkge.methods.lines import Effect, Line
from fedkge.nodes.backtrack import Backtracking
from fedkge.nodes.base import Node, Setting
from fedkge.nodes.identity import Identity
from fedkge.nodes.ledgers import RESULT, open_ledger
from fedkge.nodes.notes import Refusal, reading
from fedkge.nodes.peer_notes import checked_line, checked_parcel, packed, unpacked
from fedkge.nodes.peer_result import measured, save_outcome
from fedkge.nodes.stack import Learner
from fedkge.nodes.store import write_whole
from fedkge.nodes.terms import Terms
from fedkge.privacy import Budget, Release, Spending
from fedkge.privacy.accountants import Rdp
from fedkge.privacy.pate import votes_release
from fedkge.privacy.releases import Everything, Gaussian

LINES = ("status", "call", "accept", "refuse", "bye", "prepared", "commit", "ask")


@dataclass(slots=True)
class Chat:
    """The conversation that a peer is in."""

    talk: str
    partner: str
    hops: Hops[Heard]
    sent: int = 0
    got: int = 0


class PeerNode(Node):
    """A peer with its training and its folder. A runtime carries messages, and calls `work` between them.

    A conversation lives in memory only: a peer that is killed has lost it, and so has its partner.
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
        ledger = None if setting.home is None else open_ledger(setting.home, signing)
        self.spending = None if ledger is None else Spending(ledger, id, self._budget(), None)

    def _budget(self) -> Budget | None:
        if self.method.epsilon is None:
            return None
        return Budget(self.method.epsilon, self.method.delta, Rdp())

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
            self.note({"event": "trained", **own, **self._seal})
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
            self._spend,
            self._release,
            self.identity.withheld,
        )
        calls = talk.split("/")[0] == self.id
        self.chat = Chat(talk, partner, converse(end, calls))
        self.note({"event": "meets", "talk": talk, "partner": partner})
        return self._advance(None)

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
                found = next(chat.hops) if parcel is None else chat.hops.send(parcel)
                while found is not None:
                    note = {"talk": chat.talk, "note": dict(found.note)}
                    out.append(self.message(chat.partner, "say", chat.sent, found.body, **note))
                    chat.sent += 1
                    found = next(chat.hops)
            return out
        except StopIteration as end:
            return out + self._whole(chat, end.value)
        except Refusal as error:
            what = {"site": chat.partner, "kind": "say", "round": chat.got, "why": str(error)}
            self.note({"event": "refused", **what})
            lines, effects = self.shakes.hang_up()
            return self._messages(lines) + self._do(effects)

    def _whole(self, chat: Chat, heard: Heard) -> list[Message]:
        """This end is complete: it stages what it has heard, and says so."""
        self.chat = None
        self.talks += 1
        self.aligned[chat.partner] = heard.aligned
        counts = {str(axis): len(rows) for axis, rows in heard.aligned.items()}
        self.note(
            {
                "event": "conversation",
                "talk": chat.talk,
                "partner": chat.partner,
                "session": heard.session,
                "aligned": counts,
                "lent": 0 if heard.loan is None else len(heard.loan.edges),
                "votes": heard.votes,
                "real": heard.real,
                "gaps": {str(gap): count for gap, count in sorted(heard.gaps.items())},
                "refused": heard.refused,
                "hops": chat.sent + chat.got,
            }
        )
        if not any(counts.values()):
            self.note({"event": "nothing in common", "partner": chat.partner})
            self.shakes.drop(chat.partner)
        self.staged[chat.talk] = heard
        lines = self.shakes.said_all()
        if lines:
            self._write()  # a caller that dies now is in doubt when it comes back
        return self._messages(lines)

    def _messages(self, lines: Sequence[Line]) -> list[Message]:
        return [self.message(line.to, line.kind, 0, None, talk=line.talk, **line.note) for line in lines]

    # Privacy

    def _spend(self, votes: int) -> bool:
        """Record votes before they are given; false where the budget does not allow them."""
        if self.method.scale == 0:
            return True
        release = votes_release(self.method.law, self.method.scale, votes, sent=not self.method.noise)
        if self.spending is None:
            return True
        given = sum(r.count for r in self.spending.ledger.releases(self.id) if r.purpose == "votes")
        if self.method.budget is not None and given + votes > self.method.budget:
            return False
        if self.spending.left(release, votes) < votes:
            return False
        self.spending.spend(release, max(1, self.own.rounds))
        return True

    def _release(self, rows: int) -> None:
        """Record that all rows are sent with noise: one conversation is one application to each of them."""
        if self.spending is not None:
            release = Release(Gaussian(self.method.noise), Everything(), 1, "rows", "row", "replace-one")
            self.spending.ledger.record(self.id, max(1, self.own.rounds), release, None)

    @property
    def _seal(self) -> Mapping[str, str | int]:
        if self.spending is None or not self.spending.ledger.entries:
            return {}
        return self.spending.ledger.seal

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
            **self._seal,
        }
        write_whole(self.store.path / RESULT, json_text(plain, indent=1).encode())

    # What lasts

    def _write(self) -> None:
        if self.setting.often:
            self._saves += 1
            self.save()

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"own.{name}": tensor for name, tensor in self.own.tensors().items()}
        for partner, rows in self.aligned.items():
            tensors |= {f"aligned.{partner}.{axis}": own for axis, own in rows.items()}
        staged = {}
        for talk, heard in self.staged.items():
            staged[talk] = heard.session
            tensors |= {f"staged.{talk}.{name}": tensor for name, tensor in packed(heard).items()}
        return tensors, {
            "own": self.own.plain(),
            "shakes": self.shakes.kept(),
            "staged": staged,
            "todo": self.todo,
            "talks": self.talks,
            "stopped": self.stopped,
            "saves": self._saves,
            **self._seal,
        }

    def load_state(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        if self.spending is not None and "ledger" in plain:
            self.spending.ledger.check(plain["ledger"], plain["releases"])
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
