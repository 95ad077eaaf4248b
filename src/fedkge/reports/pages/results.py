"""The page's parts on results: over all sites, by table, and by site beside every site alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fedkge.reports.compared import tables
from fedkge.reports.compared.baseline import BETTER, WORSE, Difference, Differences, against_alone, unknown
from fedkge.reports.compared.experiments import Group, Row, foremost, repeated
from fedkge.reports.drawing import plots
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.run import Run, asked
from fedkge.reports.pages import markup
from fedkge.reports.pages.findings import joining, terms
from fedkge.reports.pages.markup import RUN, SEED, SEEDS, SITE, Column, count, difference, share, table, words

DRAWN = 8  #: experiments that plots show; of more, the best
DEVIATION = " ± is one standard deviation over seeds."
HITS = "share of queries whose answer is among the first"
METRICS = (
    Column("mrr", "MRR", share, "mean reciprocal rank; higher is better", 1),
    Column("mr", "Mean rank", markup.rank, "lower is better", -1),
    *(Column(f"hits@{k}", f"Hits@{k}", share, f"{HITS} {k}; higher is better", 1) for k in (1, 3, 5, 10)),
)
OTHER_SIDES = {
    "tail_mrr": Column("tail_mrr", "MRR, tails", share, "tail queries alone, as some papers report it", 1),
    "both_mrr": Column("both_mrr", "MRR, both", share, "head and tail queries", 1),
}
ROUNDS = Column("rounds", "Rounds", count, "the most that any site trained")
KEPT = Column("best_round", "Kept", count, "the round with the best validation; the latest over sites")
GAIN = "MRR minus that of the site alone; positive: better than alone"
WHOSE = " Where there are several tables, these are the local ones: their entity rows are not sent."
CHANCES = (
    "Test MRR minus alone with its 95 % interval: a paired bootstrap over the site's test queries. A site is "
    "better or worse off whose interval lies on one side of zero. Of 40 sites that are as well off as alone, "
    "one is called worse off by chance."
)


def protocol(runs: Sequence[Run]) -> str:
    """What a number on the page is of."""
    return (
        f"Test triples; filtered ranks ({asked(runs)}) among the site's own entities; "
        f"ties count half (realistic); sites weighted by their test triples.{whose(runs)}"
    )


def whose(runs: Iterable[Run]) -> str:
    """Which tables a number is of that does not say so; nothing where there is only one kind."""
    return WHOSE if tables.has_views(runs) else ""


def limited(drawn: Sequence[Group], groups: Sequence[Group], means: str = "") -> str:
    """A note below plots: what means are of, and whom they leave out."""
    note = f"{means} " if repeated(drawn) else ""
    if len(drawn) < len(groups):
        note += f"Of {len(groups)} experiments {len(drawn)} are drawn: alone, pooled, and the best others on "
        note += "validation; tables have all."
    return note.strip()


def results(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    """Every experiment over all sites, each of its tables, each seed, and what methods mean."""
    rows, several = tables.metric_rows(runs), repeated(groups)
    columns = [
        *((RUN, SEEDS) if several else (RUN,)),
        *METRICS,
        *(OTHER_SIDES[name] for name in tables.other_sides(runs)),
        *(ROUNDS, KEPT),
        Column("bytes", "Sent", markup.size, "to the hub and to sites, over all rounds"),
        Column("seconds", "Time", markup.seconds, "from start to end, ranking and writing included"),
    ]
    best = markup.best_of_columns(rows, columns)
    shown = table(rows, columns, protocol(runs) + DEVIATION * several, best=best)
    if views := tables.view_rows(runs):
        note = "the round whose tables these are: the best validated of its kind, the latest of any site"
        first = [RUN] * (len(groups) > 1) + [Column("table", "Table", words, words=True)]
        caption = "By table, over all sites, as above: a site's local tables, and others that a method has."
        shown += table(views, [*first, *METRICS, replace(KEPT, note=note)], caption)
    if several:
        own, caption = [RUN, SEED, *METRICS, ROUNDS, KEPT], "Each run by itself: what the means are made of."
        shown += markup.folded("Each seed", table(tables.each_seed_rows(groups), own, caption))
    return shown + terms(groups)


def by_site(page: Canvas, runs: Sequence[Run], groups: Sequence[Group]) -> str:
    """Test MRR of each site; of several runs beside every site alone, and who is better off beyond chance."""
    drawn = foremost(groups, DRAWN)
    figure = plots.site_figure(drawn)
    if figure is None:
        return markup.soft("Known once a run has ended.")
    if len(runs) == 1:
        columns = [*_own_columns(runs[0]), *(OTHER_SIDES[name] for name in tables.other_sides(runs))]
        own = table(tables.own_rows(runs[0]), [SITE, *columns], protocol(runs), last_is_total=True)
        return page.place(figure) + own
    beyond = against_alone(groups)
    note = limited(drawn, groups, "Means over seeds; whiskers are one standard deviation.")
    parts = [joining(groups, beyond), page.place(figure, note)]
    if gains := plots.gain_figure(drawn, beyond):
        note = "Above zero a site gains by joining; below zero it loses."
        note += " Whiskers are 95 % intervals over test queries." * any(beyond.values())
        parts.append(page.place(gains, note))
    return "".join([*parts, _compared(runs, groups), chances(beyond, unknown(groups))])


def _compared(runs: Sequence[Run], groups: Sequence[Group]) -> str:
    rows, names = tables.site_rows(runs), [group.label for group in groups]
    gains = {f"gain {name}": name for name in names if name in rows[0]["gains"]}  # key -> whose
    rows = [{**row, **{key: row["gains"][name] for key, name in gains.items()}} for row in rows]
    columns = [
        SITE,
        Column("queries", "Test queries", count, f"of each test triple: {asked(runs)}"),
        *(Column(name, name, share) for name in names),
        *(Column(key, f"{name}, gain", difference, GAIN) for key, name in gains.items()),
    ]
    caption = f"Test MRR of each site, filtered, {asked(runs)}, realistic ties."
    if gains:
        caption += " Differences are from the run in which every site trains alone, same model and data."
    caption += whose(runs) + DEVIATION * repeated(groups)
    return table(rows, columns, caption, best=markup.best_of_rows(rows, names), last_is_total=True)


def _own_columns(run: Run) -> list[Column]:
    """The metrics of one run, whose tables are named where there are several, and when each was kept."""
    names = tables.views([run])
    if not names:
        return [*METRICS, KEPT]

    def when(view: str) -> str:
        kept = run.kept_rounds(view)
        if len(kept) > 1:
            return f"rounds {min(kept)} to {max(kept)}"
        return f"round {max(kept)}" if kept else "rounds of their own"

    mrr, kept = (replace(column, title=f"{column.title}, {tables.LOCAL}") for column in (METRICS[0], KEPT))
    notes = {view: f"of the tables kept at {when(view)}" for view in names}
    others = (Column(f"{view}_mrr", f"MRR, {view}", share, note, 1) for view, note in notes.items())
    return [mrr, *METRICS[1:], kept, *others]


def chances(beyond: Mapping[str, Differences], unknown: str = "") -> str:
    """A row per site and a column per experiment, then what is not known."""
    known = {label: found for label, found in beyond.items() if found}
    sites = dict.fromkeys(site for found in known.values() for site in found)
    rows: list[Row] = [
        {"site": site, **{label: found.get(site) for label, found in known.items()}} for site in sites
    ]
    columns = [SITE, *(Column(label, label, interval) for label in known)]
    return (table(rows, columns, CHANCES) if rows else "") + (markup.soft(unknown) if unknown else "")


def interval(found: Difference) -> str:
    """A difference, its interval, and in words what that says."""
    ends = f"[{found.low:+.4f}, {found.high:+.4f}]".replace("-", "−")
    kind = {BETTER: "gain", WORSE: "loss"}.get(found.verdict)
    verdict = f' <strong class="{kind}">{found.verdict}</strong>' if kind else ""
    return f'{difference(found.mean)} <span class="std">{ends}</span>{verdict}'
