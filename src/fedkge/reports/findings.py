"""What the numbers say, in a sentence and a few large figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import TypeAlias

from fedkge.reports.load import Run
from fedkge.reports.markup import NOTHING, count, difference, seconds, share
from fedkge.reports.tables import alone, labels, size_rows, time_row

#: What a reader must know about a method before comparing it.
TERMS = {
    "single": "Every site trains alone on its own graph. Nothing leaves a site.",
    "collective": "All graphs are pooled in one place and trained as one, then measured site by site. "
    "A reference that shows what sharing everything would give; it is not private.",
}
POOLED = {"collective"}  #: methods in which graphs leave their sites
Named: TypeAlias = tuple[str, Run]
CARDS = 6  #: runs that get a card


def finding(runs: Sequence[Run]) -> str:
    """The one sentence to remember, as HTML."""
    ended = [pair for pair in zip(labels(runs), runs, strict=True) if "mrr" in pair[1].metrics("test")]
    if not ended:
        return "No test results yet: this page shows what has been journalled so far."
    if len(runs) == 1:
        run = runs[0]
        value = run.metrics("test")["mrr"]
        n = len(run.sites)
        where = f"over {n} sites, weighted by their test statements" if n > 1 else "at its one site"
        return f"Test MRR is <strong>{share(value)}</strong> {where} (filtered, realistic ties)."
    if len({run.dataset for run in runs}) > 1:
        return "The runs used different data: read each by itself."
    apart = [pair for pair in ended if pair[1].method not in POOLED]
    pooled = [pair for pair in ended if pair[1].method in POOLED]
    sentences = [_apart(apart, runs)] if apart else []
    sentences += [_reference(pooled, runs)] if pooled else []
    return " ".join(sentences)


def _apart(ended: Sequence[Named], runs: Sequence[Run]) -> str:
    """The best run that leaves every graph where it is."""
    name, best = max(ended, key=lambda pair: pair[1].metrics("test")["mrr"])
    label, value = (
        f"<strong>{escape(name)}</strong>",
        f"<strong>{share(best.metrics('test')['mrr'])}</strong>",
    )
    text = f"{label} reaches a test MRR of {value}"
    if len(ended) > 1:
        text = f"Of the runs that keep every graph at its site, {label} has the highest test MRR, {value}"
    return f"{text}{_against(best, alone(best, runs))}."


def _reference(pooled: Sequence[Named], runs: Sequence[Run]) -> str:
    name, best = max(pooled, key=lambda pair: pair[1].metrics("test")["mrr"])
    value = f"<strong>{share(best.metrics('test')['mrr'])}</strong>"
    gain = _against(best, alone(best, runs))
    return f"Pooling all graphs in one place ({escape(name)}, not private) gives {value}{gain}."


def _against(run: Run, base: Run | None) -> str:
    if base is None:
        return ""
    gain = run.metrics("test")["mrr"] - base.metrics("test")["mrr"]
    return f", {difference(gain)} against every site alone; {_gaining(run, base)}"


def _gaining(run: Run, base: Run) -> str:
    sites = [site for site in run.sites if site in base.sites]
    better = sum(run.metrics("test", s).get("mrr", 0) > base.metrics("test", s).get("mrr", 0) for s in sites)
    return f"{better} of {len(sites)} sites gain"


def notices(runs: Sequence[Run]) -> str:
    """What is wrong with taking the page at face value."""
    texts = []
    for name, run in zip(labels(runs), runs, strict=True):
        if not run.ended:
            most = run.config.get("rounds")
            texts.append(
                f"{name} has not ended: round {run.last_round} of at most {most} so far, no test results. "
                f"`fedkge run --resume` goes on with it."
            )
        bad = [site for site, curve in run.losses.items() if not all(map(isfinite, curve.values()))]
        if bad:
            texts.append(
                f"{name} diverged at {', '.join(bad)}: the loss is no number; the plot has a gap there."
            )
    if len({run.dataset for run in runs}) > 1:
        texts.append("The runs used different data; their numbers cannot be compared with each other.")
    elif len({tuple(sorted(run.sites)) for run in runs if run.sites}) > 1:
        texts.append("The runs have different sites; averages over all sites cannot be compared.")
    return "".join(f'<p class="notice" role="note">{escape(text)}</p>' for text in texts)


def cards(runs: Sequence[Run]) -> str:
    """A few large numbers, each saying what it is."""
    shown = _run_cards(runs) if len(runs) > 1 else _single_cards(runs[0])
    items = "".join(
        f'<div><dt>{what}</dt><dd class="value">{value}</dd><dd class="note">{note}</dd></div>'
        for what, value, note in shown
    )
    return f'<dl class="cards">{items}</dl>'


def _run_cards(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    found = []
    for i, (name, run) in enumerate(zip(labels(runs), runs, strict=True)):
        value, base = run.metrics("test").get("mrr"), alone(run, runs)
        note = "test MRR" if run.ended else "not ended"
        if value is not None and base is not None:
            note += f", {difference(value - base.metrics('test')['mrr'])} vs alone<br>{_gaining(run, base)}"
        swatch = f'<span class="swatch" style="background:var(--s{i % 8})"></span>'
        card = (swatch + escape(name), NOTHING if value is None else share(value), note)
        found.append((value if value is not None else -1.0, i, card))
    best = sorted(sorted(found, key=lambda card: -card[0])[:CARDS], key=lambda card: card[1])
    return [card for _, _, card in best]


def _single_cards(run: Run) -> list[tuple[str, str, str]]:
    found = []
    test = run.metrics("test")
    if "mrr" in test:
        found.append(("Test MRR", share(test["mrr"]), "filtered, head and tail"))
        if "hits@10" in test:
            found.append(("Test Hits@10", share(test["hits@10"]), "answers among the first ten"))
    rows = size_rows([run])
    training = sum(row["train"] or 0 for row in rows)
    note = f"{count(training)} training statements" if rows else ""
    found.append(("Sites", count(len(run.sites)), note))
    spent = time_row(run)
    speed = spent["triples_per_s"]
    note = f"{count(speed)} triples/s" if speed else ""
    found.append(("Training time", seconds(spent["train_seconds"]), note))
    return found


def terms(runs: Sequence[Run]) -> str:
    """What the methods on this page mean for those whose data it is."""
    known = {run.method: TERMS[run.method] for run in runs if run.method in TERMS}
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in known.items())
    return f'<dl class="terms">{items}</dl>' if items else ""
