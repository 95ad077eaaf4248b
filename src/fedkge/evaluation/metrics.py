"""Ranks summed up: MRR, MR and Hits@k, overall, by side, by relation, and over sites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan

import numpy as np
from numpy.typing import NDArray

from fedkge.evaluation.ranking import Ranks, Ties
from fedkge.models import Side

HITS = (1, 3, 5, 10)
NAMES = ("mrr", "mr", *(f"hits@{k}" for k in HITS))  #: what `metrics` reports, beside "count"


def metrics(ranks: Ranks, ties: Ties | str = Ties.REALISTIC, side: Side | None = None) -> dict[str, float]:
    """Means over all questions, or over one side's; "count" is their number. Without any they are NaN.

    A hit at k is a rank of at most k: under realistic ties, two that tie for the first place (rank 1.5 each)
    are no hits at 1.
    """
    chosen = ranks if side is None else ranks.side(side)
    values = _columns(chosen.values(ties))
    count = len(chosen)
    return {name: float(x.mean()) if count else nan for name, x in values.items()} | {"count": count}


def metrics_by_side(ranks: Ranks, ties: Ties | str = Ties.REALISTIC) -> dict[str, dict[str, float]]:
    """`metrics` of both sides, of the head questions and of the tail questions."""
    return {"both": metrics(ranks, ties)} | {str(side): metrics(ranks, ties, side) for side in Side}


def metrics_by_relation(
    ranks: Ranks, ties: Ties | str = Ties.REALISTIC, side: Side | None = None
) -> dict[int, dict[str, float]]:
    """`metrics` of every relation that was asked about, by its id."""
    chosen = ranks if side is None else ranks.side(side)
    relations, group, counts = np.unique(chosen.relation, return_inverse=True, return_counts=True)
    means = {
        name: np.bincount(group, x, len(relations)) / counts
        for name, x in _columns(chosen.values(ties)).items()
    }
    return {
        int(relation): {name: float(mean[i]) for name, mean in means.items()} | {"count": int(counts[i])}
        for i, relation in enumerate(relations)
    }


def _columns(rank: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    hits = {f"hits@{k}": (rank <= k).astype(np.float64) for k in HITS}
    return {"mrr": 1 / rank, "mr": rank, **hits}


def combined(sites: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The `metrics` of several sites as one, weighted by "count"; a site without questions has no say."""
    asked = [site for site in sites if site["count"]]
    count = sum(site["count"] for site in asked)
    means = {
        name: sum(site[name] * site["count"] for site in asked) / count if count else nan for name in NAMES
    }
    return means | {"count": count}
