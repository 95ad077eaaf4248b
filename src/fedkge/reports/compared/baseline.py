"""Every site alone: what others are compared with, who gains or loses by joining, and who beyond chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.experiments import Group, Spread
from fedkge.reports.folders.before import Kind
from fedkge.reports.folders.options import SEED, chosen, same
from fedkge.reports.folders.run import Run

if TYPE_CHECKING:
    from fedkge.reports.compared.bootstrap import Values


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


RANKS = "ranks.safetensors"  #: of a site in a run's folder: `head` and `tail`, by test triple
BETTER, WORSE = "better off", "worse off"
NAMED = 4  #: runs that are named in a sentence


class Difference(NamedTuple):
    """A mean difference, and an interval that has the true one in 95 of 100 test sets like this."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Nothing where zero is within the interval."""
        return BETTER if self.low > 0 else WORSE if self.high < 0 else ""


Differences: TypeAlias = Mapping[str, Difference]  #: by site


def against_alone(groups: Sequence[Group]) -> dict[str, Differences]:
    """By the experiment's label: every site beside itself alone."""
    return {group.label: differences(group, alone(group, groups)) for group in groups}


def differences(experiment: Group, base: Group | None) -> Differences:
    """Each site's difference in test MRR from `base`, over the questions that the experiment is judged by.

    Left out are sites whose graphs differ, and runs that have kept no ranks. Of several seeds, every question
    counts with its mean over them.
    """
    from fedkge.reports.compared.bootstrap import paired

    found = {}
    for site in experiment.sites if base else ():
        assert base is not None
        if len({_digest(run, site) for run in (*experiment.ended, *base.ended)}) != 1:
            continue
        new, old = (_mean(group.ended, site, experiment.first.sides) for group in (experiment, base))
        if new is not None and old is not None:
            found[site] = paired(new, old)
    return found


def _digest(run: Run, site: str) -> str:
    return str((run.summary or {}).get("sites", {}).get(site, {}).get("digest"))


def _mean(runs: Sequence[Run], site: str, sides: str) -> Values | None:
    """The reciprocal rank of each question, in the mean of these runs."""
    from fedkge.reports.compared.bootstrap import mean_of, reciprocal_ranks

    paths = [ranks_of(run, site) for run in runs]
    if not paths or not all(path.is_file() for path in paths):
        return None
    return mean_of([reciprocal_ranks(path, sides) for path in paths])


def ranks_of(run: Run, site: str) -> Path:
    """The file with the ranks of a site's test questions."""
    return run.path / "sites" / site / RANKS


def unknown(groups: Sequence[Group]) -> str:
    """What is missing where runs cannot be compared question by question; nothing where all can."""
    compared = [(group, base) for group in groups if (base := alone(group, groups))]
    runs = {run.path: run for pair in compared for group in pair for run in group.ended}
    bare = [run.name for run in runs.values() if not all(ranks_of(run, site).is_file() for site in run.sites)]
    if not bare:
        return ""
    names = ", ".join(bare[:NAMED]) + ", …" * (len(bare) > NAMED)
    return (
        f"Who is better or worse off beyond chance is not known: no ranks of test questions in {names}. "
        "`fedkge evaluate RUN --keep-ranks` adds them."
    )


def paired_rows(beyond: Mapping[str, Differences]) -> list[Row]:
    """One row per experiment and site: the difference in test MRR from alone, its interval, the verdict."""
    return [
        {"run": label, "site": site, "difference": one.mean, "low": one.low, "high": one.high}
        | {"verdict": one.verdict or None}
        for label, found in beyond.items()
        for site, one in found.items()
    ]
