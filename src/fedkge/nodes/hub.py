"""The hub: it asks sites to train, aggregates what comes in time, has it measured, decides when to stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedkge.exchange.channel import serial
from fedkge.exchange.rows import Message, Update, named, update_under
from fedkge.nodes.base import Setting
from fedkge.nodes.gathering import Gathering
from fedkge.nodes.notes import Refusal, allowed, dialled, measured, noted, reading
from fedkge.nodes.questions import Questions
from fedkge.nodes.terms import Terms
from fedkge.nodes.validation import Judge, Plan

LASTING = ("news", "owed", "until")  #: what it keeps about sites, by name
OWED = 8  #: rounds of which a late answer is read
VOID = 10  #: rounds in a row without a quorum before the hub gives up


class HubNode(Gathering):
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
        super().__init__(terms, sites, setting, pooled, device, pseudonyms)
        self.kinds = {
            "join": self._join,
            "upload": self._upload,
            "metrics": self._metrics,
            "refusal": self._declined,
        }
        self.selection, self.plan = terms.selection, Plan.of(terms, first)
        self.validation = Judge(self.method, self.sites, self.plan.stopping, self.plan.each, self.plan.sure)
        self.questions = Questions(terms, self.roster, self.validation)
        self.news: dict[str, int] = {}  # rounds of late uploads, to be told from the next round on
        self.owed: dict[
            str, list[int]
        ] = {}  # rounds that a site was asked for and has not answered, the last few
        self.void = 0
        self.failed: str | None = None
        self._asked: list[str] = []
        self._measured = -1  # the round that was last asked to be measured, since the hub was started
        self._inbox: dict[str, Update] = {}
        self._refused: dict[str, str] = {}
        self._late: dict[str, Update] = {}
        self._began = self._plain()

    # Messages

    @property
    def round(self) -> int:
        return int(self._began["round"])

    def refuse(self, message: Message, why: str) -> list[Message]:
        """An answer that is refused is no longer waited for: the others go on without it."""
        out = super().refuse(message, why)
        phase = {"upload": "train", "metrics": "measure"}.get(message.kind)
        due = self._is_mine(message) and message.round == self._round and phase == self.phase
        return self._go_on_without(message.sender, why) if due and message.sender in self._open else out

    def _go_on_without(self, site: str, why: str) -> list[Message]:
        """The answer of a site to the open question is no longer waited for."""
        if self.phase == "measure":
            self.validation.heard.add(site)
            return self._validated_if_due()
        self._refused[site] = why
        return self._close_if_due()

    def expire(self, round: int) -> list[Message]:
        """Time is up: without a quorum the answers are left out; who has not measured is passed over."""
        if self.phase == "join":
            return self._begin_without(set(self.sites) - self._here)
        if round != self._round or self.phase not in ("train", "measure"):
            return []
        if self.phase == "measure":
            return self._validated()
        return self._close() if len(self._inbox) >= self._needed else self._give_up()

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
        self.questions.acknowledged(site, number)
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

    def _asked_first(self) -> list[Message]:
        return self._measure() if self.plan.first and not self.validation.begun else self._advance()

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
        self.phase, self._open = "done", {}
        self.note({"event": "done", "round": self._round, "courses": self.validation.courses(self.sites)})
        self._written()

    def _fail(self, why: str) -> list[Message]:
        """Give up. Sites are not stopped: a run that is resumed asks them again."""
        self.phase, self.failed, self._open = "failed", why, {}
        self.note({"event": "failed", "round": self._round, "why": why})
        self.flush()
        return []

    def _ask(self, site: str, kind: str) -> Message:
        body, note = self.questions.ask(site, kind, self._round, self.void > 0)
        return self.message(site, kind, self._round, body, **note)

    def _stop(self, site: str) -> Message:
        note = self.questions.about(site, serial("measure", self._round))
        self._ended[site] = self.message(site, "stop", self._round, **note)
        return self._ended[site]

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
        self.questions.take(refused | self.news | dict.fromkeys(self._inbox, self._round))
        out = self._grown()
        self.hub.sparse, self.hub.fresh = not self.selection.whole(self._round), {}
        self.method.aggregate(self.hub, {**self._late, **self._inbox})
        self._late, self.questions.holds = {}, set()
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
        self.questions.take(self.news | unused)
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
            note = {site: self.questions.about(site, serial("measure", self._round)) for site in self._active}
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
        self.questions.acknowledged(site, serial("measure", message.round))
        self.channels[site].answered(serial("measure", message.round))
        if self._has_answers:
            self.questions.holds.add(site)
        self._note_open("answered", kind="measure", site=site)
        return self._validated_if_due()

    def _validated_if_due(self) -> list[Message]:
        return self._validated() if len(self.validation.heard) == len(self._active) else []

    def _validated(self) -> list[Message]:
        mrr, views = self.validation.judge(self._round)
        self.questions.anew(self.validation.measured)
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
        own = {"round": self._round, "void": self.void, "stopped": sorted(self.stopped)}
        maps = {name: dict(getattr(self, name)) for name in LASTING}
        return {**own, **maps, **self.questions.plain(), **self.validation.plain()}

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
        self.stopped = set(plain["stopped"])
        self.questions.load(plain)
        self.validation.load(plain)
        self.roster.load(tensors, plain["joined"])
        for number, site in enumerate(sorted(self.roster.joined)):
            if waiting := update_under(f"late.{number}", tensors):
                self._late[site] = waiting
        self._began = self._plain()
