"""docs/degrees.md: FedLU's Figures 3 and 6, how its federations C3, R3, C10 and R10 are knit.

    python benchmarks/degrees.py

The four federations are read from FEDKGE_DATA. Writes docs/degrees.json, the page and its pictures within
seconds. C5 and R5 are not read: they are left for others to check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias
from warnings import catch_warnings, simplefilter

from degrees_page import FIGURES, page, pictures
from fedkge.errors import DataWarning
from fedkge.graphs.datasets import load
from fedkge.graphs.graph import Graph
from fedkge.graphs.overview import overview
from fedkge.graphs.structure import structure

Plain: TypeAlias = dict[str, Any]

DOCS = Path(__file__).parents[1] / "docs"


def measured(federation: Mapping[str, Graph]) -> Plain:
    """The sizes of all sites, their degrees and clustering coefficients, and what two sites share."""
    found = overview(dict(federation))
    sites = {
        of.site: {
            "entities": of.entities,
            "relations": of.relations,
            "triples": of.train + of.valid + of.test,
        }
        | structure(federation[of.site]).plain()
        for of in found.sites
    }
    return {"shared_by_a_pair": found.mean_entity_overlap, "sites": sites}


def main() -> None:
    kept = {}
    with catch_warnings():
        simplefilter("ignore", DataWarning)  # entities that only valid and test have: FedLU's own splits
        for name in (name for pair in FIGURES.values() for name in pair):
            kept[name] = measured(load(f"fb15k-237-{name}"))
    (DOCS / "degrees.json").write_text(written(kept))
    (DOCS / "degrees.md").write_text(page(kept))
    for file, svg in pictures(kept).items():
        (DOCS / file).write_text(svg)


def written(kept: Mapping[str, Plain]) -> str:
    """JSON with a line for each site."""
    federations = []
    for name, of in kept.items():
        sites = ",\n".join(f"{json.dumps(site)}: {json.dumps(one)}" for site, one in of["sites"].items())
        shared = json.dumps(of["shared_by_a_pair"])
        federations.append(f'{json.dumps(name)}: {{"shared_by_a_pair": {shared}, "sites": {{\n{sites}}}}}')
    return "{" + ",\n".join(federations) + "}\n"


if __name__ == "__main__":
    main()
