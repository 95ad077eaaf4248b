"""What tables, triples and scores must satisfy before anything is said about them."""

from __future__ import annotations

from fedkge.errors import DataError
from fedkge.graphs.graph import Ids
from fedkge.models import Tables


def check_ids(triples: Ids, n_entities: int, n_relations: int) -> None:
    """An id that no row stands for is an error."""
    if triples.ndim != 2 or triples.shape[1] != 3:
        raise DataError(f"expected triples [m, 3], found {list(triples.shape)}")
    for what, ids, n in (("entity", triples[:, ::2], n_entities), ("relation", triples[:, 1], n_relations)):
        if ids.size and not 0 <= ids.min() <= ids.max() < n:
            wrong = ids.max() if ids.min() >= 0 else ids.min()
            raise DataError(
                f"{what} id {wrong}: expected 0 to {n - 1}; was the graph changed after training?"
            )


def check_tables(tables: Tables, n_entities: int, n_relations: int) -> None:
    """Tables that belong to another graph are an error."""
    rows = len(tables.entities), len(tables.relations)
    if rows != (n_entities, n_relations):
        raise DataError(
            f"tables of {rows[0]} entities and {rows[1]} relations, a graph of {n_entities} and "
            f"{n_relations}: use the graph that the tables were made for"
        )


class Diverged(DataError):  # noqa: N818 - reads as what it says
    """Tables or scores that cannot be computed with."""


def diverged(site: str = "") -> Diverged:
    """The error for scores that are NaN or infinite: compared, they would look like good ranks."""
    where = f" at site {site}" if site else ""
    return Diverged(f"scores are not finite{where}: training diverged; lower the learning rate")
