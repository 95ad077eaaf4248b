"""The page's parts on what travels and what does not: traffic, who took part, what sites hold and share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

from fedkge.reports.compared.details import Row, link_rows, shared_rows, size_rows
from fedkge.reports.compared.experiments import Group
from fedkge.reports.compared.traffic import (
    Attendance,
    attendance_figure,
    exchanged,
    experiments_figure,
    round_figure,
    round_traffic_rows,
    site_bytes_figure,
    site_traffic_rows,
    traffic_rows,
)
from fedkge.reports.drawing import plots
from fedkge.reports.drawing.curves import bytes_figures, own_bytes_figures
from fedkge.reports.drawing.figure import Canvas, Figure, Trace, mark, titled
from fedkge.reports.drawing.lines import coloured
from fedkge.reports.folders.before import Kind
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Column, count, decimal, folded, percent, share, size, table, words

UP = Column("up_bytes", "Up", size, "from sites to the hub")
DOWN = Column("down_bytes", "Down", size, "from the hub to sites")
BOTH = Column("bytes", "Both", size)
NOTHING_SENT = {
    Kind.ALONE: "Nothing is sent: every site trains alone.",
    Kind.POOLED: "Nothing is sent in rounds: graphs are in one place from the start. "
    "Moving them is not counted.",
}


def traffic(page: Canvas, groups: Sequence[Group], drawn: Sequence[Group]) -> str:
    """What went over the wire; for a single run by round and site as well."""
    runs = [run for group in groups for run in group.runs]
    if not any(exchanged(run) for run in runs):
        texts = [_nothing_sent(run) for run in runs]
        return "".join(f'<p class="soft">{escape(text)}</p>' for text in dict.fromkeys(texts))
    if len(runs) == 1:
        return _own(page, runs[0])
    figures = bytes_figures(drawn)
    note = "Dashed: experiments that send nothing, at the best validation MRR that they reach."
    parts = [page.place(figures[0], note), page.grid(figures[1:])] if figures else []
    rows, seeds = traffic_rows(groups), len(runs) > len(groups)
    columns = [
        Column("run", "Run", words),
        Column("rounds", "Rounds", count),
        UP,
        DOWN,
        BOTH,
        Column("per_round", "Per round", size),
        Column(
            "per_value", "Bytes per value", decimal, "what one number takes on the wire, overhead included"
        ),
        Column("late", "Late answers", count, "over all sites and rounds"),
        Column("refused", "Refused", count, "answers that were not used"),
    ]
    caption = "What went over the wire until the run stopped" + ("; means over seeds." if seeds else ".")
    parts += [page.place(experiments_figure(rows)), table(rows, columns, caption)]
    return "".join(parts + [_attendance(page, g.first, g.label) for g in drawn if len(g.runs) == 1])


def _nothing_sent(run: Run) -> str:
    text = NOTHING_SENT.get(run.kind, "Nothing has been sent so far.")
    before = run.before
    return text if before is None else f"{text} Before, {size(before.sent)} were sent by {before.approach}."


def _own(page: Canvas, run: Run) -> str:
    """Accuracy over bytes, then bytes by round and by site."""
    parts = [page.place(figure) for figure in own_bytes_figures(run) if figure.data]
    rows = round_traffic_rows(run)
    kinds = [Column(kind.name, kind.words.capitalize(), count) for kind in Attendance]
    by_round = table(
        rows, [Column("round", "Round", count), *kinds, UP, DOWN, BOTH], "Sites and bytes by round."
    )
    parts += [page.place(round_figure(rows)), folded("Every round", by_round)]
    parts.append(_attendance(page, run, "") or '<p class="soft">All sites took part in every round.</p>')
    sites = site_traffic_rows(run)
    figure = site_bytes_figure(sites[:-1])
    columns = [
        Column("site", "Site", words),
        *kinds,
        Column("shared", "Rows shared", count, "entities and relations whose rows may travel"),
        UP,
        DOWN,
        Column("up_values", "Numbers up", count),
        Column("down_values", "Numbers down", count),
    ]
    parts += [page.place(figure)] if figure else []
    parts.append(table(sites, columns, "Rounds and traffic of each site.", last_is_total=True))
    return "".join(parts)


def _attendance(page: Canvas, run: Run, name: str) -> str:
    figure = attendance_figure(run) if exchanged(run) else None
    if figure is None:
        return ""
    legend = "".join(
        f'<span><span class="swatch" style="background:var(--att{int(kind)})"></span>{kind.words}</span>'
        for kind in Attendance
    )
    return page.place(figure, name) + f'<p class="key">{legend}</p>'


def holdings(page: Canvas, runs: Sequence[Run]) -> str:
    """Sizes, what sites have in common, which of it they share, and what became of given links."""
    rows = size_rows(runs)
    if not rows:
        return '<p class="soft">Known once a run has ended.</p>'
    several = len({row["dataset"] for row in rows}) > 1
    columns = [
        Column("site", "Site", words),
        *([Column("dataset", "Data set", words, words=True)] if several else []),
        Column("triples", "Triples", count),
        *(Column(split, split.capitalize(), count) for split in ("train", "valid", "test")),
        Column("entities", "Entities", count),
        Column("relations", "Relations", count),
    ]
    parts = [page.grid(plots.size_figures(runs)), table(rows, columns, "Triples by split, and names.")]
    seen = set()
    for run in runs:
        figure = plots.overlap_figure(run)
        if figure and run.dataset not in seen:
            seen.add(run.dataset)
            note = f"{run.dataset}: how many entities the row's site has in common with the column's."
            parts.append(page.place(figure, note) + _overlap_table(run))
    knit = {run.dataset: run for run in reversed(runs) if structure_rows(run)}
    parts += [structure(page, run) for run in reversed(knit.values())]
    return "".join(parts) + _shared(runs) + _exposed(runs) + _links(runs)


def _exposed(runs: Sequence[Run]) -> str:
    """Once for each federation and way of sharing: how many rows the hub's means give away."""
    lines = []
    for run in runs:
        for found in (run.summary or {}).get("exposed", ()):
            things = {"entity": "entities", "relation": "relations"}[found["axis"]]
            if found["by_two"]:
                lines.append(
                    f"{run.approach}: {found['by_two']:,} of {found['shared']:,} shared {things} are at "
                    "exactly two sites; from the hub's means each of the two can compute the other's rows. "
                    "`fedkge attack --name pairs` measures it."
                )
    return "".join(f'<p class="notice" role="note">{escape(line)}</p>' for line in dict.fromkeys(lines))


def _shared(runs: Sequence[Run]) -> str:
    """Which rows may travel, once for each way of sharing."""
    columns = [
        Column("site", "Site", words),
        Column("entities", "Entities shared", count),
        Column("entity_share", "of its own", percent),
        Column("relations", "Relations shared", count),
        Column("relation_share", "of its own", percent),
    ]
    shown: dict[str, list[str]] = {}
    for run in runs:
        rows = shared_rows(run)
        if rows:
            shown.setdefault(str(rows), []).append(run.approach)
    tables = []
    for run in runs:
        methods = shown.pop(str(shared_rows(run)), None)
        if methods:
            names = ", ".join(dict.fromkeys(methods))
            caption = f"{names}: rows that may travel. What only one site has never leaves it."
            tables.append(table(shared_rows(run), columns, caption))
    return "".join(tables)


def _links(runs: Sequence[Run]) -> str:
    """What became of given alignments, once where runs agree."""
    columns = [
        Column("axis", "Links between", words),
        Column("given", "Given", count),
        Column("used", "Used", count),
        Column("left_out", "Left out", count, "would have made two things of one site the same"),
        Column("within_site", "Within a site", count, "speak of one site only"),
        Column("unmatched", "Unmatched", count, "name what no site has, or not the site that they name"),
        Column("examples", "For example", words, words=True),
    ]
    found = {str(link_rows(run)): link_rows(run) for run in runs if link_rows(run)}
    caption = "Alignments that were given for sites that name things differently."
    return "".join(table(rows, columns, caption) for rows in found.values())


def _overlap_table(run: Run) -> str:
    overlap = (run.summary or {})["overlap"]
    keys = [str(i) for i in range(len(overlap["sites"]))]
    rows = [
        {"site": site, **dict(zip(keys, counts, strict=True))}
        for site, counts in zip(overlap["sites"], overlap["entities"], strict=True)
    ]
    columns = [Column("site", "Site", words)]
    columns += [Column(key, site, count) for key, site in zip(keys, overlap["sites"], strict=True)]
    return table(rows, columns, "Entities in common, by name; on the diagonal what the site has.")


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
    yaxis = titled("share of entities", type="log", tickformat="~%")
    layout = {"xaxis": titled("degree: triples that an entity is in", type="log"), "yaxis": yaxis}
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
    yaxis = titled("share of entities below it", tickformat=".0%", range=[0, 1.02])
    layout = {"xaxis": titled("clustering coefficient", range=[0, 1.02]), "yaxis": yaxis}
    label = "Share of each site's entities whose clustering coefficient is below a value."
    return Figure("Clustering coefficients", label, traces, layout, 360, tools=True)


def _line(i: int, site: str, x: Sequence[float], y: Sequence[float], hover: str) -> Trace:
    mode = "lines" if len(x) > 1 else "markers"
    return mark("scatter", site, *coloured(i), f"%{{fullData.name}}<br>{hover}", mode=mode, x=x, y=y)
