"""The handshake: who talks to whom, as a state machine without sockets, clocks or random numbers.

A peer is Ready, Busy or Asleep (Peng et al., 2021, section 3.3). A ready peer calls the first partner of
its queue: partners that have improved since the two last met. The call is accepted or refused. A peer that
is busy refuses, and queues the caller, so that it calls back. Of two peers that call at the same time, that
whose name sorts first goes on, and the other gives up its own call: so somebody always gets through.

A conversation counts at both ends or at none. When all was said, the caller sends `prepared` and the callee
answers `commit`. A caller that hears nothing is in doubt: it keeps what it was told, goes on with other
work, and asks again until it knows. Who has improved, and whether anybody will, is in `news`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

from fedkge.methods.lines import Effect, Line, State, Talk
from fedkge.methods.news import News, Report

STRIKES = 3  #: conversations in a row that may fail before a partner's version is passed over
REMEMBERED = 256  #: conversations that are over, of which late messages are recognised
AHEAD = 1 << 20  #: more calls than a peer makes between two checkpoints


class Handshake:
    """One peer's part. Every method returns what is to be said and done; none of them waits."""

    def __init__(self, me: str, others: Collection[str]) -> None:
        self.me = me
        self.news = News(me, others)
        self.working = True  # training; a peer begins with that
        self.asleep = False
        self.content = False  # self-training brings nothing any more
        self.unheard = False  # its last call was not answered: whoever does not answer must not hold it up
        self.number = 0  # of the last call
        self.shy: set[str] = set()  # partners that were busy: they call back, or are tried after a while
        self.calling: Talk | None = None
        self.talk: Talk | None = None
        self.doubts: dict[str, Talk] = {}  # by partner
        self.over: dict[str, None] = {}  # conversations that have ended here, the last ones
        self.counted: dict[str, str] = {}  # partner -> the last one that counted; no later one is in doubt
        self.strikes: dict[str, int] = {}  # conversations with a partner that failed, in a row

    # What it is

    @property
    def state(self) -> State:
        if self.talk is not None or self.working:
            return State.BUSY
        return State.SLEEP if self.asleep else State.READY

    @property
    def left(self) -> bool:
        return self.news.own.left

    @property
    def ready(self) -> list[str]:
        """Partners with news that it may call now."""
        return [q for q in self.news.wanted if q not in self.shy and q not in self.doubts]

    @property
    def idle(self) -> bool:
        """Nothing to say, to hear or to train."""
        quiet = not (self.working or self.talk or self.calling or self.doubts)
        return quiet and self.content and (self.left or not self.news.wanted)

    @property
    def finished(self) -> bool:
        """Whether nobody improves any more."""
        return self.news.finished(self.idle)

    def report(self) -> Report:
        """What it says of itself."""
        return self.news.report(self.idle)

    def status(self) -> list[Line]:
        """The same, to everybody."""
        self._become(stamp=self.news.own.stamp + 1)
        note = asdict(self.report())
        return [Line(q, "status", "", note) for q in sorted(self.news.everyone - {self.me})]

    def _become(self, **changes: Any) -> None:
        self.news.own = replace(self.news.own, **changes)

    # What it does of itself

    def act(self) -> list[Line]:
        """If it is ready: call the first of the queue, or fall asleep."""
        if self.state is not State.READY or self.calling is not None or self.left:
            return []
        if self.unheard and not self.content:
            self.unheard = False
            return []  # training comes first
        if not self.ready:
            self.asleep = True
            return []
        self.number += 1
        self.calling = Talk(f"{self.me}/{self.number}", self.ready[0], mine=True)
        return [Line(self.calling.partner, "call", self.calling.id, self._version)]

    @property
    def _version(self) -> dict[str, int]:
        return {"version": self.news.own.version}

    def trained(self, gained: bool, content: bool) -> list[Line]:
        """Training is over: a gain is broadcast. `content`: further training would bring nothing."""
        self.working, self.asleep, self.content = False, False, content
        self._become(version=self.news.own.version + gained)
        return self.status()

    def train(self) -> None:
        """Training begins."""
        self.working = True

    def leave(self) -> list[Line]:
        """Take part in nothing further."""
        self.content = True
        self._become(left=True)
        return self.status()

    def end(self) -> list[Line]:
        """Nobody improves any more: everybody is told."""
        self._become(over=True)
        return self.status()

    def drop(self, q: str) -> None:
        """Nothing is in common with a partner."""
        self.news.partners.discard(q)

    def said_all(self) -> list[Line]:
        """This end of the conversation is complete."""
        assert self.talk is not None
        self.talk.whole = True
        return [Line(self.talk.partner, "prepared", self.talk.id)] if self.talk.mine else []

    def expired(self) -> tuple[list[Line], list[Effect]]:
        """Time is up: what was waited for is given up; a sleeping peer wakes, and asks what it must know."""
        lines, effects = list[Line](), list[Effect]()
        if self.calling is not None:
            lines.append(Line(self.calling.partner, "bye", self.calling.id))
            self._end(self.calling, False)
            self.news.postpone(self.calling.partner)
            self.calling, self.unheard = None, True
        elif self.talk is not None and self.talk.whole and self.talk.mine:
            self.doubts[self.talk.partner] = self.talk
            self.talk = None
        elif self.talk is not None:
            return self.hang_up()
        self.shy.clear()
        self.asleep = False
        lines += [Line(q, "ask", talk.id) for q, talk in sorted(self.doubts.items())]
        return lines, effects

    def hang_up(self) -> tuple[list[Line], list[Effect]]:
        """Give up the conversation, as something is wrong with it."""
        assert self.talk is not None
        talk, self.talk = self.talk, None
        self._fail(talk)
        return [Line(talk.partner, "bye", talk.id)], [Effect("abort", talk.id, talk.partner)]

    def _fail(self, talk: Talk) -> None:
        """A conversation that came to nothing. After some in a row, only news is worth another one."""
        self._end(talk, False)
        q = talk.partner
        self.strikes[q] = self.strikes.get(q, 0) + 1
        if self.strikes[q] >= STRIKES:
            self.strikes[q] = 0
            self.news.meet(q, talk.version)

    def lost(self, q: str) -> None:
        """A peer has not been heard of for long: nobody waits for it until it speaks again."""
        self.news.gone.add(q)

    # What it hears

    def hear(self, q: str, kind: str, talk: str, note: Mapping[str, Any]) -> tuple[list[Line], list[Effect]]:
        """A line of another peer, whose note was checked."""
        self.news.gone.discard(q)
        if kind == "status":
            return self._status(q, note)
        if kind == "call":
            return self._called(q, talk, note)
        if kind == "accept":
            return self._accepted(q, talk, note)
        return {
            "refuse": self._refused,
            "bye": self._bye,
            "prepared": self._prepared,
            "commit": self._committed,
            "ask": self._prepared,
        }[kind](q, talk)

    def _status(self, q: str, note: Mapping[str, Any]) -> tuple[list[Line], list[Effect]]:
        life = self.news.reports.get(q, Report()).life
        if not self.news.heard(q, note):
            return [], []
        self.shy.discard(q)
        self.asleep = self.asleep and not self.news.of(q)  # woken by a signal
        return self._came_back(q) if self.news.reports[q].life > life else ([], [])

    def _came_back(self, q: str) -> tuple[list[Line], list[Effect]]:
        """It has lost the conversation that it was in, unless that was whole: then it asks, or is asked."""
        if self.calling is not None and self.calling.partner == q:
            lines = [Line(q, "bye", self.calling.id)]
            self._end(self.calling, False)
            self.calling = None
            return lines, []
        if self.talk is not None and self.talk.partner == q and not self.talk.whole:
            return self.hang_up()
        return [], []

    def _called(self, q: str, id: str, note: Mapping[str, Any]) -> tuple[list[Line], list[Effect]]:
        if self.talk is not None and self.talk.id == id and not self.talk.mine:
            return [Line(q, "accept", id, self._version)], []  # said again
        if id in self.over:
            return [Line(q, "refuse", id, {"why": "over"})], []
        lines, effects = list[Line](), list[Effect]()
        if self.talk is not None and self.talk.partner == q and not (self.talk.mine and self.talk.whole):
            more, effects = self.hang_up()  # it has given up the old one, or would not call
            lines += more
        if (
            self.talk is not None
            or self.working
            or self.left
            or q in self.doubts
            or q not in self.news.partners
        ):
            self._end(Talk(id, q, mine=False), False)
            self.news.enqueue(q)
            lines.append(Line(q, "refuse", id, {"why": "left" if self.left else "busy"}))
            lines += [Line(q, "ask", self.doubts[q].id)] if q in self.doubts else []
            return lines, effects
        if self.calling is not None:
            if q > self.me:
                self._end(Talk(id, q, mine=False), False)
                self.news.enqueue(q)
                return [*lines, Line(q, "refuse", id, {"why": "busy"})], effects
            lines.append(Line(self.calling.partner, "bye", self.calling.id))
            self.news.enqueue(self.calling.partner)
            self._end(self.calling, False)
            self.calling = None
        self.talk = Talk(id, q, mine=False, version=note["version"])
        lines.append(Line(q, "accept", id, self._version))
        return lines, [*effects, Effect("begin", id, q)]

    def _accepted(self, q: str, id: str, note: Mapping[str, Any]) -> tuple[list[Line], list[Effect]]:
        if self.calling is not None and (self.calling.id, self.calling.partner) == (id, q):
            self.talk, self.calling = self.calling, None
            self.talk.version = note["version"]
            return [], [Effect("begin", id, q)]
        if self.talk is not None and self.talk.id == id:
            return [], []  # said again
        return [Line(q, "bye", id)], []

    def _refused(self, q: str, id: str) -> tuple[list[Line], list[Effect]]:
        if self.calling is not None and (self.calling.id, self.calling.partner) == (id, q):
            self._end(self.calling, False)
            self.calling = None
            self.shy.add(q)
        return [], []

    def _bye(self, q: str, id: str) -> tuple[list[Line], list[Effect]]:
        if self.talk is not None and (self.talk.id, self.talk.partner) == (id, q):
            talk, self.talk = self.talk, None
            self._fail(talk)
            return [], [Effect("abort", id, q)]
        if q in self.doubts and self.doubts[q].id == id:
            self._end(self.doubts.pop(q), False)
            return [], [Effect("abort", id, q)]
        if id.split("/")[0] == q:
            self._end(Talk(id, q, mine=False), False)  # a call that may not have come yet
        return self._refused(q, id)

    def _prepared(self, q: str, id: str) -> tuple[list[Line], list[Effect]]:
        """The caller is complete, or in doubt: it counts if it counts here; if not, it never will."""
        talk = self.talk
        if self.counted.get(q) == id:
            return [Line(q, "commit", id)], []
        if talk is not None and (talk.id, talk.partner, talk.mine) == (id, q, False):
            if not talk.whole:
                return self.hang_up()
            self.talk = None
            self._end(talk, True)
            return [Line(q, "commit", id)], [Effect("commit", id, q)]
        if id.split("/")[0] == q:
            self._end(Talk(id, q, mine=False), False)
        return [Line(q, "bye", id)], []

    def _committed(self, q: str, id: str) -> tuple[list[Line], list[Effect]]:
        talk = self.talk if self.talk is not None and self.talk.id == id else self.doubts.get(q)
        if talk is None or (talk.id, talk.partner) != (id, q) or not (talk.mine and talk.whole):
            return [], []
        if talk is self.talk:
            self.talk = None
        else:
            del self.doubts[q]
        self._end(talk, True)
        return [], [Effect("commit", id, q)]

    def _end(self, talk: Talk, counted: bool) -> None:
        self.over[talk.id] = None
        if counted:
            self.counted[talk.partner], self.strikes[talk.partner] = talk.id, 0
            self.news.meet(talk.partner, talk.version)
        for old in list(self.over)[:-REMEMBERED]:
            del self.over[old]

    # What lasts

    def kept(self) -> dict[str, Any]:
        """Plain values that a new process goes on from. A call or a conversation under way is not among them.

        But a conversation that is whole at the end that called is in doubt from then on.
        """
        doubts = dict(self.doubts)
        if self.talk is not None and self.talk.mine and self.talk.whole:
            doubts[self.talk.partner] = self.talk
        plain = {name: getattr(self, name) for name in ("working", "asleep", "content", "number")}
        return {
            **plain,
            "news": self.news.state(),
            "shy": sorted(self.shy),
            "doubts": {q: asdict(talk) for q, talk in doubts.items()},
            "over": list(self.over),
            "counted": dict(self.counted),
            "strikes": dict(self.strikes),
        }

    def load(self, kept: Mapping[str, Any]) -> None:
        for name in ("working", "asleep", "content", "number"):
            setattr(self, name, kept[name])
        self.news.load(kept["news"])
        self.shy, self.over = set(kept["shy"]), dict.fromkeys(kept["over"])
        self.doubts = {q: Talk(**talk) for q, talk in kept["doubts"].items()}
        self.counted, self.strikes = dict(kept["counted"]), dict(kept["strikes"])

    def restarted(self) -> None:
        """It may have called more often than its checkpoint knows: no number is used again."""
        self.number += AHEAD
        self._become(life=self.news.own.life + 1)
