"""Sites of FB15k-237 by domain: `python tools/build_domains.py FB15K-237-FOLDER OUT`.

`python tools/build_domains.py atlas OUT` splits the sites of `atlas` further: each into offices (`--offices`)
that share its relations out, so that entities are common and relations are not.

Freebase names a relation by its domain: /film/film/genre belongs to film. Each domain becomes
a site with the triples of its relations, in the splits that they have in the whole graph. A relation of
two halves (`/a/b./c/d`) belongs to the domain of the first. Valid and test triples about entities that the
site's train does not have are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedkge.graphs.datasets import load
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


def offices(name: str, graph: Graph, count: int) -> dict[str, Graph]:
    """A site's relations dealt to offices: the largest first, each to the office with the fewest triples."""
    sizes = np.bincount(graph.train[:, 1], minlength=len(graph.relations))
    load, dealt = [0] * count, np.zeros(len(sizes), np.int64)
    for relation in np.argsort(-sizes, kind="stable"):
        dealt[relation] = office = int(np.argmin(load))
        load[office] += int(sizes[relation])
    found = {}
    for office in range(count):
        train, valid, test = (t[dealt[t[:, 1]] == office] for t in graph.splits().values())
        found[f"{name}-{office + 1}"] = regrouped(graph, train, *(_seen(t, train) for t in (valid, test)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graph", type=Path, help="a folder with train, valid and test of FB15k-237, or atlas")
    parser.add_argument("out", type=Path, help="a new folder, one folder per domain")
    parser.add_argument("--domains", default=",".join(DOMAINS))
    parser.add_argument("--offices", type=int, default=2, help="of each site of atlas")
    given = parser.parse_args()
    if str(given.graph) == "atlas":
        sites = load("atlas")
        found = {
            k: g for name, graph in sites.items() for k, g in offices(name, graph, given.offices).items()
        }
    else:
        found = domains(read_graph(given.graph), tuple(given.domains.split(",")))
    write_federation(found, given.out)
    for name, graph in found.items():
        print(f"{name}: {graph}")


if __name__ == "__main__":
    main()
