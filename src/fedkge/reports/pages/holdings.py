"""The page's part on what sites hold: sizes, what they share, how their graphs are knit, given links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from fedkge.reports.compared.experiments import Row
from fedkge.reports.drawing.figure import Canvas, Figure, colorbar, mark, sites_by_sites, titled
from fedkge.reports.drawing.lines import coloured
from fedkge.reports.drawing.plots import BARS, CELLS, across
from fedkge.reports.folders.run import Kind, Run
from fedkge.reports.pages.markup import (
    Column,
    count,
    decimal,
    matrix,
    notice,
    percent,
    share,
    soft,
    table,
    words,
)

SPLITS = ("train", "valid", "test")
SITE = Column("site", "Site", words)
TRAINED = Column(
    "trained",
    "Trained on",
    lambda counts: " or ".join(map(count, counts)),
    "of train: without what data.drop_leaks and privacy leave out; several numbers where runs differ",
)
SHARED = (
    SITE,
    Column("entities", "Entities shared", count),
    Column("entity_share", "of its own", percent),
    Column("relations", "Relations shared", count),
    Column("relation_share", "of its own", percent),
)
LINKS = (
    Column("axis", "Links between", words),
    Column("given", "Given", count),
    Column("used", "Used", count),
    Column("left_out", "Left out", count, "would have made two things of one site the same"),
    Column("within_site", "Within a site", count, "speak of one site only"),
    Column("unmatched", "Unmatched", count, "name what no site has, or not the site that they name"),
    Column("examples", "For example", words, words=True),
)
LINES = 16  #: sites that get a line of their own; of more, those with the most entities
STRUCTURE = (
    SITE,
    Column("mean_degree", "Mean degree", decimal, "ends of triples per entity"),
    Column("median_degree", "Median", count, "half of the entities have at most so many"),
    Column("most_degree", "Largest", count),
    Column("clustering", "Clustering", share, "mean share of an entity's neighbours that are neighbours too"),
)


def size_rows(runs: Sequence[Run]) -> list[Row]:
    """What each site holds, from runs that have ended; a data set is counted once.

    `trained`: how many of its training triples were trained on, once for each number that runs have. A run
    that pools graphs does not tell.
    """
    rows: dict[tuple[str, str], Row] = {}
    trained: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        for site, found in (run.summary or {}).get("sites", {}).items():
            if "trained" in found and run.kind is not Kind.POOLED:
                trained.setdefault((run.dataset, site), set()).add(found["trained"])
            row = {"site": site, "dataset": run.dataset, "triples": sum(found["triples"].values())}
            row |= {split: found["triples"][split] for split in SPLITS}
            row |= {"entities": found["entities"], "relations": found["relations"]}
            rows.setdefault((run.dataset, site), row)
    return [row | {"trained": sorted(trained.get(key, ())) or None} for key, row in rows.items()]


def shared_rows(run: Run) -> list[Row]:
    """Per site how many of its entities and relations have rows that may travel; empty where none do."""
    rows = []
    for site, found in (run.summary or {}).get("sites", {}).items():
        row = {"site": site}
        for axis, names in (("entity", "entities"), ("relation", "relations")):
            row[names] = found.get("shared", {}).get(axis, 0)
            row[f"{axis}_share"] = row[names] / found[names] if found[names] else None
        rows.append(row)
    return rows if any(row["entities"] or row["relations"] for row in rows) else []


def structure_rows(run: Run) -> list[Row]:
    """One row per site: mean, median and largest degree, and mean clustering coefficient."""
    rows = []
    for site, of in _noted(run).items():
        found, degrees = of["structure"], of["structure"]["degrees"]
        half, sums = sum(n for _, n in degrees) / 2, accumulate(n for _, n in degrees)
        median = next(degree for (degree, _), total in zip(degrees, sums, strict=True) if total >= half)
        row: Row = {"site": site, "mean_degree": found["mean_degree"], "median_degree": median}
        rows.append(row | {"most_degree": degrees[-1][0], "clustering": found["mean_clustering"]})
    return rows


def _noted(run: Run) -> dict[str, Mapping[str, Any]]:
    sites = (run.summary or {}).get("sites", {})
    return {site: of for site, of in sites.items() if of.get("structure", {}).get("degrees")}


def holdings(page: Canvas, runs: Sequence[Run]) -> str:
    """Sizes, what sites have in common, which of it they share, and what became of given links."""
    rows = size_rows(runs)
    if not rows:
        return soft("Known once a run has ended.")
    several = len({row["dataset"] for row in rows}) > 1
    columns = [
        SITE,
        *([Column("dataset", "Data set", words, words=True)] if several else []),
        *(Column(key, key.capitalize(), count) for key in ("triples", *SPLITS)),
        *([TRAINED] if any(row["trained"] not in (None, [row["train"]]) for row in rows) else []),
        *(Column(key, key.capitalize(), count) for key in ("entities", "relations")),
    ]
    counts = ("triples", "entities", "relations") if 1 < len(rows) <= BARS else ()
    sizes = [across(what.capitalize(), f"Number of {what} at each site", rows, {what: ""}) for what in counts]
    parts = [page.grid(sizes), table(rows, columns, "Triples by split, and names.")]
    seen = set()
    for run in runs:
        figure = overlap_figure(run)
        if figure and run.dataset not in seen:
            seen.add(run.dataset)
            note = f"{run.dataset}: how many entities the row's site has in common with the column's."
            common = "Entities in common, by name; on the diagonal what the site has."
            overlap = (run.summary or {})["overlap"]
            parts += [page.place(figure, note), matrix(overlap["sites"], overlap["entities"], count, common)]
    knit = {run.dataset: run for run in reversed(runs) if _noted(run)}
    parts += [structure(page, run) for run in reversed(knit.values())]
    return "".join(parts) + _shared(runs) + _exposed(runs) + _links(runs)


def overlap_figure(run: Run) -> Figure | None:
    """Entities that two sites have in common: the colour is their share of the row's site."""
    overlap = (run.summary or {}).get("overlap")
    if not overlap or not 1 < len(overlap["sites"]) <= CELLS:
        return None
    sites, counts = overlap["sites"], overlap["entities"]
    share = [
        [None if i == j or not row[i] else row[j] / row[i] for j in range(len(sites))]
        for i, row in enumerate(counts)
    ]
    cells = [[f"{count:,}" for count in row] for row in counts]
    look = colorbar("share", tickformat=".0%") | {"zmin": 0}
    look["zmax"] = max((value for row in share for value in row if value), default=1)
    hover = "%{customdata[0]} has %{text} entities of %{customdata[1]}<br>%{z:.1%} of its own"
    label = "Entities in common between sites, as a share of the row's site; the table below has the counts."
    return sites_by_sites("Entities in common", label, sites, share, cells, hover, **look)


def _exposed(runs: Sequence[Run]) -> str:
    """Once for each federation and way of sharing: how many rows the hub's means give away."""
    things = {"entity": "entities", "relation": "relations"}
    lines = [
        f"{run.approach}: {found['by_two']:,} of {found['shared']:,} shared {things[found['axis']]} are at "
        "exactly two sites; from the hub's means each of the two can compute the other's rows. "
        "`fedkge attack --name pairs` measures it."
        for run in runs
        for found in (run.summary or {}).get("exposed", ())
        if found["by_two"]
    ]
    return "".join(map(notice, dict.fromkeys(lines)))


def _shared(runs: Sequence[Run]) -> str:
    """Which rows may travel, once for each way of sharing."""
    ways: dict[str, tuple[list[Row], list[str]]] = {}
    for run in runs:
        if rows := shared_rows(run):
            ways.setdefault(str(rows), (rows, []))[1].append(run.approach)
    said = "rows that may travel. What only one site has never leaves it."
    return "".join(
        table(rows, SHARED, f"{', '.join(dict.fromkeys(names))}: {said}") for rows, names in ways.values()
    )


def _links(runs: Sequence[Run]) -> str:
    """What became of given alignments, once where runs agree."""
    found: dict[str, list[Row]] = {}
    for run in runs:
        given = [link for link in run.links.values() if link["given"]]
        rows = [{**link, "examples": ", ".join(map(str, link["examples"])) or None} for link in given]
        found |= {str(rows): rows} if rows else {}
    caption = "Alignments that were given for sites that name things differently."
    return "".join(table(rows, LINKS, caption) for rows in found.values())


def structure(page: Canvas, run: Run) -> str:
    """Two plots and a table; nothing for runs that have not noted it."""
    rows, noted = structure_rows(run), _noted(run)
    if not rows:
        return ""
    largest = sorted(noted, key=lambda site: -noted[site]["entities"])[:LINES]
    drawn = {site: of["structure"] for site, of in noted.items() if site in largest}
    note = "Over all triples, whatever their relation."
    note += f" Of {len(rows)} sites the {LINES} largest are drawn." if len(rows) > LINES else ""
    right = "A line further right is a site whose neighbours know each other."
    caption = f"{run.dataset}: how sites are knit, over all triples."
    plots = page.place(degree_figure(drawn), note) + page.place(clustering_figure(drawn), right)
    return plots + table(rows, STRUCTURE, caption)


def degree_figure(sites: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The share of entities with at least so many triples, both axes logarithmic."""
    lines = {}
    for site, found in sites.items():
        degrees = [(degree, n) for degree, n in found["degrees"] if degree]
        left = list(accumulate(n for _, n in reversed(degrees)))[::-1]  # with this degree or more
        total = sum(n for _, n in found["degrees"])
        lines[site] = [d for d, _ in degrees], [n / total for n in left]
    yaxis = titled("share of entities", type="log", tickformat="~%")
    layout = {"xaxis": titled("degree: triples that an entity is in", type="log"), "yaxis": yaxis}
    label = "Share of each site's entities that are in at least so many triples, on logarithmic axes."
    return _by_site("Degrees", label, lines, "%{x:,} or more: %{y:.2%}", layout, 380)


def clustering_figure(sites: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The share of entities with a clustering coefficient of at most so much."""
    lines = {}
    for site, found in sites.items():
        bins: Sequence[int] = found["coefficients"] or ()
        edges = [(k + 1) / len(bins) for k in range(len(bins))]
        lines[site] = edges, [n / max(1, sum(bins)) for n in accumulate(bins)]
    yaxis = titled("share of entities below it", tickformat=".0%", range=[0, 1.02])
    layout = {"xaxis": titled("clustering coefficient", range=[0, 1.02]), "yaxis": yaxis}
    label = "Share of each site's entities whose clustering coefficient is below a value."
    return _by_site("Clustering coefficients", label, lines, "below %{x:.2f}: %{y:.1%}", layout, 360)


def _by_site(
    title: str, label: str, lines: Mapping[str, Any], hover: str, layout: Mapping[str, Any], height: int
) -> Figure:
    """A line per site; one that nothing is known of has none, and leaves its colour free."""
    traces = []
    for i, (site, (x, y)) in enumerate(lines.items()):
        look = {"mode": "lines" if len(x) > 1 else "markers", "x": x, "y": y}
        traces.append(mark("scatter", site, *coloured(i), f"%{{fullData.name}}<br>{hover}", **look))
    drawn = [trace for trace in traces if trace["x"]]
    return Figure(title, label, drawn, layout, height, tools=True)
