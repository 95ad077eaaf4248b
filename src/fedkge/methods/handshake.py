"""The handshake: who talks to whom, as a state machine without sockets, clocks or random numbers.

A peer is Ready, Busy or Asleep (Peng et al., 2021, section 3.3). A ready peer calls the first partner of
its queue: partners that have improved since the two last met. The call is accepted or refused. A peer that
is busy refuses, and queues the caller, so that it calls back. Of two peers that call at the same time, that
whose name sorts first goes on, and the other gives up its own call: so somebody always gets through.

A conversation counts at both ends or at none. When all was said, the caller sends `prepared` and the callee
answers `commit`. A caller that hears nothing is in doubt: it keeps what it was told, goes on with other
work, and asks again until it knows. Versions count improvements. A peer has nothing to do when it has
met every partner's latest version; when everybody reports that, everybody can stop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

STRIKES = 3  #: conversations in a row that may fail before a partner's version is passed over
REMEMBERED = 256  #: conversations that are over, of which late messages are recognised


class State(StrEnum):
    """What a peer can be."""

    READY = "ready"
    BUSY = "busy"
    SLEEP = "sleep"


@dataclass(frozen=True, slots=True)
class Line:
    """Something to be said to a peer; `hear` lists the kinds."""

    to: str
    kind: str
    talk: str = ""  #: the conversation's id
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that the peer must do now: `begin`, `abort` or `commit` a conversation."""

    kind: str
    talk: str
    partner: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a peer last said of itself."""

    stamp: int = 0  #: later reports have larger ones
    version: int = 0
    idle: bool = False
    left: bool = False  #: it takes part in no further conversation
    over: bool = False  #: it has found that everybody is idle, and has ended
    met: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Talk:
    """A conversation that a peer is in, or calls for, or is in doubt about."""

    id: str
    partner: str
    mine: bool  #: this end called
    version: int = 0  #: the partner's, when the conversation began
    whole: bool = False  #: this end has heard and said everything


class Handshake:
    """One peer's part. Every method returns what is to be said and done; none of them waits."""

    def __init__(self, me: str, others: Collection[str]) -> None:
        self.me = me
        self.partners = set(others) - {me}  # with whom there is, or may be, something in common
        self.everyone = frozenset(others) | {me}
        self.working = True  # training; a peer begins with that
        self.asleep = False
        self.left = self.over_here = False
        self.content = False  # self-training brings nothing any more
        self.version, self.stamp, self.number = 0, 0, 0
        self.met: dict[str, int] = {}
        self.reports: dict[str, Report] = {}
        self.queue: list[str] = []
        self.shy: set[str] = set()  # partners that were busy: they call back, or are tried after a while
        self.calling: Talk | None = None
        self.talk: Talk | None = None
        self.doubts: dict[str, Talk] = {}  # by partner
        self.over: dict[str, None] = {}  # conversations that have ended here, the last ones
        self.counted: dict[str, str] = {}  # partner -> the last one that counted; no later one is in doubt
        self.strikes: dict[str, int] = {}  # conversations with a partner that failed, in a row
        self.gone: set[str] = set()  # peers that were not heard of for so long that nobody waits for them

    # What it is

    @property
    def state(self) -> State:
        if self.talk is not None or self.working:
            return State.BUSY
        return State.SLEEP if self.asleep else State.READY

    @property
    def wanted(self) -> list[str]:
        """Partners that have improved since the last meeting, in the order in which they said so."""
        return [q for q in self.queue if self._news(q)]

    def _news(self, q: str) -> bool:
        report = self.reports.get(q)
        return (
            report is not None
            and q in self.partners - self.gone
            and not report.left
            and report.version > self.met.get(q, 0)
        )

    @property
    def idle(self) -> bool:
        """Nothing to say, to hear or to train."""
        quiet = not (self.working or self.talk or self.calling or self.doubts)
        return quiet and self.content and (self.left or not self.wanted)

    @property
    def finished(self) -> bool:
        """Whether everybody is idle and has met the latest versions of its partners.

        Reports may be old. A peer that is idle wakes up only by news that it has not met, and each report
        says what was met: if all of them fit together, no news can be under way.
        """
        all_of_us = self.everyone - self.gone
        if self.idle and any(report.over for report in self.reports.values()):
            return True  # somebody has found out
        known = {q: self.reports.get(q) for q in all_of_us if q != self.me} | {self.me: self.report()}
        if not all(report is not None and report.idle for report in known.values()):
            return False
        versions = {q: (report.version, report.left) for q, report in known.items() if report}
        return all(
            report is not None and (report.left or versions[r][1] or report.met[r] == versions[r][0])
            for report in known.values()
            for r in (report.met if report else ())
            if r in versions
        )

    def report(self) -> Report:
        """What it says of itself."""
        met = {q: self.met.get(q, 0) for q in sorted(self.partners - self.gone)}
        return Report(self.stamp, self.version, self.idle, self.left, self.over_here, met)

    def status(self) -> list[Line]:
        """The same, to everybody."""
        self.stamp += 1
        one = self.report()
        note = {
            "stamp": one.stamp,
            "version": one.version,
            "idle": one.idle,
            "left": one.left,
            "over": one.over,
            "met": dict(one.met),
        }
        return [Line(q, "status", "", note) for q in sorted(self.everyone - {self.me})]

    # What it does of itself

    def act(self) -> list[Line]:
        """If it is ready: call the first of the queue, or fall asleep."""
        if self.state is not State.READY or self.calling is not None or self.left:
            return []
        ready = [q for q in self.wanted if q not in self.shy and q not in self.doubts]
        if not ready:
            self.asleep = True
            return []
        self.number += 1
        self.calling = Talk(f"{self.me}/{self.number}", ready[0], mine=True)
        return [Line(ready[0], "call", self.calling.id, {"version": self.version})]

    def trained(self, gained: bool, content: bool) -> list[Line]:
        """Training is over: a gain is broadcast. `content`: further training would bring nothing."""
        self.working, self.asleep, self.content = False, False, content
        self.version += gained
        return self.status()

    def train(self) -> None:
        """Training begins."""
        self.working = True

    def leave(self) -> list[Line]:
        """Take part in nothing further."""
        self.left, self.content = True, True
        return self.status()

    def drop(self, q: str) -> None:
        """Nothing is in common with a partner."""
        self.partners.discard(q)

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
            self.calling = None
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
            self.met[q] = max(self.met.get(q, 0), talk.version)

    def lost(self, q: str) -> None:
        """A peer has not been heard of for long: nobody waits for it until it speaks again."""
        self.gone.add(q)

    # What it hears

    def hear(self, q: str, kind: str, talk: str, note: Mapping[str, Any]) -> tuple[list[Line], list[Effect]]:
        """A line of another peer, whose note was checked."""
        self.gone.discard(q)
        if kind == "status":
            return self._status(q, note), []
        if kind == "call":
            return self._called(q, talk, note)
        if kind == "accept":
            return self._accepted(q, talk, note)
        return {
            "refuse": self._refused,
            "bye": self._bye,
            "prepared": self._prepared,
            "commit": self._committed,
            "ask": self._asked,
        }[kind](q, talk)

    def _status(self, q: str, note: Mapping[str, Any]) -> list[Line]:
        old = self.reports.get(q, Report())
        if note["stamp"] <= old.stamp:
            return []
        flags = (note["idle"], note["left"], note["over"])
        self.reports[q] = Report(note["stamp"], note["version"], *flags, dict(note["met"]))
        self.shy.discard(q)
        if self._news(q):
            if q not in self.queue:
                self.queue.append(q)
            self.asleep = False  # woken by a signal
        return []

    def _called(self, q: str, id: str, note: Mapping[str, Any]) -> tuple[list[Line], list[Effect]]:
        if self.talk is not None and self.talk.id == id and not self.talk.mine:
            return [Line(q, "accept", id, {"version": self.version})], []  # said again
        if id in self.over:
            return [Line(q, "refuse", id, {"why": "over"})], []
        lines, effects = list[Line](), list[Effect]()
        if self.talk is not None and self.talk.partner == q and not (self.talk.mine and self.talk.whole):
            more, effects = self.hang_up()  # it has given up the old one, or would not call
            lines += more
        if self.talk is not None or self.working or self.left or q in self.doubts or q not in self.partners:
            self._end(Talk(id, q, mine=False), False)
            self._enqueue(q)
            lines.append(Line(q, "refuse", id, {"why": "left" if self.left else "busy"}))
            lines += [Line(q, "ask", self.doubts[q].id)] if q in self.doubts else []
            return lines, effects
        if self.calling is not None:
            if q > self.me:
                self._end(Talk(id, q, mine=False), False)
                self._enqueue(q)
                return [*lines, Line(q, "refuse", id, {"why": "busy"})], effects
            lines.append(Line(self.calling.partner, "bye", self.calling.id))
            self._enqueue(self.calling.partner)
            self._end(self.calling, False)
            self.calling = None
        self.talk = Talk(id, q, mine=False, version=note["version"])
        lines.append(Line(q, "accept", id, {"version": self.version}))
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
        talk = self.talk
        if talk is not None and (talk.id, talk.partner, talk.mine) == (id, q, False) and talk.whole:
            self.talk = None
            self._end(talk, True)
            return [Line(q, "commit", id)], [Effect("commit", id, q)]
        return self._asked(q, id)

    def _asked(self, q: str, id: str) -> tuple[list[Line], list[Effect]]:
        """The caller is in doubt: it counted if it counted here; if not, it never will."""
        if self.counted.get(q) == id:
            return [Line(q, "commit", id)], []
        if self.talk is not None and self.talk.id == id:
            return self._prepared(q, id) if self.talk.whole else self.hang_up()
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

    def _enqueue(self, q: str) -> None:
        if q not in self.queue:
            self.queue.append(q)

    def _end(self, talk: Talk, counted: bool) -> None:
        self.over[talk.id] = None
        if counted:
            self.counted[talk.partner], self.strikes[talk.partner] = talk.id, 0
            self.met[talk.partner] = max(self.met.get(talk.partner, 0), talk.version)
            self.queue = [q for q in self.queue if q != talk.partner or self._news(q)]
        for old in list(self.over)[:-REMEMBERED]:
            del self.over[old]
