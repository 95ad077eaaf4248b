"""Short names of IRIs: `ex:alice`, where the data or the options say what `ex` stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkge.graphs.graph import Axis, Federation

OWL = "http://www.w3.org/2002/07/owl#"
USUAL = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": OWL,
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "schema": "https://schema.org/",
    "dcterms": "http://purl.org/dc/terms/",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "dbr": "http://dbpedia.org/resource/",
    "dbo": "http://dbpedia.org/ontology/",
}  #: what everybody means; the data's own prefixes come first


def expanded(name: str, prefixes: Mapping[str, str]) -> str:
    """The IRI that a short name stands for; any other name stays as it is."""
    prefix, colon, local = name.partition(":")
    if not colon or local.startswith("//"):
        return name
    namespace = prefixes.get(prefix, USUAL.get(prefix))
    return name if namespace is None else namespace + local


def shortened(name: str, prefixes: Mapping[str, str]) -> str:
    """The short name of an IRI, by the longest namespace that fits; any other name stays as it is."""
    known = USUAL | dict(prefixes)
    fitting = [prefix for prefix, namespace in known.items() if namespace and name.startswith(namespace)]
    if not fitting:
        return name
    best = max(fitting, key=lambda prefix: len(known[prefix]))
    short = f"{best}:{name[len(known[best]) :]}"
    return short if expanded(short, prefixes) == name else name


def full_names(federation: Federation, axis: Axis, names: Iterable[str]) -> list[str]:
    """The names as the sites have them: a short name is written out."""
    known = [graph.names(axis) for graph in federation.values()]
    return [next((own.full(name) for own in known if name in own), name) for name in names]
