"""When to stop: validation has not improved for some checks, or has fallen several times in a row."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from fedkge.errors import ConfigError


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

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ConfigError(f"patience: expected at least 0, got {self.patience}")

    def check(self, at: int, value: float) -> bool:
        """Take the value of check `at`; whether it is the best so far."""
        improved = value > self.best
        worse = not improved if self.rule == "patience" else value < self.last
        self.bad = self.bad + 1 if worse else 0
        if improved:
            self.best, self.best_at = value, at
        self.last, self.last_at = value, at
        return improved

    @property
    def done(self) -> bool:
        return self.patience > 0 and self.bad >= self.patience
