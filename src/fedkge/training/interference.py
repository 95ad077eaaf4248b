"""Retroactive interference (FedLU, Zhu et al., WWW 2023, Eqs. 12 to 14): tables forget triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis, Graph, Ids, Mask
from fedkge.kernels import distil
from fedkge.models import Side, Tables
from fedkge.randomness import key
from fedkge.training.corpus import Answers, Corpus
from fedkge.training.loop import Training
from fedkge.training.trainer import Batch, Trainer

CODE_FACTOR = 10.0  #: of the forgotten triple's own term in the authors' code


@dataclass(frozen=True)
class Confusion:
    """The loss of a triple to be forgotten: `hard L_hard + soft L_soft + distil KL` (Eq. 14).

    With s the triple's score and s_j those of its n negatives, `L_hard = -log sigmoid(-s) - mean_j log
    sigmoid(-s_j)` (Eq. 12) and `L_soft = mean_j |s_j - s|` (Eq. 13). KL is the distillation of FedLU from the
    other table, which is taken as constant; with one table there is none.

    The variant `code` is what the authors' code computes: in Eq. 12 ten times the triple's own term, and half
    of it all; for Eq. 13 the norm `|(s_j - s)_j|_2`; distillation to the second table only; two steps where
    the paper has one. Its negatives may be true triples of the site; here they never are. The variant
    `ascent` is a yardstick: it climbs the loss that training has descended, without soft confusion.
    """

    hard: float = 1.0  #: weight of the hard confusion; 0 switches it off
    soft: float = 0.1  #: weight of the soft confusion, mu_soft; 0 switches it off
    distil: float = 2.0  #: weight of the distillation between the tables, mu_distill; 0 switches it off
    variant: Literal["paper", "code", "ascent"] = "paper"  #: code: the authors'; ascent: climbs the loss
    relations: bool = False  #: relation rows move too; the paper moves only entity rows
    batch_size: int | None = None  #: unset: 16 in mode paper, 256 in mode target
    lr: float | None = None  #: learning rate of interference; unset: the run's

    def __post_init__(self) -> None:
        for name in ("hard", "soft", "distil"):
            if not 0 <= getattr(self, name) < inf:
                raise ConfigError(f"{name}: expected at least 0, got {getattr(self, name)}")
        if not (self.hard or self.soft):
            raise ConfigError("hard, soft: expected one of them above 0: without both nothing is forgotten")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size: expected at least 1, got {self.batch_size}")
        if self.lr is not None and not 0 < self.lr < inf:
            raise ConfigError(f"lr: expected a number above 0, got {self.lr}")

    @property
    def passes(self) -> int:
        """Steps on every batch in an epoch."""
        return 2 if self.variant == "code" else 1

    def of(self, scores: Tensor) -> Tensor:
        """Hard and soft confusion [b], from scores [b, 1 + n] with the forgotten triple's first."""
        own, others = scores[:, 0], scores[:, 1:]
        if self.variant == "ascent":
            return -self.hard * (softplus(-own) + softplus(others).mean(-1))
        apart = others - own[:, None]
        if self.variant == "code":
            hard = (CODE_FACTOR * softplus(own) + softplus(others).mean(-1)) / 2
            soft = torch.linalg.vector_norm(apart, dim=-1)
        else:
            hard = softplus(own) + softplus(others).mean(-1)  # softplus(s) = -log sigmoid(-s)
            soft = apart.abs().mean(-1)
        return self.hard * hard + self.soft * soft

    def losses(self, tables: Tables, batch: Batch) -> list[Tensor]:
        """The losses [b] of a batch, by table."""
        every = [tables] if tables.second is None else [tables, tables.second]
        every = every if self.relations else [still(one) for one in every]
        scores = [one.scores(batch.anchor, batch.relation, batch.index, batch.side) for one in every]
        losses = [self.of(own) for own in scores]
        if len(scores) == 1 or not self.distil:
            return losses
        to_own, to_second = distil(scores[0], scores[1])
        taught = [torch.zeros_like(to_own) if self.variant == "code" else to_own, to_second]
        return [loss + self.distil * way for loss, way in zip(losses, taught, strict=True)]


def still(tables: Tables) -> Tables:
    """The same tables, whose relations are not differentiated."""
    moving = dict(tables.gradients)
    moving.pop(Axis.RELATION, None)
    return replace(tables, relations=tables.relations.detach(), gradients=moving)


class Interference(Training):
    """Steps on the triples to be forgotten, of one site or of several laid one after another.

    Negatives are never true training triples of their site, forgotten or retained. `active` says, by table
    and side, which triples still have to be pushed down; at first all of them.
    """

    def __init__(
        self,
        confusion: Confusion,
        batch_size: int,
        trainer: Trainer,
        tables: Tables,
        graphs: Mapping[str, Graph],
        forgotten: Mapping[str, Ids],
        seed: int,
        captured: bool = True,
    ) -> None:
        """`graphs` have the retained triples, by site; `forgotten` are in their ids."""
        own = {site: replace(of, train=forgotten[site], confidential=None) for site, of in graphs.items()}
        corpus = Corpus.of(own, key(seed, "interference") >> 1, tables.device)
        corpus = avoiding(corpus, {site: graph.train for site, graph in graphs.items()})
        how = replace(
            trainer,
            epochs=1,
            batch_size=batch_size,
            chunk=1,
            lr=confusion.lr or trainer.lr,
            subsampling=False,
            filtered=True,
            l3=0.0,
        )
        super().__init__(how, shell(tables), corpus, self._losses, captured=captured)
        self.confusion = confusion
        ones = torch.ones(len(corpus.triples), dtype=tables.entities.dtype, device=tables.device)
        self.active = [{side: ones.clone() for side in Side} for _ in self.steppers]

    def activate(self, active: Sequence[Mapping[Side, Mask]]) -> None:
        """Which triples are pushed down from now on, by table and side."""
        for own, chosen in zip(self.active, active, strict=True):
            for side, mask in chosen.items():
                own[side].copy_(torch.from_numpy(mask))

    def _losses(self, tables: Tables, batch: Batch) -> Tensor:
        count = len(batch.anchor)
        slots = self.deck.starts[self.clock[:1] // self.trainer.visits] + torch.arange(
            count, device=self.clock.device
        )
        chosen = self.schedule[batch.side][slots]
        losses = self.confusion.losses(tables, batch)
        return torch.stack(
            [loss * own[batch.side][chosen] for loss, own in zip(losses, self.active, strict=True)]
        ).sum(0)


def shell(tables: Tables) -> Tables:
    """The same rows, to be trained by someone else: gradients are not shared."""
    second = None if tables.second is None else replace(tables.second, gradients={})
    return replace(tables, gradients={}, second=second)


def avoiding(corpus: Corpus, beyond: Mapping[str, Ids]) -> Corpus:
    """The same triples; negatives are never these triples of their site either."""
    if not any(len(triples) for triples in beyond.values()):
        return corpus
    return Avoiding.around(corpus, beyond)


@dataclass(frozen=True, slots=True)
class Avoiding(Corpus):
    """A corpus whose negatives avoid more than its own triples; how often queries occur is its own alone."""

    frequency: Tensor  # [m], the subsampling weights

    @classmethod
    def around(cls, corpus: Corpus, beyond: Mapping[str, Ids]) -> Avoiding:
        device = corpus.triples.device
        ends = corpus.entity_ends, corpus.relation_ends
        entity, relation = (np.append(0, own.cpu().numpy()) for own in ends)
        numbers = {name: number for number, name in enumerate(corpus.names)}
        own, site = corpus.triples.cpu().numpy(), corpus.site.cpu().numpy()
        shift = np.stack((entity, relation, entity), 1)
        more = [
            _asked(triples + shift[numbers[name]], own[site == numbers[name]])
            for name, triples in beyond.items()
        ]
        owner = np.concatenate(
            [site, *(np.full(len(t), numbers[name]) for name, t in zip(beyond, more, strict=True))]
        )
        whole = np.concatenate([own, *more])
        answers = {side: Answers.of(whole, side, entity[owner], np.diff(entity)[owner]) for side in Side}
        kept = {
            side: Answers(*(part.to(device) for part in (a.known, a.lo[: len(own)], a.hi[: len(own)])))
            for side, a in answers.items()
        }
        fields = {name: getattr(corpus, name) for name in Corpus.__dataclass_fields__}
        return cls(**{**fields, "answers": kept}, frequency=corpus.subsampling())

    def subsampling(self) -> Tensor:
        return self.frequency


def _asked(triples: Ids, own: Ids) -> Ids:
    """Those that answer a query of one of the own triples; no other is looked at."""
    if len(own) > len(triples):
        return triples
    heads, relations, tails = triples.T
    count = 1 + max(int(of[:, 1].max(initial=0)) for of in (triples, own))
    queried = [
        np.isin(end * count + relations, of * count + own[:, 1])
        for end, of in zip((heads, tails), (own[:, 0], own[:, 2]), strict=True)
    ]
    return triples[queried[0] | queried[1]]
