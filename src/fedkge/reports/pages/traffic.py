"""The page's part on what went between hub and sites, and who took part: rows, plots, tables."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from fedkge.reports.compared.experiments import Group, Row, mean
from fedkge.reports.compared.tables import WAYS
from fedkge.reports.drawing import curves
from fedkge.reports.drawing.figure import Canvas, Figure, bytes_axis, heat, mark, named_axis, text, titled
from fedkge.reports.drawing.plots import BARS, CELLS, across, stacked_figure
from fedkge.reports.folders.run import Kind, Run, Traffic
from fedkge.reports.pages.holdings import shared_rows
from fedkge.reports.pages.markup import Column, count, decimal, folded, size, soft, table, words

DIRECTIONS = {way: words for way, words in curves.DIRECTIONS.items() if way != "bytes"}
MARKS = 60  #: rounds whose cells have room for a letter
UP = Column("up_bytes", "Up", size, "from sites to the hub")
DOWN = Column("down_bytes", "Down", size, "from the hub to sites")
BOTH = Column("bytes", "Both", size)
NOTHING_SENT = {
    Kind.ALONE: "Nothing is sent: every site trains alone.",
    Kind.POOLED: "Nothing is sent in rounds: graphs are in one place from the start. "
    "Moving them is not counted.",
}


class Attendance(IntEnum):
    """What became of a site in a round; the number is its place in the plot's colours."""

    TOOK_PART = 0
    AWAY = 1
    LATE = 2
    REFUSED = 3

    @property
    def words(self) -> str:
        return ("took part", "not asked", "late", "refused")[self]


def attendance(run: Run) -> dict[str, dict[int, Attendance]]:
    """Site -> round -> what became of it."""

    def became(site: str, number: int) -> Attendance:
        done = run.rounds[number]
        kinds = {Attendance.REFUSED: done.refused, Attendance.LATE: done.late}
        kinds[Attendance.TOOK_PART] = done.participants
        return next((kind for kind, those in kinds.items() if site in those), Attendance.AWAY)

    return {site: {number: became(site, number) for number in sorted(run.rounds)} for site in run.sites}


def site_traffic_rows(run: Run) -> list[Row]:
    """One row per site and one for all: rounds by attendance, bytes and numbers by direction, shared rows."""
    seen = attendance(run)
    shared = {row["site"]: row["entities"] + row["relations"] for row in shared_rows(run)}
    rows: list[Row] = []
    for site in run.sites:
        told = run.at(site).get("traffic")
        journalled = (done.sites[site] for done in run.rounds.values() if site in done.sites)
        sent = Traffic.total(journalled) if told is None else Traffic.read(told)
        became = list(seen[site].values())
        row = {"site": site, **{kind.name: became.count(kind) for kind in Attendance}}
        rows.append(row | {"shared": shared.get(site)} | sent._asdict() | {"bytes": sent.bytes})
    known = [row["shared"] for row in rows if row["shared"] is not None]
    total = {"site": "all sites", **{kind.name: sum(row[kind.name] for row in rows) for kind in Attendance}}
    total |= {"shared": sum(known) if known else None}
    return [*rows, total | run.traffic._asdict() | {"bytes": run.traffic.bytes}]


def round_traffic_rows(run: Run) -> list[Row]:
    """One row per round: who took part and what was sent."""
    seen = attendance(run)
    rows = []
    for number in sorted(run.rounds):
        became = [seen[site][number] for site in run.sites]
        row: Row = {"round": number, **{kind.name: became.count(kind) for kind in Attendance}}
        rows.append(row | {way: getattr(run.rounds[number].traffic, way) for way in WAYS})
    return rows


def traffic_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per experiment, means over its seeds: bytes by direction, per round, and per number sent."""
    rows = []
    for group in groups:
        sent = [run.traffic for run in group.runs]
        row: Row = {"run": group.label, "rounds": mean(run.last_round for run in group.runs)}
        row |= {name: mean(getattr(of, name) for of in sent) for name in WAYS}
        row["per_round"] = row["bytes"] / row["rounds"] if row["rounds"] else None
        values = sum(of.values for of in sent)
        row["per_value"] = sum(of.bytes for of in sent) / values if values else None
        rounds = [run.rounds.values() for run in group.runs]
        row["late"] = mean(sum(len(done.late) for done in of) for of in rounds)
        row["refused"] = mean(sum(len(done.refused) for done in of) for of in rounds)
        rows.append(row)
    return rows


def round_figure(rows: Sequence[Row]) -> Figure:
    """Bytes of each round, down on top of up."""
    rounds, hover = [row["round"] for row in rows], "round %{x}<br>%{fullData.name}: %{y:.4s}B"
    traces = [
        mark("bar", words, way.removesuffix("_bytes"), 0, hover, x=rounds, y=[row[way] for row in rows])
        for way, words in DIRECTIONS.items()
    ]
    layout = {"xaxis": titled("round"), "yaxis": bytes_axis("sent"), "barmode": "stack", "bargap": 0.1}
    label = "Bytes sent in each round, up to the hub and down to sites; the table below has the numbers."
    return Figure("Bytes by round", label, traces, layout, 300, tools=True)


def attendance_figure(run: Run) -> Figure | None:
    """Which site took part in which round; None when all did, or when sites are too many for a row each."""
    seen, rounds = attendance(run), sorted(run.rounds)
    missed = any(kind is not Attendance.TOOK_PART for of in seen.values() for kind in of.values())
    if not missed or len(seen) > CELLS:
        return None
    cells = [[of[n] for n in rounds] for of in seen.values()]
    letters = {Attendance.LATE: "L", Attendance.REFUSED: "R"}
    marks = [[letters.get(kind, "") for kind in row] for row in cells]
    trace = heat(rounds, [list(map(int, row)) for row in cells], marks, len(rounds) <= MARKS)
    trace |= {"zmin": -0.5, "zmax": len(Attendance) - 0.5, "xgap": 1, "ygap": 3, "showscale": False}
    trace |= {"meta": {"series": "attendance"}, "hovertemplate": "%{customdata}<extra></extra>"}
    trace["customdata"] = [
        [text(": ".join([f"{site}, round {n}", of[n].words, *_why(run, site, n)])) for n in rounds]
        for site, of in seen.items()
    ]
    xaxis = titled("round", showgrid=False, zeroline=False)
    layout = {"xaxis": xaxis, "yaxis": named_axis(list(seen), down=True)}
    label = "Which site took part in which round, was not asked, late, or refused; the table has the counts."
    return Figure("Who took part", label, [trace], layout, 80 + 30 * len(seen))


def _why(run: Run, site: str, number: int) -> list[str]:
    why = run.rounds[number].refused.get(site)
    return [str(why)] if why else []


def traffic(page: Canvas, groups: Sequence[Group], drawn: Sequence[Group]) -> str:
    """What went over the wire; for a single run by round and site as well."""
    runs = [run for group in groups for run in group.runs]
    if not any(run.traffic.bytes for run in runs):
        return "".join(map(soft, dict.fromkeys(map(_nothing_sent, runs))))
    if len(runs) == 1:
        return _own(page, runs[0])
    figures = curves.bytes_figures(drawn)
    note = "Dashed: experiments that send nothing, at the best validation MRR that they reach."
    parts = [page.place(figures[0], note), page.grid(figures[1:])] if figures else []
    rows, means = traffic_rows(groups), "; means over seeds." if len(runs) > len(groups) else "."
    columns = [
        Column("run", "Run", words),
        Column("rounds", "Rounds", count),
        *(UP, DOWN, BOTH),
        Column("per_round", "Per round", size),
        Column("per_value", "Bytes per value", decimal, "what one number takes, overhead included"),
        Column("late", "Late answers", count, "over all sites and rounds"),
        Column("refused", "Refused", count, "answers that were not used"),
    ]
    ways = DIRECTIONS.items()
    sent = [(words, way.removesuffix("_bytes"), [row[way] for row in rows]) for way, words in ways]
    label = "Bytes that each experiment sent, up to the hub and down to sites; the table has the numbers."
    names = [row["run"] for row in rows]
    parts.append(page.place(stacked_figure("Bytes sent", label, names, sent, "sent in all rounds")))
    parts.append(table(rows, columns, f"What went over the wire until the run stopped{means}"))
    return "".join(parts + [_attendance(page, g.first, g.label) for g in drawn if len(g.runs) == 1])


def _nothing_sent(run: Run) -> str:
    told = NOTHING_SENT.get(run.kind, "Nothing has been sent so far.")
    before = run.before
    return told if before is None else f"{told} Before, {size(before.sent)} were sent by {before.approach}."


def _own(page: Canvas, run: Run) -> str:
    """Accuracy over bytes, then bytes by round and by site."""
    rows, sites = round_traffic_rows(run), site_traffic_rows(run)
    kinds = [Column(kind.name, kind.words.capitalize(), count) for kind in Attendance]
    every = [Column("round", "Round", count), *kinds, UP, DOWN, BOTH]
    columns = [
        Column("site", "Site", words),
        *kinds,
        Column("shared", "Rows shared", count, "entities and relations whose rows may travel"),
        *(UP, DOWN),
        Column("up_values", "Numbers up", count),
        Column("down_values", "Numbers down", count),
    ]
    parts = [page.place(figure) for figure in curves.own_bytes_figures(run) if figure.data]
    parts += [page.place(round_figure(rows))]
    parts += [folded("Every round", table(rows, every, "Sites and bytes by round."))]
    parts += [_attendance(page, run, "") or soft("All sites took part in every round.")]
    if len(run.sites) <= BARS:
        label = "Bytes between the hub and each site"
        parts += [page.place(across("Bytes by site", label, sites[:-1], DIRECTIONS, "%{x:.3s}B"))]
    parts += [table(sites, columns, "Rounds and traffic of each site.", last_is_total=True)]
    return "".join(parts)


def _attendance(page: Canvas, run: Run, name: str) -> str:
    figure = attendance_figure(run) if run.traffic.bytes else None
    if figure is None:
        return ""
    legend = "".join(
        f'<span><span class="swatch" style="background:var(--att{int(kind)})"></span>{kind.words}</span>'
        for kind in Attendance
    )
    return page.place(figure, name) + f'<p class="key">{legend}</p>'
