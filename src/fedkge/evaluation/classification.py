"""Triple classification: a triple is accepted if it scores at least its relation's threshold."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedkge import randomness
from fedkge.errors import DataError, DataWarning
from fedkge.evaluation.checks import check_tables, diverged
from fedkge.evaluation.filter import Known
from fedkge.graphs.graph import Graph, Ids, Mask, Split
from fedkge.models import Tables

Scores = NDArray[np.float64]
STATEMENTS = 1 << 14  #: scored at a time


@dataclass(frozen=True, slots=True, eq=False)
class Classification:
    """How well test triples are told from corrupted ones."""

    accuracy: float
    auc: float  #: area under the ROC curve of all test scores together, ties count half
    count: int  #: test triples, true and corrupted
    thresholds: Scores  # [n_relations]
    overall: float  #: the threshold of relations without valid triples
    without_valid: int  #: relations in test that had to use it


def classify(tables: Tables, graph: Graph, *, seed: int, site: str = "") -> Classification:
    """Fit thresholds on valid, judge test; beside each true triple stands one corrupted from `seed`."""
    check_tables(tables, graph.n_entities, graph.n_relations)
    known = Known.from_graph(graph)
    valid, valid_labels = _labelled(graph, known, Split.VALID, seed, site)
    test, test_labels = _labelled(graph, known, Split.TEST, seed, site)
    scores, test_scores = _scores(tables, valid, site), _scores(tables, test, site)
    overall = float(fit_thresholds(scores, valid_labels, np.zeros(len(valid), np.int64), 1)[0])
    thresholds = fit_thresholds(scores, valid_labels, valid[:, 1], graph.n_relations)
    unfitted = np.isnan(thresholds)
    thresholds[unfitted] = overall
    accepted = test_scores >= thresholds[test[:, 1]]
    return Classification(
        accuracy=float((accepted == test_labels).mean()),
        auc=roc_auc(test_scores, test_labels),
        count=len(test),
        thresholds=thresholds,
        overall=overall,
        without_valid=int(unfitted[np.unique(test[:, 1])].sum()),
    )


def corrupt(triples: Ids, known: Known, rng: np.random.Generator) -> tuple[Ids, Mask]:
    """Each triple with its head or its tail replaced, uniformly among those that make no known triple.

    The mask tells which triples could be corrupted; where one end has no such entity, the other is taken.
    """
    h, r, t = triples.T
    n = known.n_entities
    keys = np.stack((known.key(t, r), known.key(h, r)))  # [2, m]: heads, tails
    lists = (known.heads, known.tails)
    free = n - np.stack(
        [hi - lo for lo, hi in (lst.ranges(key) for lst, key in zip(lists, keys, strict=True))]
    )
    end = rng.integers(0, 2, len(triples))
    end = np.where(np.take_along_axis(free, end[None], 0)[0] > 0, end, 1 - end)
    choices = np.take_along_axis(free, end[None], 0)[0]
    order = rng.integers(0, np.maximum(choices, 1))
    possible = choices > 0
    corrupted = triples.copy()
    for i, column in enumerate((0, 2)):
        mine = possible & (end == i)
        corrupted[mine, column] = lists[i].missing(keys[i, mine], order[mine])
    return corrupted, possible


def _labelled(graph: Graph, known: Known, split: Split, seed: int, site: str) -> tuple[Ids, Mask]:
    """The triples of a split, then one corrupted triple each."""
    where = f" at site {site}" if site else ""
    true = graph.split(split)
    corrupted, possible = corrupt(true, known, randomness.generator(seed, "classification", split))
    if not possible.all():
        warnings.warn(
            f"{split}{where}: {(~possible).sum()} triples left out of classification, "
            "as every corruption of them is a known triple",
            DataWarning,
            stacklevel=3,
        )
    true, corrupted = true[possible], corrupted[possible]
    if not len(true):
        raise DataError(f"{split}{where}: no triples to classify; split the graph first")
    return np.concatenate((true, corrupted)), np.repeat([True, False], len(true))


def _scores(tables: Tables, triples: Ids, site: str) -> Scores:
    parts = torch.from_numpy(triples).to(tables.device).split(STATEMENTS)
    scores = torch.cat([tables.score(part) for part in parts]).double().cpu().numpy()
    if not np.isfinite(scores).all():
        raise diverged(site)
    return scores


def fit_thresholds(scores: Scores, labels: Mask, group: Ids, n_groups: int) -> Scores:
    """Per group, the threshold `[n_groups]` for which `score >= threshold` is right most often.

    Sorted from the highest, accepting the first i scores is right about their positives and the other
    negatives; it can be done if the next score differs. Of equally good cuts it is the highest, half way to
    the next score. A group without scores has NaN.
    """
    thresholds = np.full(n_groups, np.nan)
    if not len(scores):
        return thresholds
    order = np.lexsort((-scores, group))
    scores, labels, group = scores[order], labels[order], group[order]
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    last = np.append(group[1:] != group[:-1], True)
    gain = np.cumsum(np.where(labels, 1, -1))
    gain -= np.repeat(np.append(0, gain[starts[1:] - 1]), np.diff(np.append(starts, len(gain))))
    cut = last | np.append(scores[1:] != scores[:-1], True)
    gain[~cut] = -len(gain) - 1
    best = np.maximum.reduceat(gain, starts)
    which = np.flatnonzero(gain == np.repeat(best, np.diff(np.append(starts, len(gain)))))
    groups, first = np.unique(group[which], return_index=True)
    place = which[first]
    below = scores[np.minimum(place + 1, len(scores) - 1)]
    middle = scores[place] / 2 + below / 2
    thresholds[groups] = np.where(last[place] | (middle <= below), scores[place], middle)
    none = best < 0  # better to accept nothing
    thresholds[groups[none]] = np.nextafter(scores[starts[none]], np.inf)
    return thresholds


def roc_auc(scores: Scores, labels: Mask) -> float:
    """The chance that a true triple scores above a false one, ties counting half; NaN without pairs."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2  # of equal scores, the mean
    positives = int(labels.sum())
    pairs = positives * (len(labels) - positives)
    above = float(rank[place[labels]].sum()) - positives * (positives + 1) / 2
    return above / pairs if pairs else float("nan")
