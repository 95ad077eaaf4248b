"""What a run came to: `summary.json`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch

import fedkge
from fedkge.evaluation import Ranks, combined, metrics_by_side
from fedkge.graphs.exposure import exposures
from fedkge.graphs.graph import Axis, Federation, Graph
from fedkge.graphs.overview import overview
from fedkge.graphs.structure import structure
from fedkge.graphs.unify import Unified, alignments
from fedkge.methods import METHODS
from fedkge.models import MODELS
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.traffic import Traffic, total

SiteMetrics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]  #: site -> side -> metric -> value

SIDES = {"both": "", "head": "_head", "tail": "_tail"}  #: whose questions, and what a split's name ends in


@dataclass(frozen=True, slots=True)
class Course:
    """What stops by one validation: a site alone, or all of them together."""

    rounds: int
    best_round: int
    best_rounds: Mapping[str, int]  #: of tables that were validated beside: view -> round


@dataclass(frozen=True, slots=True)
class Result:
    """A federation, trained and measured at its best validated round."""

    courses: Mapping[str, Course]
    seconds: Mapping[str, float]
    traffic: Traffic
    valid: SiteMetrics
    test: SiteMetrics
    views: Mapping[str, SiteMetrics]  #: what else was measured on test, by name
    ranks: Mapping[str, Ranks]  #: of each site's test triples


def environment(device: torch.device) -> dict[str, str]:
    """What a result may depend on besides the experiment."""
    return {
        "fedkge": fedkge.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def by_side(ranks: Mapping[str, Ranks]) -> SiteMetrics:
    """Ranks by site, summed up."""
    return {site: metrics_by_side(found) for site, found in ranks.items()}


def summarise(
    experiment: Experiment,
    federation: Federation,
    unified: Unified,
    result: Result,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Metrics are means over sites, weighted by their numbers of queries."""
    measured = {"valid": result.valid, "test": result.test}
    measured |= {f"test_{view}": found for view, found in result.views.items()}
    shared, shares = alignments(unified.federation), experiment.method.shares
    overlap = overview(unified.federation).entity_overlap
    best_round = max(course.best_round for course in result.courses.values())
    return {
        "method": METHODS.name_of(experiment.method),
        "model": MODELS.name_of(experiment.model),
        "dataset": str(experiment.data),
        "seed": experiment.seed,
        "rounds": max(course.rounds for course in result.courses.values()),
        "best_round": best_round,
        "courses": {name: asdict(course) for name, course in result.courses.items()},
        "budget": _budget(experiment),
        "seconds": {**result.seconds, "total": seconds},
        "device": device.type,
        "environment": environment(device),
        "sides": experiment.evaluate.sides,
        "metrics": {
            f"{name}{of}": combined(found[side] for found in sites.values())
            for name, sites in measured.items()
            for side, of in SIDES.items()
        },
        "sites": {
            site: {
                **_described(graph),
                "shared": {str(a): len(shared[site][a][0]) if a in shares else 0 for a in Axis},
                "traffic": total([result.traffic.sites[site]]),
                "metrics": {
                    f"{name}{of}": sites[site][side]
                    for name, sites in measured.items()
                    for side, of in SIDES.items()
                },
            }
            for site, graph in federation.items()
        },
        "overlap": {"sites": list(federation), "entities": overlap.tolist()},
        "links": [asdict(report) for report in unified.reports],
        "exposed": [
            asdict(found)
            for found in exposures(unified.federation, shares if experiment.method.averages else ())
        ],
        "traffic": result.traffic.summary(),
        "converged": {"rounds": best_round, **result.traffic.until(best_round)},
        "privacy": [],
    }


def _budget(experiment: Experiment) -> dict[str, Any]:
    """What a run may spend; those with the same can be compared."""
    given = ("epochs", "batch_size", "negatives", "sides", "lr")
    return {
        "rounds": experiment.rounds,
        **{name: getattr(experiment.trainer, name) for name in given},
        "dim": experiment.embedding.dim,
        "participation": experiment.participation.fraction if experiment.method.shares else 1.0,
    }


def _described(graph: Graph) -> dict[str, Any]:
    """What a site has, in numbers."""
    return {
        "triples": {str(split): len(triples) for split, triples in graph.splits().items()},
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "digest": graph.digest(),
        "structure": structure(graph).plain(),
    }
