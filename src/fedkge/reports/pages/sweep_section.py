"""A sweep: rows, one per grid point; for each swept key a plot and a table, then every point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from fedkge.reports.compared.choosing import best_groups, hides
from fedkge.reports.compared.details import time_row
from fedkge.reports.compared.experiments import COLOURS, Group, Row, Spread, experiments, repeated, told
from fedkge.reports.compared.tables import WAYS, took_row
from fedkge.reports.drawing.figure import Canvas, Figure, Trace, bytes_axis, text, titled
from fedkge.reports.drawing.lines import dotted, level
from fedkge.reports.folders.options import METHOD, START, chosen, flat, same, spelled, swept_keys, valued
from fedkge.reports.folders.run import Run
from fedkge.reports.pages import markup
from fedkge.reports.pages.markup import SEEDS, Column, count, share, size, table, words

NOTE = "Several lines are the other options; whiskers, where there are several seeds, one standard deviation."


class Places(NamedTuple):
    """Where the values of a key stand on its axis."""

    of: dict[str, float]  # value, as `same` writes it -> place
    axis: dict[str, Any]
    numbers: bool  #: an order that a line may follow


class Judged(NamedTuple):
    """Which MRR stands for a point."""

    name: str
    of: Callable[[Group], Spread | None]


TEST = Judged("Test MRR", lambda group: group.test())
VALID = Judged("Validation MRR", lambda group: group.valid())


def places(key: str, values: Sequence[Any]) -> Places:
    """Numbers to scale, logarithmic over more than a decade; side by side where neither is possible."""
    title, distinct = text(key), {same(value): value for value in values}
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct.values())
    if numbers:
        distinct = dict(sorted(distinct.items(), key=lambda pair: float(pair[1])))
        low, high = min(distinct.values()), max(distinct.values())
        wide = high > 10 * min((value for value in distinct.values() if value > 0), default=high)
        if low > 0 or not wide:
            marks = {"tickvals": list(distinct.values()), "ticktext": [valued(v) for v in distinct.values()]}
            return Places(dict(distinct), titled(title, type="log" if wide else "linear", **marks), True)
        title += " (not to scale)"  # zero has no place on a logarithmic axis
    side = {name: float(i) for i, name in enumerate(distinct)}
    ticks = {"tickvals": list(side.values()), "ticktext": [text(valued(v)) for v in distinct.values()]}
    return Places(side, titled(title, range=[-0.3, len(side) - 0.7], **ticks), numbers)


def sweep_figures(key: str, groups: Sequence[Group], keys: Sequence[str], by: Judged = TEST) -> list[Figure]:
    """MRR over a key's values, then bytes and seconds, small; the other swept keys are lines.

    Alone and pooled, where they do not have the key, are levels to compare with.
    """
    lines = lines_of(key, groups, keys)
    having = [group for of in lines.values() for group in of]
    where = places(key, [flat(group.first.config)[key] for group in having])
    rest = [(g, found) for g in groups if g not in having and g.first.reference and (found := by.of(g))]
    ends = [min(where.of.values()), max(where.of.values())]
    kinds: list[tuple[str, dict[str, Any], Callable[[Group], Spread | None]]] = [
        (by.name, titled(f"{by.name.lower().replace('mrr', 'MRR')}, filtered"), by.of),
        ("Bytes sent", bytes_axis(""), lambda group: group.over(lambda run: run.traffic.bytes)),
        (
            "Seconds",
            titled("", rangemode="tozero"),
            lambda group: group.over(lambda run: time_row(run)["seconds"]),
        ),
    ]
    figures = []
    for i, (what, yaxis, value) in enumerate(kinds):
        levels = [level(group.label, group.colour, 1, found, ends) for group, found in rest if not i]
        traces = [trace for of in levels for trace in of]
        traces += [_line(key, name, of, where, value, j) for j, (name, of) in enumerate(lines.items())]
        layout = {"xaxis": where.axis, "yaxis": yaxis, "showlegend": not i and len(traces) > 1}
        title = f"{what} over {key}"
        label = f"{title}: one point per value, {len(lines)} line(s); the table below has the numbers."
        if any(value is not None for trace in traces for value in trace["y"]):
            figures.append(Figure(title, label, traces, layout, 240 if i else 360, tools=not i, longest=40))
    return figures


def _line(
    key: str,
    name: str,
    groups: Sequence[Group],
    where: Places,
    value: Callable[[Group], Spread | None],
    i: int,
) -> Trace:
    found = [(where.of[same(flat(group.first.config)[key])], value(group)) for group in groups]
    found.sort(key=lambda pair: pair[0])
    reference = groups[0].first.reference
    same_kind = reference and all(group.first.reference is reference for group in groups)
    series = str(reference) if same_kind else f"s{i % COLOURS}"
    look = {"mode": "lines+markers" if where.numbers else "markers", "marker": {"size": 9}}
    return dotted(name, series, i // COLOURS, "%{fullData.name}<br>%{x}: %{y:.4~g}", found, **look)


def sweep(page: Canvas, runs: Sequence[Run], show_test: bool = False) -> str:
    """Empty when runs differ in their methods and seeds alone.

    Points are shown by test MRR where that of all points may be seen, else by validation MRR.
    """
    keys, groups = swept(runs), experiments(runs)
    by = VALID if hides(runs, show_test) else TEST
    parts = []
    for key in keys:
        figures = sweep_figures(key, groups, keys, by) if key != METHOD else []  # methods are lines
        if figures:
            parts += [f"<h3>{escape(key)}</h3>", page.place(figures[0], NOTE), page.grid(figures[1:])]
            parts.append(_pivot(key, groups, keys, by))
    return "".join(parts) + (_points(runs, keys, show_test) if keys else "")


def _pivot(key: str, groups: Sequence[Group], keys: Sequence[str], by: Judged) -> str:
    """Values of one key downwards, everything else across: MRR; empty when there is nothing else."""
    lines = lines_of(key, groups, keys)
    if len(lines) < 2:
        return ""
    rows: dict[str, Row] = {}
    for name, of in lines.items():
        for group in of:
            value = flat(group.first.config)[key]
            row = rows.setdefault(same(value), {"value": value, **dict.fromkeys(lines)})
            row |= told({name: by.of(group)}, len(group.runs) > 1)
    ordered = sorted(rows.values(), key=lambda row: _order(row["value"]))
    columns = [Column("value", key, _valued), *(Column(name, name, share) for name in lines)]
    best = markup.best_of_rows(ordered, list(lines))
    return table(ordered, columns, f"{by.name} over {key}.", best=best)


def _points(runs: Sequence[Run], keys: Sequence[str], show_test: bool) -> str:
    found = sweep_rows(runs, show_test=show_test)
    rows = sorted(found, key=lambda row: [_order(row[key]) for key in keys])
    columns = [
        *(Column(key, key, _valued) for key in keys),
        SEEDS,
        Column("valid_mrr", "Validation MRR", share, "over all sites; higher is better", 1),
        Column("mrr", "Test MRR", share, "over all sites"),
        Column("hits@10", "Test Hits@10", share),
        Column("rounds", "Rounds", count),
        Column("up_bytes", "Sent up", size),
        Column("down_bytes", "Sent down", size),
        Column("seconds", "Total time", markup.seconds),
    ]
    caption = (
        "Every point of the sweep: metrics over all sites, means over seeds, and what it took. Marked: the "
        "best on validation, of each method and data."
    )
    if hides(runs, show_test):
        caption += " Test metrics of other points are not shown (`fedkge report --show-test` shows them)."
    marked = [i for i, row in enumerate(rows) if row["best"]]
    return table(rows, columns, caption, best=markup.best_of_columns(rows, columns), marked=marked)


def _order(value: object) -> tuple[int, float, str]:
    """Numbers by size, then words; what a run does not have comes first."""
    if value is None:
        return 0, 0.0, ""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (1, float(str(value)), "") if number else (2, 0.0, str(value))


def _valued(value: object) -> str:
    return words(None if value is None else valued(value))


def sweep_rows(runs: Sequence[Run], asked: Sequence[str] = (), show_test: bool = False) -> list[Row]:
    """One row per grid point: the swept keys' values, validation and test over all sites, what they took.

    Keys that were `asked` for are there whether or not points differ in them. `best` marks points that are
    chosen by validation; `mrr` and `hits@10` are test metrics, None of other points unless `show_test`.
    `mrr_std` is there when a point has several seeds; `bytes` is both directions; None is not known (yet).
    """
    groups = experiments(runs)
    best = [group for group in best_groups(groups) if group.valid() is not None]
    keys = dict.fromkeys((*asked, *_telling(runs, groups)))
    several = repeated(groups)
    rows = []
    for group in groups:
        options, shown, took = chosen(group.first), show_test or group in best, took_row(group)
        row: Row = {key: options.get(key) for key in keys}
        row |= {"seeds": len(group.runs), "best": group in best} | told({"valid_mrr": group.valid()}, several)
        row |= told({"mrr": group.test() if shown else None}, several)
        row |= told({"hits@10": group.test("hits@10") if shown else None}, False)
        row |= {"trained" if "rounds" in keys else "rounds": took["rounds"]}
        rows.append(row | {name: took[name] for name in (*WAYS, "seconds")})
    return rows


def swept(runs: Sequence[Run]) -> list[str]:
    """The keys to show as a sweep: a comparison of methods, and of what they go on from, is none."""
    keys = _telling(runs, experiments(runs))
    return keys if any(key not in (METHOD, START) for key in keys) else []


def _telling(runs: Sequence[Run], groups: Sequence[Group]) -> list[str]:
    """The swept keys; a start only where the approach does not tell it, as `single after fedep` may."""
    return [key for key in swept_keys(runs) if key != START or not _follows(START, METHOD, groups)]


def lines_of(key: str, groups: Sequence[Group], keys: Sequence[str]) -> dict[str, list[Group]]:
    """The experiments that have `key`, by the values of the other swept keys: the lines of its plot.

    A key whose values follow from `key`'s tells no lines apart.
    """
    having = [group for group in groups if key in chosen(group.first)]
    others = [other for other in keys if other != key and not _follows(other, key, having)]
    lines: dict[str, list[Group]] = {}
    for group in having:
        lines.setdefault(spelled("", chosen(group.first), others) or group.approach, []).append(group)
    return lines


def _follows(other: str, key: str, groups: Sequence[Group]) -> bool:
    """Whether `key`'s value decides `other`'s."""
    seen: dict[str, set[str]] = {}
    for group in groups:
        options = chosen(group.first)
        seen.setdefault(same(options.get(key)), set()).add(same(options.get(other)))
    return all(len(values) == 1 for values in seen.values())
