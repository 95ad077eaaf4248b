"""Curves over sites and over seeds as one: means, and how far they spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from statistics import fmean

from fedkge.reports.compared.experiments import spread
from fedkge.reports.drawing.lines import Point
from fedkge.reports.folders.run import Curve, Curves, Run

WEIGHTED = "mean over sites, weighted by their triples"


def losses(run: Run) -> tuple[Curves, Mapping[str, float]]:
    """Training loss per site, and each site's weight in their mean."""
    return run.losses, dict.fromkeys(run.losses, 1.0)


def validation(run: Run) -> tuple[Curves, Mapping[str, float]]:
    """Validation MRR per site, and each site's weight in their mean."""
    queries = {site: max(counts.values()) for site, counts in run.validation("count").items()}
    return run.validation("mrr"), queries


def mean_curve(sites: Curves, weights: Mapping[str, float]) -> dict[int, float]:
    """The weighted mean over sites, from the round on that all have reached.

    A site that has stopped goes on counting, with its last value.
    """
    begun = {site: curve for site, curve in sites.items() if curve}
    total = sum(weights[site] for site in begun)
    return {
        number: sum(weights[site] * value for site, value in zip(begun, values, strict=True)) / total
        for number, values in together(list(begun.values())).items()
    }


def together(curves: Sequence[Curve]) -> dict[int, list[float]]:
    """Round -> every curve's value there or, where it has none, its last one; once all have begun."""
    rounds = sorted({number for curve in curves for number in curve})
    latest: list[float | None] = [None] * len(curves)
    found = {}
    for number in rounds:
        latest = [curve.get(number, value) for curve, value in zip(curves, latest, strict=True)]
        known = [value for value in latest if value is not None]
        if len(known) == len(curves):
            found[number] = known
    return found


def points(curve: Curve) -> list[Point]:
    """One run's curve."""
    return [Point(number, curve[number]) for number in sorted(curve)]


def over_seeds(curves: Sequence[Curve], until: float = inf) -> list[Point]:
    """Mean and deviation of several runs' curves; a run that has stopped counts with its last value."""
    values = together([curve for curve in curves if curve])
    return [point(n, of) for n, of in values.items() if n <= until]


def over_bytes(curves: Sequence[Curve], sent: Sequence[Curve], until: float = inf) -> list[Point]:
    """Each round's mean value against the bytes that runs had sent by then, in the mean."""
    begun = [(curve, amount) for curve, amount in zip(curves, sent, strict=True) if curve]
    amounts = together([amount for _, amount in begun])
    values = together([curve for curve, _ in begun])
    return [point(fmean(amounts[n]), of) for n, of in values.items() if n in amounts and n <= until]


def point(x: float, values: Sequence[float]) -> Point:
    """Mean with a band of one deviation; a value that is no number makes a gap."""
    found = spread(values)
    if found is None or found.n < len(values):
        return Point(x, nan)
    band = (None, None) if found.std is None else (found.mean - found.std, found.mean + found.std)
    return Point(x, found.mean, *band)


def reach(curves: Curves, weights: Mapping[str, float]) -> list[Point]:
    """The mean of many sites over a band from the lowest to the highest."""
    mean = mean_curve(curves, weights)
    of = {number: [c[number] for c in curves.values() if number in c] for number in mean}
    return [Point(number, y, min(of[number]), max(of[number])) for number, y in mean.items()]
