"""The page's parts on what a method notes between sites, and on peers without a hub."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence, Set
from html import escape
from math import isfinite, isnan, nan
from typing import Any, TypeAlias

from fedkge.nodes.journal import read_journal
from fedkge.reports.compared.experiments import Group
from fedkge.reports.drawing.curves import ROUNDS
from fedkge.reports.drawing.figure import Canvas, Figure, colorbar, finite, heat, square, text, titled
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure, small_figure
from fedkge.reports.drawing.plots import CELLS
from fedkge.reports.folders.load import RUN
from fedkge.reports.folders.run import Between, Run
from fedkge.reports.pages.markup import Column, count, seconds, share, size, table, words

NUMBERS = 12  #: sites whose cells have room for their numbers
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
    which = f"round {shown}" + told * (shown in kept)
    caption = f"{where}after {which}; each row's site towards each column's.{_blank(note)}"
    parts = []
    if len(note.sites) <= CELLS:
        parts.append(page.place(heat_figure(name, note), caption))
    columns = [Column("site", "Site", words), *(Column(str(i), s, digits) for i, s in enumerate(note.sites))]
    rows = [
        {"site": site, **{str(i): finite(value) for i, value in enumerate(values)}}
        for site, values in zip(note.sites, note.values, strict=True)
    ]
    parts.append(table(rows, columns, f"{name.capitalize()}: {caption}"))
    if len(course) > 1 and all(other.values == note.values for other in course.values()):
        parts.append(f'<p class="soft">{escape(where + name)} is the same in every round.</p>')
    elif len(course) > 1:
        moved = (
            "Half of what a site's row differs by from its first, over all columns; below, each row itself."
        )
        parts.append(page.place(change_figure(name, course), f"{label}. {moved}" if label else moved))
        parts.append(page.grid(row_figures(name, course)))
    return "".join(parts)


def _blank(note: Between) -> str:
    sites = silent(note)
    if not sites:
        return ""
    named = ", ".join(sites[:NAMED]) + f" and {len(sites) - NAMED} more" * (len(sites) > NAMED)
    return f" Blank: {named} had not sent anything to the hub by then."


def digits(value: float) -> str:
    """To four digits, wherever the first of them is."""
    return f"{value:.4g}"


def compact(value: float) -> str:
    """For a cell: to three places, or where these would hold too little, to two digits: 0.331, 2.4e-5."""
    if not isfinite(value):
        return ""
    if 0.01 <= abs(value) < 100:
        return f"{value:.3f}"
    return re.sub(r"e([+-])0*", lambda power: f"e{power[1].strip('+')}", f"{value:.2g}")


def heat_figure(name: str, note: Between) -> Figure:
    """A cell for every two sites."""
    names = [text(site) for site in note.sites]
    known = [value for row in note.values for value in row if isfinite(value)]
    cells = [[compact(v) for v in row] for row in note.values] if len(names) <= NUMBERS else None
    trace = heat(list(range(len(names))), [[finite(value) for value in row] for row in note.values], cells)
    trace |= colorbar(name) | {"zmin": min([0.0, *known]), "zmax": max([0.0, *known])}
    trace["customdata"] = [[[row, column] for column in names] for row in names]
    trace["hovertemplate"] = "%{customdata[0]} → %{customdata[1]}: %{z:.4g}<extra></extra>"
    label = f"{name.capitalize()} of each row's site towards each column's; the table below has the numbers."
    return Figure(name.capitalize(), label, [trace], square(note.sites), max(320, 90 + 34 * len(names)))


def change_figure(name: str, course: Course) -> Figure:
    """How far each site's row has moved from where it first was: half of the summed differences."""
    rounds = sorted(course)
    lines = []
    for i, site in enumerate(course[rounds[0]].sites):
        rows = {n: course[n].values[i] for n in rounds if site not in silent(course[n])}
        first = next(iter(rows.values()), ())
        lines.append(Line(site, [Point(n, _moved(first, row)) for n, row in rows.items()], *coloured(i)))
    scale = Scale(ROUNDS, titled(f"{name}, moved"), "round %{x}: %{y:.4g}")
    title = f"How far {name} has moved since round {rounds[0]}"
    label = f"{title}, for each site: half of the sum of the differences of its row."
    return line_figure(title, label, lines, scale)


def _moved(then: Sequence[float], now: Sequence[float]) -> float:
    """A site that was not heard had no weight."""
    pairs = zip(then, now, strict=True)
    return sum(abs((0.0 if isnan(b) else b) - (0.0 if isnan(a) else a)) for a, b in pairs) / 2


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
    Column("site", "Site", words),
    Column(
        "accuracy_before",
        "Accuracy, before",
        share,
        "triple classification on test, before the first meeting",
    ),
    Column("accuracy", "Accuracy, after", share),
    Column("mrr_before", "MRR, before", share, "filtered, head and tail queries"),
    Column("mrr", "MRR, after", share),
    Column(
        "mr_typed_before", "MR, typed, before", count, "candidates: entities seen at that end of the relation"
    ),
    Column("mr_typed", "MR, typed, after", count),
    Column("talks", "Conversations", count),
    Column("gains", "Gains", count, "improvements of its validation, by conversations or alone"),
    Column("bytes", "Sent", size, "by this peer"),
    Column("per_talk", "Per conversation", size, "bytes that it sent, on average"),
    Column("train", "KGE", seconds, "training of embeddings"),
)


def peer_rows(run: Run) -> list[dict[str, Any]]:
    """One row per site of a run that has ended."""
    summary = run.summary or {}
    rows = []
    for site, of in summary.get("peers", {}).items():
        sent = summary["sites"][site]["traffic"]["up_bytes"]
        metrics = summary["sites"][site]["metrics"]
        rows.append(
            {
                "site": site,
                "accuracy_before": of["before"]["accuracy"],
                "accuracy": of["after"]["accuracy"],
                "mrr_before": metrics["test_before"]["mrr"],
                "mrr": metrics["test"]["mrr"],
                "mr_typed_before": of["before"]["typed"]["mr"],
                "mr_typed": of["after"]["typed"]["mr"],
                "talks": of["talks"],
                "gains": of["version"],
                "bytes": sent,
                "per_talk": sent / of["talks"] if of["talks"] else 0,
                "train": of["seconds"]["train"],
            }
        )
    return rows


def peers(page: Canvas, runs: Sequence[Run]) -> str:
    """For a report: the runs without a hub, one below the other."""
    parts = []
    for run in runs:
        rows = peer_rows(run)
        if not rows:
            continue
        caption = (
            "Each site before it met anybody and at the end; validation decided what was kept, never test."
        )
        exchange = max(of["exchange"] for of in (run.summary or {})["peers"].values())
        spent = f"<p>PPAT and messages took {exchange:.0f} s, over all peers.</p>"
        part = page.place(improvement(run)) + table(rows, COLUMNS, caption) + spent
        parts.append(part if len(runs) == 1 else f"<h3>{escape(run.name)}</h3>{part}")
    return "".join(parts)


def improvement(run: Run) -> Any:
    """Each site's best validation over the updates of its own."""
    best: dict[str, list[Point]] = {}
    for event in read_journal(run.path / RUN):
        if event.get("event") == "update":
            best.setdefault(event["site"], []).append(Point(event["round"], event["best"]))
    lines = [Line(site, points, *coloured(i)) for i, (site, points) in enumerate(best.items())]
    xaxis = titled("rounds that the site has trained", rangemode="tozero")
    scale = Scale(xaxis, titled("best validation"), "round %{x}: %{y:.4f}")
    title = "Improvement over time"
    return line_figure(title, f"{title}: the best validation of each site so far.", lines, scale)
