"""The page's parts on methods that measure several tables: what each reaches, and how it came there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedkge.reports.compared.dials import dial_rows
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.compared.tables import views
from fedkge.reports.compared.views import LOCAL, has_views, view_rows
from fedkge.reports.drawing import curves
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.columns import KEPT, METRICS
from fedkge.reports.pages.markup import Column, count, share, table, words

WHOSE = "Where there are several tables, these are the local ones: their entity rows are not sent."


def whose(runs: Iterable[Run]) -> str:
    """Which tables a number is of that does not say so; nothing where there is only one kind."""
    return f" {WHOSE}" if has_views(runs) else ""


def by_table(runs: Sequence[Run]) -> str:
    """Every metric of each of the tables, over all sites."""
    rows = view_rows(runs)
    if not rows:
        return ""
    first = [Column("run", "Run", words), Column("table", "Table", words, words=True)]
    best = "the round whose tables these are: the best validated of its kind, the latest of any site"
    kept = replace(KEPT, note=best)
    caption = "By table, over all sites, as above: the local tables of a site, and others that a method has."
    return table(rows, [*(first if len(experiments(runs)) > 1 else first[1:]), *METRICS, kept], caption)


def own_columns(run: Run) -> list[Column]:
    """The metrics of one run, whose tables are named where there are several, and when each was kept."""
    names = views([run])
    if not names:
        return [*METRICS, KEPT]
    local = [replace(column, title=f"{column.title}, {LOCAL}") for column in (METRICS[0], KEPT)]
    others = [
        Column(f"{view}_mrr", f"MRR, {view}", share, f"of the tables kept at {_rounds(run, view)}", 1)
        for view in names
    ]
    return [local[0], *METRICS[1:], local[1], *others]


def _rounds(run: Run, view: str) -> str:
    kept = run.kept_rounds(view)
    if not kept:
        return "rounds of their own"
    return f"round {max(kept)}" if len(kept) == 1 else f"rounds {min(kept)} to {max(kept)}"


def by_round(page: Canvas, groups: Sequence[Group], note: str) -> str:
    """Validation of each of the tables, and when the hub changed what sites are told to train with."""
    parts = []
    if figure := curves.view_figure(groups):
        told = "Each kind of table over all sites; a star marks the round at which that kind was kept."
        parts.append(page.place(figure, f"{told} {note}".strip()))
    if rows := dial_rows(groups):
        parts.append(_dials(rows))
    return "".join(parts)


def _dials(rows: Sequence[Mapping[str, str | int]]) -> str:
    names = dict.fromkeys(key for row in rows for key in row if key not in ("run", "seed"))
    whole = [{**dict.fromkeys(names), **row} for row in rows]
    seeds = [Column("seed", "Seed", count)] if len({row["seed"] for row in rows}) > 1 else []
    columns = [Column("run", "Run", words), *seeds, *(Column(n, n, words, words=True) for n in names)]
    caption = (
        "What the hub tells sites to train with: the validated round after which each was switched on; it "
        "holds from the next round on."
    )
    return table(whole, columns, caption)
