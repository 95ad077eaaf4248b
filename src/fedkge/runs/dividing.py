"""Graphs as an experiment wants them: split, marked, and numbered so that ids tell nothing."""

from __future__ import annotations

from fedkge.graphs.graph import Federation, Graph, Split
from fedkge.graphs.persons import about_nobody
from fedkge.runs.experiment import Data, Experiment, Marks


def split_by(data: Data, federation: Federation, seed: int) -> Federation:
    """The same graphs, split where the options say so."""
    from fedkge.graphs.split import parse_ratio, split

    if data.ratio is None:
        return federation
    ratio, keep = parse_ratio(data.ratio), data.held_out == "unrestricted"
    return {
        site: graph if _is_split(graph, keep) else split(graph, ratio, seed, keep)
        for site, graph in federation.items()
    }


def _is_split(graph: Graph, keep: bool) -> bool:
    """Whether it has valid and test; with `keep`, apart from triples about persons."""
    parts = (Split.VALID, Split.TEST)
    return all(len(about_nobody(graph, part) if keep else graph.split(part)) for part in parts)


def with_marks(marks: Marks, federation: Federation, seed: int) -> Federation:
    """The same graphs, with what is confidential besides what the data marks."""
    from fedkge.graphs.files import read_graph
    from fedkge.graphs.marks import mark_relations, mark_share, mark_triples, read_names

    if marks.share is not None:
        federation = mark_share(federation, marks.share, seed)
    if marks.relations is not None:
        federation = mark_relations(federation, read_names(marks.relations))
    if marks.triples is not None:
        federation = mark_triples(federation, read_graph(marks.triples))
    return federation


def numbered(experiment: Experiment, federation: Federation) -> Federation:
    """The same sites; what is confidential has no influence on who has which id.

    Ids in the order of first appearance, as files have them, would tell which names confidential triples
    begin with, and seeded choices of ids would depend on them.
    """
    from fedkge.graphs.subgraph import in_name_order

    every = experiment.privacy.mode == "fulldp"
    return {
        site: in_name_order(graph) if every or graph.confidential is not None else graph
        for site, graph in federation.items()
    }
