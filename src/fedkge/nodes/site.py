"""A site: it adopts what the hub says, trains, publishes; it measures when asked, and keeps the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.durable import json_text
from fedkge.errors import DataError
from fedkge.evaluation.checks import Diverged, diverged
from fedkge.exchange.channel import serial
from fedkge.exchange.rows import HUB, Message, Update, named, renumbered, under, update_under
from fedkge.graphs.graph import Axis, Split
from fedkge.models import Tables
from fedkge.models.tables import LONGEST
from fedkge.nodes.accept import Accept
from fedkge.nodes.base import Setting
from fedkge.nodes.hearing import Hearing
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import Fitted, Learner
from fedkge.nodes.ledgers import RESULT
from fedkge.nodes.notes import Declined, Measured, Question, Refusal, reading
from fedkge.nodes.protection import check_budget
from fedkge.nodes.result import Kept
from fedkge.nodes.store import write_whole
from fedkge.nodes.terms import Terms
from fedkge.training.stopping import OWN

LASTING = ("ready", "asked", "uploaded", "measured", "stopped", "words", "again", "taken")
UPDATES = ("held", "before", "told")  #: rows of the hub's that it keeps
SPARE = 1.5  #: times the size of its state that must be free on the disk before a site spends privacy


class SiteNode(Hearing):
    """A site with its training and its folder.

    A question that was answered before gets the stored answer: it neither trains nor spends privacy again.
    A runtime that trains many sites in one go calls `begin`, trains, and calls `finish`; `receive` does the
    three in a row.
    """

    def __init__(
        self,
        id: str,
        terms: Terms,
        learner: Learner,
        identity: Identity,
        setting: Setting = Setting(),  # noqa: B008 - frozen
        accept: Accept = Accept(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(id, terms, learner, identity, setting, accept)
        self.kinds = {
            "shared": self._shared,
            "train": self._train,
            "measure": self._measure,
            "stop": self._stop,
            "refusal": self._turned_down,
        }
        self.best = learner.best
        self.held: Update = {}  # an answer that came to be measured, for the next round
        self.before: Update = {}  # the one that was held when the last measurement was asked for
        self.told: Update = {}  # the answer of the round whose travelling table is kept
        self.uploaded = 0  # the round of the last upload
        self.taken: int | None = None  # what the last question to measure said of the last upload

    def check_budget(self) -> None:
        """An error where nothing was kept and not one step fits: there would be nothing to keep."""
        if not self.kept and not self.answers:
            check_budget(self.terms, self.id, self.learner.protection)

    @property
    def _seal(self) -> Mapping[str, str | int]:
        """What the site's files keep of its ledger, where it has one."""
        one = self.learner.protection
        return {} if one is None else one.spending.ledger.seal

    def _moved(self, to: Mapping[Axis, Tensor]) -> None:
        for name in UPDATES:
            setattr(self, name, renumbered(getattr(self, name), to))

    # Rounds

    def _train(self, message: Message) -> list[Message]:
        asked = self._heard(message)
        if asked is None:
            return self._answered(message)
        self._adopt(asked)
        try:
            with self.setting.clock.spending("train"):
                trained = self.learner.fit(message.round)
            return [self.finish(message.round, trained)]
        except Diverged as error:
            return self._leave_out(message, asked, error)

    def _leave_out(self, message: Message, asked: Question, error: Diverged) -> list[Message]:
        """What the hub sent makes training diverge: go back to the state before, and do not answer.

        A simulation has no hostile hub. There the experiment must be changed, and an error says so.
        """
        again = self.again > 0
        if not (self.setting.often and self.resume()):
            raise error
        self._heed(asked, message.kind, again)
        self.asked = message.round
        self.note({"event": "diverged", "round": message.round, "kind": message.kind, "why": str(error)})
        self.save()
        return []

    def begin(self, message: Message) -> list[Message] | None:
        """Adopt what a question says, for a runtime that trains; its answer, if there is nothing to train."""
        wrong = self._misaddressed(message)
        try:
            if wrong is not None:
                raise Refusal(wrong)
            asked = self._heard(message)
        except Declined as why:
            return self.decline(message, str(why))
        except Refusal as why:
            return self.refuse(message, str(why))
        if asked is None:
            return self._answered(message)
        self._adopt(asked)
        return None

    def _adopt(self, asked: Question) -> None:
        """What came now, or what came to be measured."""
        for name, dial in self.site.dials.items():
            dial.fill_(asked.dials[name])
        self.method.adopt(self.site, self.held if asked.held else asked.update)
        self.held, self.before, self.answers = {}, {}, {}
        if self.store is not None and self.learner.protection is not None:
            self.store.probe(int(SPARE * sum(t.nbytes for t in self.learner.state().values())))

    def finish(self, round: int, trained: Fitted) -> Message:
        """Publish what a round's training came to."""
        self.note({"event": "trained", "round": round, **trained, **self._seal})
        if self._seal:
            self.flush()  # that something was released is known from now on
        if not self._is_sound(trained):
            raise diverged(self.id)
        self.uploaded = round
        update = self.history.chosen(self.method.publish(self.site), round)
        body = self.channel.encode(update, serial("train", round))
        return self._answer("train", self.message(HUB, "upload", round, body, **self._allows()))

    def _is_sound(self, trained: Fitted) -> bool:
        """Where triples are confidential, noise protects the tables and not the loss: only they decide."""
        if self.learner.protection is None:
            return isfinite(trained["loss"])
        tables = self.site.tables.named().values()
        return all(bool((table.abs() <= LONGEST).all()) for _, table in tables)  # NaN is not

    def _measure(self, message: Message) -> list[Message]:
        asked = self._heard(message)
        if asked is None:
            return self._answered(message)
        if not self.again:
            self.before = self.held
        self.held = self.before if asked.held else asked.update
        self.measured = message.round
        try:
            found = self._validated()
        except Diverged as error:
            return self._leave_out(message, asked, error)
        return [self._answer("measure", self.message(HUB, "metrics", message.round, **found))]

    def _validated(self) -> dict[str, Any]:
        found: dict[str, Any] = {"metrics": self._validate(self.method.measured(self.site, self.held))}
        if watched := [view for view in self.method.views() if view.watched]:
            found["views"] = {view.name: self._validate(view.of(self.site, self.held)) for view in watched}
        return found

    def _validate(self, tables: Tables) -> Measured:
        with self.setting.clock.spending("evaluate"):
            found = self.learner.measure(tables, Split.VALID, openly=True)
        chosen = {site: sides[self.terms.evaluate.sides] for site, sides in found.items()}
        return {site: of if of["count"] else {"count": 0} for site, of in chosen.items()}

    def _answer(self, kind: str, answer: Message) -> Message:
        """Keep what is answered. State and answer are written together, before it is given."""
        self.answers[kind] = answer
        if self.setting.often:
            self.save()
        return answer

    def _heed(self, asked: Question, kind: str, again: bool = False) -> None:
        """The hub says which upload it took last, and what of what was measured last is the best.

        It says so until it has an answer. What became of an upload is final when the next question comes:
        until then the hub may be gone, and ask for the same measurement in other words.
        """
        if not again:
            self._settle(self.taken)
        for view, round in asked.best.items():
            if self.kept.get(view) != round:
                self._keep(view)
        self.taken = asked.taken
        if kind != "measure":
            self._settle(self.taken)
            self.taken = None

    def _settle(self, taken: int | None) -> None:
        if taken is not None and abs(taken) == self.uploaded:
            for remembers in (self.channel, self.history):
                remembers.settle(taken > 0)

    def _keep(self, view: str) -> None:
        """The tables that the site is measured by, with a second one that nobody watches; or one that is."""
        watches = bool(self._watched)
        if view == OWN:
            self.best.copy_(self.method.measured(self.site, self.held), second=not watches)
        elif self.best.second is not None:
            self.best.second.copy_(self.site.travelling)
        if any(one.answer for one in self.method.views()) and (view != OWN or not watches):
            self.told = self.held
        self.kept[view] = self.measured

    # The end

    def _stop(self, message: Message) -> list[Message]:
        if not self.ready:
            raise Refusal("ends before it has said which rows are shared")
        with reading():
            self._check_time(message)
            asked = self._question(message, ())
            if message.body or asked.held:
                raise DataError("ends with rows, expected none")
        if not self.stopped:
            self._heed(asked, "stop")
            self.stopped = True
            self.conclude()
        return []

    def tables(self) -> dict[str, Tables]:
        """What was kept: the tables that the site is measured by, and those beside them by name."""
        kept = replace(self.site, tables=self.best)
        return {"": self.best, **{view.name: view.of(kept, self.told) for view in self.method.views()}}

    def conclude(self) -> None:
        """Measure what was kept; tables, ranks and metrics go into the site's folder, and nowhere else."""
        if self.store is None:
            return
        often = self.setting.often
        with self.setting.clock.spending("evaluate"):
            kept = Kept.measured(self.learner, self.tables())
        if self.setting.tables:
            kept.save(self._home, self.identity.named, sync=often)
        rest = {**self._seal, **({"seconds": self.setting.clock.seconds} if often else {})}
        plain = {"rounds": self.asked, "kept": self.kept, "metrics": kept.metrics, **rest}
        write_whole(self.store.path / RESULT, json_text(plain, indent=1).encode(), sync=often)
        if often:
            self.save()

    def _home(self, site: str) -> Path:
        """Where a site's tables go: into the node's own folder, unless it pools several sites' graphs."""
        assert self.store is not None
        return self.store.path if site == self.id else self.store.path.parent / "sites" / site

    # What lasts

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"learner.{name}": tensor for name, tensor in self.learner.state().items()}
        tensors |= {f"memory.{name}": tensor for name, tensor in self.site.memory.items()}
        tensors |= {f"sent.{name}": tensor for name, tensor in self.channel.memory().items()}
        tensors |= {f"chosen.{name}": tensor for name, tensor in self.history.memory().items()}
        for name in UPDATES:
            tensors |= named(name, getattr(self, name))
        for axis, rows in self.announced.items():
            tensors[f"announced.{axis}"] = torch.from_numpy(rows)
            tensors[f"shared.{axis}"] = self.site.shared[axis].local
        for kind, answer in self.answers.items():
            tensors |= {f"answer.{kind}.{name}": tensor for name, tensor in answer.body.items()}
        plain: dict[str, Any] = {name: getattr(self, name) for name in ("version", "kept", *LASTING)}
        plain["answers"] = {kind: [one.kind, one.round, dict(one.note)] for kind, one in self.answers.items()}
        return tensors, {**plain, **self._seal}

    def load_state(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        device = self.site.tables.device
        own = under("announced", tensors)
        if self.learner.protection is not None and "ledger" in plain:
            self.learner.protection.spending.ledger.check(plain["ledger"], plain["releases"])
        same = all(np.array_equal(rows, own[axis].numpy()) for axis, rows in self.announced.items())
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        for name in LASTING:
            setattr(self, name, plain[name])
        self.version, self.kept = plain["version"] + (not same), dict(plain["kept"])
        if self.ready:
            self._share({Axis(axis): rows.cpu().numpy() for axis, rows in under("shared", tensors).items()})
        self.learner.load_state(under("learner", tensors))
        self.site.memory.update(under("memory", tensors))
        self.channel.load(under("sent", tensors))
        self.history.load(under("chosen", tensors))
        for name in UPDATES:
            setattr(self, name, update_under(name, tensors))
        self.answers = {
            kind: self.message(HUB, of, round, under(f"answer.{kind}", tensors), **note)
            for kind, (of, round, note) in plain["answers"].items()
        }
