"""The hub's turns: ask sites to train, combine what comes in time, have it measured, decide when to stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from fedkge.errors import DataError, FedkgeError
from fedkge.exchange.channel import checked
from fedkge.exchange.codec import Codec
from fedkge.exchange.line import Line, line, turn
from fedkge.exchange.rows import HUB, Message, Rows, Update, named, under, update_under
from fedkge.exchange.select import Selection
from fedkge.graphs.graph import Axis
from fedkge.methods import Hub, Method
from fedkge.parties.base import Participation, Plan
from fedkge.parties.notes import dialled, noted, totals
from fedkge.parties.validation import Validation
from fedkge.randomness import key

VOID = 10  #: rounds in a row without a quorum before the hub gives up


class HubParty:
    """Plays the hub. `events` says what happened, for a runtime's journal.

    A round: `train` to the sites asked, `upload` from them, and when validation is due `measure` to all and
    `metrics` from all. `state()` is what it was when the round began, so that after a restart the sites join
    again and the round is asked for again, in the same words.
    """

    id = HUB

    def __init__(
        self,
        method: Method,
        sites: Iterable[str],
        codec: Codec,
        selection: Selection,
        widths: Mapping[Axis, int],
        participation: Participation,
        plan: Plan,
    ) -> None:
        self.method, self.codec, self.selection, self.widths = method, codec, selection, widths
        self.sites, self.participation, self.plan = sorted(sites), participation, plan
        self.hub = Hub()
        self.events: list[dict[str, Any]] = []
        self.lines: dict[str, Line] = {}
        self._memories: dict[str, dict[str, Tensor]] = {}  # of lines, until their sites have joined
        self.validation = Validation(method, self.sites, plan.stopping, plan.each)
        self.round = 0  # the last that was closed, or is open
        self.phase = "join"
        self.taken: dict[str, int] = {}  # to be told: the round of a site's last upload if used, else 0
        self.news: dict[str, int] = {}  # the same of late uploads, to be told from the next round on
        self.holds: set[str] = set()  # who was sent the current answer, to be measured
        self.stopped: set[str] = set()
        self.void = 0
        self._asked: list[str] = []
        self._inbox: dict[str, Update] = {}
        self._refused: dict[str, str] = {}
        self._late: dict[str, Update] = {}
        self._began = self._plain()

    # Messages

    def open(self) -> list[Message]:
        return []

    def receive(self, message: Message) -> list[Message]:
        if message.sender not in self.sites:
            raise FedkgeError(f"hub: a message from {message.sender!r}, which is no site of this federation")
        kinds = {"join": self._join, "upload": self._upload, "metrics": self._metrics}
        if message.kind not in kinds:
            raise FedkgeError(f"hub: a message of unknown kind {message.kind!r} from {message.sender}")
        if message.kind != "join" and self.phase == "join":
            return self._refuse(message.sender, message.round, "speaks before everyone has joined")
        return kinds[message.kind](message)

    def expire(self, round: int) -> list[Message]:
        """Time is up: without a quorum the answers are left out; who has not measured is passed over."""
        if round != self.round or self.phase not in ("train", "measure"):
            return []
        if self.phase == "measure":
            return self._validated()
        return self._close() if len(self._inbox) >= self._needed else self._give_up()

    def _join(self, message: Message) -> list[Message]:
        site = message.sender
        expected = {f"{axis}.ids" for axis in self.method.shares}
        if message.body.keys() != expected:
            found = sorted(message.body)
            raise DataError(f"{site} joins with {found}, expected {sorted(expected)}; another method?")
        if self.phase != "join":
            return self._refuse(site, message.round, "joins a federation that has begun")
        self.hub.ids[site] = checked({axis: message.body[f"{axis}.ids"] for axis in self.method.shares})
        if self.method.counts:
            self.hub.totals[site] = totals(site, message.note, self.hub.ids[site])
        if len(self.hub.ids) < len(self.sites):
            return []
        self.hub.number(self.method.shares)
        late = self.participation.late == "use"
        for name in self.sites:
            self.lines[name] = line(self.codec, self.hub.ids[name], self.widths, hub=True, late=late)
            self.lines[name].load(self._memories.pop(name, {}))
        return self._measure() if self.plan.first and not self.validation.begun else self._advance()

    def _upload(self, message: Message) -> list[Message]:
        site, asked = message.sender, turn("train", message.round)
        if message.round > self.round:
            return self._refuse(site, message.round, "answers a round that has not begun")
        try:
            update = self.lines[site].decode(message.body, asked)
            self.selection.check(update, self.hub.ids[site], message.round)
        except DataError as error:
            return self._refuse(site, message.round, str(error))
        if message.round != self.round or self.phase != "train":
            return self._arrived_late(site, message.round, update)
        if site not in self._asked or site in self._inbox:
            return self._refuse(site, message.round, "answers nothing that was asked")
        self._inbox[site] = update
        self.lines[site].answered(asked)
        return self._close_if_due()

    def _refuse(self, site: str, round: int, why: str) -> list[Message]:
        self.events.append({"event": "refused", "site": site, "round": round, "why": why})
        waits = round == self.round and self.phase == "train" and site in self._asked
        if not waits or site in self._inbox:
            return []
        self._refused[site], self.taken[site] = why, 0
        return self._close_if_due()

    def _arrived_late(self, site: str, round: int, update: Update) -> list[Message]:
        used = self.participation.late == "use"
        self.news[site] = round if used else 0
        if used:
            self._late[site] = update
        self.events.append({"event": "late", "site": site, "round": round, "used": used})
        return []

    # Rounds

    def _advance(self) -> list[Message]:
        """The next round, and the end for those who have finished."""
        self._began = self._plain()
        over = self.round >= self.plan.rounds
        out = [self._stop(site) for site in self._active if over or self.validation.finished(site)]
        self.stopped |= {message.recipient for message in out}
        if not self._active:
            self.phase = "done"
            return out
        self.round, self.phase = self.round + 1, "train"
        self._asked = self.participation.asked(self._active, self.plan.seed, self.round)
        self._inbox, self._refused = {}, {}
        return out + [self._ask(site, "train") for site in self._asked]

    def _ask(self, site: str, kind: str) -> Message:
        note = self._note(site)
        if site in self.holds:
            update: Update = {}
            note["held"] = True
        else:
            answer = self.method.answer(self.hub, site)
            update = {a: self._chosen(site, a, rows) for a, rows in answer.items() if self._is_news(rows)}
        self.holds.discard(site)
        if kind == "train" and self.method.dials:
            note["dials"] = dict(self.method.dialled(self.hub, site))
        body = self.lines[site].encode(update, turn(kind, self.round))
        return Message(HUB, site, kind, self.round, body, note)

    def _is_news(self, rows: Rows) -> bool:
        """Means of what others sent are of the round just closed: after a void one, they were told before."""
        return not self.void or rows.support is None

    def _chosen(self, site: str, axis: Axis, rows: Rows) -> Rows:
        tie = key(self.plan.seed, site, axis, self.round, "ties")
        at = self.selection.down(rows, len(self.hub.ids[site][axis]), tie)
        return rows if at is None else rows[at]

    def _stop(self, site: str) -> Message:
        return Message(HUB, site, "stop", self.round, note=self._note(site))

    def _note(self, site: str) -> dict[str, Any]:
        """What the site is told about its last upload, and about what it measured last; once."""
        note: dict[str, Any] = {"taken": self.taken.pop(site)} if site in self.taken else {}
        if site in self.validation.best:
            note["best"] = sorted(self.validation.best.pop(site))
        return note

    @property
    def _needed(self) -> int:
        return self.participation.needed(len(self._asked))

    def _close_if_due(self) -> list[Message]:
        """At the quorum, or when everyone asked has been heard: refused answers leave the others alone."""
        if len(self._inbox) >= self._needed:
            return self._close()
        if len(self._inbox.keys() | self._refused.keys()) < len(self._asked):
            return []
        return self._close() if self._inbox else self._give_up()

    def _close(self) -> list[Message]:
        self.void = 0
        self.taken |= self.news | dict.fromkeys(self._inbox, self.round)
        self.news = {}
        self.hub.sparse = not self.selection.whole(self.round)
        self.method.combine(self.hub, {**self._late, **self._inbox})
        self._late, self.holds = {}, set()
        return self._closed()

    def _give_up(self) -> list[Message]:
        self.void += 1
        if self.void >= VOID:
            refused = "; ".join(f"{site} was refused: {why}" for site, why in list(self._refused.items())[:3])
            raise FedkgeError(
                f"round {self.round}: {len(self._inbox)} of {len(self._asked)} sites answered, "
                f"{self._needed} were needed, for the {VOID}th time in a row; "
                f"{refused or 'lower participation.quorum'}"
            )
        self.taken |= self.news | dict.fromkeys(self._inbox, 0)
        self.news = {}
        return self._closed()

    def _closed(self) -> list[Message]:
        self.events.append(
            {
                "event": "round",
                "round": self.round,
                "participants": sorted(self._inbox),
                "void": self.void > 0,
                "late": [s for s in self._asked if s not in self._inbox and s not in self._refused],
                "refused": dict(self._refused),
            }
        )
        return self._measure() if self.plan.validates(self.round) else self._advance()

    # Validation

    def _measure(self) -> list[Message]:
        """Have everyone measure; before the first round the hub has nothing to tell."""
        self.phase = "measure"
        self.validation.begin()
        if self.round == 0 or not self.method.measures_answer:
            return [Message(HUB, s, "measure", self.round, note=self._note(s)) for s in self._active]
        out = [self._ask(site, "measure") for site in self._active]
        self.holds = set(self._active)
        return out

    def _metrics(self, message: Message) -> list[Message]:
        if message.round != self.round or self.phase != "measure" or message.sender in self.stopped:
            return []
        if self.validation.hear(message.sender, message.note):
            self.lines[message.sender].answered(turn("measure", message.round))
        else:
            self._refuse(message.sender, message.round, "metrics that are none")
        return self._validated() if len(self.validation.heard) == len(self._active) else []

    def _validated(self) -> list[Message]:
        mrr, views = self.validation.judge(self.round)
        if self.validation.measured:
            self.method.validated(self.hub, self.round, mrr, views)
        found = self.validation.latest()
        event = {"event": "evaluate", "round": self.round, "split": "valid", "sites": found, "mrr": mrr}
        beside = {"views": views, "dials": dialled(self.method, self.hub, self.sites)}
        event |= {name: values for name, values in beside.items() if values}
        self.events.append(event | noted(self.sites, self.method.notes(self.hub)))
        return self._advance()

    @property
    def _active(self) -> list[str]:
        return [site for site in self.sites if site not in self.stopped]

    # What lasts

    def _plain(self) -> dict[str, Any]:
        sets = {name: sorted(getattr(self, name)) for name in ("holds", "stopped")}
        own = {"round": self.round, "void": self.void, "taken": dict(self.taken)}
        return {**own, **sets, **self.validation.plain()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values, as they were when the open round began."""
        tensors = {f"memory.{name}": tensor for name, tensor in self.hub.memory.items()}
        for number, site in enumerate(self.sites):
            tensors |= {f"sent.{number}.{name}": t for name, t in self.lines[site].memory().items()}
            tensors |= named(f"late.{number}", self._late.get(site, {}))
        return tensors, {**self._began, "news": dict(self.news)}

    def load_state(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Before anyone has joined."""
        self.round, self.void = plain["round"], plain["void"]
        self.taken, self.news = dict(plain["taken"]), dict(plain["news"])
        self.holds, self.stopped = set(plain["holds"]), set(plain["stopped"])
        self.validation.load(plain)
        self.hub.memory = dict(under("memory", tensors))
        for number, site in enumerate(self.sites):
            self._memories[site] = under(f"sent.{number}", tensors)
            if late := update_under(f"late.{number}", tensors):
                self._late[site] = late
