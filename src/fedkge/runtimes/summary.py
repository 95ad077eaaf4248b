"""What a run came to: `summary.json`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

import fedkge
from fedkge.evaluation import combined
from fedkge.graphs.graph import Federation
from fedkge.graphs.overview import overview
from fedkge.models import MODELS
from fedkge.runtimes.experiment import Experiment

SiteMetrics: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]  #: site -> side -> metric -> value


@dataclass(frozen=True, slots=True)
class Result:
    """One course, trained and measured at its best validated round."""

    rounds: int
    best_round: int
    seconds: Mapping[str, float]
    valid: SiteMetrics
    test: SiteMetrics


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
    results: Mapping[str, Result],
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Metrics are means over sites, weighted by their numbers of queries."""
    valid = {site: found for result in results.values() for site, found in result.valid.items()}
    test = {site: found for result in results.values() for site, found in result.test.items()}
    return {
        "method": experiment.method.name,
        "model": MODELS.name_of(experiment.model),
        "dataset": str(experiment.data),
        "seed": experiment.seed,
        "rounds": max(result.rounds for result in results.values()),
        "best_round": max(result.best_round for result in results.values()),
        "courses": {
            name: {"rounds": result.rounds, "best_round": result.best_round}
            for name, result in results.items()
        },
        "seconds": {
            **{kind: sum(r.seconds[kind] for r in results.values()) for kind in ("train", "evaluate")},
            "total": seconds,
        },
        "device": device.type,
        "environment": environment(device),
        "metrics": {
            "valid": combined(found["both"] for found in valid.values()),
            "test": combined(found["both"] for found in test.values()),
            "test_tail": combined(found["tail"] for found in test.values()),
        },
        "sites": {
            site: {
                "triples": {str(split): len(triples) for split, triples in graph.splits().items()},
                "entities": graph.n_entities,
                "relations": graph.n_relations,
                "digest": graph.digest(),
                "metrics": {
                    "valid": valid[site]["both"],
                    "test": test[site]["both"],
                    "test_head": test[site]["head"],
                    "test_tail": test[site]["tail"],
                },
            }
            for site, graph in federation.items()
        },
        "overlap": {"sites": list(federation), "entities": overview(federation).entity_overlap.tolist()},
        "traffic": {"up_bytes": 0, "down_bytes": 0, "up_values": 0, "down_values": 0, "per_round": []},
        "privacy": [],
    }
