"""Every site alone: what others are compared with, who gains or loses by joining, and who beyond chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fedkge.reports.compared.experiments import Group, Row, minus
from fedkge.reports.folders.options import SEED, chosen, listed, same
from fedkge.reports.folders.run import Kind, Run


def alone(experiment: Group, others: Sequence[Group]) -> Group | None:
    """What to compare with: every site alone, same data and model, and of these the one most alike."""
    own = experiment.first
    if own.reference is Kind.ALONE:
        return None
    seeds, options = {run.seed for run in experiment.runs}, chosen(own)

    def unlike(other: Group) -> tuple[int, bool]:
        """In how many options they differ, their methods' own apart; whether in all seeds."""
        its = chosen(other.first)
        keys = [k for k in options.keys() | its.keys() if k != SEED and not k.startswith("method.")]
        differ = sum(same(options.get(key)) != same(its.get(key)) for key in keys)
        return differ, seeds.isdisjoint(run.seed for run in other.runs)

    fit = [
        other
        for other in others
        if other.first.reference is Kind.ALONE and other.ended and other.first.problem == own.problem
    ]
    return min(fit, key=unlike, default=None)


class Versus(NamedTuple):
    """An experiment beside every site alone, on test MRR."""

    gain: float  #: over all sites
    sites: dict[str, float]  # site -> gain; below 0 the site is worse off together

    @property
    def winners(self) -> list[str]:
        return [site for site, gain in self.sites.items() if gain > 0]

    @property
    def losers(self) -> list[str]:
        """Who loses most comes first."""
        return sorted((site for site, gain in self.sites.items() if gain < 0), key=self.sites.__getitem__)


def versus(experiment: Group, base: Group | None) -> Versus | None:
    """How much each site gains or loses by joining; None where that is not known."""
    if base is None:
        return None
    split = experiment.first.headline()

    def gain(site: str | None) -> float | None:
        return minus(experiment.test(site=site), base.test(site=site, split=split))

    gains = {site: found for site in experiment.sites if (found := gain(site)) is not None}
    whole = gain(None)
    return None if whole is None else Versus(whole, gains)


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
    from fedkge.reports.compared.bootstrap import mean_of, paired, reciprocal_ranks

    found = {}
    for site in experiment.sites if base else ():
        assert base is not None
        both = [[ranks_of(run, site) for run in group.ended] for group in (experiment, base)]
        digests = {str(run.at(site).get("digest")) for run in (*experiment.ended, *base.ended)}
        if len(digests) == 1 and all(paths and all(path.is_file() for path in paths) for paths in both):
            sides = experiment.first.sides
            new, old = (mean_of([reciprocal_ranks(path, sides) for path in paths]) for paths in both)
            found[site] = paired(new, old)
    return found


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
    return (
        "Who is better or worse off beyond chance is not known: no ranks of test questions in "
        f"{listed(bare, NAMED)}. "
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
