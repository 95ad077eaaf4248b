"""The parts of the page: each a heading, what it shows as plots, and the same as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from fedkge.reports import curves, plots, tables
from fedkge.reports.figure import Figure
from fedkge.reports.findings import terms
from fedkge.reports.load import Run
from fedkge.reports.markup import (
    Column,
    best_of_columns,
    best_of_rows,
    count,
    difference,
    rank,
    seconds,
    share,
    table,
    words,
)

PROTOCOL = (
    "Test statements; filtered ranks of head and tail among the site's own entities; "
    "ties count half (realistic); sites weighted by their test statements."
)
HITS = "share of queries whose answer is among the first"
METRICS = (
    Column("mrr", "MRR", share, "mean reciprocal rank; higher is better", 1),
    Column("mr", "Mean rank", rank, "lower is better", -1),
    *(Column(f"hits@{k}", f"Hits@{k}", share, f"{HITS} {k}; higher is better", 1) for k in (1, 3, 5, 10)),
    Column("tail_mrr", "MRR, tails", share, "over tail queries alone, as some papers report it", 1),
)


class Canvas:
    """The plots placed so far."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def place(self, figure: Figure, caption: str = "") -> str:
        """The place where the script will draw `figure`."""
        name = f"plot{len(self.figures)}"
        self.figures[name] = figure
        more = f" {escape(caption)}" if caption else ""
        return (
            f'<figure><figcaption><span class="title">{escape(figure.title)}</span>{more}</figcaption>'
            f'<div class="plot" id="{name}" style="height:{figure.height}px" role="img" '
            f'aria-label="{escape(figure.label)}"></div></figure>'
        )

    def grid(self, figures: Sequence[Figure]) -> str:
        """Small plots side by side, as many as the screen is wide."""
        return f'<div class="grid">{"".join(map(self.place, figures))}</div>' if figures else ""

    def json(self) -> str:
        """Data that no browser takes for markup, whatever sites are called."""
        plain: dict[str, Any] = {
            name: {k: getattr(figure, k) for k in ("data", "layout", "height", "tools")}
            for name, figure in self.figures.items()
        }
        text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def sections(runs: Sequence[Run], page: Canvas) -> dict[str, str]:
    """Heading -> HTML, in reading order; plots are placed on `page` along the way."""
    return {
        "Results": _results(runs),
        "Sites: alone and together" if len(runs) > 1 else "Results by site": _by_site(page, runs),
        "Training": _training(page, runs),
        "What the sites hold": _holdings(page, runs),
        "Time": _time(page, runs),
        "Configuration": _configuration(runs),
        "Environment": _environment(runs),
    }


def _results(runs: Sequence[Run]) -> str:
    rows = tables.metric_rows(runs)
    columns = [
        Column("run", "Run", words),
        *METRICS,
        Column("rounds", "Rounds", count, "the most that any site trained"),
        Column("best_round", "Kept", count, "the round with the best validation; the latest over sites"),
        Column("train_seconds", "Training", seconds, "time spent in training steps"),
        Column("triples_per_s", "Triples/s", count, "training statements visited per second of training"),
    ]
    shown = table(rows, columns, PROTOCOL, best=best_of_columns(rows, columns))
    return shown + terms(runs)


def _by_site(page: Canvas, runs: Sequence[Run]) -> str:
    figure = plots.site_figure(runs)
    if figure is None:
        return '<p class="soft">Known once a run has ended.</p>'
    shown = _compared(runs) if len(runs) > 1 else _own(runs[0])
    return page.place(figure) + shown


def _compared(runs: Sequence[Run]) -> str:
    rows, names = tables.site_rows(runs), tables.labels(runs)
    against = [tables.versus(name) for name in names if tables.versus(name) in rows[0]]
    columns = [
        Column("site", "Site", words),
        Column("queries", "Test queries", count, "two for each test statement: head and tail"),
        *(Column(name, name, share) for name in names),
        *(Column(key, key, difference, "positive: better than alone") for key in against),
    ]
    caption = "Test MRR of each site, filtered, head and tail, realistic ties."
    if against:
        caption += " Differences are from the run in which every site trains alone, same model and data."
    return table(rows, columns, caption, best=best_of_rows(rows, names), last_is_total=True)


def _own(run: Run) -> str:
    kept = Column("best_round", "Kept", count, "the round with the best validation")
    columns = [Column("site", "Site", words), *METRICS, kept]
    return table(tables.own_rows(run), columns, PROTOCOL, last_is_total=True)


def _training(page: Canvas, runs: Sequence[Run]) -> str:
    loss, validation = curves.loss_figures(runs), curves.validation_figures(runs)
    if not loss:
        return '<p class="soft">No round has ended yet.</p>'
    parts = [page.place(loss[0]), page.grid(loss[1:])]
    if validation:
        note = "A star marks the round whose tables were kept; in a mean, where all sites kept the same."
        parts += [page.place(validation[0], note), page.grid(validation[1:])]
    return "".join(parts)


def _holdings(page: Canvas, runs: Sequence[Run]) -> str:
    rows = tables.size_rows(runs)
    if not rows:
        return '<p class="soft">Known once a run has ended.</p>'
    several = len({row["dataset"] for row in rows}) > 1
    columns = [
        Column("site", "Site", words),
        *([Column("dataset", "Data set", words, words=True)] if several else []),
        Column("statements", "Statements", count),
        *(Column(split, split.capitalize(), count) for split in ("train", "valid", "test")),
        Column("entities", "Entities", count),
        Column("relations", "Relations", count),
    ]
    parts = [page.grid(plots.size_figures(runs)), table(rows, columns, "Statements by split, and names.")]
    seen = set()
    for run in runs:
        figure = plots.overlap_figure(run)
        if figure and run.dataset not in seen:
            seen.add(run.dataset)
            note = f"{run.dataset}: how many entities the row's site has in common with the column's."
            parts.append(page.place(figure, note) + _overlap_table(run))
    return "".join(parts)


def _overlap_table(run: Run) -> str:
    overlap = (run.summary or {})["overlap"]
    keys = [str(i) for i in range(len(overlap["sites"]))]
    rows = [
        {"site": site, **dict(zip(keys, counts, strict=True))}
        for site, counts in zip(overlap["sites"], overlap["entities"], strict=True)
    ]
    columns = [Column("site", "Site", words)]
    columns += [Column(key, site, count) for key, site in zip(keys, overlap["sites"], strict=True)]
    return table(rows, columns, "Entities in common, by name; on the diagonal what the site has.")


def _time(page: Canvas, runs: Sequence[Run]) -> str:
    columns = [
        Column("run", "Run", words),
        Column("train_seconds", "Training", seconds),
        Column("evaluate_seconds", "Ranking", seconds, "validation during training, and the test at the end"),
        Column("other_seconds", "Other", seconds, "loading, checkpoints, journal; not known after a resume"),
        Column("triples", "Triples visited", count, "once per side and epoch"),
        Column("triples_per_s", "Triples/s", count, "of training time"),
    ]
    shown = table(tables.time_rows(runs), columns, "Wall-clock time over all sites.")
    return page.place(plots.time_figure(runs)) + shown


def _configuration(runs: Sequence[Run]) -> str:
    note = "Options in which the runs differ are highlighted and come first." if len(runs) > 1 else ""
    caption = f"Every option with its value, defaults included. {note}".strip()
    return _options(runs, tables.config_rows(runs), "Option", caption)


def _environment(runs: Sequence[Run]) -> str:
    rows = tables.environment_rows(runs)
    return _options(runs, rows, "", "Software and hardware that the runs used.")


def _options(runs: Sequence[Run], rows: Sequence[tables.Row], heading: str, caption: str) -> str:
    rows = sorted(rows, key=lambda row: not row["differs"])
    marked = {i for i, row in enumerate(rows) if row["differs"]}
    columns = [Column("option", heading, words)]
    columns += [Column(name, name, words, words=True) for name in tables.labels(runs)]
    return table(rows, columns, caption, marked=marked)
