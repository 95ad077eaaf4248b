"""Every site trains alone: the baseline that a federation has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedkge.methods.base import METHODS, Method


@METHODS.register("single")
@dataclass(frozen=True)
class Single(Method):
    """Nothing is exchanged. Each site trains until its own validation stops it."""

    together: ClassVar[bool] = False
    restart: bool = False  #: starts every round with a new optimizer, as federated methods do
