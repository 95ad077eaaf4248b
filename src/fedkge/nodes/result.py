"""What a site's folder holds when its part of a run has ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedkge.errors import DataError
from fedkge.evaluation import Ranks
from fedkge.exports.files import save_embeddings
from fedkge.graphs.graph import Graph, Ids, Split
from fedkge.methods import Member
from fedkge.models import Side, Tables
from fedkge.nodes.learner import Learner, SiteMetrics, by_side
from fedkge.nodes.ledgers import RESULT
from fedkge.nodes.store import write_whole

RANKS = "ranks.safetensors"  #: of a site's test triples


@dataclass(frozen=True, eq=False)
class Kept:
    """The tables that a site kept, and how well they do."""

    member: Member
    tables: Mapping[str, Tables]  #: those that the site is measured by under "", those beside them by name
    ranks: Mapping[str, Ranks]  #: of test triples, by whose they are
    metrics: Mapping[str, SiteMetrics]  #: valid, test, and test_NAME

    @classmethod
    def measured(cls, learner: Learner, tables: Mapping[str, Tables]) -> Kept:
        """Rank validation and test triples."""
        ranks = learner.ranks(tables[""], Split.TEST)
        metrics = {"valid": learner.measure(tables[""], Split.VALID), "test": by_side(ranks)}
        beside = {f"test_{n}": learner.measure(of, Split.TEST) for n, of in tables.items() if n}
        return cls(learner.member, tables, ranks, metrics | beside)

    def save(self, home: Callable[[str], Path], named: Mapping[str, Graph], sync: bool) -> None:
        """Write each site's tables and ranks into its folder, under the names that the site has."""
        for site, part in self.member.parts.items():
            for view, tables in self.tables.items():
                save_tables(part.of(tables), named.get(site, part.graph), home(site) / view)
            write_whole(home(site) / RANKS, packed_ranks(self.ranks[site], part.graph.test), sync)


def save_tables(tables: Tables, graph: Graph, folder: Path) -> None:
    """Tables under the names of a graph."""
    from safetensors import SafetensorError

    try:
        save_embeddings(tables, graph, folder, "safetensors")
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder}: cannot be written: {error}; mend it and give --resume") from None


def packed_ranks(ranks: Ranks, triples: Ids) -> bytes:
    """The test triples [n, 3], by the lines of the site's names, and the realistic rank of each's ends."""
    from safetensors.torch import save

    by_side = {"triples": torch.from_numpy(triples).to(torch.int32).contiguous()}
    for side in Side:
        own = ranks.side(side)
        values = torch.empty(len(own))  # float32: halves are exact up to 2^23
        values[torch.from_numpy(own.triple)] = torch.from_numpy(own.values()).float()
        by_side[str(side)] = values
    content: bytes = save(by_side)
    return content


def read_result(home: Path) -> dict[str, Any]:
    """What a node has written about itself."""
    path = home / RESULT
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); the node has not ended its part") from None
    return found
