"""An experiment: a TOML file whose schema is these constructors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedkge.config import build, choose, options
from fedkge.errors import ConfigError
from fedkge.graphs.graph import Federation, Graph
from fedkge.models import MODELS, Model
from fedkge.training import Trainer


@dataclass(frozen=True)
class Data:
    """Where the sites' graphs come from: a known name, or a folder with one folder per site."""

    name: str | None = None
    path: Path | None = None
    ratio: str | None = None  #: splits sites that lack valid or test anew, as in "8:1:1"
    strict: bool = False  #: entities that training never saw are an error
    drop_leaks: bool = False  #: with `path`: a statement in two splits is left out of the later one, no error

    def __post_init__(self) -> None:
        if (self.name is None) == (self.path is None):
            raise ConfigError("name, path: expected one of the two")

    def load(self, seed: int) -> dict[str, Graph]:
        from fedkge.graphs.datasets import load
        from fedkge.graphs.files import read_federation
        from fedkge.graphs.split import parse_ratio, split
        from fedkge.graphs.subgraph import merged

        if self.name is not None:
            federation = load(self.name, strict=self.strict)
        else:
            assert self.path is not None
            federation = read_federation(self.path, strict=self.strict, drop_leaks=self.drop_leaks)
        if self.ratio is None:
            return federation
        ratio = parse_ratio(self.ratio)
        return {
            site: graph if len(graph.valid) and len(graph.test) else split(merged(graph), ratio, seed)
            for site, graph in federation.items()
        }

    def __str__(self) -> str:
        return self.name or str(self.path)


@dataclass(frozen=True)
class Evaluate:
    """When to validate, and when that is enough."""

    every: int = 5  #: rounds between validations
    patience: int = 3  #: validations without a new best before stopping; 0 never stops
    rule: Literal["patience", "drops"] = "patience"  #: drops: consecutive falls count instead

    def __post_init__(self) -> None:
        if self.every < 1 or self.patience < 0:
            raise ConfigError(f"every, patience: expected >= 1 and >= 0, got {self.every}, {self.patience}")


@dataclass(frozen=True)
class Method:
    """How sites work together."""

    name: Literal["single", "collective"] = "single"  #: each alone, or all graphs pooled (not private)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's result, besides the device."""

    model: Model
    data: Data
    seed: int = 0
    rounds: int = 100  #: at most; each is `trainer.epochs` passes over the training statements
    trainer: Trainer = field(default_factory=Trainer)
    method: Method = field(default_factory=Method)
    evaluate: Evaluate = field(default_factory=Evaluate)

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds: expected at least 1, got {self.rounds}")

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Experiment:
        for part in ("model", "data"):
            if not isinstance(config.get(part), Mapping):
                raise ConfigError(f"{part}: expected a table, as in {part} = {{ name = ... }}")
        model = choose(MODELS, config["model"], "model")
        return build(cls, {**config, "model": model}, "")

    def config(self) -> dict[str, Any]:
        """Every option with its value; parsing it gives this experiment again."""
        plain = options(self)
        plain["model"] = {"name": MODELS.name_of(self.model), **plain["model"]}
        return plain

    def load(self) -> Federation:
        federation = self.data.load(self.seed)
        for site, graph in federation.items():
            for split in ("train", "valid", "test"):
                if not len(graph.split(split)):
                    raise ConfigError(
                        f"site {site!r} has no {split} statements; name a ratio, as in data.ratio = '8:1:1', "
                        "or split the data with `fedkge data split`"
                    )
        return federation
