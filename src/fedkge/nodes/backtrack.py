"""What a peer has learnt: it trains, measures, and undoes what follows a conversation unless it is a gain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from math import inf, isfinite, isnan
from typing import Any

import torch
from torch import Tensor

from fedkge.evaluation.checks import diverged
from fedkge.evaluation.classification import classify
from fedkge.graphs.graph import Axis, Split
from fedkge.methods import Member
from fedkge.methods.ends import Heard
from fedkge.methods.fkge import FKGE
from fedkge.models import Tables
from fedkge.nodes.learner import Learner
from fedkge.nodes.stack import Identities, Stack
from fedkge.nodes.terms import Terms
from fedkge.training.confidential import opened

LENT = b"\x00lent %d"  #: ids of lent things, from which their first rows are drawn


class Backtracking:
    """A peer's tables: those it trains, the best ones, and those from before it met anybody.

    Training alone goes on from where it is, as it would without others, and the best tables are kept. What
    follows a conversation is undone, moments of the optimizer included, unless it is better than the best.
    """

    def __init__(self, terms: Terms, learner: Learner, ids: Identities) -> None:
        assert isinstance(terms.method, FKGE)
        self.terms, self.method, self.learner, self.ids = terms, terms.method, learner, ids
        self.tables, self.best = learner.site.tables, learner.best
        self.before: Tables | None = None  # the best ones when the first conversation began
        self.score, self.now = -inf, -inf  # on validation: the best tables, and those that are trained
        self.best_at, self.rounds, self.fails = 0, 0, 0
        self.seconds = {"train": 0.0, "evaluate": 0.0}

    @property
    def every(self) -> int:
        """Rounds of an update; at least one is left."""
        return max(1, min(self.terms.evaluate.every, self.terms.rounds - self.rounds))

    @property
    def spent(self) -> bool:
        """Whether no rounds are left."""
        return self.rounds >= self.terms.rounds

    @property
    def content(self) -> bool:
        """Whether training alone has brought nothing for so long that it is left alone."""
        patience = self.terms.evaluate.patience
        return self.spent or (patience > 0 and self.fails >= patience)

    def alone(self, rounds: int | None = None) -> dict[str, Any]:
        """Train without anybody's help."""
        done = self._update(min(rounds or self.every, self.terms.rounds - self.rounds), None)
        self.now = done["score"]
        return done

    def after(self, heard: Heard) -> dict[str, Any]:
        """Adopt what a conversation has brought, and train with what was lent."""
        if self.before is None:
            self.before = self.best.to(self.best.device)
        here = {name: tensor.clone() for name, tensor in self._trained().items()}
        self.adopt(heard)
        if self.method.adoption == "better" and self.measure() < self.now:
            self._go_to(here)  # what was lent is of use all the same
        else:
            self.learner.stack.training.restart()
        done = self._update(self.every, heard if heard.loan is not None else None)
        if not done["gained"]:
            self._go_to(here)
        else:
            self.now = done["score"]
        return done

    def _trained(self) -> dict[str, Tensor]:
        """What training changes: tables and moments, as views."""
        return {n: t for n, t in self.learner.state().items() if not n.startswith("best.")}

    def _go_to(self, state: Mapping[str, Tensor]) -> None:
        for name, tensor in self._trained().items():
            tensor.copy_(state[name])

    @torch.no_grad()
    def adopt(self, heard: Heard) -> None:
        """Replace the vectors of aligned rows, or average with them. What else a row has stays."""
        for axis, rows in heard.rows.items():
            table = self.tables.table(axis)[:, : rows.shape[1]]
            at, new = heard.taken[axis].to(table.device), rows.to(table.device)
            table[at] = (table[at] + new) / 2 if self.method.adoption == "average" else new

    def _update(self, rounds: int, heard: Heard | None) -> dict[str, Any]:
        began = time.perf_counter()
        losses = self._fit(rounds) if heard is None else self._fit_with(heard, rounds)
        self.rounds += rounds
        trained = time.perf_counter()
        score = self.measure()
        gained = score > self.score or score == -inf  # without a question, the latest is kept
        if gained:
            self.best.copy_(self.tables)
            self.score, self.best_at, self.fails = score, self.rounds, 0
        else:
            self.fails += 1
        spent = {"train": trained - began, "evaluate": time.perf_counter() - trained}
        for kind, seconds in spent.items():
            self.seconds[kind] += seconds
        return {
            "round": self.rounds,
            "loss": losses,
            "triples": self.learner.stack.visits([self.learner.name]) * rounds,
            "seconds": spent["train"],
            "score": score,
            "best": self.score,
            "gained": gained,
        }

    def _fit(self, rounds: int) -> float:
        loss = 0.0
        for number in range(self.rounds + 1, self.rounds + rounds + 1):
            loss = self.learner.fit(number)["loss"]
        return self._finite(loss)

    def _finite(self, loss: float) -> float:
        if not isfinite(loss):
            raise diverged(self.learner.name)
        return loss

    @torch.no_grad()
    def _fit_with(self, heard: Heard, rounds: int) -> float:
        """Train on a copy that has lent things behind the own ones; of these nothing is kept."""
        name, own, loan = self.learner.name, self.tables, heard.loan
        assert loan is not None
        graph = loan.extended(self.learner.member.graph, heard.taken[Axis.ENTITY].numpy())
        more = {Axis.ENTITY: len(loan.entities), Axis.RELATION: len(loan.relations)}
        ids = {axis: [*self.ids[axis], *(LENT % i for i in range(more[axis]))] for axis in Axis}
        stack = Stack(
            self.terms, {name: Member(graph, {})}, {name: ids}, own.device, self.learner.stack.captured
        )
        wide = stack.state(name)  # own rows and their moments come first
        for key, tensor in self._trained().items():
            wide[key][: len(tensor)] = tensor
        for axis, rows in ((Axis.ENTITY, loan.entities), (Axis.RELATION, loan.relations)):
            lent = stack.tables.table(axis)[len(own.table(axis)) :]
            lent[:, : rows.shape[1]] = rows.to(lent.device)
        loss = 0.0
        for number in range(self.rounds + 1, self.rounds + rounds + 1):
            loss = stack.fit([name], number)[name]
        for key, tensor in self._trained().items():
            tensor.copy_(wide[key][: len(tensor)])
        return self._finite(loss)

    # Measuring

    def measure(self) -> float:
        """What decides on validation: MRR, or accuracy of triple classification; -inf without questions."""
        if self.method.judge == "accuracy":
            ((_, part),) = self.learner.member.parts.items()
            graph = opened(part.graph, self.terms.privacy)
            if not len(graph.valid):
                return -inf
            valid = replace(graph, test=graph.valid)
            return classify(self.tables, valid, seed=self.terms.seed, site=self.learner.name).accuracy
        found = self.learner.measure(self.tables, Split.VALID, openly=True)
        mrr = next(iter(found.values()))[self.terms.evaluate.sides]["mrr"]
        return -inf if isnan(mrr) else mrr

    # What lasts

    def tensors(self) -> dict[str, Tensor]:
        found = dict(self.learner.state())
        if self.before is not None:
            found |= {f"before.{axis}": self.before.table(axis) for axis in Axis}
        return found

    def plain(self) -> dict[str, Any]:
        names = ("best_at", "rounds", "fails", "seconds")
        scores = {name: getattr(self, name) for name in ("score", "now")}
        return {name: getattr(self, name) for name in names} | {
            name: score if isfinite(score) else None for name, score in scores.items()
        }

    def load(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        device = self.best.device
        self.learner.load_state({name: tensor.to(device) for name, tensor in tensors.items()})
        if f"before.{Axis.ENTITY}" in tensors:
            entities, relations = (tensors[f"before.{axis}"].to(device) for axis in Axis)
            self.before = Tables(self.best.model, entities, relations)
        for name in ("best_at", "rounds", "fails", "seconds"):
            setattr(self, name, plain[name])
        self.score, self.now = (-inf if plain[n] is None else plain[n] for n in ("score", "now"))
