"""The page's parts on what a method notes between sites, and on peers without a hub."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence, Set
from math import isfinite, isnan, nan
from typing import Any, TypeAlias

from fedkge.nodes.journal import read_journal
from fedkge.reports.compared.experiments import Group
from fedkge.reports.drawing.curves import ROUNDS, over_seeds
from fedkge.reports.drawing.figure import Canvas, Figure, colorbar, finite, sites_by_sites, titled
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure, small_figure
from fedkge.reports.drawing.plots import CELLS
from fedkge.reports.folders.load import RUN
from fedkge.reports.folders.run import Between, Run
from fedkge.reports.pages.markup import SITE, Column, by_run, count, matrix, seconds, share, size, soft, table

NAMED = 6  #: sites that are named in a sentence
FACETS = 12  #: sites that get a small plot of their own
Course: TypeAlias = Mapping[int, Between]  # round -> a note


def between_sites(page: Canvas, groups: Sequence[Group]) -> str:
    """Every note of every experiment; of several seeds the first's."""
    parts = []
    for group in groups:
        for name, course in courses(group.first).items():
            seeds = f", seed {group.first.seed}" if len(group.runs) > 1 else ""
            label = f"{group.label}{seeds}" if len(groups) > 1 or seeds else ""
            parts.append(_note(page, name, course, set(group.first.kept.values()), label))
    return "".join(parts)


def courses(run: Run) -> dict[str, dict[int, Between]]:
    """Note -> round -> numbers between sites; none of sites that nobody can have heard yet."""
    found: dict[str, dict[int, Between]] = {}
    for number in sorted(run.validations):
        rounds = [done for n, done in run.rounds.items() if n <= number and not done.void]
        answered = frozenset[str]().union(*(done.participants for done in rounds))
        for name, note in run.validations[number].notes.items():
            found.setdefault(name, {})[number] = _blanked(note, answered)
    return found


def _blanked(note: Between, answered: Container[str]) -> Between:
    """Without the rows and columns of sites that have sent nothing yet, and so are nothing to others."""

    def unheard(j: int) -> bool:
        towards = [row[j] for i, row in enumerate(note.values) if i != j]
        return note.sites[j] not in answered and not any(towards)

    blank = {j for j in range(len(note.sites)) if unheard(j)}
    values = [
        [nan if {i, j} & blank else value for j, value in enumerate(row)] for i, row in enumerate(note.values)
    ]
    return Between(note.sites, values)


def silent(note: Between) -> list[str]:
    """Sites whose rows are blank."""
    return [site for site, row in zip(note.sites, note.values, strict=True) if all(map(isnan, row))]


def _note(page: Canvas, name: str, course: Course, kept: Set[int], label: str) -> str:
    """The map of the round whose tables were kept, the last such, or else of the last; how it came about."""
    shown = max(kept & course.keys(), default=max(course))
    note = course[shown]
    where = f"{label}: " if label else ""
    told = ", whose tables are kept" if len(kept) == 1 else ", the last of which a site keeps its tables"
    caption = f"{where}after round {shown}{told * (shown in kept)}; each row's site towards each column's."
    if sites := silent(note):
        named = ", ".join(sites[:NAMED]) + f" and {len(sites) - NAMED} more" * (len(sites) > NAMED)
        caption += f" Blank: {named} had not sent anything to the hub by then."
    parts = [page.place(heat_figure(name, note), caption)] if len(note.sites) <= CELLS else []
    values = [[finite(value) for value in row] for row in note.values]
    parts.append(matrix(note.sites, values, "{:.4g}".format, f"{name.capitalize()}: {caption}"))
    if len(course) > 1 and all(other.values == note.values for other in course.values()):
        parts.append(soft(f"{where}{name} is the same in every round."))
    elif len(course) > 1:
        moved = "Half of what a site's row differs by from its first, over all columns; below, each row."
        moved = f"{label}. {moved}" if label else moved
        parts += [page.place(change_figure(name, course), moved), page.grid(row_figures(name, course))]
    return "".join(parts)


def compact(value: float) -> str:
    """For a cell: to three places, or where these would hold too little, to two digits: 0.331, 2.4e-5."""
    if not isfinite(value):
        return ""
    if 0.01 <= abs(value) < 100:
        return f"{value:.3f}"
    return re.sub(r"e([+-])0*", lambda power: f"e{power[1].strip('+')}", f"{value:.2g}")


def heat_figure(name: str, note: Between) -> Figure:
    """A cell for every two sites."""
    known = [value for row in note.values for value in row if isfinite(value)]
    cells = [[compact(v) for v in row] for row in note.values]
    values = [[finite(value) for value in row] for row in note.values]
    look = colorbar(name) | {"zmin": min([0.0, *known]), "zmax": max([0.0, *known])}
    hover = "%{customdata[0]} → %{customdata[1]}: %{z:.4g}"
    label = f"{name.capitalize()} of each row's site towards each column's; the table below has the numbers."
    return sites_by_sites(name.capitalize(), label, note.sites, values, cells, hover, **look)


def change_figure(name: str, course: Course) -> Figure:
    """How far each site's row has moved from where it first was: half of the summed differences."""
    rounds = sorted(course)
    lines = []
    for i, site in enumerate(course[rounds[0]].sites):
        heard = {n: course[n].values[i] for n in rounds if site not in silent(course[n])}
        rows = {n: [0.0 if isnan(value) else value for value in row] for n, row in heard.items()}
        first = next(iter(rows.values()), [])
        moved = {n: sum(abs(b - a) for a, b in zip(first, row, strict=True)) / 2 for n, row in rows.items()}
        lines.append(Line(site, over_seeds([moved]), *coloured(i)))
    scale = Scale(ROUNDS, titled(f"{name}, moved"), "round %{x}: %{y:.4g}")
    title = f"How far {name} has moved since round {rounds[0]}"
    label = f"{title}, for each site: half of the sum of the differences of its row."
    return line_figure(title, label, lines, scale)


def row_figures(name: str, course: Course) -> list[Figure]:
    """Of each site, its row over rounds: a line per other site, in the colours of the plot above."""
    rounds = sorted(course)
    sites = course[rounds[0]].sites
    if len(sites) > FACETS:
        return []
    scale = Scale(ROUNDS, {}, "round %{x}: %{y:.4g}")
    found = []
    for i, site in enumerate(sites):
        lines = [
            Line(other, [Point(n, course[n].values[i][j]) for n in rounds], *coloured(j))
            for j, other in enumerate(sites)
        ]
        label = f"{name.capitalize()} of {site} towards each site over rounds."
        found.append(small_figure(f"{name} of {site}", label, lines, scale))
    return found


COLUMNS = (
    SITE,
    Column("accuracy_before", "Accuracy, before", share, "triple classification on test, before meetings"),
    Column("accuracy", "Accuracy, after", share),
    Column("mrr_before", "MRR, before", share, "filtered, head and tail queries"),
    Column("mrr", "MRR, after", share),
    Column("mr_typed_before", "MR, typed, before", count, "among entities seen at that end of the relation"),
    Column("mr_typed", "MR, typed, after", count),
    Column("talks", "Conversations", count),
    Column("gains", "Gains", count, "improvements of its validation, by conversations or alone"),
    Column("bytes", "Sent", size, "by this peer"),
    Column("per_talk", "Per conversation", size, "bytes that it sent, on average"),
    Column("train", "KGE", seconds, "training of embeddings"),
)


def peer_rows(run: Run) -> list[dict[str, Any]]:
    """One row per site of a run that has ended."""
    rows = []
    for site, of in (run.summary or {}).get("peers", {}).items():
        sent, metrics = run.at(site)["traffic"]["up_bytes"], run.at(site)["metrics"]
        row = {"site": site, "mrr_before": metrics["test_before"]["mrr"], "mrr": metrics["test"]["mrr"]}
        for when, suffix in (("before", "_before"), ("after", "")):
            row |= {f"accuracy{suffix}": of[when]["accuracy"], f"mr_typed{suffix}": of[when]["typed"]["mr"]}
        row |= {"talks": of["talks"], "gains": of["version"], "bytes": sent, "train": of["seconds"]["train"]}
        rows.append(row | {"per_talk": sent / of["talks"] if of["talks"] else 0})
    return rows


def peers(page: Canvas, runs: Sequence[Run]) -> str:
    """For a report: the runs without a hub, one below the other."""
    caption = "Each site before it met anybody and at the end; validation decided what was kept, never test."

    def part(run: Run) -> str:
        rows = peer_rows(run)
        if not rows:
            return ""
        exchange = max(of["exchange"] for of in (run.summary or {})["peers"].values())
        spent = f"<p>PPAT and messages took {exchange:.0f} s, over all peers.</p>"
        return page.place(improvement(run)) + table(rows, COLUMNS, caption) + spent

    return by_run(runs, part)


def improvement(run: Run) -> Figure:
    """Each site's best validation over the updates of its own."""
    best: dict[str, list[Point]] = {}
    for event in read_journal(run.path / RUN):
        if event.get("event") == "update":
            best.setdefault(event["site"], []).append(Point(event["round"], event["best"]))
    lines = [Line(site, of, *coloured(i)) for i, (site, of) in enumerate(best.items())]
    xaxis = titled("rounds that the site has trained", rangemode="tozero")
    scale = Scale(xaxis, titled("best validation"), "round %{x}: %{y:.4f}")
    title = "Improvement over time"
    return line_figure(title, f"{title}: the best validation of each site so far.", lines, scale)
