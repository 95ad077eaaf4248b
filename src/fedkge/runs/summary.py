"""What a run came to: `summary.json`."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import fedkge
from fedkge.evaluation import combined
from fedkge.exchange.tally import Tally, total
from fedkge.graphs.exposure import exposures, shared_counts
from fedkge.graphs.graph import Axis, Graph
from fedkge.graphs.overview import overview
from fedkge.graphs.structure import structure
from fedkge.methods import METHODS, Member
from fedkge.models import MODELS
from fedkge.nodes.learner import SiteMetrics
from fedkge.nodes.result import read_result
from fedkge.plugins import installed
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment

SIDES = {"both": "", "head": "_head", "tail": "_tail"}  #: whose questions, and what a split's name ends in


@dataclass(frozen=True, slots=True)
class Result:
    """What the nodes of a run came to, as their folders tell."""

    courses: Mapping[str, Mapping[str, Any]]  #: what stops by one validation: a site, or all of them together
    seconds: Mapping[str, float]
    tally: Tally
    metrics: Mapping[str, SiteMetrics]  #: valid, test, and what else was measured on test

    @classmethod
    def collect(
        cls, homes: Iterable[Path], courses: Mapping[str, Any], seconds: Mapping[str, float], tally: Tally
    ) -> Result:
        """From the folders of the members."""
        metrics: dict[str, dict[str, Any]] = {}
        for home in homes:
            for name, sites in read_result(home)["metrics"].items():
                metrics.setdefault(name, {}).update(sites)
        return cls(courses, seconds, tally, metrics)


def environment(device: torch.device) -> dict[str, str]:
    """What a result may depend on besides the experiment."""
    return {
        "fedkge": fedkge.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        **{f"plugin {name}": version for name, version in installed().items()},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def summarise(
    experiment: Experiment,
    sources: Sources,
    members: Mapping[str, Member],
    result: Result,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Metrics are means over sites, weighted by their numbers of queries."""
    measured, federation, unified = result.metrics, sources.named, sources.unified
    announced, shares = sources.announced(experiment), experiment.method.shares
    shared = shared_counts(announced, shares)
    here = [site for site in federation if all(site in found for found in measured.values())]
    overlap = overview(unified.federation).entity_overlap
    trained = {site: len(one.graph.train) for one in members.values() for site in one.parts}
    best_round = max(course["best_round"] for course in result.courses.values())
    return {
        "method": METHODS.name_of(experiment.method),
        "model": MODELS.name_of(experiment.model),
        "dataset": str(experiment.data),
        "seed": experiment.seed,
        "rounds": max(course["rounds"] for course in result.courses.values()),
        "best_round": best_round,
        "courses": dict(result.courses),
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
                "trained": trained[site],
                "leaks": sources.leaks[site].plain(),
                "shared": {str(a): shared[site].get(a, 0) for a in Axis},
                "traffic": total([result.tally.sites[site]]),
                "metrics": {
                    f"{name}{of}": sites[site][side]
                    for name, sites in measured.items()
                    for side, of in SIDES.items()
                },
            }
            for site, graph in federation.items()
            if site in here
        },
        "absent": [site for site in federation if site not in here],
        "overlap": {"sites": list(federation), "entities": overlap.tolist()},
        "leaks": {"dropped": experiment.data.drop_leaks == "across", **_leaked(sources)},
        "links": [asdict(report) for report in unified.reports],
        "exposed": [
            asdict(found) for found in exposures(announced, shares if experiment.method.averages else ())
        ],
        "traffic": result.tally.summary(),
        "converged": {"rounds": best_round, **result.tally.until(best_round)},
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


def _leaked(sources: Sources) -> dict[str, int]:
    """Held-out triples that another site has in train, whether they are left out of it or not."""
    return {name: sum(getattr(of, name) for of in sources.leaks.values()) for name in ("valid", "test")}


def _described(graph: Graph) -> dict[str, Any]:
    """What a site has, in numbers."""
    return {
        "triples": {str(split): len(triples) for split, triples in graph.splits().items()},
        "entities": graph.n_entities,
        "relations": graph.n_relations,
        "confidential": 0 if graph.confidential is None else int(graph.confidential.sum()),
        "digest": graph.digest(),
        "structure": structure(graph).plain(),
    }
