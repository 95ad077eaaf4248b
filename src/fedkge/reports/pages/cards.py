"""A few large numbers at the top of the page, each saying what it is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TypeAlias

from fedkge.reports.compared.baseline import alone, versus
from fedkge.reports.compared.details import size_rows, time_row
from fedkge.reports.compared.experiments import Group, foremost
from fedkge.reports.folders.run import Run, asked, side_note
from fedkge.reports.pages.findings import outcome
from fedkge.reports.pages.markup import NOTHING, count, difference, seconds, share, size

CARDS = 6  #: experiments that get a card
Card: TypeAlias = tuple[str, str, str]  #: what, value, note; all HTML


def cards(groups: Sequence[Group]) -> str:
    """Experiments beside each other, or one in a few numbers."""
    several = len(groups) > 1
    shown = [_compared(g, groups) for g in foremost(groups, CARDS)] if several else _own(groups[0])
    items = "".join(
        f'<div><dt>{what}</dt><dd class="value">{value}</dd><dd class="note">{note}</dd></div>'
        for what, value, note in shown
    )
    return f'<dl class="cards">{items}</dl>'


def _compared(group: Group, groups: Sequence[Group]) -> Card:
    found, gains = group.test(), versus(group, alone(group, groups))
    note = f"test MRR{side_note(group.runs)}" if found else "not ended"
    if found and found.std is not None:
        note += f" ± {share(found.std)}, {found.n} seeds"
    if gains is not None:
        note += f", {difference(gains.gain)} vs alone<br>{outcome(gains)}"
    swatch = f'<span class="swatch" style="background:var(--{group.colour})"></span>'
    return swatch + escape(group.label), NOTHING if found is None else share(found.mean), note


def _own(group: Group) -> list[Card]:
    shown = []
    for metric, title, note in (
        ("mrr", "Test MRR", f"filtered, {asked(group.runs)}"),
        ("hits@10", "Test Hits@10", "answers among the first ten"),
    ):
        found = group.test(metric)
        if found is not None:
            note = note if found.std is None else f"± {share(found.std)} over {found.n} seeds"
            shown.append((title, share(found.mean), note))
    return [*shown, *_effort(group.first)]


def _effort(run: Run) -> list[Card]:
    """What one run, of several seeds the first, had and took."""
    rows = size_rows([run])
    note = f"{count(sum(row['train'] or 0 for row in rows))} training triples" if rows else ""
    shown = [("Sites", count(len(run.sites)), note)]
    sent = run.traffic
    if sent.bytes:
        shown.append(("Sent", size(sent.bytes), f"{size(sent.up_bytes)} up, {size(sent.down_bytes)} down"))
    spent = time_row(run)
    speed = spent["triples_per_s"]
    note = f"{count(speed)} triples/s" if speed else ""
    return [*shown, ("Training time", seconds(spent["train_seconds"]), note)]
