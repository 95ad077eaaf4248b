"""The parts of the page: each a heading, what it shows as plots, and the same as a table."""

from __future__ import annotations

from collections.abc import Sequence

from fedkge.reports.compared import tables
from fedkge.reports.compared.baseline import against_alone, alone, unknown
from fedkge.reports.compared.choosing import revealed
from fedkge.reports.compared.details import time_row
from fedkge.reports.compared.experiments import Group, experiments, foremost
from fedkge.reports.compared.tables import each_seed_rows
from fedkge.reports.drawing import curves, plots
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.run import Run, asked
from fedkge.reports.pages.between_section import between_sites, peers
from fedkge.reports.pages.findings import joining, terms
from fedkge.reports.pages.frontier_section import privacy_cost
from fedkge.reports.pages.markup import (
    Column,
    best_of_columns,
    best_of_rows,
    count,
    difference,
    folded,
    seconds,
    share,
    size,
    table,
    words,
)
from fedkge.reports.pages.plain import by_relation, examples, plainly, private
from fedkge.reports.pages.privacy import privacy
from fedkge.reports.pages.reference_section import convergence
from fedkge.reports.pages.setup_sections import configuration, environment
from fedkge.reports.pages.sweep_section import sweep
from fedkge.reports.pages.views_section import KEPT, METRICS, by_round, by_table, chances, own_columns, whose
from fedkge.reports.pages.wire_sections import holdings, traffic

DEVIATION = " ± is one standard deviation over seeds."
OTHER_SIDES = {
    "tail_mrr": Column("tail_mrr", "MRR, tails", share, "tail queries alone, as some papers report it", 1),
    "both_mrr": Column("both_mrr", "MRR, both", share, "head and tail queries", 1),
}
ROUNDS = Column("rounds", "Rounds", count, "the most that any site trained")
GAIN = "MRR minus that of the site alone; positive: better than alone"
DRAWN = 8  #: experiments that plots show; of more, the best


def sections(
    every: Sequence[Run],
    page: Canvas,
    reference: str | None = None,
    tsne: bool = False,
    show_test: bool = False,
    triples: bool = True,
) -> dict[str, str]:
    """Heading -> HTML, in reading order; plots are placed on `page` along the way.

    Of a sweep, every section but its own is about the points that are chosen by validation. On private runs,
    what privacy costs comes first.
    """
    runs = revealed(every, show_test)
    groups = experiments(runs)
    drawn = foremost(groups, DRAWN)
    compared = any(alone(group, groups) for group in groups)
    cost = {"What privacy costs": privacy_cost(page, runs), "Privacy": privacy(page, runs)}
    parts = {
        **(cost if private(groups) else {}),
        "In plain words": plainly(groups),
        "What joining changed": examples(drawn, triples),
        "Results": _results(runs, groups),
        "Sweep": sweep(page, every, show_test),
        "Sites: alone and together" if compared else "Results by site": _by_site(page, runs, groups),
        "Results by relation": by_relation(drawn),
        "Training": _training(page, drawn, len(groups)),
        "Between sites": between_sites(page, drawn),
        "Peers": peers(page, runs),
        "Traffic": traffic(page, groups, drawn),
        "What it takes to converge": "" if reference is None else convergence(page, runs, reference),
        **cost,
        "What the sites hold": holdings(page, runs),
        "Entities in a plane": _planes(page, drawn) if tsne else "",
        "Time": _time(page, groups),
        "Configuration": configuration(groups),
        "Environment": environment(groups),
    }
    return {title: content for title, content in parts.items() if content}


def protocol(runs: Sequence[Run]) -> str:
    """What a number on the page is of."""
    return (
        f"Test triples; filtered ranks ({asked(runs)}) among the site's own entities; "
        f"ties count half (realistic); sites weighted by their test triples.{whose(runs)}"
    )


def _results(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    rows = tables.metric_rows(runs)
    several = "seeds" in rows[0]
    columns = [
        Column("run", "Run", words),
        *([Column("seeds", "Seeds", count)] if several else []),
        *METRICS,
        *_other_sides(runs),
        ROUNDS,
        KEPT,
        Column("bytes", "Sent", size, "to the hub and to sites, over all rounds"),
        Column("seconds", "Time", seconds, "from start to end, ranking and writing included"),
    ]
    shown = table(rows, columns, protocol(runs) + DEVIATION * several, best=best_of_columns(rows, columns))
    shown += by_table(runs)
    if several:
        own = [Column("run", "Run", words), Column("seed", "Seed", count), *METRICS, ROUNDS, KEPT]
        each = table(each_seed_rows(groups), own, "Each run by itself: what the means are made of.")
        shown += folded("Each seed", each)
    return shown + terms(groups)


def _by_site(page: Canvas, runs: Sequence[Run], groups: Sequence[Group]) -> str:
    drawn = foremost(groups, DRAWN)
    figure = plots.site_figure(drawn)
    if figure is None:
        return '<p class="soft">Known once a run has ended.</p>'
    if len(runs) == 1:
        return page.place(figure) + _own(runs[0])
    beyond = against_alone(groups)
    gains = plots.gain_figure(drawn, beyond)
    note = _limited(len(drawn), len(groups))
    if any(len(group.runs) > 1 for group in groups):
        note = f"Means over seeds; whiskers are one standard deviation. {note}".strip()
    parts = [joining(groups, beyond), page.place(figure, note)]
    if gains:
        note = "Above zero a site gains by joining; below zero it loses."
        note += " Whiskers are 95 % intervals over test queries." * any(beyond.values())
        parts.append(page.place(gains, note))
    return "".join(parts) + _compared(runs, groups) + chances(beyond, unknown(groups))


def _limited(drawn: int, of: int) -> str:
    if drawn == of:
        return ""
    best = "alone, pooled, and the best others on validation"
    return f"Of {of} experiments {drawn} are drawn: {best}; tables have all."


def _compared(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    rows, names = tables.site_rows(runs), [group.label for group in groups]
    gains = {f"gain {name}": name for name in names if name in rows[0]["gains"]}  # key -> whose
    rows = [{**row, **{key: row["gains"][name] for key, name in gains.items()}} for row in rows]
    columns = [
        Column("site", "Site", words),
        Column("queries", "Test queries", count, f"of each test triple: {asked(runs)}"),
        *(Column(name, name, share) for name in names),
        *(Column(key, f"{name}, gain", difference, GAIN) for key, name in gains.items()),
    ]
    caption = f"Test MRR of each site, filtered, {asked(runs)}, realistic ties."
    if gains:
        caption += " Differences are from the run in which every site trains alone, same model and data."
    caption += whose(runs)
    if any(len(group.runs) > 1 for group in groups):
        caption += DEVIATION
    return table(rows, columns, caption, best=best_of_rows(rows, names), last_is_total=True)


def _own(run: Run) -> str:
    columns = [Column("site", "Site", words), *own_columns(run), *_other_sides([run])]
    return table(tables.own_rows(run), columns, protocol([run]), last_is_total=True)


def _other_sides(runs: Sequence[Run]) -> list[Column]:
    return [OTHER_SIDES[name] for name in tables.other_sides(runs)]


def _training(page: Canvas, groups: Sequence[Group], of: int) -> str:
    loss, validation = curves.loss_figures(groups), curves.validation_figures(groups)
    if not loss:
        return '<p class="soft">No round has ended yet.</p>'
    note = _limited(len(groups), of)
    if any(len(group.runs) > 1 for group in groups):
        note = (
            "Means over seeds, shaded by one standard deviation; a run that has stopped goes on counting "
            f"with its last value. {note}".strip()
        )
    parts = []
    if validation:
        star = "A star marks the round whose tables were kept; in a mean, where all sites kept the same."
        star += whose(run for group in groups for run in group.runs)
        parts += [page.place(validation[0], f"{star} {note}".strip()), page.grid(validation[1:])]
    parts.append(by_round(page, groups, note))
    return "".join([*parts, page.place(loss[0], note), page.grid(loss[1:])])


def _planes(page: Canvas, groups: Sequence[Group]) -> str:
    from fedkge.reports.drawing.tsne import planes

    return planes(page, groups)


def _time(page: Canvas, groups: Sequence[Group]) -> str:
    rows = []
    for group in groups:
        spent = [time_row(run) for run in group.runs]
        rows.append({"run": group.label, **{k: tables.mean(row[k] for row in spent) for k in spent[0]}})
    kinds = {
        "train_seconds": "training",
        "evaluate_seconds": "ranking",
        "exchange_seconds": "exchange",
        "checkpoint_seconds": "checkpoints",
        "other_seconds": "other",
    }
    notes = {
        "ranking": "validation during training, and the test at the end",
        "exchange": "combining and encoding rows, hub and sites",
        "other": "loading, tables, journal; not known after a resume",
    }
    columns = [
        Column("run", "Run", words),
        *(Column(key, name.capitalize(), seconds, notes.get(name, "")) for key, name in kinds.items()),
        Column("seconds", "Total", seconds),
        Column("triples", "Triples visited", count, "once per side and epoch"),
        Column("triples_per_s", "Triples/s", count, "of training time"),
    ]
    several = any(len(group.runs) > 1 for group in groups)
    caption = "Wall-clock time over all sites" + (", means over seeds." if several else ".")
    return page.place(plots.time_figure(rows, kinds)) + table(rows, columns, caption)
