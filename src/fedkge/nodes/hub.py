"""The hub: it asks sites to train, aggregates what comes in time, has it measured, decides when to stop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedkge import __version__
from fedkge.errors import DataError
from fedkge.exchange.channel import serial
from fedkge.exchange.displaced import check_moved, split
from fedkge.exchange.rows import HUB, Message, Rows, Update, named, update_under
from fedkge.graphs.graph import Axis
from fedkge.nodes.base import REFUSALS, Node, Setting
from fedkge.nodes.displaced import told
from fedkge.nodes.notes import Refusal, allowed, dialled, joining, measured, noted, reading, refusal
from fedkge.nodes.roster import Roster
from fedkge.nodes.terms import Terms
from fedkge.nodes.validation import TOGETHER, Judge, Plan
from fedkge.randomness import key

LASTING = ("taken", "said", "news", "owed", "until")  #: what it keeps about sites, by name
OWED = 8  #: rounds of which a late answer is read
VOID = 10  #: rounds in a row without a quorum before the hub gives up


class HubNode(Node):
    """The hub with its folder.

    A round: `train` to the sites asked, `upload` from them, and when validation is due `measure` to all and
    `metrics` from all. `state()` is what it was when the round began, so that after a restart the sites join
    again and the round is asked for again, in the same words.
    """

    def __init__(
        self,
        terms: Terms,
        sites: Iterable[str],
        setting: Setting = Setting(),  # noqa: B008 - frozen
        first: bool = False,
        pooled: bool = False,
        device: torch.device | str = "cpu",
        pseudonyms: bool = False,
    ) -> None:
        super().__init__(HUB, terms, setting)
        self.kinds = {
            "join": self._join,
            "upload": self._upload,
            "metrics": self._metrics,
            "refusal": self._declined,
        }
        self.method, self.selection = terms.method, terms.selection
        # Where nothing is exchanged, nobody is waited for and nothing gets lost.
        self.participation = terms.participation if self.method.shares else type(terms.participation)()
        self.plan, self.pooled, self.device = Plan.of(terms, first), pooled, torch.device(device)
        self.pseudonyms = pseudonyms  # whether sites must announce these, and no names
        self.sites = sorted(sites)
        self._partners = frozenset(self.sites)
        self.roster = Roster(terms, self.device, late=self.participation.late == "use")
        self.hub, self.channels = self.roster.hub, self.roster.channels
        self.validation = Judge(self.method, self.sites, self.plan.stopping, self.plan.each)
        self._round = 0  # the last that was closed, or is open
        self.phase = "join"
        self.taken: dict[str, int] = {}  # to be told: the round of a site's last upload; below 0: not used
        self.said: dict[str, int] = {}  # since which question a site is told what it is to know
        self.news: dict[str, int] = {}  # the same of late uploads, to be told from the next round on
        self.holds: set[str] = set()  # who was sent the current answer, to be measured
        self.stopped: set[str] = set()
        self.owed: dict[
            str, list[int]
        ] = {}  # rounds that a site was asked for and has not answered, the last few
        self.until: dict[str, int] = {}  # the last round that a site's privacy budget allows
        self.void = 0
        self.failed: str | None = None
        self.unlearns = False  # whether sites may say how far they have moved their rows
        self._here: set[str] = set()  # who has joined since the hub was started
        self._absent: dict[str, str] = {}  # who would not join, or was not let in, and why
        self._open: dict[str, Message] = {}  # questions that are not answered yet
        self._asked: list[str] = []
        self._measured = -1  # the round that was last asked to be measured, since the hub was started
        self._inbox: dict[str, Update] = {}
        self._refused: dict[str, str] = {}
        self._late: dict[str, Update] = {}
        self._ended: dict[str, Message] = {}  # what sites that have stopped were told
        self._began = self._plain()

    # Messages

    def partners(self) -> Collection[str]:
        return self._partners

    @property
    def round(self) -> int:
        return int(self._began["round"])

    def refuse(self, message: Message, why: str) -> list[Message]:
        """An answer that is refused is no longer waited for: the others go on without it."""
        super().refuse(message, why)
        sender, phase = message.sender, {"upload": "train", "metrics": "measure"}.get(message.kind)
        mine = (message.recipient, message.run) == (self.id, self.setting.run)
        if mine and message.kind == "join" and sender in self._partners:
            return self._turned_down(sender, why)
        if not mine or message.round != self._round or phase != self.phase or sender not in self._open:
            return []
        return self._go_on_without(sender, why)

    def _go_on_without(self, site: str, why: str) -> list[Message]:
        """The answer of a site to the open question is no longer waited for."""
        if self.phase == "measure":
            self.validation.heard.add(site)
            return self._validated_if_due()
        self._refused[site] = why
        return self._close_if_due()

    def _turned_down(self, site: str, why: str) -> list[Message]:
        """Tell a site why it is not let in; who floods the hub is told some times only."""
        self._absent[site] = f"{site} was refused: {why}"
        told = self._refusals[site] <= REFUSALS
        return [self.message(site, "refusal", self._round, why=why)] if told else []

    def _declined(self, message: Message) -> list[Message]:
        """A site's own policy forbids what it was asked for."""
        site = message.sender
        with reading():
            why = refusal(message)
            if message.round > self._round:
                raise DataError("declines a round that has not begun")
        self.note({"event": "declined", "site": site, "round": message.round, "why": why})
        if self.phase == "join":
            self._absent[site] = f"{site} declines: {why}"
            missing = set(self.sites) - self._here
            return self._begin_without(missing) if missing <= self._absent.keys() else []
        if message.round != self._round or self.phase not in ("train", "measure") or site not in self._open:
            return []
        return self._go_on_without(site, f"declines: {why}")

    def expire(self, round: int) -> list[Message]:
        """Time is up: without a quorum the answers are left out; who has not measured is passed over."""
        if self.phase == "join":
            return self._begin_without(set(self.sites) - self._here)
        if round != self._round or self.phase not in ("train", "measure"):
            return []
        if self.phase == "measure":
            return self._validated()
        return self._close() if len(self._inbox) >= self._needed else self._give_up()

    # Joining

    def _join(self, message: Message) -> list[Message]:
        """A site joins: at first, again after it or the hub was gone, or with other rows than before."""
        site = message.sender
        with reading():
            most = self.participation.most
            plain, moved, _ = split(message) if self.unlearns else (message, {}, {})
            said = joining(plain, self.method.shares, self.pooled, self.pseudonyms, most)
            check_moved(moved, {a: (len(said.ids[a]), width) for a, width in self.terms.widths.items()})
            said = replace(said, moved=moved)
        if other := self.roster.stranger(site, said):
            raise Refusal(
                f"has another secret than {other}; expected the same file at all sites, and a new run for a "
                "new secret"
            )
        again = self.roster.has(site, said)
        if self.settled and not again and not self.participation.open:
            what = "announces other rows, or other validation questions, than before"
            what = what if site in self.roster.joined else "joins too late"
            raise Refusal(f"{what}, and participation.open is false")
        if again:
            self.roster.joined[site] = said
            self.roster.waiting.pop(site, None)
        else:
            self.roster.waiting[site] = said
        self._here.add(site)
        self._absent.pop(site, None)
        if said.allows is not None:
            now = self._round - (self.phase == "train" and site in self._open) + said.allows
            self.until[site] = max(now, self.until.get(site, 0)) if again else now
        if self.phase == "join":
            return self._begin() if self._here >= set(self.sites) else []
        return [self._share(site), *self._unanswered(site)] if again else []

    def _begin_without(self, missing: Collection[str]) -> list[Message]:
        """Time is up for joining: who is missing may join later, if the terms allow it."""
        if self.participation.open and self._here:
            return self._begin()
        why = "; ".join(self._absent[site] for site in sorted(missing) if site in self._absent)
        return self._fail(f"{', '.join(sorted(missing))} did not join{why and ': '}{why}")

    def _begin(self) -> list[Message]:
        """Everyone is here: say who shares what, and ask for the first round, or for the open one again."""
        if not self.settled:
            self.roster.settle()
            self.roster.warn()
            self._note_aligned()
        out = [self._share(site) for site in sorted(self.roster.joined)]
        self.roster.joined = {n: replace(one, moved={}) for n, one in self.roster.joined.items()}  # told once
        out += [message for site in sorted(self.stopped) for message in self._unanswered(site)]
        return out + (self._measure() if self.plan.first and not self.validation.begun else self._advance())

    @property
    def settled(self) -> bool:
        """Whether it is known who shares what."""
        return bool(self.roster.joined)

    def _share(self, site: str) -> Message:
        """Which of the rows that a site announced others have."""
        note: dict[str, Any] = {"fedkge": __version__, "version": self.roster.joined[site].version}
        if self.pseudonyms:
            note["by_two"] = self.roster.by_two(site)
        body = self.roster.bits(site) | told(self.roster, site)
        return self.message(site, "shared", self._round, body, **note)

    def _note_aligned(self) -> None:
        """Who is here, how many rows are in common, and how many of them exactly two sites have.

        Where ids are pseudonyms, nobody else can count and warn.
        """
        found, here = self.roster.exposures(), sorted(self.roster.joined)
        rows = {str(axis): {"shared": one.shared, "by_two": one.by_two} for axis, one in found.items()}
        event: dict[str, Any] = {"event": "aligned", "round": self._round, "sites": here, "rows": rows}
        if self.pseudonyms and self.method.averages:
            event["exposed"] = [str(one) for one in found.values() if one.by_two]
        self.note(event)

    def _unanswered(self, site: str) -> list[Message]:
        """The question that a site which was gone has not answered, or the end, in the same words."""
        if site in self.stopped and site not in self._ended:  # the hub was gone too
            self._stop(site)
        return [of[site] for of in (self._open, self._ended) if site in of]

    # Uploads

    def _upload(self, message: Message) -> list[Message]:
        site, number = message.sender, serial("train", message.round)
        if self.phase == "join":
            raise Refusal("speaks before everyone has joined")
        if message.round > self._round:
            raise Refusal("answers a round that has not begun")
        if message.round not in self.owed.get(site, ()):
            raise Refusal("answers nothing that was asked")
        with reading():
            read = self.channels[site].read(message.body)
            self.selection.check(read.update, self.hub.ids[site], message.round)
            allows = allowed(message)
        update = self.channels[site].accept(read, number)
        self._acknowledged(site, number)
        self.owed[site] = [round for round in self.owed[site] if round > message.round]
        if allows is not None:
            self.until[site] = message.round + allows
        if message.round != self._round or self.phase != "train":
            return self._arrived_late(site, message.round, update)
        self._inbox[site] = update
        self._open.pop(site, None)
        self._note_open("answered", kind="train", site=site)
        self.channels[site].answered(number)
        return self._close_if_due()

    def _arrived_late(self, site: str, round: int, update: Update) -> list[Message]:
        used = self.participation.late == "use"
        self.news[site] = round if used else -round
        if used:
            self._late[site] = update
        self.note({"event": "late", "site": site, "round": round, "used": used})
        return []

    # Rounds

    @property
    def _is_validated(self) -> bool:
        """Whether the last round was measured, or could not be."""
        judged = [*self.validation.stopping.values(), *self.validation.keeping.values()]
        return self._measured == self._round or any(one.last_at == self._round for one in judged)

    @property
    def limit(self) -> int:
        """The last round: as planned, or the last that any site's privacy budget has steps for."""
        active = self._active
        if not active or not self.until.keys() >= set(active):
            return self.plan.rounds
        return min(self.plan.rounds, max(self.until[site] for site in active))

    def _advance(self) -> list[Message]:
        """The next round, and the end for those who have finished."""
        self._began = self._plain()
        over = self._round >= self.limit
        if over and self._round > 0 and not self._is_validated:
            return self._measure()  # a hub that was gone may come to the end without it
        out = [self._stop(site) for site in self._active if over or self.validation.finished(site)]
        self.stopped |= {message.recipient for message in out}
        if not self._active:
            self._end()
            return out
        self._round, self.phase = self._round + 1, "train"
        self._asked = self.participation.asked(self._active, self.plan.seed, self._round)
        self._inbox, self._refused = {}, {}
        self.owed |= {site: [*self.owed.get(site, []), self._round][-OWED:] for site in self._asked}
        self._open = {site: self._ask(site, "train") for site in self._asked}
        self._note_open("asked", kind="train", sites=self._asked)
        self._written()
        return out + list(self._open.values())

    def _note_open(self, event: str, **about: Any) -> None:
        """What happens while a round is open, at once, for who watches a hub that lives by itself."""
        if self.setting.often:
            self.note({"event": event, "round": self._round, **about})
            self.write_down(sync=False)

    def _written(self) -> None:
        if self.setting.often:
            self.save()
        else:
            self.flush()

    def _end(self) -> None:
        kept = self.validation.keeping
        names = {TOGETHER: self.sites[0] if len(self.sites) == 1 else "federation"}
        courses = {
            names.get(name, name): {
                "rounds": s.last_at,
                "best_round": s.best_at,
                "best_rounds": dict(s.beside_at),
            }
            for name, s in kept.items()
        }
        self.phase, self._open = "done", {}
        self.note({"event": "done", "round": self._round, "courses": courses})
        self._written()

    def _fail(self, why: str) -> list[Message]:
        """Give up. Sites are not stopped: a run that is resumed asks them again."""
        self.phase, self.failed, self._open = "failed", why, {}
        self.note({"event": "failed", "round": self._round, "why": why})
        self.flush()
        return []

    def _ask(self, site: str, kind: str) -> Message:
        number = serial(kind, self._round)
        note = self._said(site, number)
        if site in self.holds:
            update: Update = {}
            note["held"] = True
        else:
            answer = self.method.answer(self.hub, site)
            update = {a: self._chosen(site, a, rows) for a, rows in answer.items() if self._is_news(rows)}
        self.holds.discard(site)
        dials = self.method.dials() if kind == "train" else None
        if dials is not None:
            note["dials"] = dict(dials.told(self.hub, site))
        body = self.channels[site].encode(update, number)
        return self.message(site, kind, self._round, body, **note)

    def _is_news(self, rows: Rows) -> bool:
        """Means of what others sent are of the round just closed: after a void one, they were told before."""
        return not self.void or rows.support is None

    def _chosen(self, site: str, axis: Axis, rows: Rows) -> Rows:
        tie = key(self.plan.seed, site, axis, self._round, "ties")
        at = self.selection.down(rows, len(self.hub.ids[site][axis]), tie)
        return rows if at is None else rows[at]

    def _stop(self, site: str) -> Message:
        note = self._said(site, serial("measure", self._round))
        self._ended[site] = self.message(site, "stop", self._round, **note)
        return self._ended[site]

    def _said(self, site: str, number: int) -> dict[str, Any]:
        """What the site is told about its last upload and measurement, until it answers such a question."""
        note: dict[str, Any] = {"taken": self.taken[site]} if site in self.taken else {}
        if site in self.validation.best:
            note["best"] = dict(self.validation.best[site])
        if note:
            self.said.setdefault(site, number)
        return note

    def _acknowledged(self, site: str, number: int) -> None:
        """A site has answered the question of a number: it knows what was said since then."""
        if site in self.said and number >= self.said[site]:
            for told in (self.said, self.taken, self.validation.best):
                told.pop(site, None)

    def _to_say(self, sites: Iterable[str]) -> None:
        """There is something new to tell these sites, which no question has said yet."""
        for site in sites:
            self.said.pop(site, None)

    def _take(self, taken: Mapping[str, int]) -> None:
        """Note what became of uploads, to be told."""
        self.taken |= taken
        self._to_say(taken)

    @property
    def _needed(self) -> int:
        return self.participation.needed(len(self._asked))

    def _close_if_due(self) -> list[Message]:
        """At the quorum, or when everyone asked has been heard: refused answers leave the others alone."""
        if len(self._inbox) >= self._needed:
            return self._close()
        if len(self._inbox) + sum(site not in self._inbox for site in self._refused) < len(self._asked):
            return []
        return self._close() if self._inbox else self._give_up()

    def _close(self) -> list[Message]:
        self.void = 0
        refused = dict.fromkeys(self._refused, -self._round)
        self._take(refused | self.news | dict.fromkeys(self._inbox, self._round))
        out = self._grown()
        self.hub.sparse, self.hub.fresh = not self.selection.whole(self._round), {}
        self.method.aggregate(self.hub, {**self._late, **self._inbox})
        self._late, self.holds = {}, set()
        return out + self._closed()

    def _give_up(self) -> list[Message]:
        self.void += 1
        if self.void >= VOID:
            refused = "; ".join(f"{site} was refused: {why}" for site, why in list(self._refused.items())[:3])
            return self._fail(
                f"round {self._round}: {len(self._inbox)} of {len(self._asked)} sites answered, "
                f"{self._needed} were needed, for the {VOID}th time in a row; "
                f"{refused or 'lower participation.quorum'}"
            )
        unused = dict.fromkeys((*self._refused, *self._inbox), -self._round)
        self._take(self.news | unused)
        return self._grown() + self._closed()

    def _grown(self) -> list[Message]:
        """Take in what sites have announced since the round began; who shares other rows now is told."""
        self.news = {}
        if not self.roster.waiting:
            return []
        changed, moved = self.roster.settle()
        self._note_aligned()
        for updates in (self._inbox, self._late):
            updates |= {site: moved(site, update) for site, update in updates.items()}
        self.owed |= {site: [] for site in changed}  # what is under way is about the rows before
        return [self._share(site) for site in changed]

    def _closed(self) -> list[Message]:
        self._open = {}
        self.note(
            {
                "event": "round",
                "round": self._round,
                "participants": sorted(self._inbox),
                "void": self.void > 0,
                "late": [s for s in self._asked if s not in self._inbox and s not in self._refused],
                "refused": dict(self._refused),
            }
        )
        validates = self._round % self.plan.every == 0 or self._round == self.limit
        return self._measure() if validates else self._advance()

    # Validation

    def _measure(self) -> list[Message]:
        """Have everyone measure; before the first round the hub has nothing to tell."""
        self.phase, self._measured = "measure", self._round
        self.validation.begin()
        if self._has_answers:
            asked = {site: self._ask(site, "measure") for site in self._active}
        else:
            note = {site: self._said(site, serial("measure", self._round)) for site in self._active}
            asked = {site: self.message(site, "measure", self._round, **of) for site, of in note.items()}
        self._open = asked
        self._note_open("asked", kind="measure", sites=sorted(asked))
        return list(asked.values())

    @property
    def _has_answers(self) -> bool:
        """Whether sites measure what the hub tells them."""
        return self._round > 0 and self.method.measures_answer

    def _metrics(self, message: Message) -> list[Message]:
        site = message.sender
        if message.round != self._round or self.phase != "measure" or site not in self._open:
            raise Refusal("measures nothing that was asked")
        if site in self.validation.measured:
            raise Refusal("measures the same once more")
        with reading():
            found, views = measured(message, self.roster.joined[site].queries, self.validation.views)
        self.validation.hear(site, found, views)
        self._acknowledged(site, serial("measure", message.round))
        self.channels[site].answered(serial("measure", message.round))
        if self._has_answers:
            self.holds.add(site)
        self._note_open("answered", kind="measure", site=site)
        return self._validated_if_due()

    def _validated_if_due(self) -> list[Message]:
        return self._validated() if len(self.validation.heard) == len(self._active) else []

    def _validated(self) -> list[Message]:
        mrr, views = self.validation.judge(self._round)
        self._to_say(self.validation.measured)
        dials = self.method.dials()
        if self.validation.measured and dials is not None:
            dials.validated(self.hub, self._round, mrr, views)
        found = self.validation.latest()
        event = {"event": "evaluate", "round": self._round, "split": "valid", "sites": found, "mrr": mrr}
        beside = {"views": views, "dials": dialled(self.method, self.hub, sorted(self.roster.joined))}
        event |= {name: values for name, values in beside.items() if values}
        self.note(event | noted(sorted(self.hub.ids), self.method.notes(self.hub)))
        return self._advance()

    @property
    def _active(self) -> list[str]:
        return [site for site in sorted(self.roster.joined) if site not in self.stopped]

    # What lasts

    def _plain(self) -> dict[str, Any]:
        sets = {name: sorted(getattr(self, name)) for name in ("holds", "stopped")}
        maps = {name: dict(getattr(self, name)) for name in LASTING}
        own = {"round": self._round, "void": self.void}
        return {**own, **sets, **maps, **self.validation.plain()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values, as they were when the open round began, and what came late since then."""
        tensors, who = self.roster.state()
        for number, site in enumerate(sorted(self.roster.joined)):
            tensors |= named(f"late.{number}", self._late.get(site, {}))
        owed = {site: [r for r in of if r <= self._began["round"]] for site, of in self.owed.items()}
        return tensors, {**self._began, "news": dict(self.news), "owed": owed, "joined": who}

    def load_state(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Before anyone has joined."""
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self._round, self.void = plain["round"], plain["void"]
        for name in LASTING:
            setattr(self, name, dict(plain[name]))
        self.holds, self.stopped = set(plain["holds"]), set(plain["stopped"])
        self.validation.load(plain)
        self.roster.load(tensors, plain["joined"])
        for number, site in enumerate(sorted(self.roster.joined)):
            if waiting := update_under(f"late.{number}", tensors):
                self._late[site] = waiting
        self._began = self._plain()
