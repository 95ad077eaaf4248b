"""Where a run is, and who is told: without torch, so that audits can name it before they play anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is."""

    round: int
    rounds: int
    loss: float | None  #: mean over the sites that trained; None where they keep it to themselves
    mrr: float | None  #: the last validation's
    triples_per_s: float
    bytes: int  #: sent so far, both ways


Watch: TypeAlias = Callable[[Progress], None]  #: told after every round


def ignored(progress: Progress) -> None:
    """Nobody watches."""
