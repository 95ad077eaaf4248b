"""Plots over rounds and bytes: how training went, what it cost on the wire; means over sites and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, nan
from statistics import fmean

from fedkge.reports.compared.experiments import Group, spread
from fedkge.reports.compared.tables import LOCAL
from fedkge.reports.drawing.figure import Figure, bytes_axis, titled
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure, small_figure
from fedkge.reports.folders.run import Curve, Curves, Run, side_note

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


BY_BYTES = "%{x:.3s}B sent: %{y:.4f}"
DIRECTIONS = {"bytes": "in both directions", "up_bytes": "up, to the hub", "down_bytes": "down, to sites"}


def own_bytes_figures(run: Run) -> list[Figure]:
    """One run's validation MRR and training loss over bytes: in both directions, and each by itself."""
    looks = zip(DIRECTIONS.items(), ("ink", "up", "down"), range(3), strict=True)
    ways = [(way, words, (series, dash)) for (way, words), series, dash in looks]
    figures = []
    for title, unit, mean, curve in (
        ("Validation MRR over bytes sent", "filtered MRR", WEIGHTED, mean_curve(*validation(run))),
        ("Training loss over bytes sent", "loss", "mean over sites", mean_curve(*losses(run))),
    ):
        lines = [Line(words, over_bytes([curve], [run.sent(way)]), *look) for way, words, look in ways]
        scale = Scale(bytes_axis("sent so far"), titled(unit), BY_BYTES)
        label = f"{title}, {mean}: a line for both directions and one for each."
        figures.append(replace(line_figure(title, label, lines, scale), ends=()))  # they end far apart
    return figures


def bytes_figures(groups: Sequence[Group]) -> list[Figure]:
    """Validation MRR over bytes, both directions and each; who sends nothing is a level to compare with."""
    figures = []
    for kind, words in DIRECTIONS.items():
        most = max(max(run.sent(kind).values(), default=0) for group in groups for run in group.runs)
        if not most:
            return []
        lines = []
        for group in groups:
            means = [mean_curve(*validation(run)) for run in group.runs]
            tops = [max(curve.values()) for curve in means if curve]
            found = [point(x, tops) for x in (0, most)] if tops else []
            if talks := any(run.traffic.bytes for run in group.runs):
                found = over_bytes(means, [run.sent(kind) for run in group.runs], group.known_until)
            lines.append(Line(group.label, found, group.colour, group.dash if talks else 1))
        scale = Scale(bytes_axis(f"sent so far, {words}"), titled("filtered MRR"), BY_BYTES)
        title = f"Validation MRR over bytes sent {words}"
        label = f"{title}, one line per experiment; {WEIGHTED}."
        figures.append((line_figure if kind == "bytes" else small_figure)(title, label, lines, scale))
    return figures


LINES = 8  #: sites that get a line of their own in one plot; more are drawn as a mean with a band
FACETS = 12  #: sites that get a small plot of their own when experiments are compared
ROUNDS = titled("round", rangemode="tozero")
BY_ROUND = "round %{x}: %{y:.4f}"
MRR = Scale(ROUNDS, titled("filtered MRR"), BY_ROUND)


def loss_figures(groups: Sequence[Group]) -> list[Figure]:
    """Training loss over rounds: all in one plot, then site by site when experiments are compared."""
    scale = Scale(ROUNDS, titled("loss"), BY_ROUND)
    return _over_rounds(groups, losses, lambda run: {}, "Training loss", "mean over sites", scale)


def validation_figures(groups: Sequence[Group]) -> list[Figure]:
    """Validation MRR over rounds; the round whose tables were kept has a star."""
    return _over_rounds(groups, validation, lambda run: run.kept, _validated(groups), WEIGHTED, MRR)


def view_figure(groups: Sequence[Group]) -> Figure | None:
    """Validation MRR of every table that a method validates; the round at which each was kept has a star."""
    lines = []
    for group in groups:
        names = dict.fromkeys(v for run in group.runs for one in run.validations.values() for v in one.views)
        for i, view in enumerate(["", *names] if names else []):
            own = [
                {n: of.views.get(view) if view else of.mrr for n, of in run.validations.items()}
                for run in group.runs
            ]
            found = [{n: mrr for n, mrr in curve.items() if mrr is not None} for curve in own]
            line = _line(group, found, group.first.kept_rounds(view))
            lines.append(replace(line, name=f"{group.label}, {view or LOCAL}", dash=group.dash + i))
    title = f"{_validated(groups)} by table, {WEIGHTED}"
    return line_figure(title, f"{title}, over rounds.", lines, MRR) if lines else None


def _validated(groups: Sequence[Group]) -> str:
    return f"Validation MRR{side_note(run for group in groups for run in group.runs)}"


def _line(group: Group, curves: Sequence[Curve], kept: Iterable[int]) -> Line:
    """An experiment over rounds; a star where it has one run that kept one round."""
    rounds = set(kept)
    star = _star(curves[0], *rounds) if len(curves) == len(rounds) == 1 else None
    return Line(group.label, over_seeds(curves, group.known_until), group.colour, group.dash, star)


def _star(curve: Curve, kept: int | None) -> Point | None:
    return Point(kept, curve[kept]) if kept is not None and kept in curve else None


def _over_rounds(
    groups: Sequence[Group],
    curves: Callable[[Run], tuple[Curves, Mapping[str, float]]],
    kept: Callable[[Run], Mapping[str, int]],
    title: str,
    mean: str,
    scale: Scale,
) -> list[Figure]:
    """One run by site; several as means, then site by site."""
    sites = list(dict.fromkeys(s for group in groups for run in group.runs for s in curves(run)[0]))
    if not sites:
        return []
    if len(groups) == len(groups[0].runs) == 1:
        return [_of_run(title, mean, *curves(groups[0].first), kept(groups[0].first), scale)]
    lines = []
    for group in groups:
        means = [mean_curve(*curves(run)) for run in group.runs]
        lines.append(_line(group, means, (number for run in group.runs for number in kept(run).values())))
    label = f"{title} of each experiment over rounds, {mean}."
    figures = [line_figure(f"{title}, {mean}", label, lines, scale)]
    for site in sites if len(groups) > 1 and 1 < len(sites) <= FACETS else ():
        lines = []
        for group in groups:
            own, round = [curves(run)[0].get(site, {}) for run in group.runs], kept(group.first).get(site)
            lines.append(_line(group, own, () if round is None else (round,)))
        label = f"{title} at {site} over rounds, one line per experiment."
        figures.append(small_figure(site, label, lines, scale))
    return figures


def _of_run(
    title: str, mean: str, sites: Curves, weights: Mapping[str, float], kept: Mapping[str, int], scale: Scale
) -> Figure:
    """A line per site; of many sites their mean, and from the lowest to the highest."""
    if len(sites) > LINES:
        label = f"{title} over rounds: {mean}, and from the lowest to the highest site."
        lines = [Line("mean", reach(sites, weights), "s0")]
        return line_figure(f"{title}, {mean}; shaded: lowest to highest", label, lines, scale)
    stars = {site: _star(curve, kept.get(site)) for site, curve in sites.items()}
    own = enumerate(sites.items())
    lines = [Line(site, over_seeds([of]), *coloured(i), star=stars[site]) for i, (site, of) in own]
    return line_figure(title, f"{title} of each site over rounds.", lines, scale)
