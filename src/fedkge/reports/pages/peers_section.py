"""Peers without a hub: how good each site was before it met anybody and after, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from fedkge.nodes.journal import read_journal
from fedkge.reports.drawing.canvas import Canvas
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure
from fedkge.reports.folders.journals import RUN
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Column, count, seconds, share, size, table, words

COLUMNS = (
    Column("site", "Site", words),
    Column(
        "accuracy_before",
        "Accuracy, before",
        share,
        "triple classification on test, before the first meeting",
    ),
    Column("accuracy", "Accuracy, after", share),
    Column("mrr_before", "MRR, before", share, "filtered, head and tail queries"),
    Column("mrr", "MRR, after", share),
    Column(
        "mr_typed_before", "MR, typed, before", count, "candidates: entities seen at that end of the relation"
    ),
    Column("mr_typed", "MR, typed, after", count),
    Column("talks", "Conversations", count),
    Column("gains", "Gains", count, "improvements of its validation, by conversations or alone"),
    Column("bytes", "Sent", size, "by this peer"),
    Column("per_talk", "Per conversation", size, "bytes that it sent, on average"),
    Column("train", "KGE", seconds, "training of embeddings"),
)


def peer_rows(run: Run) -> list[dict[str, Any]]:
    """One row per site of a run that has ended."""
    summary = run.summary or {}
    rows = []
    for site, of in summary.get("peers", {}).items():
        sent = summary["sites"][site]["traffic"]["up_bytes"]
        metrics = summary["sites"][site]["metrics"]
        rows.append(
            {
                "site": site,
                "accuracy_before": of["before"]["accuracy"],
                "accuracy": of["after"]["accuracy"],
                "mrr_before": metrics["test_before"]["mrr"],
                "mrr": metrics["test"]["mrr"],
                "mr_typed_before": of["before"]["typed"]["mr"],
                "mr_typed": of["after"]["typed"]["mr"],
                "talks": of["talks"],
                "gains": of["version"],
                "bytes": sent,
                "per_talk": sent / of["talks"] if of["talks"] else 0,
                "train": of["seconds"]["train"],
            }
        )
    return rows


def peers(page: Canvas, runs: Sequence[Run]) -> str:
    """For a report: the runs without a hub, one below the other."""
    parts = []
    for run in runs:
        rows = peer_rows(run)
        if not rows:
            continue
        caption = (
            "Each site before it met anybody and at the end; validation decided what was kept, never test."
        )
        exchange = max(of["exchange"] for of in (run.summary or {})["peers"].values())
        spent = f"<p>PPAT and messages took {exchange:.0f} s, over all peers.</p>"
        part = page.place(improvement(run)) + table(rows, COLUMNS, caption) + spent
        parts.append(part if len(runs) == 1 else f"<h3>{escape(run.name)}</h3>{part}")
    return "".join(parts)


def improvement(run: Run) -> Any:
    """Each site's best validation over the updates of its own."""
    best: dict[str, list[Point]] = {}
    for event in read_journal(run.path / RUN):
        if event.get("event") == "update":
            best.setdefault(event["site"], []).append(Point(event["round"], event["best"]))
    lines = [Line(site, points, *coloured(i)) for i, (site, points) in enumerate(best.items())]
    scale = Scale(
        {"title": {"text": "rounds that the site has trained"}, "rangemode": "tozero"},
        {"title": {"text": "best validation"}},
        "round %{x}: %{y:.4f}",
    )
    title = "Improvement over time"
    return line_figure(title, f"{title}: the best validation of each site so far.", lines, scale)
