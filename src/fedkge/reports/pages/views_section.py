"""Columns of metrics, who is better or worse off than alone, and methods that measure several tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape

from fedkge.reports.compared.baseline import BETTER, WORSE, Difference, Differences
from fedkge.reports.compared.details import Row
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.compared.tables import LOCAL, dial_rows, has_views, view_rows, views
from fedkge.reports.drawing import curves
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Column, count, difference, rank, share, table, words

HITS = "share of queries whose answer is among the first"
METRICS = (
    Column("mrr", "MRR", share, "mean reciprocal rank; higher is better", 1),
    Column("mr", "Mean rank", rank, "lower is better", -1),
    *(Column(f"hits@{k}", f"Hits@{k}", share, f"{HITS} {k}; higher is better", 1) for k in (1, 3, 5, 10)),
)
KEPT = Column("best_round", "Kept", count, "the round with the best validation; the latest over sites")


CAPTION = (
    "Test MRR minus alone with its 95 % interval: a paired bootstrap over the site's test queries. A site is "
    "better or worse off whose interval lies on one side of zero. Of 40 sites that are as well off as alone, "
    "one is called worse off by chance."
)


def chances(beyond: Mapping[str, Differences], unknown: str = "") -> str:
    """A row per site and a column per experiment, then what is not known."""
    known = {label: found for label, found in beyond.items() if found}
    sites = dict.fromkeys(site for found in known.values() for site in found)
    rows: list[Row] = [
        {"site": site, **{label: found.get(site) for label, found in known.items()}} for site in sites
    ]
    columns = [Column("site", "Site", words), *(Column(label, label, interval) for label in known)]
    note = f'<p class="soft">{escape(unknown)}</p>' if unknown else ""
    return (table(rows, columns, CAPTION) if rows else "") + note


def interval(found: Difference) -> str:
    """A difference, its interval, and in words what that says."""
    ends = f"[{found.low:+.4f}, {found.high:+.4f}]".replace("-", "−")
    kind = {BETTER: "gain", WORSE: "loss"}.get(found.verdict)
    verdict = f' <strong class="{kind}">{found.verdict}</strong>' if kind else ""
    return f'{difference(found.mean)} <span class="std">{ends}</span>{verdict}'


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
