"""Membership inference: was this triple trained on? By its score, alone or among neighbours, or ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedkge.audits.candidates import candidates
from fedkge.audits.roc import Estimate, Numbers, Scored, allowed, auc, curve, hits
from fedkge.audits.targets import Target
from fedkge.evaluation.checks import check_tables, diverged
from fedkge.graphs.graph import Ids
from fedkge.models import Side, Tables
from fedkge.randomness import generator

SIGNALS = {
    "score": "the triple's score",
    "calibrated": "its score minus the mean over all entities in place of its head, and of its tail",
    "rank": "how few entities score above its head, and above its tail (mean of logarithms)",
}  #: what the attacker looks at
RATES = {"1%": 0.01, "0.1%": 0.001}  #: of false alarms at which hits are reported
NUMBERS = 1 << 24  #: scores held at a time


@dataclass(frozen=True, eq=False)
class Membership:
    """The outcome of one signal against one run; without a site, over all of them."""

    run: str
    site: str | None
    signal: str
    members: int
    others: int
    confidential: bool
    auc: Estimate
    hits: Mapping[str, Estimate]  # by the name of the rate
    curve: Sequence[tuple[float, float]]
    spent: tuple[float, float] | None  #: (ε, δ) of the site that has spent most, where all have a guarantee

    def plain(self) -> dict[str, Any]:
        row = {name: getattr(self, name) for name in ("run", "site", "signal", "members", "others")}
        row |= {"confidential": self.confidential, **self.auc.plain("auc")}
        for name, found in self.hits.items():
            row |= found.plain(f"tpr@{name}")
        row["curve"] = [list(point) for point in self.curve]
        if self.spent is not None:
            row |= {"epsilon": self.spent[0], "delta": self.spent[1]}
            row["allowed"] = [[alarms, allowed(*self.spent, alarms)] for alarms, _ in self.curve]
        return row


def membership(target: Target, most: int, seed: int) -> list[Membership]:
    """Every signal at every site, and over all sites; the same triples for every run on the same data."""
    found: dict[str, dict[str, Scored]] = {signal: {} for signal in SIGNALS}
    confidential = True
    for site, tables in target.secretive.items():
        graph = target.graph(site)
        check_tables(tables, graph.n_entities, graph.n_relations)
        tried = candidates(graph, most, seed, site)
        confidential &= tried.confidential
        members, others = signals(tables, tried.members, site), signals(tables, tried.others, site)
        for signal in SIGNALS:
            found[signal][site] = Scored(members[signal], others[signal])
    rows = []
    for signal, by_site in found.items():
        whole: dict[str | None, list[Scored]] = {None: list(by_site.values())}
        if len(by_site) > 1:
            whole |= {site: [scored] for site, scored in by_site.items()}
        for name, groups in whole.items():
            random = generator(seed, name or "", signal, "resampled")
            rates = {text: hits(groups, rate, random) for text, rate in RATES.items()}
            n, m = (sum(len(group[side]) for group in groups) for side in (0, 1))
            area, points = auc(groups), curve(groups)
            sites = [name] if name is not None else list(by_site)
            spent = max(target.spent[site] for site in sites) if target.spent.keys() >= set(sites) else None
            rows.append(Membership(target.name, name, signal, n, m, confidential, area, rates, points, spent))
    return rows


def signals(tables: Tables, triples: Ids, site: str = "") -> dict[str, Numbers]:
    """What an attacker who has the tables, and no triple but the one in question, computes of each."""
    parts = list(_signals(tables, triples))
    found = {name: np.concatenate([part[name] for part in parts]) for name in SIGNALS}
    if not all(np.isfinite(values).all() for values in found.values()):
        raise diverged(site)
    return found


def _signals(tables: Tables, triples: Ids) -> Iterator[dict[str, Numbers]]:
    n = len(tables.entities)
    for some in torch.from_numpy(triples).to(tables.device).split(max(1, NUMBERS // n)):
        head, relation, tail = some.unbind(1)
        above_mean = torch.zeros(len(some), dtype=torch.float64)
        ranks = torch.zeros_like(above_mean)
        for side, anchor, answer in ((Side.TAIL, head, tail), (Side.HEAD, tail, head)):
            scores = tables.all_scores(anchor, relation, side)  # [b, n]
            own = scores.gather(1, answer[:, None])
            others = (scores.sum(1, dtype=torch.float64) - own[:, 0]) / max(1, n - 1)
            above_mean += (own[:, 0].double() - others).cpu() / 2
            above = (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
            ranks -= (1 + above.double()).log().cpu() / 2
        score = tables.score(some).double().cpu()
        yield {"score": score.numpy(), "calibrated": above_mean.numpy(), "rank": ranks.numpy()}
