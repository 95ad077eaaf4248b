"""The page's part on a sweep: for each swept key a plot and a table, then every grid point."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.compared.sweep import lines_of, sweep_rows, swept
from fedkge.reports.compared.tables import told
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.drawing.sweep_plots import sweep_figures
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


def sweep(page: Canvas, runs: Sequence[Run]) -> str:
    """Empty when runs differ in their methods and seeds alone."""
    keys, groups = swept(runs), experiments(runs)
    if not keys:
        return ""
    parts = []
    for key in keys:
        figures = sweep_figures(key, groups, keys) if key != METHOD else []  # methods are lines
        if figures:
            parts += [f"<h3>{escape(key)}</h3>", page.place(figures[0], NOTE), page.grid(figures[1:])]
            parts.append(_pivot(key, groups, keys))
    return "".join(parts) + _points(runs, keys)


NOTE = "Several lines are the other options; whiskers, where there are several seeds, one standard deviation."


def _pivot(key: str, groups: Sequence[Group], keys: Sequence[str]) -> str:
    """Values of one key downwards, everything else across: test MRR; empty when there is nothing else."""
    lines = lines_of(key, groups, keys)
    if len(lines) < 2:
        return ""
    rows: dict[str, Row] = {}
    for name, of in lines.items():
        for group in of:
            value = flat(group.first.config)[key]
            row = rows.setdefault(same(value), {"value": value, **dict.fromkeys(lines)})
            row |= told(name, group.test(), len(group.runs) > 1)
    ordered = sorted(rows.values(), key=lambda row: _order(row["value"]))
    columns = [Column("value", key, _valued), *(Column(name, name, share) for name in lines)]
    return table(ordered, columns, f"Test MRR over {key}.", best=best_of_rows(ordered, list(lines)))


def _points(runs: Sequence[Run], keys: Sequence[str]) -> str:
    rows = sorted(sweep_rows(runs), key=lambda row: [_order(row[key]) for key in keys])
    columns = [
        *(Column(key, key, _valued) for key in keys),
        Column("seeds", "Seeds", count),
        Column("mrr", "MRR", share, "over all sites; higher is better", 1),
        Column("hits@10", "Hits@10", share, "", 1),
        Column("rounds", "Rounds", count),
        Column("up_bytes", "Sent up", size),
        Column("down_bytes", "Sent down", size),
        Column("seconds", "Total time", seconds),
    ]
    caption = "Every point of the sweep: test metrics over all sites, means over seeds, and what it took."
    return table(rows, columns, caption, best=best_of_columns(rows, columns))


def _order(value: object) -> tuple[int, float, str]:
    """Numbers by size, then words; what a run does not have comes first."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _valued(value: object) -> str:
    return words(None if value is None else valued(value))
