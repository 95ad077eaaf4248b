"""What went between hub and sites, and who took part: as plain rows and as plots."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from fedkge.reports.compared.details import Row, shared_rows
from fedkge.reports.compared.experiments import Group
from fedkge.reports.compared.tables import mean
from fedkge.reports.drawing.figure import Figure, bytes_axis, heat, mark, named_axis, text, titled
from fedkge.reports.drawing.plots import BARS, CELLS, across, stacked_figure
from fedkge.reports.folders.run import Run, Traffic


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
    return {
        site: {number: _attended(run, site, number) for number in sorted(run.rounds)} for site in run.sites
    }


def _attended(run: Run, site: str, number: int) -> Attendance:
    done = run.rounds[number]
    if site in done.refused:
        return Attendance.REFUSED
    if site in done.late:
        return Attendance.LATE
    return Attendance.TOOK_PART if site in done.participants else Attendance.AWAY


def reason(run: Run, site: str, number: int) -> str:
    """Why a site was refused; empty when it was not."""
    return str(run.rounds[number].refused.get(site, ""))


def exchanged(run: Run) -> bool:
    """Whether anything went over the wire at all."""
    return run.traffic.bytes > 0


def site_traffic_rows(run: Run) -> list[Row]:
    """One row per site and one for all: rounds by attendance, bytes and numbers by direction, shared rows."""
    seen = attendance(run)
    shared = {row["site"]: row["entities"] + row["relations"] for row in shared_rows(run)}
    rows = []
    for site in run.sites:
        sent = site_traffic(run, site)
        became = list(seen[site].values())
        row: Row = {"site": site, **{kind.name: became.count(kind) for kind in Attendance}}
        rows.append(row | {"shared": shared.get(site)} | sent._asdict() | {"bytes": sent.bytes})
    total: Row = {
        "site": "all sites",
        **{kind.name: sum(row[kind.name] for row in rows) for kind in Attendance},
    }
    known = [row["shared"] for row in rows if row["shared"] is not None]
    total |= {"shared": sum(known) if known else None}
    return [*rows, total | run.traffic._asdict() | {"bytes": run.traffic.bytes}]


def site_traffic(run: Run, site: str) -> Traffic:
    """Everything that went between the hub and one site."""
    found = (run.summary or {}).get("sites", {}).get(site, {}).get("traffic")
    if found is not None:
        return Traffic.read(found)
    return Traffic.total(done.sites[site] for done in run.rounds.values() if site in done.sites)


def round_traffic_rows(run: Run) -> list[Row]:
    """One row per round: who took part and what was sent."""
    seen = attendance(run)
    rows = []
    for number in sorted(run.rounds):
        sent = run.rounds[number].traffic
        became = [seen[site][number] for site in run.sites]
        row: Row = {"round": number, **{kind.name: became.count(kind) for kind in Attendance}}
        rows.append(row | {"up_bytes": sent.up_bytes, "down_bytes": sent.down_bytes, "bytes": sent.bytes})
    return rows


def traffic_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per experiment, means over its seeds: bytes by direction, per round, and per number sent."""
    rows = []
    for group in groups:
        sent = [run.traffic for run in group.runs]
        row: Row = {"run": group.label, "rounds": mean(run.last_round for run in group.runs)}
        row |= {name: mean(getattr(of, name) for of in sent) for name in ("up_bytes", "down_bytes", "bytes")}
        row["per_round"] = row["bytes"] / row["rounds"] if row["rounds"] else None
        values = sum(of.values for of in sent)
        row["per_value"] = sum(of.bytes for of in sent) / values if values else None
        late = [sum(len(done.late) for done in run.rounds.values()) for run in group.runs]
        refused = [sum(len(done.refused) for done in run.rounds.values()) for run in group.runs]
        rows.append(row | {"late": mean(late), "refused": mean(refused)})
    return rows


DIRECTIONS = {"up_bytes": "up, to the hub", "down_bytes": "down, to sites"}
MARKS = 60  #: rounds whose cells have room for a letter
LETTERS = {Attendance.TOOK_PART: "", Attendance.AWAY: "", Attendance.LATE: "L", Attendance.REFUSED: "R"}


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


def experiments_figure(rows: Sequence[Row]) -> Figure:
    """Bytes of each experiment, down beside up."""
    label = (
        "Bytes that each experiment sent, up to the hub and down to sites; the table below has the numbers."
    )
    parts = [
        (words, way.removesuffix("_bytes"), [row[way] for row in rows]) for way, words in DIRECTIONS.items()
    ]
    return stacked_figure("Bytes sent", label, [row["run"] for row in rows], parts, "sent in all rounds")


def site_bytes_figure(rows: Sequence[Row]) -> Figure | None:
    """Bytes between the hub and each site, by direction."""
    if len(rows) > BARS:
        return None
    return across("Bytes by site", "Bytes between the hub and each site", rows, DIRECTIONS, "%{x:.3s}B")


def attendance_figure(run: Run) -> Figure | None:
    """Which site took part in which round; None when all did, or when sites are too many for a row each."""
    seen, rounds = attendance(run), sorted(run.rounds)
    missed = any(kind is not Attendance.TOOK_PART for of in seen.values() for kind in of.values())
    if not missed or len(seen) > CELLS:
        return None
    letters = [[LETTERS[of[n]] for n in rounds] for of in seen.values()] if len(rounds) <= MARKS else None
    trace = heat(rounds, [[int(of[n]) for n in rounds] for of in seen.values()], letters)
    trace |= {"zmin": -0.5, "zmax": len(Attendance) - 0.5, "xgap": 1, "ygap": 3, "showscale": False}
    trace |= {"meta": {"series": "attendance"}, "hovertemplate": "%{customdata}<extra></extra>"}
    trace["customdata"] = [
        [text(f"{site}, round {n}: {_words(run, site, n, of[n])}") for n in rounds]
        for site, of in seen.items()
    ]
    xaxis = titled("round", showgrid=False, zeroline=False)
    layout = {"xaxis": xaxis, "yaxis": named_axis(list(seen), down=True)}
    label = "Which site took part in which round, was not asked, late, or refused; the table has the counts."
    return Figure("Who took part", label, [trace], layout, 80 + 30 * len(seen))


def _words(run: Run, site: str, number: int, kind: Attendance) -> str:
    why = reason(run, site, number)
    return f"{kind.words}: {why}" if why else kind.words
