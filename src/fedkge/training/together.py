"""Steps of the usual kind on a CPU: several in one call of the kernels, which then gives the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedkge.graphs.graph import Axis
from fedkge.kernels import Adam as AdamOptions
from fedkge.kernels import Composition, backend
from fedkge.models import Side
from fedkge.training.capture import Size
from fedkge.training.losses import CONTRASTS
from fedkge.training.optimizers import Adam

if TYPE_CHECKING:
    from fedkge.training.loop import Training

MADE = (Composition.TRANSLATE, Composition.SCALE, Composition.MULTIPLY)  #: of relations' rows as they are


@dataclass(frozen=True, slots=True)
class Together:
    """Takes steps of a `Training`: contrast with shared negatives, L3, Adam over both tables, no more."""

    training: Training
    call: Any  #: the kernels' `steps_together`

    @classmethod
    def of(cls, training: Training, usual: bool) -> Together | None:
        """None where steps are of another kind; `usual`: their losses are the trainer's own."""
        call = getattr(backend(training.tables.device), "steps_together", None)
        trainer, tables, stepper = training.trainer, training.tables, training.stepper
        fits = (
            call is not None
            and usual
            and training.rows_wait
            and trainer.chunk > 1
            and trainer.loss in CONTRASTS
            and not (trainer.l3 and tables.model.untrained)
            and not training.penalties
            and stepper.plain
            and tables.second is None
            and tables.model.composition in MADE
            and tables.model.offset is not None
            and not tables.model.projects
        )
        return cls(training, call) if fits else None

    def __call__(self, steps: Sequence[tuple[Size, Side]]) -> None:
        training = self.training
        trainer, corpus, stepper, model = (
            training.trainer,
            training.corpus,
            training.stepper,
            training.tables.model,
        )
        step, epoch = training.clock.tolist()
        visits = trainer.visits
        plan = np.array(
            [((step + k) // visits, side is Side.TAIL, *size) for k, (size, side) in enumerate(steps)],
            np.int64,
        )
        numbers = torch.from_numpy(plan[:, 0])
        active = (training.sizes > numbers[:, None] * trainer.batch_size).numpy()
        deck = training.deck
        dealt = (
            corpus.triples,
            deck.starts,
            deck.site,
            deck.position,
            deck.heads,
            deck.first_heads,
            deck.share,
        )
        weights = deck.share[:0] if training.weights is None else training.weights
        temperature = trainer.temperature if trainer.loss == "self-adversarial" else 0.0
        kind = training.tables.entities.numpy().dtype
        options = np.array((model.offset, temperature, trainer.l3), kind)
        by_axis = {axis: stepper.every[""].by_axis[axis] for axis in Axis}
        tables = [
            tuple(_array(one) for one in (own.table, own.state["m"], own.state["v"]))
            for own in by_axis.values()
        ]
        entities = by_axis[Axis.ENTITY]
        assert isinstance(entities, Adam)
        counted = stepper.every[""].steps
        rates = backend(training.tables.device).adam_rates(  # type: ignore[attr-defined]
            AdamOptions(entities.rate), kind, int(counted.max()) + len(steps)
        )
        self.call(
            int(model.similarity),
            int(model.composition),  # type: ignore[arg-type]
            plan,
            (step, epoch),
            trainer.negatives,
            tuple(map(_array, dealt)),
            *(self._side(side) for side in Side),
            (_array(corpus.negative_keys).view(np.uint64), *map(_array, training.owned)),
            _array(weights),
            options,
            *tables,
            *(_array(stepper.ends[axis]) for axis in Axis),
            active,
            _array(counted),
            tuple(map(_array, entities.rooms())),
            *rates,
            _array(training.losses),
        )
        training.clock[0] += len(steps)

    def _side(self, side: Side) -> tuple[Any, ...]:
        """The order of its triples and their known answers; of a side that nobody asks for, another's."""
        training = self.training
        side = side if side in training.schedule else next(iter(training.schedule))
        answers = training.corpus.answers[side]
        hi = answers.hi if training.trainer.filtered else answers.lo
        return tuple(map(_array, (training.schedule[side], answers.lo, hi, answers.known)))


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy()
