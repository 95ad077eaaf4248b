"""The page's part on a sweep: for each swept key a plot and a table, then every grid point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from fedkge.reports.compared.choosing import hides
from fedkge.reports.compared.details import Row, total_seconds
from fedkge.reports.compared.experiments import COLOURS, Group, Spread, experiments
from fedkge.reports.compared.sweep import lines_of, sweep_rows, swept
from fedkge.reports.compared.tables import told
from fedkge.reports.drawing.figure import (
    Canvas,
    Figure,
    Trace,
    bytes_axis,
    finite,
    mark,
    text,
    titled,
    whiskers,
)
from fedkge.reports.folders.options import METHOD, flat, same, valued
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import (
    Column,
    best_of_columns,
    best_of_rows,
    count,
    seconds,
    share,
    size,
    table,
    words,
)


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
    distinct = {same(value): value for value in values}
    title = text(key)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct.values())
    if numbers:
        distinct = dict(sorted(distinct.items(), key=lambda pair: float(pair[1])))
        low, high = min(distinct.values()), max(distinct.values())
        least = min((value for value in distinct.values() if value > 0), default=high)
        wide = high > 10 * least
        marks = {"tickvals": list(distinct.values()), "ticktext": [valued(v) for v in distinct.values()]}
        if low > 0 or not wide:
            kind = "log" if wide else "linear"
            return Places(dict(distinct), titled(title, type=kind, **marks), True)
        title += " (not to scale)"  # zero has no place on a logarithmic axis
    side = {name: float(i) for i, name in enumerate(distinct)}
    ticks = {"tickvals": list(side.values()), "ticktext": [text(valued(v)) for v in distinct.values()]}
    return Places(side, titled(title, range=[-0.3, len(side) - 0.7], **ticks), numbers)


def sweep_figures(key: str, groups: Sequence[Group], keys: Sequence[str], by: Judged = TEST) -> list[Figure]:
    """MRR over a key's values, then bytes and seconds, small; the other swept keys are lines."""
    lines = lines_of(key, groups, keys)
    having = [group for of in lines.values() for group in of]
    where = places(key, [flat(group.first.config)[key] for group in having])
    rest = [g for g in groups if g not in having and g.first.reference is not None]
    kinds: list[tuple[str, dict[str, Any], Callable[[Group], Spread | None]]] = [
        (by.name, titled(f"{by.name.lower().replace('mrr', 'MRR')}, filtered"), by.of),
        ("Bytes sent", bytes_axis(""), lambda group: group.over(lambda run: run.traffic.bytes)),
        ("Seconds", titled("", rangemode="tozero"), lambda group: group.over(total_seconds)),
    ]
    figures = []
    for i, (what, yaxis, value) in enumerate(kinds):
        traces = [] if i else [trace for group in rest for trace in _level(group, where, by)]
        traces += [_line(key, name, of, where, value, j) for j, (name, of) in enumerate(lines.items())]
        layout = {"xaxis": where.axis, "yaxis": yaxis, "showlegend": not i and len(traces) > 1}
        title = f"{what} over {key}"
        label = f"{title}: one point per value, {len(lines)} line(s); the table below has the numbers."
        if any(trace["y"] != [None] * len(trace["y"]) for trace in traces):
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
    found = sorted(
        ((where.of[same(flat(group.first.config)[key])], value(group)) for group in groups),
        key=lambda pair: pair[0],
    )
    references = {group.first.reference for group in groups}
    (same_kind,) = references if len(references) == 1 else (None,)
    return mark(
        "scatter",
        name,
        f"s{i % COLOURS}" if same_kind is None else str(same_kind),
        i // COLOURS,
        "%{fullData.name}<br>%{x}: %{y:.4~g}",
        mode="lines+markers" if where.numbers else "markers",
        x=[x for x, _ in found],
        y=[finite(of.mean) if of else None for _, of in found],
        marker={"size": 9},
        **whiskers([of.std if of else None for _, of in found]),
    )


def _level(group: Group, where: Places, by: Judged) -> list[Trace]:
    """An experiment without the key: a level to compare with."""
    found, ends = by.of(group), [min(where.of.values()), max(where.of.values())]
    hover = "%{fullData.name}: %{y:.4f}"
    style = (group.label, group.colour, 1, hover)
    return [mark("scatter", *style, mode="lines", x=ends, y=[found.mean] * 2)] if found else []


def sweep(page: Canvas, runs: Sequence[Run], show_test: bool = False) -> str:
    """Empty when runs differ in their methods and seeds alone.

    Points are shown by test MRR where that of all points may be seen, else by validation MRR.
    """
    keys, groups = swept(runs), experiments(runs)
    if not keys:
        return ""
    by = VALID if hides(runs, show_test) else TEST
    parts = []
    for key in keys:
        figures = sweep_figures(key, groups, keys, by) if key != METHOD else []  # methods are lines
        if figures:
            parts += [f"<h3>{escape(key)}</h3>", page.place(figures[0], NOTE), page.grid(figures[1:])]
            parts.append(_pivot(key, groups, keys, by))
    return "".join(parts) + _points(runs, keys, show_test)


NOTE = "Several lines are the other options; whiskers, where there are several seeds, one standard deviation."


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
            row |= told(name, by.of(group), len(group.runs) > 1)
    ordered = sorted(rows.values(), key=lambda row: _order(row["value"]))
    columns = [Column("value", key, _valued), *(Column(name, name, share) for name in lines)]
    return table(ordered, columns, f"{by.name} over {key}.", best=best_of_rows(ordered, list(lines)))


def _points(runs: Sequence[Run], keys: Sequence[str], show_test: bool) -> str:
    found = sweep_rows(runs, show_test=show_test)
    rows = sorted(found, key=lambda row: [_order(row[key]) for key in keys])
    columns = [
        *(Column(key, key, _valued) for key in keys),
        Column("seeds", "Seeds", count),
        Column("valid_mrr", "Validation MRR", share, "over all sites; higher is better", 1),
        Column("mrr", "Test MRR", share, "over all sites"),
        Column("hits@10", "Test Hits@10", share),
        Column("rounds", "Rounds", count),
        Column("up_bytes", "Sent up", size),
        Column("down_bytes", "Sent down", size),
        Column("seconds", "Total time", seconds),
    ]
    caption = (
        "Every point of the sweep: metrics over all sites, means over seeds, and what it took. Marked: the "
        "best on validation, of each method and data."
    )
    if hides(runs, show_test):
        caption += " Test metrics of other points are not shown (`fedkge report --show-test` shows them)."
    marked = [i for i, row in enumerate(rows) if row["best"]]
    return table(rows, columns, caption, best=best_of_columns(rows, columns), marked=marked)


def _order(value: object) -> tuple[int, float, str]:
    """Numbers by size, then words; what a run does not have comes first."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _valued(value: object) -> str:
    return words(None if value is None else valued(value))
