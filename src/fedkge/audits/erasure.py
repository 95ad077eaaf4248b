"""Whether triples are forgotten: beside what re-training would give, or what held-out triples have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedkge.audits.asked import Questions, views
from fedkge.audits.roc import Numbers
from fedkge.evaluation import Known, rank
from fedkge.graphs.graph import Ids
from fedkge.models import Tables

POINTS = 0.03  #: of Hits@1 that forgotten triples may be off what re-training gives
AREA = 0.05  #: that the two membership areas may differ by


def verdicts(
    asked: Questions,
    held: Mapping[str, Tables],
    after: Mapping[str, Any],
    retrained: Mapping[str, Any] | None = None,
    told: Sequence[Mapping[str, Any]] = (),
) -> dict[str, dict[str, Any]]:
    """By view: forgotten triples' Hits@1 beside what re-training gives, or what held-out triples have.

    Where Hits@1 agree, `told`, the rows of `membership`, may tell the tables from re-trained ones all the
    same: a signal does if the interval of its difference lies beyond what two areas may differ by.
    """
    found = {}
    reference = expected(asked, held) if retrained is None else retrained
    for view, of in after.items():
        if view not in reference or not of["forget"]["count"]:
            continue
        here, there = of["forget"]["hits@1"], reference[view]["forget"]["hits@1"]
        gap = here - there
        word = "over-forgotten" if gap < -POINTS else "under-forgotten" if gap > POINTS else "as re-trained"
        found[view] = {"hits@1": here, "expected": there, "gap": gap, "verdict": word}
        found[view]["by"] = "held-out triples" if retrained is None else "re-training"
        if word == "as re-trained" and (row := _apart(view, told)) is not None:
            found[view]["verdict"] = "over-forgotten" if row["difference"] < 0 else "under-forgotten"
            found[view] |= {"signal": row["signal"], "difference": row["difference"]}
    return found


def _apart(view: str, told: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The signal that tells a view's tables best from re-trained ones; none does within the tolerance."""
    rows = [row for row in told if row["view"] == view and "difference" in row]
    rows = [row for row in rows if row["difference_low"] > AREA or row["difference_high"] < -AREA]
    return max(rows, key=lambda row: abs(row["difference"]), default=None)


def expected(asked: Questions, held: Mapping[str, Tables]) -> dict[str, Any]:
    """The same shape as `standing`: what held-out triples of the forgotten ones' relations have.

    At a site that has none of these, held-out triples of all relations stand in, as in mode target.
    """
    known = {site: Known.from_graph(party.graph) for site, party in asked.parties.items()}
    tried: dict[str, tuple[Ids, Numbers]] = {}
    for site, party in asked.forgetting.items():
        valid = party.graph.valid
        counts = np.bincount(party.forgotten[:, 1], minlength=party.graph.n_relations)
        there = np.bincount(valid[:, 1], minlength=party.graph.n_relations)
        chosen = valid[counts[valid[:, 1]] > 0]
        weight = (counts / np.maximum(there, 1))[chosen[:, 1]]
        tried[site] = (chosen, weight) if len(chosen) else (valid, np.ones(len(valid)))
    found: dict[str, Any] = {}
    for view, of in views(asked, held).items():
        sites = {}
        for site, (triples, weight) in tried.items():
            ranks = rank(of[site], triples, known[site], site=site)
            each = weight[ranks.triple]
            hits = float((ranks.values() <= 1) @ each / each.sum())
            sites[site] = hits, len(asked.parties[site].forgotten)
        total = sum(n for _, n in sites.values())
        mean = sum(hits * n for hits, n in sites.values()) / total
        found[view] = {"forget": {"hits@1": mean, "count": total}}
    return found
