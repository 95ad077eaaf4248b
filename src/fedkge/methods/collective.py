"""All graphs pooled, as if they could be shared: what a federation may hope for. Not private."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedkge.graphs.graph import Federation
from fedkge.graphs.pool import pool
from fedkge.methods.base import METHODS, Kind, Member, Method, Part


@METHODS.register("collective")
@dataclass(frozen=True)
class Collective(Method):
    """One model of the union of all graphs, measured at every site among that site's own entities.

    Papers differ in how they measure "centralized" models (FedLU's code validates among the entities of all
    sites). Here a site's questions have the same candidates and filter as in every method.
    """

    restart: bool = False  #: starts every round with a new optimizer, as federated methods do

    @property
    def kind(self) -> Kind:
        return "pooled"

    def members(self, federation: Federation) -> Mapping[str, Member]:
        pooled = pool(federation)
        parts = {
            site: Part(graph, pooled.entities[site], pooled.relations[site])
            for site, graph in federation.items()
        }
        return {"collective": Member(pooled.graph, parts)}
