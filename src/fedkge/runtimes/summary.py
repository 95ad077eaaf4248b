"""What a run came to: `summary.json`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch

import fedkge
from fedkge.evaluation import combined
from fedkge.graphs.graph import Axis, Federation
from fedkge.graphs.overview import overview
from fedkge.graphs.unify import Unified, alignments
from fedkge.methods import METHODS
from fedkge.models import MODELS
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.traffic import Traffic, total

SiteMetrics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]  #: site -> side -> metric -> value


@dataclass(frozen=True, slots=True)
class Course:
    """What stops by one validation: a site alone, or all of them together."""

    rounds: int
    best_round: int


@dataclass(frozen=True, slots=True)
class Result:
    """A federation, trained and measured at its best validated round."""

    courses: Mapping[str, Course]
    seconds: Mapping[str, float]
    traffic: Traffic
    valid: SiteMetrics
    test: SiteMetrics
    views: Mapping[str, SiteMetrics]  #: what else was measured on test, by name


def environment(device: torch.device) -> dict[str, str]:
    """What a result may depend on besides the experiment."""
    return {
        "fedkge": fedkge.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def summarise(
    experiment: Experiment,
    federation: Federation,
    unified: Unified,
    result: Result,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Metrics are means over sites, weighted by their numbers of queries."""
    valid, test, trainer = result.valid, result.test, experiment.trainer
    shared, views = alignments(unified.federation), result.views.items()
    overlap = overview(unified.federation).entity_overlap
    shares = experiment.method.shares
    given = ("epochs", "batch_size", "negatives", "sides", "lr")
    return {
        "method": METHODS.name_of(experiment.method),
        "model": MODELS.name_of(experiment.model),
        "dataset": str(experiment.data),
        "seed": experiment.seed,
        "rounds": max(course.rounds for course in result.courses.values()),
        "best_round": max(course.best_round for course in result.courses.values()),
        "courses": {name: asdict(course) for name, course in result.courses.items()},
        "budget": {"rounds": experiment.rounds, **{name: getattr(trainer, name) for name in given}}
        | {"dim": experiment.embedding.dim},
        "seconds": {**result.seconds, "total": seconds},
        "device": device.type,
        "environment": environment(device),
        "metrics": {
            "valid": combined(found["both"] for found in valid.values()),
            "test": combined(found["both"] for found in test.values()),
            "test_tail": combined(found["tail"] for found in test.values()),
            **{f"test_{view}": combined(found["both"] for found in of.values()) for view, of in views},
        },
        "sites": {
            site: {
                "triples": {str(split): len(triples) for split, triples in graph.splits().items()},
                "entities": graph.n_entities,
                "relations": graph.n_relations,
                "shared": {str(a): len(shared[site][a][0]) if a in shares else 0 for a in Axis},
                "digest": graph.digest(),
                "traffic": total([result.traffic.sites[site]]),
                "metrics": {
                    "valid": valid[site]["both"],
                    "test": test[site]["both"],
                    "test_head": test[site]["head"],
                    "test_tail": test[site]["tail"],
                    **{f"test_{view}": of[site]["both"] for view, of in views},
                },
            }
            for site, graph in federation.items()
        },
        "overlap": {"sites": list(federation), "entities": overlap.tolist()},
        "links": [asdict(report) for report in unified.reports],
        "traffic": result.traffic.summary(),
        "privacy": [],
    }
