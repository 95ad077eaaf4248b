"""The parts of the page: each a heading, what it shows as plots, and the same as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedkge.reports.compared.baseline import alone
from fedkge.reports.compared.choosing import revealed
from fedkge.reports.compared.details import SHARE, budget_rows, config_rows, side_by_side, time_row, trained
from fedkge.reports.compared.experiments import Group, Row, experiments, foremost, mean, repeated
from fedkge.reports.compared.tables import dial_rows
from fedkge.reports.drawing import curves, plots
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.options import flat, valued
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.between_section import between_sites, peers
from fedkge.reports.pages.frontier_section import privacy_cost
from fedkge.reports.pages.holdings import holdings
from fedkge.reports.pages.markup import RUN, SEED, Column, count, seconds, soft, table, words
from fedkge.reports.pages.plain import by_relation, examples, plainly, private
from fedkge.reports.pages.privacy import privacy
from fedkge.reports.pages.reference_section import convergence
from fedkge.reports.pages.results import DRAWN, by_site, limited, results, whose
from fedkge.reports.pages.sweep_section import sweep
from fedkge.reports.pages.traffic import traffic

STAR = "A star marks the round whose tables were kept; in a mean, where all sites kept the same."
MEANS = (
    "Means over seeds, shaded by one standard deviation; a run that has stopped goes on counting with its "
    "last value."
)
SIDE_BY_SIDE = 6  #: experiments that get a column of options; of more, the distinct values are listed
WORK = {  #: kinds of work, and what they are
    "train_seconds": ("training", ""),
    "evaluate_seconds": ("ranking", "validation during training, and the test at the end"),
    "exchange_seconds": ("exchange", "combining and encoding rows, hub and sites"),
    "checkpoint_seconds": ("checkpoints", ""),
    "other_seconds": ("other", "loading, tables, journal; not known after a resume"),
}


@dataclass(frozen=True)
class Shown:
    """What a report shows of its runs."""

    reference: str | None = None  #: the experiment whose convergence others are compared with; unset: none
    tsne: bool = False  #: entities in a plane, which takes seconds for each experiment
    show_test: bool = False  #: test metrics of all points of a sweep, not only of those that are chosen
    triples: bool = True  #: some test triples, as examples


USUAL = Shown()


def sections(every: Sequence[Run], page: Canvas, shown: Shown = USUAL) -> dict[str, str]:
    """Heading -> HTML, in reading order; plots are placed on `page` along the way.

    Of a sweep, every section but its own is about the points that are chosen by validation. On private runs,
    what privacy costs comes first.
    """
    runs = revealed(every, shown.show_test)
    groups = experiments(runs)
    drawn = foremost(groups, DRAWN)
    machines = side_by_side(groups, lambda run: flat(run.environment))
    compared = any(alone(group, groups) for group in groups)
    cost = {"What privacy costs": privacy_cost(page, runs), "Privacy": privacy(page, runs)}
    parts = {
        **(cost if private(groups) else {}),
        "In plain words": plainly(groups),
        "What joining changed": examples(drawn, shown.triples),
        "Results": results(runs, groups),
        "Sweep": sweep(page, every, shown.show_test),
        "Sites: alone and together" if compared else "Results by site": by_site(page, runs, groups),
        "Results by relation": by_relation(drawn),
        "Training": _training(page, drawn, groups),
        "Between sites": between_sites(page, drawn),
        "Peers": peers(page, runs),
        "Traffic": traffic(page, groups, drawn),
        "What it takes to converge": convergence(page, runs, shown.reference),
        **cost,
        "What the sites hold": holdings(page, runs),
        "Entities in a plane": _planes(page, drawn) if shown.tsne else "",
        "Time": _time(page, groups),
        "Configuration": configuration(groups),
        "Environment": _options(groups, machines, "", "Software and hardware that the runs used."),
    }
    return {title: content for title, content in parts.items() if content}


def _training(page: Canvas, drawn: Sequence[Group], groups: Sequence[Group]) -> str:
    """Validation and loss over rounds, of every table; when the hub changed what sites train with."""
    loss, validation = curves.loss_figures(drawn), curves.validation_figures(drawn)
    if not loss:
        return soft("No round has ended yet.")
    note = limited(drawn, groups, MEANS)
    parts = []
    if validation:
        star = f"{STAR}{whose(run for group in drawn for run in group.runs)} {note}".strip()
        parts += [page.place(validation[0], star), page.grid(validation[1:])]
    if figure := curves.view_figure(drawn):
        told = "Each kind of table over all sites; a star marks the round at which that kind was kept."
        parts.append(page.place(figure, f"{told} {note}".strip()))
    if rows := dial_rows(drawn):
        names = dict.fromkeys(key for row in rows for key in row if key not in ("run", "seed"))
        seeds = [SEED] * (len({row["seed"] for row in rows}) > 1)
        caption = (
            "What the hub tells sites to train with: the validated round after which each was switched on; "
            "it holds from the next round on."
        )
        columns = [RUN, *seeds, *(Column(name, name, words, words=True) for name in names)]
        parts.append(table([{**dict.fromkeys(names), **row} for row in rows], columns, caption))
    return "".join([*parts, page.place(loss[0], note), page.grid(loss[1:])])


def _planes(page: Canvas, groups: Sequence[Group]) -> str:
    from fedkge.reports.drawing.tsne import planes

    return planes(page, groups)


def _time(page: Canvas, groups: Sequence[Group]) -> str:
    rows: list[Row] = []
    for group in groups:
        spent = [time_row(run) for run in group.runs]
        rows.append({"run": group.label, **{key: mean(row[key] for row in spent) for key in spent[0]}})
    columns = [
        RUN,
        *(Column(key, name.capitalize(), seconds, note) for key, (name, note) in WORK.items()),
        Column("seconds", "Total", seconds),
        Column("triples", "Triples visited", count, "once per side and epoch"),
        Column("triples_per_s", "Triples/s", count, "of training time"),
    ]
    parts = [
        (name, f"part{i}", [row[key] or 0 for row in rows]) for i, (key, (name, _)) in enumerate(WORK.items())
    ]
    label = f"Seconds that each experiment spent on {', '.join(name for name, _ in WORK.values())}."
    names = [group.label for group in groups]
    figure = plots.stacked_figure("Seconds by kind of work", label, names, parts, "seconds")
    means = ", means over seeds." if repeated(groups) else "."
    return page.place(figure) + table(rows, columns, f"Wall-clock time over all sites{means}")


def configuration(groups: Sequence[Group]) -> str:
    """The budget, then every option; those in which experiments differ come first."""
    given = "What each run was given to learn with; rounds that sites trained are counted in the journal."
    if any((trained(run)[SHARE] or 1) < 1 for group in groups for run in group.runs):
        given += (
            " Not every site trained in every round; where a method exchanges nothing every site does, "
            "whatever is configured."
        )
    caption = "Every option with its value, defaults included."
    caption += " Options in which the runs differ are highlighted and come first." * (len(groups) > 1)
    budget = _options(groups, budget_rows(groups), "Budget", given)
    return budget + _options(groups, config_rows(groups), "Option", caption)


def _options(groups: Sequence[Group], rows: Sequence[Row], heading: str, caption: str) -> str:
    rows = sorted(rows, key=lambda row: not row["differs"])
    marked = {i for i, row in enumerate(rows) if row["differs"]}
    names = [group.label for group in groups]
    columns = [Column(name, name, words, words=True) for name in names]
    if len(groups) > SIDE_BY_SIDE:
        rows = [{"option": row["option"], "values": _distinct([row[name] for name in names])} for row in rows]
        columns = [Column("values", "Values", words, words=True)]
    return table(rows, [Column("option", heading, words), *columns], caption, marked=marked)


def _distinct(values: Sequence[object]) -> str:
    known = [value for value in values if value is not None]
    missing = " (not all have it)" if len(known) < len(values) else ""
    return ", ".join(dict.fromkeys(map(valued, known))) + missing
