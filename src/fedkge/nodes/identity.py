"""What a site is called by: ids that are announced, and names that stay at home."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedkge.graphs.graph import Axis, Graph, Ids
from fedkge.nodes.stack import Identities


@dataclass(frozen=True)
class Identity:
    """What a site is called by: the ids of its rows, and the names that its tables are saved under."""

    ids: Identities
    named: Mapping[str, Graph] = field(
        default_factory=dict
    )  #: by site, of which there is one unless graphs are pooled
    withheld: Mapping[Axis, Collection[int]] = field(default_factory=dict)  #: rows that are not announced
    fingerprint: str | None = None  #: of the secret that ids are pseudonyms under; None: ids are names

    def announced(self, axis: Axis) -> Ids:
        """Local rows in the order of their ids, less those that are withheld."""
        ids, hidden = self.ids[axis], set(self.withheld.get(axis, ()))
        rows = [i for i in sorted(range(len(ids)), key=ids.__getitem__) if i not in hidden]
        return np.array(rows, np.int64)
