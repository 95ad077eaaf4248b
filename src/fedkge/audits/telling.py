"""Who can tell forgotten triples from held-out ones, and from what re-training gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedkge.audits.asked import Questions, views
from fedkge.audits.candidates import drawn
from fedkge.audits.membership import SIGNALS, judged, signals
from fedkge.audits.roc import Scored, auc, difference
from fedkge.graphs.graph import Graph, Ids
from fedkge.models import Tables
from fedkge.randomness import generator


def scored(asked: Questions, held: Mapping[str, Tables], seed: int = 0) -> dict[str, dict[str, list[Scored]]]:
    """View -> signal -> by site: forgotten triples beside held-out ones of the same relations."""
    found: dict[str, dict[str, list[Scored]]] = {}
    for view, of in views(asked, held).items():
        found[view] = {signal: [] for signal in SIGNALS}
        for site, (members, others) in _tried(asked, seed).items():
            one, two = signals(of[site], members, site), signals(of[site], others, site)
            for signal in SIGNALS:
                found[view][signal].append(Scored(one[signal], two[signal]))
    return found


def _tried(asked: Questions, seed: int) -> dict[str, tuple[Ids, Ids]]:
    """By site, forgotten triples and as many held-out ones of each relation; sites that have none are out."""
    found = {}
    for site, party in asked.forgetting.items():
        graph, forgotten = party.graph, party.forgotten
        marks = np.repeat((False, True), (len(graph.train), len(forgotten)))
        train = np.concatenate((graph.train, forgotten))
        whole = Graph(graph.entities, graph.relations, train, graph.valid, graph.test, marks)
        pairs = drawn(whole, len(train), seed, site)
        if len(pairs.members):
            found[site] = pairs.members, pairs.others
    return found


def membership(
    asked: Questions,
    held: Mapping[str, Tables],
    retrained: Mapping[str, Tables] | None = None,
    before: Mapping[str, Tables] | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """How well each signal tells forgotten triples, by view, sites pooled; and against re-training.

    `before`: the second attacker has the tables of before, too, and looks at what a triple's signal has lost.
    """
    now = scored(asked, held, seed)
    then = None if retrained is None else scored(asked, retrained, seed)
    old = None if before is None else scored(asked, before, seed)
    rows = []
    for view, by_signal in now.items():
        for signal, groups in by_signal.items():
            if not groups:
                continue
            row: dict[str, Any] = {"view": view, "signal": signal}
            row |= judged(groups, generator(seed, view, signal, "erasure"))
            if old is not None:
                lost = [_lost(a, b) for a, b in zip(old[view][signal], groups, strict=True)]
                row |= auc(lost).plain("lost")
                row |= auc(old[view][signal]).plain("before")
            if then is not None:
                row |= auc(then[view][signal]).plain("retrained")
                row |= difference(groups, then[view][signal]).plain("difference")
                if old is not None:
                    lost = [_lost(a, b) for a, b in zip(old[view][signal], then[view][signal], strict=True)]
                    row |= auc(lost).plain("lost_retrained")
            rows.append(row)
    return rows


def _lost(before: Scored, after: Scored) -> Scored:
    members, others = (a - b for a, b in zip(before, after, strict=True))
    return Scored(members, others)
