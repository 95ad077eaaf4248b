"""Every site alone: what others are compared with, and who gains or loses by joining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedkge.reports.compared.experiments import Group, Spread
from fedkge.reports.folders.before import Kind
from fedkge.reports.folders.options import SEED, chosen, same
from fedkge.reports.folders.run import Run


def alone(experiment: Group, others: Sequence[Group]) -> Group | None:
    """What to compare with: every site alone, same data and model, and of these the one most alike."""
    if experiment.first.reference is Kind.ALONE:
        return None
    own = experiment.first
    fit = [
        other
        for other in others
        if other.first.reference is Kind.ALONE
        and other.ended
        and (other.first.dataset, other.first.model) == (own.dataset, own.model)
    ]
    seeds = {run.seed for run in experiment.runs}

    def unlike(other: Group) -> tuple[int, bool]:
        return _differences(own, other.first), seeds.isdisjoint(run.seed for run in other.runs)

    return min(fit, key=unlike, default=None)


def _differences(one: Run, other: Run) -> int:
    """In how many options two runs differ, their methods' own apart."""
    a, b = chosen(one), chosen(other)
    keys = [key for key in a.keys() | b.keys() if key != SEED and not key.startswith("method.")]
    return sum(same(a.get(key)) != same(b.get(key)) for key in keys)


class Versus(NamedTuple):
    """An experiment beside every site alone, on test MRR."""

    gain: float  #: over all sites
    sites: dict[str, float]  # site -> gain; below 0 the site is worse off together

    @property
    def winners(self) -> list[str]:
        return [site for site, gain in self.sites.items() if gain > 0]

    @property
    def losers(self) -> list[str]:
        return [site for site, gain in self.sites.items() if gain < 0]


def versus(experiment: Group, base: Group | None) -> Versus | None:
    """How much each site gains or loses by joining; None where that is not known."""
    if base is None:
        return None
    split = experiment.first.headline()
    whole = _gain(experiment.test(), base.test(split=split))
    if whole is None:
        return None
    gains = {s: _gain(experiment.test(site=s), base.test(site=s, split=split)) for s in experiment.sites}
    return Versus(whole, {site: gain for site, gain in gains.items() if gain is not None})


def _gain(value: Spread | None, base: Spread | None) -> float | None:
    return None if value is None or base is None else value.mean - base.mean
