"""A PyKEEN model on disk, as PyKEEN's own pipeline leaves it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from fedkge.durable import PRIVATE, privately
from fedkge.errors import DataError
from fedkge.exports.pykeen import to_pykeen
from fedkge.graphs.graph import Graph
from fedkge.graphs.pykeen import to_pykeen as factories
from fedkge.models import Tables


def save_pykeen(tables: Tables, graph: Graph, folder: Path) -> list[Path]:
    """`trained_model.pkl` for torch.load, and `training_triples` for TriplesFactory.from_path_binary.

    Confidential triples are not in either.
    """
    if graph.confidential is not None:
        graph = replace(graph, train=graph.train[~graph.confidential], confidential=None)
        if not len(graph.train):
            raise DataError("train: all triples are confidential, and PyKEEN makes no model without any")
    model = to_pykeen(tables, graph)
    training, *_ = factories(graph)
    folder.mkdir(parents=True, exist_ok=True)
    with privately():
        torch.save(model, folder / "trained_model.pkl")
        training.to_path_binary(folder / "training_triples")
    files = [folder / "trained_model.pkl", *sorted((folder / "training_triples").iterdir())]
    for path in files:
        path.chmod(PRIVATE)  # one that was there before
    return files
