"""PyKEEN triples factories, in and out."""

from __future__ import annotations

from typing import Any

from fedkge.errors import DataError, MissingPackage
from fedkge.graphs.graph import Graph, Split
from fedkge.graphs.indexing import NamedTriples, graph_from_triples, triples_by_id


def from_pykeen(training: Any, validation: Any = None, testing: Any = None) -> Graph:
    """A graph from `pykeen.triples.TriplesFactory` objects, each read by its own labels.

    Inverse relations that a factory adds for training are not part of its triples, nor of the graph.
    """
    given = {Split.TRAIN: training, Split.VALID: validation, Split.TEST: testing}
    return graph_from_triples(
        {split: _triples(split, factory) for split, factory in given.items() if factory is not None}
    )


def to_pykeen(graph: Graph) -> tuple[Any, Any, Any]:
    """Training, validation, testing factories with the graph's ids; None for a split without triples."""
    try:
        from pykeen.triples import TriplesFactory
    except ImportError:
        raise MissingPackage("pykeen", "making PyKEEN triples factories", "pykeen") from None
    from torch import from_numpy  # what PyKEEN's factories are made of

    entity_to_id = {name: i for i, name in enumerate(graph.entities)}
    relation_to_id = {name: i for i, name in enumerate(graph.relations)}
    training, validation, testing = (
        TriplesFactory(from_numpy(triples.copy()), entity_to_id, relation_to_id) if len(triples) else None
        for triples in graph.splits().values()
    )
    return training, validation, testing


def _triples(split: Split, factory: Any) -> NamedTriples:
    if not hasattr(factory, "entity_to_id"):
        raise DataError(f"{split}: expected a TriplesFactory with labels, found {type(factory).__name__}")
    names = ({i: name for name, i in ids.items()} for ids in (factory.entity_to_id, factory.relation_to_id))
    entities, relations = names
    triples = factory.mapped_triples.cpu().numpy()
    return triples_by_id(str(split), triples, entities, relations)
