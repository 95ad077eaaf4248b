"""What privacy costs: experiments that differ in how confidential triples are treated, by their ε."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from fedkge.reports.compared.details import BUDGET
from fedkge.reports.compared.experiments import Group, Row, Spread, experiments, told
from fedkge.reports.folders.options import SEED, chosen, differing, flat, same, spelled
from fedkge.reports.folders.run import Run

OFF, U_ONLY, FULLDP = "off", "u-only", "fulldp"
LEVELS = {U_ONLY: "without confidential triples", OFF: "no protection"}  #: modes without noise
PRIVACY, MARKS = "privacy.", "marks."
LEARNING = frozenset(BUDGET.values()) - {"model.dim"}  #: may differ on one frontier, and is told
PRICE = frozenset({"privacy.epsilon", "privacy.noise", "privacy.delta"})  #: what ε is moved by
CLOSE = 1.01  #: ε within this factor are the same: a budget is met to within a step
METRICS = {"hits@10": "Hits@10", "mrr": "MRR"}


@dataclass(frozen=True)
class Choice:
    """One way to treat confidential triples: what it promises, and what it reaches."""

    experiment: Group

    @property
    def mode(self) -> str:
        return str(self.options.get("privacy.mode", OFF))

    @cached_property
    def options(self) -> dict[str, Any]:
        return flat(self.experiment.first.config)

    @property
    def noisy(self) -> bool:
        return self.mode not in LEVELS

    @property
    def kind(self) -> str:
        """Mode and rules, in words."""
        if self.mode == FULLDP:
            return f"{FULLDP} ({self.options.get('privacy.rules', 'strict')} rules)"
        return f"{LEVELS[self.mode]} ({self.mode})" if self.mode in LEVELS else self.mode

    @cached_property
    def costs(self) -> list[Mapping[str, Any]]:
        """Of every site and seed, as summaries have them; none where nothing is protected by noise."""
        return [cost for run in self.experiment.ended for cost in (run.summary or {}).get("privacy", [])]

    @property
    def worst(self) -> Mapping[str, Any] | None:
        """The cost of the site, and seed, that spent most."""
        return max(self.costs, key=_epsilon, default=None)

    @property
    def epsilon(self) -> float | None:
        """The largest over sites and seeds: 0 where confidential triples are left out; None: not known."""
        if self.mode in LEVELS:
            return inf if self.mode == OFF else 0.0
        return _epsilon(self.worst) if self.worst else None

    @property
    def order(self) -> float:
        """ε for sorting: what is not known comes last."""
        return inf if self.epsilon is None else self.epsilon

    @property
    def delta(self) -> float | None:
        return max((float(cost["delta"]) for cost in self.costs), default=None)

    @property
    def guarantee(self) -> str | None:
        """As good as at its worst site; None: not known."""
        if self.mode in LEVELS:
            return "none" if self.mode == OFF else "formal"
        kinds = {str(cost["guarantee"]) for cost in self.costs}
        return "none" if "none" in kinds else ", ".join(sorted(kinds)) or None

    def told(self, what: str) -> str | None:
        """What summaries say of all its costs, as `unit` or `accountant`; None: there are none."""
        return ", ".join(dict.fromkeys(str(cost[what]) for cost in self.costs)) or None

    def test(self, metric: str) -> Spread:
        found = self.experiment.test(metric)
        assert found is not None, "only what has ended is on a frontier"
        return found

    def minus(self, base: Choice, metric: str) -> Difference:
        """Of a test metric, over all sites."""
        one, other = self.test(metric), base.test(metric)
        known = one.std is not None and other.std is not None
        return Difference(one.mean - other.mean, (one.std or 0.0) + (other.std or 0.0) if known else None)


class Difference(NamedTuple):
    """How much better one choice is than another."""

    gain: float
    spread: float | None  #: both deviations over seeds added; None: one of them has a single seed

    @property
    def seen(self) -> bool:
        """Whether it is more than the spread between seeds."""
        return self.spread is not None and abs(self.gain) > self.spread


def _epsilon(cost: Mapping[str, Any]) -> float:
    """Null is what JSON has for no bound at all."""
    return inf if cost["epsilon"] is None else float(cost["epsilon"])


@dataclass(frozen=True)
class Frontier:
    """Choices between which only privacy options, seeds and what is spent on learning differ."""

    label: str  #: what tells it from the page's other frontiers
    choices: Sequence[Choice]

    @cached_property
    def lines(self) -> dict[str, list[Choice]]:
        """Choices with noise by name, each from small to large ε; one name where options follow ε.

        Those with a guarantee come first, and those that protect all triples last: colours follow.
        """
        known = [choice for choice in self.choices if choice.noisy]
        known.sort(key=lambda choice: (choice.mode == FULLDP, choice.guarantee != "formal", choice.order))
        return _named(known)

    @cached_property
    def levels(self) -> dict[str, list[Choice]]:
        """Choices without noise by name: what every ε is compared with."""
        return _named([choice for mode in LEVELS for choice in self.choices if choice.mode == mode])

    def without(self, choice: Choice) -> Choice | None:
        """What leaving confidential triples out gives; with all of them confidential, nothing is left."""
        return None if choice.mode in (U_ONLY, FULLDP) else self.base(choice, U_ONLY)

    def base(self, choice: Choice, mode: str) -> Choice | None:
        """The choice of another mode with the most options in common; of equals the best."""
        return min(
            (other for other in self.choices if other.mode == mode),
            key=lambda other: (len(_learning([choice, other])), -other.test("mrr").mean),
            default=None,
        )

    def differing(self) -> dict[str, list[Any]]:
        """Option -> its values: what choices had to learn with, and what else moves along a line."""
        found = _learning(self.choices)
        for line in self.lines.values():
            for key, values in differing([choice.options for choice in line]).items():
                if key.startswith(PRIVACY) and key not in PRICE:
                    found.setdefault(key, values)
        return found


def frontiers(groups: Sequence[Group]) -> list[Frontier]:
    """Experiments that have ended, put beside each other where one of several has noise."""
    alike: dict[str, list[Choice]] = {}
    for group in groups:
        if all(group.test(metric) is not None for metric in METRICS):
            alike.setdefault(same(_fixed(group)), []).append(Choice(group))
    found = [on for choices in alike.values() for on in _by_marks(choices)]
    found = [on for on in found if len(on) > 1 and any(choice.noisy for choice in on)]
    labels = _labels([on[0].experiment.first for on in found])
    return [Frontier(label, choices) for label, choices in zip(labels, found, strict=True)]


def unplaced(groups: Sequence[Group], found: Sequence[Frontier]) -> list[Group]:
    """Experiments with noise that have ended and are on no frontier: none else is like them."""
    placed = [choice.experiment for frontier in found for choice in frontier.choices]
    return [group for group in groups if Choice(group).noisy and group.ended and group not in placed]


def frontier_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per choice, from small to large ε: what it promises, and test metrics over all sites.

    `gain` is that of Hits@10 over leaving confidential triples out; ε is 0 there, and infinite without
    protection. None is not known.
    """
    return [row for frontier in frontiers(experiments(runs)) for row in rows_of(frontier)]


def rows_of(frontier: Frontier) -> list[Row]:
    """The rows of one frontier."""
    named = frontier.lines | frontier.levels
    pairs = [(name, choice) for name, of in named.items() for choice in of]
    pairs.sort(key=lambda pair: {U_ONLY: -1, OFF: 1}.get(pair[1].mode, 0))
    several = any(len(choice.experiment.ended) > 1 for choice in frontier.choices)
    rows = []
    for name, choice in pairs:
        row: Row = {"frontier": frontier.label, "mode": name, "epsilon": choice.epsilon}
        row |= {"delta": choice.delta, "unit": choice.told("unit")}
        row |= {"guarantee": choice.guarantee, "accountant": choice.told("accountant")}
        row |= told({metric: choice.test(metric) for metric in METRICS}, several)
        base = frontier.without(choice)
        row["gain"] = choice.minus(base, "hits@10").gain if base else None
        rows.append({**row, "seeds": len(choice.experiment.ended)})
    return rows


def _fixed(group: Group) -> dict[str, Any]:
    """What is the same on all of a frontier; marks are looked at by themselves."""
    free = LEARNING | {SEED}
    options = chosen(group.first)
    return {k: v for k, v in options.items() if k not in free and not k.startswith((PRIVACY, MARKS))}


def _by_marks(choices: Sequence[Choice]) -> list[list[Choice]]:
    """Other marks are another frontier; who trains on all triples alike needs none to belong to any."""

    def marks(choice: Choice) -> str:
        return same({key: value for key, value in choice.options.items() if key.startswith(MARKS)})

    def indifferent(choice: Choice) -> bool:
        return choice.mode in (OFF, FULLDP) and marks(choice) == same({})

    kinds = dict.fromkeys(marks(choice) for choice in choices if not indifferent(choice))
    return [
        [choice for choice in choices if marks(choice) == kind or indifferent(choice)]
        for kind in kinds or {same({}): None}
    ]


def _labels(runs: Sequence[Run]) -> list[str]:
    """Method, model and data, and whatever else differs between frontiers; what privacy is about does not."""
    options = [chosen(run) for run in runs]
    idle = LEARNING | {"method.name", "model.name", "data.name", "data.path"}
    keys = [key for key in differing(options) if key not in idle and not key.startswith(PRIVACY)]
    names = [f"{run.approach}, {run.model} on {run.dataset}" for run in runs]
    return [spelled(name, of, keys) for name, of in zip(names, options, strict=True)]


def _named(choices: Sequence[Choice]) -> dict[str, list[Choice]]:
    """By mode and rules; where two of these have the same ε, by the options in which they differ too."""
    kinds: dict[str, list[Choice]] = {}
    for choice in choices:
        kinds.setdefault(choice.kind, []).append(choice)
    found: dict[str, list[Choice]] = {}
    for kind, of in kinds.items():  # in the order of ε
        clash = any(a.order == b.order or b.order < CLOSE * a.order for a, b in pairwise(of))
        options = differing([choice.options for choice in of]) if clash else {}
        keys = [key for key in options if key not in PRICE]
        for choice in of:
            found.setdefault(spelled(kind, choice.options, keys), []).append(choice)
    return found


def _learning(choices: Sequence[Choice]) -> dict[str, list[Any]]:
    """The options in which choices had different means to learn with."""
    found = differing([choice.options for choice in choices])
    return {key: values for key, values in found.items() if key in LEARNING}
