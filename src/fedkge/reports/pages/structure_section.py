"""The page's part on how sites are knit: degrees and clustering coefficients (FedLU, Figures 3 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from fedkge.reports.compared.details import Row
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.drawing.figure import Figure, Trace, text
from fedkge.reports.drawing.lines import coloured
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Column, count, decimal, share, table, words

LINES = 16  #: sites that get a line of their own; of more, those with the most entities
NOTE = "Over all triples, whatever their relation."
COLUMNS = (
    Column("site", "Site", words),
    Column("mean_degree", "Mean degree", decimal, "ends of triples per entity"),
    Column("median_degree", "Median", count, "half of the entities have at most so many"),
    Column("most_degree", "Largest", count),
    Column("clustering", "Clustering", share, "mean share of an entity's neighbours that are neighbours too"),
)


def structure(page: Canvas, run: Run) -> str:
    """Two plots and a table; nothing for runs that have not noted it."""
    rows = structure_rows(run)
    if not rows:
        return ""
    known = sorted(_noted(run).items(), key=lambda item: -(item[1]["entities"]))[:LINES]
    drawn = {site: of["structure"] for site, of in _noted(run).items() if site in dict(known)}
    note = NOTE + (f" Of {len(rows)} sites the {LINES} largest are drawn." if len(rows) > LINES else "")
    caption = f"{run.dataset}: how sites are knit, over all triples."
    return (
        page.place(degree_figure(drawn), note)
        + page.place(
            clustering_figure(drawn), "A line further right is a site whose neighbours know each other."
        )
        + table(rows, COLUMNS, caption)
    )


def _noted(run: Run) -> dict[str, Mapping[str, Any]]:
    sites = (run.summary or {}).get("sites", {})
    return {site: of for site, of in sites.items() if of.get("structure", {}).get("degrees")}


def structure_rows(run: Run) -> list[Row]:
    """One row per site: mean, median and largest degree, and mean clustering coefficient."""
    rows = []
    for site, of in _noted(run).items():
        found = of["structure"]
        degrees = found["degrees"]
        half = sum(n for _, n in degrees) / 2
        sums = accumulate(n for _, n in degrees)
        median = next(degree for (degree, _), total in zip(degrees, sums, strict=True) if total >= half)
        row: Row = {"site": site, "mean_degree": found["mean_degree"], "median_degree": median}
        rows.append(row | {"most_degree": degrees[-1][0], "clustering": found["mean_clustering"]})
    return rows


def degree_figure(sites: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The share of entities with at least so many triples, both axes logarithmic."""
    traces = []
    for i, (site, found) in enumerate(sites.items()):
        degrees = [(degree, n) for degree, n in found["degrees"] if degree]
        left = list(accumulate(n for _, n in reversed(degrees)))[::-1]  # with this degree or more
        total = sum(n for _, n in found["degrees"])
        traces.append(
            _line(i, site, [d for d, _ in degrees], [n / total for n in left], "%{x:,} or more: %{y:.2%}")
        )
    layout = {
        "xaxis": {"type": "log", "title": {"text": "degree: triples that an entity is in"}},
        "yaxis": {"type": "log", "title": {"text": "share of entities"}, "tickformat": "~%"},
    }
    label = "Share of each site's entities that are in at least so many triples, on logarithmic axes."
    return Figure("Degrees", label, traces, layout, 380, tools=True)


def clustering_figure(sites: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The share of entities with a clustering coefficient of at most so much."""
    traces = []
    for i, (site, found) in enumerate(sites.items()):
        bins: Sequence[int] | None = found["coefficients"]
        if bins is not None:
            edges = [(k + 1) / len(bins) for k in range(len(bins))]
            below = [n / max(1, sum(bins)) for n in accumulate(bins)]
            traces.append(_line(i, site, edges, below, "below %{x:.2f}: %{y:.1%}"))
    layout = {
        "xaxis": {"title": {"text": "clustering coefficient"}, "range": [0, 1.02]},
        "yaxis": {"title": {"text": "share of entities below it"}, "tickformat": ".0%", "range": [0, 1.02]},
    }
    label = "Share of each site's entities whose clustering coefficient is below a value."
    return Figure("Clustering coefficients", label, traces, layout, 360, tools=True)


def _line(i: int, site: str, x: Sequence[float], y: Sequence[float], hover: str) -> Trace:
    series, dash = coloured(i)
    return {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "name": text(site),
        "x": x,
        "y": y,
        "hovertemplate": f"%{{fullData.name}}<br>{hover}<extra></extra>",
        "meta": {"series": series, "dash": dash},
    }
