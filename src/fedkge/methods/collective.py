"""All graphs pooled, as if they could be shared: what federation may hope for. Not private."""

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

    The papers differ in what they measure "centralized" models by (FedLU's code validates among the entities
    of all sites); here the question of a site has the candidates and the filter that it has in every method.
    """

    restart: bool = False  #: a new optimizer every round, as federated methods have it

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
