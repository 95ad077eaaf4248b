"""Every site for itself: what federation has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedkge.methods.base import METHODS, Method


@METHODS.register("single")
@dataclass(frozen=True)
class Single(Method):
    """Nothing is exchanged; each site trains until its own validation says stop."""

    together: ClassVar[bool] = False
    restart: bool = False  #: a new optimizer every round, as federated methods have it
