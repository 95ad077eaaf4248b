"""The page's part on what a method notes between sites, as who hears whom: a map, and its course."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence, Set
from html import escape
from math import isfinite, isnan, nan
from typing import TypeAlias

from fedkge.reports.compared.experiments import Group
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.drawing.figure import Figure, Trace, finite, named_axis, text
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure, small_figure
from fedkge.reports.drawing.plots import CELLS
from fedkge.reports.folders.run import Between, Run
from fedkge.reports.pages.markup import Column, table, words

NUMBERS = 12  #: sites whose cells have room for their numbers
NAMED = 6  #: sites that are named in a sentence
FACETS = 12  #: sites that get a small plot of their own
ROUNDS = {"title": {"text": "round"}, "rangemode": "tozero"}
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
    names = [text(site, 200) for site in note.sites]
    known = [value for row in note.values for value in row if isfinite(value)]
    heat: Trace = {
        "type": "heatmap",
        "x": list(range(len(names))),
        "y": list(range(len(names))),
        "z": [[finite(value) for value in row] for row in note.values],
        "zmin": min([0.0, *known]),
        "zmax": max([0.0, *known]),
        "customdata": [[[row, column] for column in names] for row in names],
        "hovertemplate": "%{customdata[0]} → %{customdata[1]}: %{z:.4g}<extra></extra>",
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": text(name)}},
        "meta": {"series": "heat"},
    }
    if len(names) <= NUMBERS:
        heat |= {"text": [[compact(v) for v in row] for row in note.values], "texttemplate": "%{text}"}
    layout = {"xaxis": named_axis(note.sites), "yaxis": {**named_axis(note.sites), "autorange": "reversed"}}
    label = f"{name.capitalize()} of each row's site towards each column's; the table below has the numbers."
    return Figure(name.capitalize(), label, [heat], layout, max(320, 90 + 34 * len(names)))


def change_figure(name: str, course: Course) -> Figure:
    """How far each site's row has moved from where it first was: half of the summed differences."""
    rounds = sorted(course)
    lines = []
    for i, site in enumerate(course[rounds[0]].sites):
        rows = {n: course[n].values[i] for n in rounds if site not in silent(course[n])}
        first = next(iter(rows.values()), ())
        lines.append(Line(site, [Point(n, _moved(first, row)) for n, row in rows.items()], *coloured(i)))
    scale = Scale(ROUNDS, {"title": {"text": f"{name}, moved"}}, "round %{x}: %{y:.4g}")
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
