"""Passive decay (FedLU, Zhu et al., WWW 2023, 4.2): training on what is retained, the tables in turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from fedkge.models import Side, Tables
from fedkge.training.capture import Size, Steps
from fedkge.training.corpus import Corpus
from fedkge.training.interference import shell, still
from fedkge.training.loop import Training
from fedkge.training.trainer import Objective, Trainer


class Decay(Training):
    """One table learns from a batch, the other teaches; with the next batch they change places.

    The objective is the method's, which sums the losses of both tables and takes each teacher as constant. So
    the table whose turn it is gets its own loss. A single table has every turn. Relation rows stay, unless
    `relations`: then they follow the table that owns them.
    """

    rows_wait = False  # one table reads what the other has

    def __init__(
        self,
        trainer: Trainer,
        tables: Tables,
        corpus: Corpus,
        objective: Objective,
        relations: bool = False,
        captured: bool = True,
    ) -> None:
        super().__init__(trainer, shell(tables), corpus, objective, captured=captured)
        self.turns = [self._learning(turn, relations) for turn in range(len(self.steppers))]
        self._captured_turns = [Steps() if self.captures else None for _ in self.turns]

    def _learning(self, turn: int, relations: bool) -> Tables:
        """The tables with the gradients of the one whose turn it is."""
        tables = self.tables
        own = replace(tables, second=None) if relations else still(replace(tables, second=None))
        if tables.second is None:
            return own
        lent = tables.second.relations is tables.relations
        second = tables.second if relations and not lent else still(tables.second)
        return replace(
            own if turn == 0 else replace(own, gradients={}),
            second=second if turn == 1 else replace(second, gradients={}),
        )

    def _epoch(self, epoch: int, factored: bool = False) -> None:
        self._shuffle(epoch)
        for number, (size, side) in enumerate(self._steps_of(epoch)):
            turn = (number // self.trainer.visits + epoch) % len(self.turns)
            step, captured = partial(self._taken, turn), self._captured_turns[turn]
            if captured is None:
                step(size, side)
            else:
                captured(step, size, side)

    def _taken(self, turn: int, size: Size, side: Side) -> None:
        """A step of the table whose turn it is."""
        batch, active = self._drawn(size, side, self.clock)
        with torch.enable_grad():
            weighted = self.objective(self.turns[turn], batch) * batch.weight
            weighted.sum().backward()
        self.losses.index_add_(0, batch.site, weighted.detach().double())
        stepper = list(self.steppers.values())[turn]
        stepper.begin(active)
        stepper.step(batch, active)
        self.clock[0] += 1
