"""What a runtime knows about parties, and the plan of rounds that the hub follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fedkge.errors import ConfigError
from fedkge.exchange.rows import Message
from fedkge.exchange.select import share
from fedkge.randomness import generator
from fedkge.training import Stopping


class Party(Protocol):
    """Someone who answers messages. No sockets, threads or clocks: a runtime has those."""

    id: str

    def open(self) -> list[Message]:
        """What is said first."""

    def receive(self, message: Message) -> list[Message]:
        """The answers to a message."""

    def expire(self, round: int) -> list[Message]:
        """What is said when the time for a round's answers is up."""


@dataclass(frozen=True)
class Participation:
    """Who takes part in a round, and whom it waits for."""

    fraction: float = 1.0  #: of the sites is asked each round, drawn anew
    quorum: float = 1.0  #: of those asked must answer; the round closes as soon as they have
    late: Literal["refuse", "use"] = "refuse"  #: an answer to a closed round; use: it counts in the next one
    dropout: float = 0.0  #: simulation: each asked site's answer is lost with this probability

    def __post_init__(self) -> None:
        for name in ("fraction", "quorum"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(
                    f"{name}: expected a number above 0 and at most 1, got {getattr(self, name)}"
                )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout: expected a number from 0 and below 1, got {self.dropout}")

    def asked(self, sites: Sequence[str], seed: int, round: int) -> list[str]:
        """The sites that take part in a round; at least one."""
        if self.fraction == 1:
            return sorted(sites)
        count = max(1, int(self.fraction * len(sites) + 0.5))
        chosen = generator(seed, "participation", round).choice(len(sites), count, replace=False)
        return sorted(sorted(sites)[i] for i in chosen.tolist())

    def needed(self, asked: int) -> int:
        """How many of the asked must answer."""
        return share(self.quorum, asked)


@dataclass(frozen=True)
class Plan:
    """When a federation validates and when it ends."""

    rounds: int
    every: int = 5  #: rounds between validations
    stopping: Stopping = field(default_factory=Stopping)  #: as it is before the first validation
    seed: int = 0
    each: bool = False  #: sites that stop together keep each its own best, and go on while any gains
    first: bool = False  #: validates before the first round too, as tables that were trained may be the best

    def validates(self, round: int) -> bool:
        return round % self.every == 0 or round == self.rounds
