"""FKGE (Peng et al., CIKM 2021): peers without a hub translate aligned rows into each other's spaces."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from fedkge.aggregation import Aggregation, Mean
from fedkge.config import choose
from fedkge.errors import ConfigError
from fedkge.exchange.codec import Codec, Float32
from fedkge.exchange.select import Full, Selection
from fedkge.graphs.graph import Axis
from fedkge.methods.base import METHODS, Method
from fedkge.methods.fede import AXES
from fedkge.methods.ppat import Game, Votes
from fedkge.models import MODELS, Model


@METHODS.register("fkge")
@dataclass(frozen=True)
class FKGE(Method):
    """Two peers meet; each translates its rows of what both have into the other's space by PPAT.

    Each end adopts what it received, trains, and keeps the outcome only if its own validation improves. It
    announces an improvement to all peers, and peers that share something with it may meet it again. Peers may
    have different models and dimensions. The two ends agree on the options of a conversation.

    Deviations from the paper. Validation decides what is kept; the authors' code looks at test. Conversations
    run in both directions, since translated rows lie in the host's space only. Any gain of a round counts;
    in Algorithm 1 a later handshake without a gain overwrites it. The host sends the gradient with respect to
    the generated rows, because it cannot compute the one with respect to W. W starts as a random rotation;
    the identity would send raw rows. Eq. 7 has a minus sign.
    """

    hubless: ClassVar[bool] = True
    share: Literal["entities", "relations", "both"] = "both"  #: which rows are translated
    translate: Literal["ppat", "procrustes", "random", "none"] = "ppat"  #: the others are controls
    adoption: Literal["replace", "average", "better"] = "better"  #: better: unless that validates worse
    teachers: int = 4  #: teachers of PPAT; each votes and sees a part of the host's rows; privacy needs more
    hidden: int = 256  #: width of the hidden layer of teachers and student
    batch: int = 32  #: generated rows per message
    lr: float = 0.02  #: learning rate of teachers and student, and of the generator unless `step` is set
    momentum: float = 0.9  #: momentum of all three
    step: float | None = None  #: learning rate of the generator; unset: `lr`
    passes: int = 5  #: largest number of passes over the aligned rows; the same at both ends
    tolerance: float = 0.0  #: a pass ends PPAT if the share of "real" labels changes by less; 0: never
    parts: bool = False  #: each teacher learns from a part of the generated rows; false: from all
    balanced: bool = True  #: teachers see as many host rows as generated ones; false: as few as in Eq. 4
    saturating: bool = True  #: the generator's loss as in Eq. 3; false: -log S, which overshoots
    orthogonal: float = 0.0  #: pulls W towards a rotation after each step (Conneau et al., 2018: 0.01)
    choose: Literal["last", "csls"] = "last"  #: which pass is used; csls: the host names the best one
    sample: float = 1.0  #: share of the aligned entities that takes part in a conversation
    virtual: int = 3  #: neighbours of each aligned entity that the client lends to the host; 0: FKGE-simple
    edges: Literal["outside", "all"] = "outside"  #: all: edges between two aligned entities are lent too
    law: Literal["gaussian", "laplace"] = "gaussian"  #: distribution of the noise on votes
    scale: float = 0.0  #: scale of the noise on votes: larger is more private; 0: no noise, no guarantee
    budget: int | None = None  #: votes that a host gives in a run, over all partners
    epsilon: float | None = None  #: limit of votes and of rows sent with `noise`, as an ε at `delta`
    delta: float = 1e-5  #: δ for `epsilon`
    clip: float | None = None  #: norm to which a client clips its rows before anything is sent
    noise: float = 0.0  #: Gaussian noise on the client's rows, once per conversation, in units of 2 clip
    judge: Literal["mrr", "accuracy"] = "mrr"  #: validation metric that decides whether an update is kept
    first: int = 20  #: rounds that a peer trains alone before it meets others
    apart: bool = True  #: each peer draws its first rows from its own seed; false: equal names, equal rows
    intersect: Literal["ids", "psi", "openmined"] = "ids"  #: how two find what both have: ids, or PSI
    limit: int = 1_000_000  #: names that a peer may bring to a set intersection
    models: tuple[str, ...] = ()  #: models of sites that do not use `model`, as in "film: rotate, dim = 32"

    def __post_init__(self) -> None:
        counts = ("teachers", "hidden", "batch", "passes", "first", "limit")
        for name, least in {**dict.fromkeys(counts, 1), "virtual": 0}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        if not 0 < self.lr < inf:
            raise ConfigError(f"lr: expected a number above 0, got {self.lr}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta: expected a number above 0 and below 1, got {self.delta}")
        if self.budget is not None and self.budget < 1:
            raise ConfigError(f"budget: expected at least 1 vote, got {self.budget}")
        for name in ("tolerance", "orthogonal", "scale", "noise"):
            if not 0 <= getattr(self, name) < inf:
                raise ConfigError(f"{name}: expected at least 0, got {getattr(self, name)}")
        if not 0 <= self.momentum < 1 or not 0 < self.sample <= 1:
            raise ConfigError("momentum, sample: expected 0 <= momentum < 1 and 0 < sample <= 1")
        if self.noise and self.clip is None:
            raise ConfigError("noise: rows that are not cut have no bound to compare noise with; give clip")
        for name in ("clip", "step"):
            if getattr(self, name) is not None and not 0 < getattr(self, name) < inf:
                raise ConfigError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        if (self.epsilon is not None or self.budget is not None) and self.scale == 0:
            raise ConfigError(
                "epsilon, budget: votes without noise have no cost that could be bounded; give scale"
            )
        if self.virtual and self.share == "relations":
            raise ConfigError(
                "virtual: neighbours need aligned entities; expected 0 with share = 'relations'"
            )
        if len(set(self.own_models)) < len(self.models):
            raise ConfigError("models: a site has two models; expected one at most")

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Whose rows are translated. `shares` is what a hub would see: nothing."""
        return AXES[self.share]

    @property
    def game(self) -> Game:
        return Game(
            self.teachers,
            self.hidden,
            self.batch,
            self.lr,
            self.momentum,
            self.lr if self.step is None else self.step,
            self.parts,
            self.balanced,
            self.saturating,
        )

    @property
    def votes(self) -> Votes:
        return Votes(self.law, self.scale)

    @property
    def agreed(self) -> dict[str, str | int | float]:
        """Options that both ends of a conversation must have alike; the others are each one's own."""
        names = ("share", "translate", "batch", "passes", "sample", "virtual", "edges", "intersect")
        return {name: getattr(self, name) for name in names}

    @property
    def own_models(self) -> dict[str, Model]:
        """Site -> the model that it trains, where that is not the common one."""
        return dict(map(self._model, self.models))

    def _model(self, text: str) -> tuple[str, Model]:
        site, colon, rest = text.partition(":")
        name, _, given = rest.partition(",")
        try:
            options = tomllib.loads("\n".join(given.split(",")))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"models: {text!r}: {error}; expected as in 'film: rotate, dim = 32'") from None
        if not colon:
            raise ConfigError(f"models: {text!r}, expected as in 'film: rotate, dim = 32'")
        return site.strip(), choose(MODELS, {"name": name.strip(), **options}, f"models: {site.strip()}")

    def selection(self, given: Selection) -> Selection:
        if given != Full():
            raise ConfigError(
                "select: fkge sends translated rows of all that two peers have in common; expected full"
            )
        return given

    def combining(self, given: Aggregation) -> Aggregation:
        if given != Mean():
            raise ConfigError("aggregate: without a hub nobody combines rows; expected mean, the default")
        return given

    def coding(self, given: Codec) -> Codec:
        if given != Float32():
            raise ConfigError("codec: fkge sends rows and gradients as they are; expected float32")
        return given
