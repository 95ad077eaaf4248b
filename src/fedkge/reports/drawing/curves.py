"""Plots over rounds: how training went."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedkge.reports.compared.averages import (
    WEIGHTED,
    losses,
    mean_curve,
    over_seeds,
    points,
    reach,
    validation,
)
from fedkge.reports.compared.experiments import Group
from fedkge.reports.compared.views import LOCAL
from fedkge.reports.drawing.figure import Figure
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure, small_figure
from fedkge.reports.folders.run import Curve, Curves, Run, side_note

LINES = 8  #: sites that get a line of their own in one plot; more are drawn as a mean with a band
FACETS = 12  #: sites that get a small plot of their own when experiments are compared
ROUNDS: dict[str, Any] = {"title": {"text": "round"}, "rangemode": "tozero"}
BY_ROUND = "round %{x}: %{y:.4f}"
MRR = Scale(ROUNDS, {"title": {"text": "filtered MRR"}}, BY_ROUND)


def loss_figures(groups: Sequence[Group]) -> list[Figure]:
    """Training loss over rounds: all in one plot, then site by site when experiments are compared."""
    scale = Scale(ROUNDS, {"title": {"text": "loss"}}, BY_ROUND)
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
            found = [_view(run, view) for run in group.runs]
            kept = group.first.kept_rounds(view) if len(found) == 1 else ()
            star = _star(found[0], *kept) if len(kept) == 1 else None
            label = f"{group.label}, {view or LOCAL}"
            curve = over_seeds(found, group.known_until)
            lines.append(Line(label, curve, group.colour, group.dash + i, star))
    title = f"{_validated(groups)} by table, {WEIGHTED}"
    return line_figure(title, f"{title}, over rounds.", lines, MRR) if lines else None


def _view(run: Run, view: str) -> dict[int, float]:
    found = {n: of.views.get(view) if view else of.mrr for n, of in run.validations.items()}
    return {n: mrr for n, mrr in found.items() if mrr is not None}


def _validated(groups: Sequence[Group]) -> str:
    return f"Validation MRR{side_note(run for group in groups for run in group.runs)}"


def _over_rounds(
    groups: Sequence[Group],
    curves: Callable[[Run], tuple[Curves, Mapping[str, float]]],
    kept: Callable[[Run], Mapping[str, int]],
    title: str,
    mean: str,
    scale: Scale,
) -> list[Figure]:
    if not any(curves(run)[0] for group in groups for run in group.runs):
        return []
    if len(groups) == len(groups[0].runs) == 1:
        return [_of_run(title, mean, *curves(groups[0].first), kept(groups[0].first), scale)]
    lines = []
    for group in groups:
        means = [mean_curve(*curves(run)) for run in group.runs]
        rounds = {number for run in group.runs for number in kept(run).values()}
        star = _star(means[0], rounds.pop()) if len(rounds) == len(means) == 1 else None
        lines.append(Line(group.label, over_seeds(means, group.known_until), group.colour, group.dash, star))
    label = f"{title} of each experiment over rounds, {mean}."
    whole = line_figure(f"{title}, {mean}", label, lines, scale)
    sites = list(dict.fromkeys(s for group in groups for run in group.runs for s in curves(run)[0]))
    if len(groups) == 1 or not 1 < len(sites) <= FACETS:
        return [whole]

    def at(site: str) -> Figure:
        own = []
        for group in groups:
            found = [curves(run)[0].get(site, {}) for run in group.runs]
            star = _star(found[0], kept(group.first).get(site)) if len(found) == 1 else None
            own.append(
                Line(group.label, over_seeds(found, group.known_until), group.colour, group.dash, star)
            )
        return small_figure(site, f"{title} at {site} over rounds, one line per experiment.", own, scale)

    return [whole, *map(at, sites)]


def _of_run(
    title: str,
    mean: str,
    sites: Curves,
    weights: Mapping[str, float],
    kept: Mapping[str, int],
    scale: Scale,
) -> Figure:
    """A line per site; of many sites their mean, and from the lowest to the highest."""
    if len(sites) > LINES:
        label = f"{title} over rounds: {mean}, and from the lowest to the highest site."
        return line_figure(
            f"{title}, {mean}; shaded: lowest to highest",
            label,
            [Line("mean", reach(sites, weights), "s0")],
            scale,
        )
    lines = [
        Line(site, points(curve), *coloured(i), star=_star(curve, kept.get(site)))
        for i, (site, curve) in enumerate(sites.items())
    ]
    return line_figure(title, f"{title} of each site over rounds.", lines, scale)


def _star(curve: Curve, kept: int | None) -> Point | None:
    return Point(kept, curve[kept]) if kept is not None and kept in curve else None
