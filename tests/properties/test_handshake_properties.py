"""The handshake under every order, loss, repetition and delay of messages: it never gets stuck or splits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fedkge.methods.handshake import Handshake
from fedkge.methods.lines import Effect, Line, State

NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Sent:
    sender: str
    line: Line


class Meeting(RuleBasedStateMachine):
    """Four peers and a post that may do anything to a message but change it."""

    def __init__(self) -> None:
        super().__init__()
        self.peers = {name: Handshake(name, NAMES) for name in NAMES}
        self.post: list[Sent] = []
        self.counted: dict[str, set[str]] = {name: set() for name in NAMES}
        self.callee: dict[str, str] = {}  # by conversation
        self.gains = 0
        self.disk = {name: self._kept(name) for name in NAMES}

    # What may happen

    @rule(data=st.data())
    @precondition(lambda self: self.post)
    def deliver(self, data: st.DataObject) -> None:
        self._deliver(self.post.pop(data.draw(st.integers(0, len(self.post) - 1))))

    @rule(data=st.data())
    @precondition(lambda self: self.post)
    def lose(self, data: st.DataObject) -> None:
        self.post.pop(data.draw(st.integers(0, len(self.post) - 1)))

    @rule(data=st.data())
    @precondition(lambda self: self.post and len(self.post) < 60)
    def repeat(self, data: st.DataObject) -> None:
        self.post.append(self.post[data.draw(st.integers(0, len(self.post) - 1))])

    @rule(count=st.integers(1, 12), names=st.permutations(NAMES))
    def live(self, count: int, names: list[str]) -> None:
        """Some time in which nothing goes wrong, at whatever state things are."""
        for step in range(count):
            for name in names:
                if self.peers[name].working and step % 4 == 0:
                    self.trained(name, gained=True)
                self._say(name, self.peers[name].act())
                self.said_all(name)
            if self.post:
                self._deliver(self.post.pop(0))

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        """A peer is killed, and comes back with what it last wrote."""
        self.peers[name] = Handshake(name, NAMES)
        self.peers[name].load(self.disk[name])
        self.peers[name].restarted()
        self._do(name, *self.peers[name].expired())
        self._say(name, self.peers[name].status())
        self.disk[name] = self._kept(name)

    @rule(name=st.sampled_from(NAMES))
    def act(self, name: str) -> None:
        self._say(name, self.peers[name].act())

    @rule(name=st.sampled_from(NAMES))
    def expire(self, name: str) -> None:
        self._do(name, *self.peers[name].expired())

    @rule(name=st.sampled_from(NAMES), gained=st.booleans())
    def trained(self, name: str, gained: bool) -> None:
        if self.peers[name].working:
            gained = gained and self.gains < 12
            self.gains += gained
            lines = self.peers[name].trained(gained, content=True)
            self.disk[name] = self._kept(name)
            self._say(name, lines)

    @rule(name=st.sampled_from(NAMES))
    def said_all(self, name: str) -> None:
        """A conversation can be complete at one end if the other is in it, or was until it was complete."""
        talk = self.peers[name].talk
        if talk is not None and not talk.whole:
            other = self.peers[talk.partner]
            if other.talk is not None and other.talk.id == talk.id:
                lines = self.peers[name].said_all()
                if lines:  # a caller that dies now is in doubt when it comes back
                    self.disk[name] = self._kept(name)
                self._say(name, lines)

    # What must hold

    @invariant()
    def a_busy_peer_has_one_partner(self) -> None:
        for name, peer in self.peers.items():
            if peer.talk is not None:
                assert peer.state is State.BUSY
                assert peer.calling is None
                third = [
                    other
                    for other, one in self.peers.items()
                    if other not in (name, peer.talk.partner) and one.talk and one.talk.id == peer.talk.id
                ]
                assert not third

    @invariant()
    def what_counts_at_the_caller_counts_at_the_callee(self) -> None:
        """The callee decides; the caller may not know yet, and is in doubt or still waits."""
        for name, mine in self.counted.items():
            for talk in mine:
                caller, partner = talk.split("/")[0], self._partner(talk)
                if caller == name:
                    assert talk in self.counted[partner]

    def _kept(self, name: str) -> Any:
        return json.loads(json.dumps(self.peers[name].kept()))

    def _partner(self, talk: str) -> str:
        return self.callee[talk]

    def _deliver(self, sent: Sent) -> None:
        name, line = sent.line.to, sent.line
        peer = self.peers[name]
        before = peer.talk
        was_working = peer.working
        lines, effects = peer.hear(sent.sender, line.kind, line.talk, json.loads(json.dumps(dict(line.note))))
        if line.kind == "call":
            self.callee[line.talk] = name
            answers = [one for one in lines if one.talk == line.talk and one.kind in ("accept", "refuse")]
            assert [one.to for one in answers] == [sent.sender], "every request is answered or refused"
            if answers[0].kind == "accept" and before is not None:
                assert before.partner == sent.sender, "a busy peer is paired with nobody else"
            assert not (was_working and answers[0].kind == "accept")
        self._do(name, lines, effects)

    def _do(self, name: str, lines: list[Line], effects: list[Effect]) -> None:
        self._say(name, lines)
        for effect in effects:
            if effect.kind == "commit":
                assert effect.talk not in self.counted[name], "counts once"
                self.counted[name].add(effect.talk)
                self.peers[name].train()
                self.disk[name] = self._kept(name)

    def _say(self, name: str, lines: list[Line]) -> None:
        self.post += [Sent(name, line) for line in lines]

    def teardown(self) -> None:
        """With a post that works again, all get to an end, and agree on what has counted."""
        for _ in range(400):
            while self.post:
                self._deliver(self.post.pop(0))
            for name, peer in self.peers.items():
                if peer.working:
                    self._say(name, peer.trained(False, content=True))
                self.said_all(name)
                if not self.post:
                    self._say(name, peer.act())
            if not self.post:
                if all(peer.finished for peer in self.peers.values()):
                    break
                for name, peer in self.peers.items():
                    self._do(name, *peer.expired())
                    self._say(name, peer.status())
        assert all(peer.finished for peer in self.peers.values()), self._stuck()
        for name, talks in self.counted.items():
            for talk in talks:
                ends = {talk.split("/")[0], self._partner(talk)}
                assert all(talk in self.counted[end] for end in ends), (talk, name)

    def _stuck(self) -> Any:
        return {
            n: (p.state, p.calling, p.talk, p.news.wanted, p.doubts, p.report())
            for n, p in self.peers.items()
        }


Meeting.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestHandshake = Meeting.TestCase


def test_who_is_in_a_conversation_with_a_peer_that_comes_back_gives_it_up_at_once() -> None:
    a, b = (Handshake(name, "ab") for name in "ab")
    for one, other in ((a, b), (b, a)):
        for line in one.trained(True, content=True):
            other.hear(one.me, line.kind, line.talk, line.note)
    (call,) = a.act()
    (accept,), _ = b.hear("a", call.kind, call.talk, call.note)
    kept = json.loads(json.dumps(a.kept()))
    a.hear("b", accept.kind, accept.talk, accept.note)
    assert a.talk is not None
    assert b.talk is not None
    again = Handshake("a", "ab")
    again.load(kept)
    again.restarted()
    (status,) = again.status()
    lines, effects = b.hear("a", status.kind, status.talk, status.note)
    assert ([line.kind for line in lines], [one.kind for one in effects]) == (["bye"], ["abort"])
    assert b.talk is None
    assert b.hear("a", status.kind, status.talk, status.note) == ([], []), "said again, it means nothing"
