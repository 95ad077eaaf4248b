"""Membership inference: was this triple trained on? By its score, alone or among neighbours, or ranks.

Where a run protects persons, the attacker pools: the mean over all that is said about one person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator

from fedkge.audits.base import ATTACKS, Curves, Row, Watching, between, interval, unwatched
from fedkge.audits.candidates import Candidates, OnTriples, candidates
from fedkge.audits.roc import Numbers, Scored, allowed, auc, curve, hits
from fedkge.audits.targets import Target
from fedkge.errors import DataError
from fedkge.evaluation.checks import check_tables, diverged
from fedkge.graphs.graph import Graph, Ids
from fedkge.graphs.persons import belongs
from fedkge.models import Side, Tables
from fedkge.randomness import generator

SIGNALS = {
    "score": "the triple's score",
    "calibrated": "its score minus the mean over all entities in place of its head, and of its tail",
    "rank": "how few entities score above its head, and above its tail (mean of logarithms)",
}  #: what the attacker looks at
RATES = {"1%": 0.01, "0.1%": 0.001}  #: of false alarms at which hits are reported
NUMBERS = 1 << 24  #: scores held at a time
FEW = 0.01  #: false alarms at which sentences speak of hits
STRONG, WEAK = 0.7, 0.55  #: areas from which triples leak, and up to which next to nothing is seen


@ATTACKS.register("membership")
@dataclass(frozen=True)
class Membership(OnTriples):
    """The attacker has a site's tables and one triple, and computes a number that is higher for members.

    Members are training triples, or the confidential ones where there are any; others are valid and test.
    Three numbers are tried: the score, the score against all other heads and tails, and the ranks. Where a
    run protects persons, a member is what was trained on about a person, and another what was held out about
    one, also in a run that it is compared with: each number is the mean over such triples.
    """

    title = "Membership of triples, or of persons"
    caption = "AUC (DeLong) and hits at few false alarms (bootstrap), with 95 % intervals; 0.5 is guessing."

    def run(self, targets: Sequence[Target], watch: Watching = unwatched) -> list[Row]:
        """Every signal at every site, and over all sites; the same triples for every run on the same data."""
        people = any(target.experiment.privacy.by_person for target in targets)
        return [row for target in targets for row in self._against(target, people)]

    def _against(self, target: Target, people: bool) -> Iterator[Row]:
        found: dict[str, dict[str, Scored]] = {signal: {} for signal in SIGNALS}
        confidential = True
        for site, tables in target.secretive.items():
            graph = target.graph(site)
            check_tables(tables, graph.n_entities, graph.n_relations)
            tried = self._tried(graph, site, people)
            confidential &= tried.confidential
            members, others = signals(tables, tried.members, site), signals(tables, tried.others, site)
            if people:
                members, others = (
                    pooled(of, belongs(graph, triples))
                    for of, triples in ((members, tried.members), (others, tried.others))
                )
            for signal in SIGNALS:
                found[signal][site] = Scored(members[signal], others[signal])
        for signal, by_site in found.items():
            whole: dict[str | None, list[Scored]] = {None: list(by_site.values())}
            if len(by_site) > 1:
                whole |= {site: [scored] for site, scored in by_site.items()}
            for name, groups in whole.items():
                row: Row = {"run": target.name, "site": name, "signal": signal, "confidential": confidential}
                row |= {"unit": "person"} if people else {}
                row |= judged(groups, generator(self.seed, name or "", signal, "resampled"))
                sites = [name] if name is not None else list(by_site)
                if target.spent.keys() >= set(sites) and not people:  # all of them have a guarantee
                    spent = max(target.spent[site] for site in sites)
                    row |= {"epsilon": spent[0], "delta": spent[1]}
                    row["allowed"] = [[alarms, allowed(*spent, alarms)] for alarms, _ in row["curve"]]
                yield row

    def _tried(self, graph: Graph, site: str, people: bool) -> Candidates:
        """Some triples; or all about exactly one person, of some persons."""
        if not people:
            return candidates(graph, self.sample, self.seed, site)
        every = candidates(graph, len(graph.train), self.seed, site)
        whose = [belongs(graph, triples) for triples in (every.members, every.others)]
        both = np.intersect1d(whose[0], whose[1])
        chosen = generator(self.seed, site, "persons").permutation(both[both >= 0])[: self.sample]
        members, others = (
            triples[np.isin(own, chosen)]
            for triples, own in zip((every.members, every.others), whose, strict=True)
        )
        if not len(chosen):
            raise DataError(f"site {site!r}: no person has both training and held-out triples to compare")
        return Candidates(members, others, every.confidential)

    def words(self, rows: Sequence[Row]) -> str:
        lines = []
        for run in dict.fromkeys(row["run"] for row in rows):
            best = max((r for r in rows if r["run"] == run and r["site"] is None), key=lambda row: row["auc"])
            kind = "confidential" if best["confidential"] else "training"
            says = (
                "whoever has the tables learns much about what was trained on"
                if best["auc_low"] >= STRONG
                else "so far below 0.5 they are told apart as well: they differ in kind, and nothing follows"
                if best["auc_high"] <= 1 - WEAK
                else "next to nothing is seen by these attacks; others may do better"
                if best["auc_high"] <= WEAK
                else "so few do not tell it from guessing; others may do better"
                if best["auc_low"] <= 0.5
                else "something is seen"
            )
            told = f"{kind} triples are told from held-out ones of the same relations"
            if best.get("unit") == "person":
                told = "what was trained on about a person is told from what was held out about one, pooled,"
            lines.append(
                f"{run}: {told} with AUC {best['auc']:.3f} ({between(best, 'auc')}) by {best['signal']}, the "
                f"best of three: {says}." + _bound(best)
            )
        return "\n".join(lines)

    def shown(self, row: Row) -> Row:
        return {
            "run": row["run"],
            "site": row["site"] or "all sites",
            "signal": row["signal"],
            **({"unit": row["unit"]} if "unit" in row else {}),
            "members": row["members"],
            "non-members": row["others"],
            "AUC": interval(row, "auc"),
            **{f"TPR at {rate} FPR": interval(row, f"tpr@{rate}") for rate in RATES},
        }

    def plots(self, rows: Sequence[Row]) -> list[Curves]:
        whole = [row for row in rows if row["site"] is None]
        several = len({row["run"] for row in whole}) > 1
        lines = [(f"{r['signal']}, {r['run']}" if several else r["signal"], r["curve"]) for r in whole]
        formal = {row["run"]: row for row in whole if "allowed" in row}
        beside = [(f"what ε = {r['epsilon']:.2g} allows, {run}", r["allowed"]) for run, r in formal.items()]
        chance = "guessing", [(x, x) for x, _ in whole[0]["curve"]]
        axes = "false alarms: share of non-members taken for members", "share of members found"
        hover = "%{y:.3f} found at %{x:.4f} false alarms"
        return [Curves("ROC: members found over false alarms", *axes, hover, lines, [chance, *beside])]


def _bound(row: Row) -> str:
    if "allowed" not in row:
        return ""
    most = allowed(row["epsilon"], row["delta"], FEW)
    return (
        f" ε = {row['epsilon']:.3g} at δ = {row['delta']:g} leaves at most {most:.1%} to find at {FEW:.0%} "
        f"false alarms, by any attack; found were {row['tpr@1%']:.1%}."
    )


def judged(groups: Sequence[Scored], random: Generator) -> Row:
    """How well members are told from others."""
    members, others = (sum(len(group[side]) for group in groups) for side in (0, 1))
    row = {"members": members, "others": others, **auc(groups).plain("auc")}
    for name, rate in RATES.items():
        row |= hits(groups, rate, random).plain(f"tpr@{name}")
    return row | {"curve": [list(point) for point in curve(groups)]}


def pooled(found: Mapping[str, Numbers], owner: Ids) -> dict[str, Numbers]:
    """The mean of each signal [n] over the triples of one person, for each person."""
    _, place, counts = np.unique(owner, return_inverse=True, return_counts=True)
    return {name: np.bincount(place, values, len(counts)) / counts for name, values in found.items()}


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
