"""Attacks on runs as a page: how well each did, with and without protection, as tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from fedkge.reports.canvas import Canvas
from fedkge.reports.details import Row
from fedkge.reports.figure import Figure, Trace, text
from fedkge.reports.html import document
from fedkge.reports.lines import Line, Point, Scale, coloured, line_figure
from fedkge.reports.markup import Column, count, rank, table, words

CHANCE = "0.5 is what guessing gives"
EVERYWHERE = "all sites"


def interval(row: Row, key: str, form: str = ".3f") -> str:
    """`0.812 [0.790, 0.834]`, or a dash where it was not measured."""
    if row.get(key) is None:
        return "–"
    value, low, high = (row[name] for name in (key, f"{key}_low", f"{key}_high"))
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def membership_rows(found: Sequence[Row]) -> list[dict[str, Any]]:
    """For people: numbers with their intervals."""
    return [
        {
            "run": row["run"],
            "site": row["site"] or EVERYWHERE,
            "signal": row["signal"],
            "members": row["members"],
            "non-members": row["others"],
            "AUC": interval(row, "auc"),
            **{f"TPR at {rate} FPR": interval(row, f"tpr@{rate}") for rate in ("1%", "0.1%")},
        }
        for row in found
    ]


def rank_rows(found: Sequence[Row]) -> list[dict[str, Any]]:
    """For people: both groups, their medians, and how far they lie apart."""
    return [
        {
            "question": row["question"],
            "first": f"{row['first']} ({row['count_1']:,})",
            "median": f"{row['median_1']:,.1f}",
            "second": f"{row['second']} ({row['count_2']:,})",
            "its median": f"{row['median_2']:,.1f}",
            "first ranks better": interval(row, "below"),
            "U": f"{row['u']:,.0f}",
            "p": f"{row['p']:.2g}" if row["p"] else "< 1e-300",
        }
        for row in found
    ]


def pair_rows(found: Sequence[Row]) -> list[dict[str, Any]]:
    """For people: how much of the rows of others was recovered."""
    return [
        {
            "run": row["run"],
            "codec": row["codec"],
            "of two sites": f"{row['names']:,} {'entities' if row['axis'] == 'entity' else 'relations'}",
            "rows read": row["rows"],
            "recovered": interval(row, "recovered"),
            "median error": interval(row, "error", ".2g"),
            "own row instead": interval(row, "guess", ".2g"),
            "own part of the mean": f"{row['own_part']:.2g}" if "own_part" in row else None,
        }
        for row in found
    ]


def attack_page(found: Mapping[str, Sequence[Row]], title: str, words_of: Mapping[str, str]) -> str:
    """The page; `found` has the plain outcome of each attack by its name, `words_of` what it means."""
    page, parts = Canvas(), {}
    sections = {"membership": _membership, "ranks": _ranks, "pairs": _pairs}
    headings = {
        "membership": "Membership of triples",
        "ranks": "Ranks of confidential tails",
        "pairs": "Rows of entities that two sites have",
    }
    for name, section in sections.items():
        if name in found:
            said = "".join(f"<p>{escape(line)}</p>" for line in words_of[name].splitlines())
            parts[headings[name]] = said + (section(page, found[name]) if found[name] else "")
    return document(title, "", parts, page)


def _columns(rows: Sequence[Row]) -> list[Column]:
    forms = {int: count, float: rank}
    return [
        Column(key, key, forms.get(type(value), words), words=not str(value)[:1].isdigit())
        for key, value in rows[0].items()
    ]


def _table(rows: Sequence[Row], caption: str) -> str:
    return table(rows, _columns(rows), caption)


def _membership(page: Canvas, found: Sequence[Row]) -> str:
    whole = [row for row in found if row["site"] is None]
    chance = Line("guessing", [Point(x, x) for x, _ in whole[0]["curve"]], "s7", 2)
    several = len({row["run"] for row in whole}) > 1
    lines = []
    for i, row in enumerate(whole):
        name = f"{row['signal']}, {row['run']}" if several else str(row["signal"])
        lines.append(Line(name, [Point(x, y) for x, y in row["curve"]], *coloured(i)))
    for run, row in {row["run"]: row for row in whole if "allowed" in row}.items():
        points = [Point(x, y) for x, y in row["allowed"]]
        lines.append(Line(f"what ε = {row['epsilon']:.2g} allows, {run}", points, "s6", 1))
    scale = Scale(
        {"title": {"text": "false alarms: share of non-members taken for members"}, "type": "log"},
        {"title": {"text": "share of members found"}},
        "%{y:.3f} found at %{x:.4f} false alarms",
    )
    title = "ROC: members found over false alarms"
    figure = line_figure(title, f"{title}; the table has areas and intervals.", [*lines, chance], scale)
    caption = f"AUC (DeLong) and hits at few false alarms (bootstrap), with 95 % intervals; {CHANCE}."
    return page.place(figure) + _table(membership_rows(found), caption)


def _ranks(page: Canvas, found: Sequence[Row]) -> str:
    figures = "".join(page.place(_bars(row)) for row in found)
    caption = (
        "Mann-Whitney U of both groups, and the chance that a rank of the first is the better one; 0.5: none."
    )
    return figures + _table(rank_rows(found), caption)


def _bars(row: Row) -> Figure:
    """Two histograms over the same edges, side by side."""
    edges = row["histogram"]["edges"]
    names = [f"{a:,.0f}" if b - a <= 1 else f"{a:,.0f}–{b - 1:,.0f}" for a, b in pairwise(edges)]
    traces: list[Trace] = [
        {
            "type": "bar",
            "name": text(name, 60),
            "x": list(range(len(names))),
            "y": counts,
            "customdata": names,
            "hovertemplate": "rank %{customdata}<br>%{fullData.name}: %{y}<extra></extra>",
            "meta": {"series": f"s{i}", "dash": 0},
        }
        for i, (name, counts) in enumerate(row["histogram"]["counts"].items())
    ]
    ticks = {"tickvals": list(range(len(names))), "ticktext": names}
    layout = {
        "xaxis": {"title": {"text": "rank of the true tail"}, **ticks},
        "yaxis": {"title": {"text": "triples"}},
        "barmode": "group",
    }
    label = f"Histogram of ranks: {row['first']} and {row['second']}; the table has medians and the test."
    return Figure(f"Ranks: {row['first']} and {row['second']}", label, traces, layout, 320, tools=True)


def _pairs(page: Canvas, found: Sequence[Row]) -> str:
    drawn = [row for row in found if row.get("curve")]
    lines = [
        Line(f"{row['codec']}, {row['run']}", [Point(max(x, 1e-9), y) for x, y in row["curve"]], *coloured(i))
        for i, row in enumerate(drawn)
    ]
    scale = Scale(
        {"title": {"text": "relative error of the row that was computed"}, "type": "log"},
        {"title": {"text": "share of rows"}},
        "%{y:.0%} of rows are wrong by at most %{x:.3g}",
    )
    title = "Rows of others, computed from means"
    figure = line_figure(title, f"{title}: share of rows by their error.", lines, scale)
    caption = (
        "Recovered: wrong by at most 1 % of the row's norm (Wilson interval). Own row instead: the error of "
        "taking one's own row for the other's, which needs no attack."
    )
    return (page.place(figure) if drawn else "") + _table(pair_rows(found), caption)
