"""What the parties of a run agree on: method, model, training, exchange, validation and privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, Self

from fedkge.aggregation import AGGREGATIONS, Aggregation, Mean
from fedkge.config import build, choose, options
from fedkge.errors import ConfigError
from fedkge.exchange.codec import CODECS, Codec, Float32
from fedkge.exchange.select import SELECTIONS, Full, Selection, portion
from fedkge.graphs.graph import Axis
from fedkge.methods import METHODS, Method
from fedkge.methods.single import Single
from fedkge.models import MODELS, Model
from fedkge.plugins import load_known
from fedkge.privacy import Privacy
from fedkge.randomness import generator
from fedkge.registry import Registry
from fedkge.training import Trainer
from fedkge.training.optimizers import OPTIMIZERS
from fedkge.training.private import check_trainer


@dataclass(frozen=True)
class Evaluate:
    """When to validate, and when that is enough."""

    every: int = 5  #: rounds between validations
    patience: int = 3  #: validations without a new best before stopping; 0 never stops
    rule: Literal["patience", "drops"] = "patience"  #: drops: counts consecutive falls instead
    sides: Literal["both", "head", "tail"] = "both"  #: which questions decide and come first in reports
    keep: Literal["together", "each"] = "together"  #: each: every site keeps its own best round
    sure: float = 0.0  #: times 1 / sqrt(questions): by more than that a round must beat the starting tables

    def __post_init__(self) -> None:
        if self.every < 1 or self.patience < 0:
            raise ConfigError(f"every, patience: expected >= 1 and >= 0, got {self.every}, {self.patience}")
        if not 0 <= self.sure < inf:
            raise ConfigError(f"sure: expected at least 0, got {self.sure}")


@dataclass(frozen=True)
class Participation:
    """Who takes part in a round, and whom it waits for."""

    fraction: float = 1.0  #: share of the sites that is asked each round
    quorum: float = 1.0  #: share of the asked sites that must answer; the round then closes at once
    late: Literal["refuse", "use"] = "refuse"  #: an answer to a closed round; use: it counts in the next one
    dropout: float = 0.0  #: simulation: probability that the answer of an asked site is lost
    open: bool = False  #: sites may join, or announce more rows, after the first round has begun
    most: int = 10_000_000  #: largest number of entities, and of relations, that a site may announce

    def __post_init__(self) -> None:
        for name in ("fraction", "quorum"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(
                    f"{name}: expected a number above 0 and at most 1, got {getattr(self, name)}"
                )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected a number from 0 and below 1, got {self.dropout}")
        if self.most < 1:
            raise ConfigError(f"most: expected at least 1, got {self.most}")

    def asked(self, sites: Sequence[str], seed: int, round: int) -> list[str]:
        """The sites that take part in a round; at least one."""
        if self.fraction == 1:
            return sorted(sites)
        count = max(1, int(self.fraction * len(sites) + 0.5))
        chosen = generator(seed, "participation", round).choice(len(sites), count, replace=False)
        return sorted(sorted(sites)[i] for i in chosen.tolist())

    def needed(self, asked: int) -> int:
        """How many of the asked must answer."""
        return portion(self.quorum, asked)


PARTS: Mapping[str, Registry[Any]] = {
    "model": MODELS,
    "method": METHODS,
    "select": SELECTIONS,
    "codec": CODECS,
    "aggregate": AGGREGATIONS,
}  #: chosen by name
DEFAULTS = {
    "method": {"name": "single"},
    "select": {"name": "full"},
    "codec": {"name": "float32"},
    "aggregate": {"name": "mean"},
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Everything that decides a run's result, besides the data and the device."""

    model: Model
    seed: int = 0  #: decides every random number, together with the names of sites and entities
    rounds: int = 100  #: largest number; a round is `trainer.epochs` passes over the training triples
    trainer: Trainer = field(default_factory=Trainer)
    method: Method = field(default_factory=Single)
    select: Selection = field(default_factory=Full)
    codec: Codec = field(default_factory=Float32)
    aggregate: Aggregation = field(default_factory=Mean)
    evaluate: Evaluate = field(default_factory=Evaluate)
    participation: Participation = field(default_factory=Participation)
    privacy: Privacy = field(default_factory=Privacy)
    plugins: tuple[str, ...] = ()  #: Python files with parts of one's own; in a run, with their digests

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds: expected at least 1, got {self.rounds}")
        self.method.selection(self.select)  # refuses what does not go together
        self.method.coding(self.codec)
        self.method.combining(self.aggregate)
        if self.privacy.noisy:
            check_trainer(self.trainer, self.privacy)
        kept = self.method.kept()
        whole_tables = kept is not None and (kept.penalty is not None or kept.factoring is not None)
        if whole_tables and OPTIMIZERS[self.trainer.optimizer].rows_only:
            whole = ", ".join(name for name, kind in OPTIMIZERS.items() if not kind.rows_only)
            raise ConfigError(
                f"trainer.optimizer: {self.trainer.optimizer} steps only touched rows, the method holds "
                f"all; expected one of {whole}"
            )

    @property
    def embedding(self) -> Model:
        """The model that sites train: the one asked for, unless the method makes it smaller."""
        return self.method.embedding(self.model)

    @property
    def selection(self) -> Selection:
        """Which rows travel: what was asked for, or what the method insists on."""
        return self.method.selection(self.select)

    @property
    def coding(self) -> Codec:
        """How rows are written: as was asked for, or as the method insists."""
        return self.method.coding(self.codec)

    @property
    def widths(self) -> dict[Axis, int]:
        """Of the rows that travel."""
        second = self.method.second(self.embedding)
        model = self.embedding if second is None else second.model
        return {axis: model.width(axis) for axis in self.method.shares}

    @classmethod
    def _parts(cls) -> tuple[str, ...]:
        """Options that must be tables."""
        return tuple(PARTS)

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Self:
        whole = dict(config)
        load_known(whole.get("plugins", ()))
        for part in cls._parts():
            given = whole.get(part, {} if part in DEFAULTS else None)
            if not isinstance(given, Mapping):
                raise ConfigError(f"{part}: expected a table, as in {part} = {{ name = ... }}")
            whole[part] = {**DEFAULTS.get(part, {}), **given}
        return build(
            cls, whole | {part: choose(known, whole[part], part) for part, known in PARTS.items()}, ""
        )

    def config(self) -> dict[str, Any]:
        """Every option with its value; parsing it gives these terms again."""
        plain = options(self)
        for part, known in PARTS.items():
            plain[part] = {"name": known.name_of(getattr(self, part)), **plain[part]}
        return plain

    def terms(self) -> dict[str, Any]:
        """The options that all parties share, with their values."""
        names = Terms.__dataclass_fields__
        return {name: value for name, value in self.config().items() if name in names}
