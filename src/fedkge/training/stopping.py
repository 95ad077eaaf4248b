"""When to stop: validation has not improved for some checks, or has fallen several times in a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, isnan
from typing import Literal

from fedkge.errors import ConfigError

OWN = ""  #: the name of the value that is checked, among those watched beside it


@dataclass
class Stopping:
    """Feed it one value per check; `best_at` is the check to keep, `done` says that it is enough."""

    patience: int = 3  #: checks; 0 never stops
    rule: Literal["patience", "drops"] = "patience"  #: drops: consecutive falls, each below the last check
    best: float = -inf
    best_at: int = -1
    last: float = -inf
    last_at: int = -1
    bad: int = 0
    first: float = -inf  #: the value of check 0: what there was before anything was trained
    beside: dict[str, float] = field(default_factory=dict)  #: the best of what else was watched, by name
    beside_at: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ConfigError(f"patience: expected at least 0, got {self.patience}")

    def check(
        self,
        at: int,
        value: float,
        beside: Mapping[str, float] | None = None,
        gained: bool = False,
        sure: float = 0.0,
    ) -> set[str]:
        """Take the value of check `at`; what is the best so far, `OWN` being the value itself.

        It is no bad check if anything that is watched beside it is at its best, or something else `gained`.
        To replace what there was at check 0, a value must be better by more than `sure`.
        """
        if at == 0:
            self.first = -inf if isnan(value) else value
        found = beside or {}
        better = {name for name, other in found.items() if other > self.beside.get(name, -inf)}
        self.beside |= {name: found[name] for name in better}
        self.beside_at |= dict.fromkeys(better, at)
        unjudged = isnan(value) and self.best == -inf  # nobody has a question: the latest is kept
        enough = at == 0 or not sure or value > self.first + sure
        if enough and (value > self.best or unjudged):
            self.best, self.best_at = -inf if unjudged else value, at
            better.add(OWN)
        worse = self.rule == "patience" or value < self.last
        self.bad = self.bad + 1 if worse and not better and not gained else 0
        self.last, self.last_at = value, at
        return better

    @property
    def done(self) -> bool:
        return self.patience > 0 and self.bad >= self.patience
