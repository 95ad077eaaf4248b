"""What a run's ledger says: ε of each site and over epochs, as a table, a plot and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from fedkge.config import build
from fedkge.errors import ConfigError, DataError, MissingPackage
from fedkge.privacy import (
    ACCOUNTANTS,
    LEDGER,
    Account,
    Entry,
    Privacy,
    accounts,
    explained,
    over_epochs,
    unprotected,
    whole_ledger,
)
from fedkge.privacy.accounts import accountant_for
from fedkge.privacy.words import number
from fedkge.reports.canvas import Canvas
from fedkge.reports.figure import Figure
from fedkge.reports.lines import Line, Point, Scale, coloured, line_figure
from fedkge.reports.markup import Column, count, table, words
from fedkge.reports.run import POOLED, Run

LINES = 8  #: sites that get a line of their own; of more, those that have spent most
COLUMNS = (
    Column("site", "Site", words),
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


@dataclass(frozen=True)
class Spent:
    """A run's releases and what they cost; no accounts when nothing was released."""

    mode: str
    entries: Sequence[Entry]
    accounts: Sequence[Account]

    @property
    def words(self) -> list[str]:
        """Whose data is protected against whom."""
        return explained(self.accounts) if self.accounts else unprotected(self.mode)

    def curve(self, account: Account) -> dict[int, float]:
        """Epoch -> ε."""
        return over_epochs(self.entries, account.site, account.delta, ACCOUNTANTS[account.accountant]())


def spent(run: Run, delta: float | None = None, accountant: str | None = None) -> Spent:
    """What a run released, at the δ and by the accountant given; unset, those of its configuration."""
    config = run.path / "config.toml"
    try:
        given = build(Privacy, run.config.get("privacy", {}), "privacy")
    except ConfigError as error:
        raise DataError(f"{config}: {error}") from None
    entries = _entries(run, given.noisy)
    if not entries:
        return Spent(given.mode, entries, [])
    delta = given.delta if delta is None else delta
    if delta is None:
        raise DataError(f"{config}: privacy.delta is missing; which δ is ε meant at? give --delta")
    return Spent(given.mode, entries, accounts(entries, delta, accountant or given.accountant))


def _entries(run: Run, noisy: bool) -> Sequence[Entry]:
    """A run's ledger, which must have what its summary, else its checkpoint, else its journal know of."""
    known = run.summary if "ledger" in (run.summary or {}) else _checkpoint(run)
    ledger = whole_ledger(run.path / LEDGER, known)
    if noisy and "ledger" not in (known or {}) and any(done.losses for done in run.rounds.values()):
        ledger.check_begun(run.path / "run.jsonl")
    return ledger.entries


def _checkpoint(run: Run) -> Mapping[str, Any] | None:
    from fedkge.runtimes.federated import CHECKPOINT
    from fedkge.runtimes.folder import RunFolder

    return RunFolder.open(run.path).checkpoint_state(CHECKPOINT)


def together(runs: Sequence[Spent]) -> list[Account]:
    """What several runs on the same confidential triples cost: sites of one name are one site.

    They are counted by one accountant and at one δ, as `alike` has them.
    """
    account = next(account for run in runs for account in run.accounts)
    entries = [entry for run in runs for entry in run.entries]
    return accounts(entries, account.delta, account.accountant)


def alike(runs: Sequence[Run], found: Sequence[Spent]) -> tuple[list[Spent], str | None]:
    """The same runs, counted by one accountant at one δ, and what to say where they were not.

    Otherwise a sum could be below its parts.
    """
    each = [account for one in found for account in one.accounts]
    names = list(dict.fromkeys(account.accountant for account in each))
    deltas = sorted({account.delta for account in each})
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
    open_ = [run.name for run, one in zip(runs, found, strict=True) if one.mode == "off"]
    if open_:
        return (
            f"Not added up: {', '.join(open_)} trained on confidential triples without protection "
            "(privacy.mode is off). Whoever sees that run needs no other: there is no guarantee."
        )
    pooled = {run.method == POOLED for run in runs}
    if len(pooled) > 1:
        return "Not added up: some runs pool all graphs, so that what they spent is every site's."
    known: dict[str, set[str]] = {}
    for run in runs:
        for site, of in (run.summary or {}).get("sites", {}).items():
            known.setdefault(site, set()).add(str(of.get("digest")))
    others = [site for site, digests in known.items() if len(digests) > 1]
    if others:
        return (
            f"Not added up: {', '.join(others)} had other triples, or others of them confidential, in "
            "some of the runs: what one protects another may have trained on openly."
        )
    return None


def epsilon_figure(found: Spent) -> Figure:
    """ε over epochs, a line per site."""
    most = sorted(found.accounts, key=lambda account: -account.epsilon)[:LINES]
    lines = []
    for i, account in enumerate(account for account in found.accounts if account in most):
        points = [Point(epoch, epsilon) for epoch, epsilon in found.curve(account).items()]
        lines.append(Line(account.site, points, *coloured(i)))
    scale = Scale(
        {"title": {"text": "epoch"}, "rangemode": "tozero"},
        {"title": {"text": f"ε at δ = {most[0].delta:g}"}},
        "epoch %{x}: ε = %{y:.3f}",
    )
    title = "ε over epochs" + (", of the sites that have spent most" * (len(found.accounts) > LINES))
    return line_figure(title, f"{title}: what each site has spent by the end of an epoch.", lines, scale)


def privacy_part(page: Canvas, found: Spent) -> str:
    """One run: the plot, the table, and what they mean."""
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in found.words)
    if not found.accounts:
        return said
    caption = "What each site has spent: every release that was recorded, used or not."
    rows = [account.plain() for account in found.accounts]
    return page.place(epsilon_figure(found)) + table(rows, COLUMNS, caption) + said


def privacy(page: Canvas, runs: Sequence[Run]) -> str:
    """For a report: the runs that have a ledger or had one, one below the other."""
    parts = []
    for run in runs:
        if (run.path / LEDGER).is_file() or "ledger" in (run.summary or {}):
            try:
                part = privacy_part(page, spent(run))
            except MissingPackage as error:
                part = f'<p class="soft">{escape(str(error))}</p>'
            parts.append(part if len(runs) == 1 else f"<h3>{escape(run.name)}</h3>{part}")
    return "".join(parts)
