"""One end of a conversation between peers: what a peer brings to it, and what it has heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from fedkge.exchange.announce import Id
from fedkge.graphs.graph import Axis, Graph
from fedkge.methods.fkge import FKGE
from fedkge.methods.lending import Loan
from fedkge.models import Tables
from fedkge.training.secret import Secret

Aligned = Mapping[Axis, Tensor]  # int64 [n]: own rows of what both have, in an order that is the same at both


@dataclass(frozen=True, slots=True)
class Keys:
    """What a peer draws from: `own` for matrices and orders, `noise` for all that privacy rests on."""

    own: Secret
    noise: Secret


@dataclass(frozen=True, slots=True)
class End:
    """A peer's part in one conversation. Tables are read, and not changed."""

    method: FKGE
    tables: Tables
    graph: Graph
    ids: Mapping[Axis, Sequence[Id]]
    keys: Keys
    nonce: str  #: new in every conversation, so that no noise is drawn twice
    aligned: Aligned | None = None  #: unset: the two find out
    spend: Callable[[int], bool] = lambda votes: True  #: records votes; false: the budget does not allow them
    gives: bool = True  #: whether a budget of rows that are sent with noise allows another conversation
    release: Callable[[], None] = lambda: None  #: records that rows are sent with noise
    withheld: Mapping[Axis, Collection[int]] = field(default_factory=dict)  #: rows that never leave

    def named(self, axis: Axis) -> dict[Id, int]:
        """Id -> own row, of those that the other may learn."""
        hidden = frozenset(self.withheld.get(axis, ()))
        return {one: place for place, one in enumerate(self.ids[axis]) if place not in hidden}

    @property
    def widths(self) -> dict[Axis, int]:
        """How many numbers of a row are a vector that can be translated; 0: none."""
        return {axis: self.tables.model.spatial(axis) for axis in Axis}

    def one_fits_both(self, theirs: Mapping[Axis, int]) -> bool:
        """Whether a W for entities can translate relations too."""
        own = self.widths
        return own[Axis.ENTITY] == own[Axis.RELATION] and theirs[Axis.ENTITY] == theirs[Axis.RELATION]


@dataclass(slots=True)
class Heard:
    """What a conversation has brought this end."""

    session: str = ""
    aligned: Aligned = field(default_factory=dict)
    taken: Aligned = field(default_factory=dict)  # the own rows that translations are for: those sampled
    rows: dict[Axis, Tensor] = field(default_factory=dict)  # [n, width], in the own space
    loan: Loan | None = None  #: virtual entities, relations and edges
    votes: int = 0
    real: list[float] = field(default_factory=list)  #: the share of noisy labels that said "real", by pass
    gaps: Counter[int] = field(default_factory=Counter)  #: votes by |n_0 - n_1|: private
    refused: str = ""  #: why this end was not a host
