"""What a run's ledger says: ε of each site and over epochs, as a table, a plot and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from fedkge.config import build
from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL, ledger_at, run_entries, run_ledgers
from fedkge.privacy import (
    ACCOUNTANTS,
    Cost,
    Entry,
    Privacy,
    costs,
    explained,
    over_epochs,
    unprotected,
    whole_ledger,
)
from fedkge.privacy.costs import accountant_for
from fedkge.privacy.pate import paper_epsilon
from fedkge.privacy.peer_words import peer_words
from fedkge.privacy.words import number
from fedkge.reports.drawing.figure import Canvas, Figure, titled
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure
from fedkge.reports.folders.run import Kind, Run
from fedkge.reports.pages.markup import SITE, Column, by_run, count, soft, table, words

LINES = 8  #: sites that get a line of their own; of more, those that have spent most
COLUMNS = (
    SITE,
    Column("epsilon", "ε", number, "rounded up; smaller is more private"),
    Column("delta", "δ", lambda value: f"{value:g}", "added to what e^ε allows; far below 1 / triples"),
    Column("unit", "Unit", words, "what is protected", words=True),
    Column("neighbours", "Neighbours", words, "graphs that must look alike", words=True),
    Column("accountant", "Accountant", words, words=True),
    Column("guarantee", "Guarantee", words, "formal: proven under the assumptions below", words=True),
    Column("releases", "Releases", count, "steps and uploads that used confidential triples"),
    Column("mechanism", "Mechanism", words, words=True),
    Column("sampling", "Sampling", words, words=True),
)

ACCOUNTS = (
    *COLUMNS[:5],
    Column("runs", "Runs", count, "seeds, sweep points and trials included"),
    Column("limit", "Limit", lambda value: "none" if value is None else f"{value:g}", "for all of them"),
    *COLUMNS[5:8],
)
ALL_RUNS = (
    "What all runs of each site have spent together, by its own account when this run ended. Units have "
    "sums of their own, which do not cover each other."
)


@dataclass(frozen=True)
class Spent:
    """A run's releases and what they cost; no costs when nothing was released."""

    mode: str
    entries: Sequence[Entry]
    costs: Sequence[Cost]
    peers: Mapping[str, Any] | None = None  #: the options of a method without a hub
    paper: Mapping[str, float] = field(default_factory=dict)  #: what the paper's arithmetic says, by site
    unit: str = "triple"  #: that the run was to protect

    @property
    def words(self) -> list[str]:
        """Whose data is protected against whom."""
        if self.peers is not None:
            return peer_words(self.peers, self.costs, self.paper)
        return explained(self.costs) if self.costs else unprotected(self.mode, self.unit)

    def curve(self, cost: Cost) -> dict[int, float]:
        """Epoch -> ε."""
        return over_epochs(self.entries, cost.site, cost.delta, ACCOUNTANTS[cost.accountant]())


def spent(run: Run, delta: float | None = None, accountant: str | None = None) -> Spent:
    """What a run released, at the δ and by the accountant given; unset, those of its configuration."""
    config = run.path / "config.toml"
    try:
        given = build(Privacy, run.config.get("privacy", {}), "privacy")
    except ConfigError as error:
        raise DataError(f"{config}: {error}") from None
    entries = _entries(run)
    if given.noisy and not entries and any(done.losses for done in run.rounds.values()):
        raise DataError(
            f"{run.path}: no ledger has a release, while run.jsonl has rounds that made some: what was spent "
            "is not known; restore the ledgers of its sites, as it cannot be forgotten"
        )
    peers = run.config["method"] if run.kind is Kind.PEERS else None
    if not entries:
        return Spent(given.mode, entries, [], peers, unit=given.released)
    if delta is None:
        delta = given.delta if peers is None else peers["delta"]
    if delta is None:
        raise DataError(f"{config}: privacy.delta is missing; which δ is ε meant at? give --delta")
    found = costs(entries, delta, accountant or given.accountant or (None if peers is None else "pld"))
    return Spent(given.mode, entries, found, peers, _papers(run, delta), given.released)


def _papers(run: Run, delta: float) -> dict[str, float]:
    """The paper's ε by site, from the votes that peers' journals have; none without Laplace noise."""
    method = run.config["method"]
    if run.kind is not Kind.PEERS or method["law"] != "laplace" or not method["scale"]:
        return {}
    found = {}
    for journal in sorted([*run.path.glob(f"sites/*/{JOURNAL}"), *run.path.glob(JOURNAL)]):
        gaps: Counter[int] = Counter()
        for event in read_journal(journal):
            if event.get("event") == "conversation":
                gaps.update({int(gap): int(count) for gap, count in event["gaps"].items()})
        site = str(run.config.get("peer", journal.parent.name))
        found[site] = paper_epsilon(gaps, float(method["scale"]), delta)
    return found


def _entries(run: Run) -> Sequence[Entry]:
    """The ledgers of a run's nodes, which must have what their folders, and the summary, know of."""
    if "ledger" in (run.summary or {}):  # of an earlier version: one for all
        whole_ledger(ledger_at(run.path), run.summary)
    entries = run_entries(run.path)
    for cost in (run.summary or {}).get("privacy", []):
        site, made = cost["site"], sum(e.release.count for e in entries if e.site == cost["site"])
        if made < cost["releases"]:
            raise DataError(
                f"{run.path}: {made:,} of the {cost['releases']:,} releases that site {site!r} has made "
                "are in its ledgers; restore them, as what was spent cannot be forgotten"
            )
    return entries


def together(runs: Sequence[Spent]) -> list[Cost]:
    """What several runs on the same confidential triples cost: sites of one name are one site.

    They are counted by one accountant and at one δ, as `alike` has them.
    """
    cost = next(cost for run in runs for cost in run.costs)
    entries = [entry for run in runs for entry in run.entries]
    return costs(entries, cost.delta, cost.accountant)


def alike(runs: Sequence[Run], found: Sequence[Spent]) -> tuple[list[Spent], str | None]:
    """The same runs, counted by one accountant at one δ, and what to say where they were not.

    Otherwise a sum could be below its parts.
    """
    each = [cost for one in found for cost in one.costs]
    names = list(dict.fromkeys(cost.accountant for cost in each))
    deltas = sorted({cost.delta for cost in each})
    if len(names) == len(deltas) == 1:
        return list(found), None
    by, most = names[0], deltas[-1]
    if len(names) > 1:
        by = accountant_for(entry for one in found for entry in one.entries)
    said = (
        f"All runs are counted by {by} at δ = {most:g} here, so that they add up; their configurations say "
        f"{' and '.join(names)}, at δ = {' and '.join(f'{delta:g}' for delta in deltas)}."
    )
    return [spent(run, most, by) for run in runs], said


def not_together(runs: Sequence[Run], found: Sequence[Spent]) -> str | None:
    """Why runs cannot be added up, if they cannot."""
    if open_ := [run.name for run, one in zip(runs, found, strict=True) if one.mode == "off"]:
        return (
            f"Not added up: {', '.join(open_)} trained on confidential triples without protection "
            "(privacy.mode is off). Whoever sees that run needs no other: there is no guarantee."
        )
    if len({run.kind is Kind.POOLED for run in runs}) > 1:
        return "Not added up: some runs pool all graphs, so that what they spent is every site's."
    known = dict.fromkeys(site for run in runs for site in (run.summary or {}).get("sites", {}))
    graphs = {site: {str(run.at(site).get("digest")) for run in runs if run.at(site)} for site in known}
    if others := [site for site, digests in graphs.items() if len(digests) > 1]:
        return (
            f"Not added up: {', '.join(others)} had other triples, or others of them confidential, in "
            "some of the runs: what one protects another may have trained on openly."
        )
    return None


def epsilon_figure(found: Spent) -> Figure:
    """ε over epochs, a line per site."""
    most = sorted(found.costs, key=lambda cost: -cost.epsilon)[:LINES]
    lines = []
    for i, cost in enumerate(cost for cost in found.costs if cost in most):
        points = [Point(epoch, epsilon) for epoch, epsilon in found.curve(cost).items()]
        lines.append(Line(cost.site, points, *coloured(i)))
    yaxis = titled(f"ε at δ = {most[0].delta:g}")
    scale = Scale(titled("epoch", rangemode="tozero"), yaxis, "epoch %{x}: ε = %{y:.3f}")
    title = "ε over epochs" + (", of the sites that have spent most" * (len(found.costs) > LINES))
    return line_figure(title, f"{title}: what each site has spent by the end of an epoch.", lines, scale)


def privacy_part(page: Canvas, found: Spent, accounts: Sequence[dict[str, Any]] = ()) -> str:
    """One run: the plot, the table, what all runs of each site cost, and what they mean."""
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in found.words)
    if not found.costs:
        return said
    caption = "What each site has spent: every release that was recorded, used or not."
    rows = [cost.plain() for cost in found.costs]
    every = table(accounts, ACCOUNTS, ALL_RUNS) if accounts else ""
    return page.place(epsilon_figure(found)) + table(rows, COLUMNS, caption) + every + said


def privacy(page: Canvas, runs: Sequence[Run]) -> str:
    """For a report: the runs that have a ledger or had one, one below the other."""

    def part(run: Run) -> str:
        had_one = "ledger" in (run.summary or {}) or run.kind is Kind.PEERS
        if not (had_one or any(run_ledgers(run.path))):
            return ""
        try:
            return privacy_part(page, spent(run), (run.summary or {}).get("accounts", ()))
        except MissingPackage as error:
            return soft(str(error))

    return by_run(runs, part)
