"""Test questions one by one: which relations are answered well, and what joining made right or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkge.reports.compared.baseline import alone, ranks_of
from fedkge.reports.compared.bootstrap import Values, read_ranks
from fedkge.reports.compared.experiments import Group, Row
from fedkge.reports.folders.run import Run

EXAMPLES = 8  #: of each kind that are shown


@dataclass(frozen=True, eq=False)
class Asked:
    """The test questions of a site, in the order of its triples."""

    triples: NDArray[np.int32]  # [n, 3]
    ranks: Mapping[str, Values]  # side -> [n]
    entities: Sequence[str]
    relations: Sequence[str]

    def question(self, triple: int, side: str) -> tuple[str, str]:
        """A question in the way that people write it, and its answer."""
        head, relation, tail = self.triples[triple].tolist()
        ends, name = (self.entities[head], self.entities[tail]), self.relations[relation]
        return (
            (f"? · {name} · {ends[1]}", ends[0]) if side == "head" else (f"{ends[0]} · {name} · ?", ends[1])
        )


class Example(NamedTuple):
    """A question whose answer joining has moved to the first places, or away from them."""

    site: str
    question: str
    answer: str
    before: float  #: rank of the right answer, alone
    now: float


class Changed(NamedTuple):
    """What joining made of the questions that both runs were asked."""

    run: str
    questions: int
    right: int  #: answered now, and not before
    wrong: int
    examples: Mapping[str, Sequence[Example]]  #: made right, made wrong


def asked_at(run: Run, site: str) -> Asked | None:
    """What a site was asked; None where the run has not kept it."""
    path = ranks_of(run, site)
    if not path.is_file():
        return None
    ranks, triples = read_ranks(path)
    if triples is None:
        return None
    names = [
        (path.parent / file).read_text(encoding="utf-8").split("\n")[:-1]
        for file in ("entities.tsv", "relations.tsv")
    ]
    judged = {side: of for side, of in ranks.items() if run.sides in ("both", side)}
    return Asked(triples, judged, *names)


def relation_rows(groups: Sequence[Group], first: int) -> list[Row]:
    """One row per relation, sites together: how many questions, and by label the share that is answered.

    A question is answered if the right answer is among the `first`. Relations of one name are one. Of several
    seeds it is the mean.
    """
    hits: dict[str, dict[str, list[float]]] = {}  # relation -> label -> of each question, 0 or 1
    where: dict[str, set[str]] = {}
    for group in groups:
        for run in group.ended:
            for site in run.sites:
                found = asked_at(run, site)
                for name, values in _by_relation(found, first) if found else ():
                    hits.setdefault(name, {}).setdefault(group.label, []).extend(values)
                    where.setdefault(name, set()).add(site)
    seeds = {group.label: len(group.ended) for group in groups}
    rows = []
    for name, by_label in hits.items():
        count = max(len(values) // seeds[label] for label, values in by_label.items())
        row: Row = {"relation": name, "sites": len(where[name]), "questions": count}
        means = {label: sum(of) / len(of) for label, of in by_label.items()}
        rows.append(row | {group.label: means.get(group.label) for group in groups if group.ended})
    return sorted(rows, key=lambda row: (-row["questions"], row["relation"]))


def _by_relation(found: Asked, first: int) -> Iterable[tuple[str, list[float]]]:
    hit = np.concatenate([(of <= first).astype(float) for of in found.ranks.values()])
    relation = np.tile(found.triples[:, 1], len(found.ranks))
    for number in np.unique(relation).tolist():
        yield found.relations[number], hit[relation == number].tolist()


def protected(run: Run) -> bool:
    """Whether triples must not be shown: some are confidential, or about persons."""
    asked = run.config.get("privacy", {}).get("mode", "off") != "off" or bool(run.config.get("marks"))
    sites = (run.summary or {}).get("sites", {}).values()  # data may be marked where the experiment is not
    return run.names_persons or asked or any(site.get("confidential") for site in sites)


def changed(group: Group, groups: Sequence[Group], first: int) -> Changed | None:
    """What joining made right and wrong; of several seeds, in the first. None where that is not known."""
    base = alone(group, groups)
    if base is None or not group.ended:
        return None
    moved: dict[str, list[list[Example]]] = {"right": [], "wrong": []}
    count, sums = 0, {"right": 0, "wrong": 0}
    show = not (protected(group.first) or protected(base.first))
    for site in group.sites:
        new, old = asked_at(group.ended[0], site), asked_at(base.ended[0], site)
        if new is None or old is None or not np.array_equal(new.triples, old.triples):
            continue
        for side, now in new.ranks.items():
            before = old.ranks.get(side)
            if before is None:
                continue
            count += len(now)
            for kind, (one, other) in {"right": (before, now), "wrong": (now, before)}.items():
                places = np.flatnonzero((one > first) & (other <= first))
                sums[kind] += len(places)
                best = places[np.lexsort((-one[places], other[places]))][: EXAMPLES * show]
                moved[kind].append(
                    [
                        Example(site, *new.question(i, side), float(before[i]), float(now[i]))
                        for i in best.tolist()
                    ]
                )
    if not count:
        return None
    return Changed(
        group.label, count, sums["right"], sums["wrong"], {k: _dealt(of) for k, of in moved.items()}
    )


def _dealt(sources: Sequence[Sequence[Example]]) -> list[Example]:
    """The first of every source, then the second: all sites and both ends are seen."""
    found = [one for turn in zip_longest(*sources) for one in turn if one is not None]
    return found[:EXAMPLES]
