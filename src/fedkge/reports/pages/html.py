"""One self-contained page about one run or several: works offline, reads like a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TypeAlias

import fedkge
from fedkge.durable import keep_private
from fedkge.errors import DataError, MissingPackage
from fedkge.reports.compared.baseline import alone, versus
from fedkge.reports.compared.choosing import revealed
from fedkge.reports.compared.details import time_row
from fedkge.reports.compared.experiments import Group, experiments, foremost
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.folders.run import Run, asked, side_note
from fedkge.reports.pages.findings import finding, notices, outcome
from fedkge.reports.pages.holdings import size_rows
from fedkge.reports.pages.markup import NOTHING, count, difference, seconds, share, size
from fedkge.reports.pages.page import POLICY, SCRIPT, STYLE
from fedkge.reports.pages.plain import headline
from fedkge.reports.pages.sections import USUAL, Shown, sections

GENERATOR = '<meta name="generator" content="fedkge'
LOGO = (
    '<svg viewBox="0 0 26 26" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8">'
    '<path d="M13 13 5 6M13 13l9-5M13 13l-3 9"/><circle cx="13" cy="13" r="3.4" fill="currentColor"/>'
    '<circle cx="5" cy="6" r="2.6"/><circle cx="22" cy="8" r="2.6"/><circle cx="10" cy="22" r="2.6"/></svg>'
)


def write_report(runs: Sequence[Run], path: Path, shown: Shown = USUAL) -> None:
    """Write the page about runs."""
    write_page(render(runs, shown), path)


def write_page(content: str, path: Path) -> None:
    """Write a page whole or not at all; only an earlier page of ours is replaced."""
    draft = path.with_name(f".{path.name}.part")
    try:
        if path.exists() and not _is_report(path):
            raise DataError(f"{path}: exists and is no report of fedkge; choose another file with --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        keep_private(draft)
        draft.write_text(content, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return GENERATOR.encode() in file.read(2000)


def render(runs: Sequence[Run], shown: Shown = USUAL) -> str:
    """The page as text; the same run folders give the same page."""
    canvas = Canvas()
    parts = sections(runs, canvas, shown)
    chosen = revealed(runs, shown.show_test)
    groups = experiments(chosen)
    note = f"{len(chosen)} of {len(runs)} runs are chosen by validation: this page is about them."
    note = note if len(chosen) < len(runs) else ""
    header = f"""<p class="soft">{_subtitle(groups)}</p>
<p class="finding">{headline(groups)}</p>
<p>{finding(groups)} {note}</p>
{notices(groups)}
{cards(groups)}"""
    return document(_title(groups), header, parts, canvas)


def document(title: str, header: str, parts: Mapping[str, str], canvas: Canvas) -> str:
    """A page of our look: `header` under its title, then `parts` (heading -> HTML) with plots of `canvas`."""
    script = _plotly()
    links = "".join(f'<li><a href="#s{i}">{escape(title)}</a></li>' for i, title in enumerate(parts))
    body = "".join(
        f'<section id="s{i}" aria-labelledby="h{i}"><h2 id="h{i}">{escape(title)}</h2>{content}</section>'
        for i, (title, content) in enumerate(parts.items())
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
{GENERATOR} {escape(fedkge.__version__)}">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<div class="brand">{LOGO}<span>fedkge report</span></div>
<h1>{escape(title)}</h1>
{header}
<nav aria-label="Contents"><ul>{links}</ul></nav>
</header>
<main>
{body}
<noscript><p class="notice">The plots need JavaScript; the tables do not.</p></noscript>
</main>
<footer><p>Made by fedkge {escape(fedkge.__version__)} from run folders alone.
This file needs no network and makes no requests: its policy forbids them.</p></footer>
<script>{script}</script>
<script type="application/json" id="figures">{canvas.json()}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingPackage("plotly", "a report", "report") from None
    source: str = get_plotlyjs()
    return source.replace("</script", "<\\/script")


def _title(groups: Sequence[Group]) -> str:
    datasets = " and ".join(dict.fromkeys(Path(group.first.dataset).name for group in groups))
    if len(groups) == 1:
        return f"{groups[0].approach} with {groups[0].first.model} on {datasets}"
    methods = list(dict.fromkeys(group.approach for group in groups))
    if len(methods) <= 5:
        return f"{', '.join(methods)} on {datasets}"
    return f"{len(methods)} methods on {datasets}"


def _subtitle(groups: Sequence[Group]) -> str:
    runs = [run for group in groups for run in group.runs]
    sites = len({site for run in runs for site in run.sites})
    models = ", ".join(dict.fromkeys(run.model for run in runs))
    seeds = list(dict.fromkeys(str(run.seed) for run in runs))
    parts = [f"{sites} site{'s' * (sites != 1)}", escape(models)]
    parts.append(f"seed{'s' * (len(seeds) > 1)} {escape(', '.join(seeds))}")
    if len(runs) > 1:
        parts.append(f"{len(runs)} runs")
    begun = [run.started for run in runs if run.started is not None]
    days = sorted({datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in begun})
    if days:
        parts.append(f"run on <time>{days[0]}</time>" + (f" to <time>{days[-1]}</time>" if days[1:] else ""))
    return " · ".join(parts)


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
    """What it reached; then what one run, of several seeds the first, had and took."""
    shown = []
    for metric, title, note in (
        ("mrr", "Test MRR", f"filtered, {asked(group.runs)}"),
        ("hits@10", "Test Hits@10", "answers among the first ten"),
    ):
        if found := group.test(metric):
            note = note if found.std is None else f"± {share(found.std)} over {found.n} seeds"
            shown.append((title, share(found.mean), note))
    run, rows, spent = group.first, size_rows([group.first]), time_row(group.first)
    trained = [max(row["trained"] or [row["train"] or 0]) for row in rows]
    note = f"{count(sum(trained))} training triples" if rows else ""
    shown.append(("Sites", count(len(run.sites)), note))
    if (sent := run.traffic).bytes:
        shown.append(("Sent", size(sent.bytes), f"{size(sent.up_bytes)} up, {size(sent.down_bytes)} down"))
    note = f"{count(spent['triples_per_s'])} triples/s" if spent["triples_per_s"] else ""
    return [*shown, ("Training time", seconds(spent["train_seconds"]), note)]
