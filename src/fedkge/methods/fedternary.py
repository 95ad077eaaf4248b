"""FedTernary: FedEP that sends changes of three values, with what that loses carried over."""

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

    Every shared row travels in every round, both ways, as its change against the last row that both ends
    hold: a scale, and -1, 0 or 1 for each number, five to a byte. What a site's code loses is added to the
    row's next change (Seide et al., 2014); what the hub's loses is part of its next change by itself. A row
    of 256 numbers takes 56 bytes instead of 1024. docs/adr/0010 says what it was chosen from. The codec goes
    with every other method, and with `topk`, too.
    """

    def coding(self, given: Codec) -> Codec:
        if given != Float32():
            raise ConfigError("fedternary has a codec of its own: leave out codec, or use fedep with it")
        return Ternary(delta=True)
