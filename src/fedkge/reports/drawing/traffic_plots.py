"""Plots of traffic: bytes by round, site and direction, and which site missed which round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.traffic import Attendance, attendance, reason
from fedkge.reports.drawing.figure import Figure, Trace, bytes_axis, named_axis, text
from fedkge.reports.drawing.plots import BARS, CELLS, across
from fedkge.reports.folders.run import Run

DIRECTIONS = {"up_bytes": "up, to the hub", "down_bytes": "down, to sites"}
MARKS = 60  #: rounds whose cells have room for a message


def round_figure(rows: Sequence[Row]) -> Figure:
    """Bytes of each round, down on top of up."""
    traces = _stacked("x", "y", [row["round"] for row in rows], rows, "round %{x}")
    layout = {
        "xaxis": {"title": {"text": "round"}},
        "yaxis": bytes_axis("sent"),
        "barmode": "stack",
        "bargap": 0.1,
    }
    label = "Bytes sent in each round, up to the hub and down to sites; the table below has the numbers."
    return Figure("Bytes by round", label, traces, layout, 300, tools=True)


def experiments_figure(rows: Sequence[Row]) -> Figure:
    """Bytes of each experiment, down beside up."""
    traces = _stacked("y", "x", list(range(len(rows))), rows, "%{customdata}")
    for trace in traces:
        trace |= {"orientation": "h", "customdata": [text(row["run"], 200) for row in rows]}
    down = {**named_axis([row["run"] for row in rows]), "autorange": "reversed"}
    layout = {"xaxis": bytes_axis("sent in all rounds"), "yaxis": down, "barmode": "stack", "bargap": 0.4}
    label = (
        "Bytes that each experiment sent, up to the hub and down to sites; the table below has the numbers."
    )
    return Figure("Bytes sent", label, traces, layout, 150 + 38 * len(rows))


def _stacked(place: str, amount: str, places: Sequence[Any], rows: Sequence[Row], what: str) -> list[Trace]:
    return [
        {
            "type": "bar",
            "name": words,
            place: places,
            amount: [row[direction] for row in rows],
            "hovertemplate": f"{what}<br>%{{fullData.name}}: %{{{amount}:.4s}}B<extra></extra>",
            "meta": {"series": direction.removesuffix("_bytes"), "dash": 0},
        }
        for direction, words in DIRECTIONS.items()
    ]


def site_bytes_figure(rows: Sequence[Row]) -> Figure | None:
    """Bytes between the hub and each site, by direction."""
    if len(rows) > BARS:
        return None
    return across("Bytes by site", "Bytes between the hub and each site", rows, DIRECTIONS, "%{x:.3s}B")


def attendance_figure(run: Run) -> Figure | None:
    """Which site took part in which round; None when all did, or when sites are too many for a row each."""
    seen = attendance(run)
    rounds = sorted(run.rounds)
    missed = any(kind is not Attendance.TOOK_PART for of in seen.values() for kind in of.values())
    if not missed or len(seen) > CELLS:
        return None
    sites = list(seen)
    messages = {Attendance.TOOK_PART: "", Attendance.AWAY: "", Attendance.LATE: "L", Attendance.REFUSED: "R"}
    words = [
        [
            f"{text(site, 200)}, round {number}: {_words(run, site, number, seen[site][number])}"
            for number in rounds
        ]
        for site in sites
    ]
    heat: Trace = {
        "type": "heatmap",
        "x": rounds,
        "y": list(range(len(sites))),
        "z": [[int(seen[site][number]) for number in rounds] for site in sites],
        "zmin": -0.5,
        "zmax": len(Attendance) - 0.5,
        "customdata": words,
        "hovertemplate": "%{customdata}<extra></extra>",
        "showscale": False,
        "xgap": 1,
        "ygap": 3,
        "meta": {"series": "attendance"},
    }
    if len(rounds) <= MARKS:
        heat |= {"text": [[messages[seen[s][n]] for n in rounds] for s in sites], "texttemplate": "%{text}"}
    layout = {
        "xaxis": {"title": {"text": "round"}, "showgrid": False, "zeroline": False},
        "yaxis": {**named_axis(sites), "autorange": "reversed"},
    }
    label = "Which site took part in which round, was not asked, late, or refused; the table has the counts."
    return Figure("Who took part", label, [heat], layout, 80 + 30 * len(sites))


def _words(run: Run, site: str, number: int, kind: Attendance) -> str:
    why = reason(run, site, number)
    return f"{kind.words}: {text(why, 200)}" if why else kind.words
