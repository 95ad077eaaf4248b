"""What a site's folder holds when its part of a run has ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from fedkge.errors import DataError
from fedkge.evaluation import Ranks
from fedkge.exports.files import save_embeddings
from fedkge.graphs.graph import Graph
from fedkge.models import Side, Tables
from fedkge.nodes.ledgers import RESULT

RANKS = "ranks.safetensors"  #: of a site's test triples


def save_tables(tables: Tables, graph: Graph, folder: Path) -> None:
    """Tables under the names of a graph."""
    from safetensors import SafetensorError

    try:
        save_embeddings(tables, graph, folder, "safetensors")
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder}: cannot be written: {error}; mend it and give --resume") from None


def packed_ranks(ranks: Ranks) -> bytes:
    """The realistic rank of every test triple's head and tail, in the triples' order."""
    from safetensors.torch import save

    by_side = {}
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
