"""Plots over rounds: how training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedkge.reports.figure import Figure, Trace, finite, text
from fedkge.reports.load import Run
from fedkge.reports.tables import labels

Curve: TypeAlias = Mapping[int, float]

LINES = 8  #: sites that get a line of their own in one plot; more are drawn as a mean with a band
FACETS = 12  #: sites that get a small plot of their own when runs are compared


def loss_figures(runs: Sequence[Run]) -> list[Figure]:
    """Training loss over rounds: all in one plot, then site by site when runs are compared."""
    curves = [Curves(run.losses, dict.fromkeys(run.losses, 1.0), {}) for run in runs]
    return _over_rounds(runs, curves, "Training loss", "loss", "mean over sites")


def validation_figures(runs: Sequence[Run]) -> list[Figure]:
    """Validation MRR over rounds; the round whose tables were kept has a star."""
    curves = []
    for run in runs:
        queries = {site: max(counts.values()) for site, counts in run.validation("count").items()}
        curves.append(Curves(run.validation("mrr"), queries, run.kept))
    what = "mean over sites, weighted by their statements"
    return _over_rounds(runs, curves, "Validation MRR", "filtered MRR", what)


@dataclass(frozen=True)
class Curves:
    """A run's curve for each site, how much each counts in their mean, and the round that each site kept."""

    sites: Mapping[str, Curve]
    weights: Mapping[str, float]
    kept: Mapping[str, int]


def _over_rounds(
    runs: Sequence[Run], curves: Sequence[Curves], title: str, unit: str, mean: str
) -> list[Figure]:
    if not any(run.sites for run in curves):
        return []
    layout = {
        "xaxis": {"title": {"text": "round"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": unit}},
    }
    if len(runs) == 1 and len(curves[0].sites) <= LINES:
        own = curves[0]
        traces = [
            trace
            for i, (site, curve) in enumerate(own.sites.items())
            for trace in _line(i, site, curve, own.kept.get(site))
        ]
        return [Figure(title, f"{title} of each site over rounds.", traces, layout, tools=True)]
    names = labels(runs)
    traces = _band(curves[0].sites) if len(runs) == 1 else []
    for i, (name, run) in enumerate(zip(names, curves, strict=True)):
        rounds = set(run.kept.values())
        kept = rounds.pop() if len(rounds) == 1 else None
        traces += _line(i, name, mean_curve(run.sites, run.weights), kept)
    whole = Figure(
        f"{title}, {mean}", f"{title} of each run over rounds, {mean}.", traces, layout, tools=True
    )
    sites = list(dict.fromkeys(site for run in curves for site in run.sites))
    if len(runs) == 1 or not 1 < len(sites) <= FACETS:
        return [whole]
    return [whole, *(_at_site(site, names, curves, title) for site in sites)]


def _at_site(site: str, names: Sequence[str], curves: Sequence[Curves], title: str) -> Figure:
    """One site in all runs, small: the large plot above it names axes and colours."""
    traces = []
    for i, (name, run) in enumerate(zip(names, curves, strict=True)):
        traces += _line(i, name, run.sites.get(site, {}), run.kept.get(site))
    layout = {"xaxis": {"rangemode": "tozero"}, "showlegend": False}
    return Figure(site, f"{title} at {site} over rounds, one line per run.", traces, layout, 210)


def mean_curve(sites: Mapping[str, Curve], weights: Mapping[str, float]) -> dict[int, float]:
    """The weighted mean over sites, from the round on that all have reached.

    A site that has stopped goes on counting, with its last value.
    """
    begun = {site: curve for site, curve in sites.items() if curve}
    rounds = sorted({number for curve in begun.values() for number in curve})
    total = sum(weights[site] for site in begun)
    latest: dict[str, float] = {}
    mean = {}
    for number in rounds:
        latest |= {site: curve[number] for site, curve in begun.items() if number in curve}
        if len(latest) == len(begun):
            mean[number] = sum(weights[site] * value for site, value in latest.items()) / total
    return mean


def _line(series: int, name: str, curve: Curve, kept: int | None) -> list[Trace]:
    """A line, and a star on the kept round."""
    rounds = sorted(curve)
    common = {"type": "scatter", "name": text(name), "legendgroup": str(series), "meta": {"series": series}}
    hover = "%{fullData.name}<br>round %{x}: %{y:.4f}<extra></extra>"
    traces: list[Trace] = [
        {
            **common,
            "mode": "lines" if len(rounds) > 1 else "markers",
            "x": rounds,
            "y": [finite(curve[number]) for number in rounds],
            "hovertemplate": hover,
        }
    ]
    if kept is not None and kept in curve:
        star = {"symbol": "star", "size": 14}
        hover = "%{fullData.name}<br>kept: round %{x}, %{y:.4f}<extra></extra>"
        marks = {"x": [kept], "y": [finite(curve[kept])], "hovertemplate": hover, "showlegend": False}
        traces.append({**common, "mode": "markers", "marker": star, **marks})
    return traces


def _band(sites: Mapping[str, Curve]) -> list[Trace]:
    """From the lowest to the highest site."""
    rounds = sorted({number for curve in sites.values() for number in curve})
    values = [[curve[number] for curve in sites.values() if number in curve] for number in rounds]
    edge = {
        "type": "scatter",
        "mode": "lines",
        "x": rounds,
        "line": {"width": 0},
        "hoverinfo": "skip",
        "meta": {"series": 0},
    }
    low = {**edge, "y": [finite(min(of)) for of in values], "showlegend": False}
    high = {
        **edge,
        "y": [finite(max(of)) for of in values],
        "fill": "tonexty",
        "name": "lowest to highest site",
    }
    return [low, high]
