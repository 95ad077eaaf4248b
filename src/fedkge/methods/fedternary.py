"""FedTernary: FedEP that sends changes with three values, and sends rounding errors later."""

from __future__ import annotations

from dataclasses import dataclass

from fedkge.errors import ConfigError
from fedkge.exchange.codec import Codec, Float32, Ternary
from fedkge.methods.base import METHODS
from fedkge.methods.fedep import FedEP


@METHODS.register("fedternary")
@dataclass(frozen=True)
class FedTernary(FedEP):
    """`fedep` with `codec = { name = "ternary", delta = true }`: a name for this project's own exchange.

    Every shared row is sent in every round, in both directions, as its change against the last row that
    both ends hold: a scale, and -1, 0 or 1 for each number, five to a byte. A site adds the rounding
    error to the row's next change (Seide et al., 2014); the hub's error is part of its next change
    anyway. A row of 256 numbers takes 56 bytes instead of 1024. docs/adr/0010 has the alternatives. The
    codec also works with every other method, and with `topk`.
    """

    def coding(self, given: Codec) -> Codec:
        if given != Float32():
            raise ConfigError("fedternary has a codec of its own: leave out codec, or use fedep with it")
        return Ternary(delta=True)
