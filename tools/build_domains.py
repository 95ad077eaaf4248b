"""Sites of FB15k-237 by domain: `python tools/build_domains.py FB15K-237-FOLDER OUT`.

Freebase names a relation by its domain: /film/film/genre belongs to film. Each domain becomes
a site with the triples of its relations, in the splits that they have in the whole graph. A relation of
two halves (`/a/b./c/d`) belongs to the domain of the first. Valid and test triples about entities that the
site's train does not have are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph, Ids
from fedkge.graphs.subgraph import regrouped
from fedkge.graphs.writing import write_federation

DOMAINS = ("film", "music", "sports", "location", "people")


def domain(graph: Graph, name: str) -> Graph:
    """The triples whose relation begins with `/name/`."""
    mine = np.array([relation.startswith(f"/{name}/") for relation in graph.relations])
    train, valid, test = (triples[mine[triples[:, 1]]] for triples in graph.splits().values())
    return regrouped(graph, train, *(_seen(triples, train) for triples in (valid, test)))


def _seen(triples: Ids, train: Ids) -> Ids:
    known = np.isin(triples[:, ::2], train[:, ::2]).all(1) & np.isin(triples[:, 1], train[:, 1])
    return triples[known]


def domains(graph: Graph, names: tuple[str, ...] = DOMAINS) -> dict[str, Graph]:
    return {name: domain(graph, name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graph", type=Path, help="a folder with train, valid and test of FB15k-237")
    parser.add_argument("out", type=Path, help="a new folder, one folder per domain")
    parser.add_argument("--domains", default=",".join(DOMAINS))
    given = parser.parse_args()
    found = domains(read_graph(given.graph), tuple(given.domains.split(",")))
    write_federation(found, given.out)
    for name, graph in found.items():
        print(f"{name}: {graph}")


if __name__ == "__main__":
    main()
