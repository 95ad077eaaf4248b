"""Columns that several of the page's tables have: the metrics, and the round that was kept."""

from __future__ import annotations

from fedkge.reports.pages.markup import Column, count, rank, share

HITS = "share of queries whose answer is among the first"
METRICS = (
    Column("mrr", "MRR", share, "mean reciprocal rank; higher is better", 1),
    Column("mr", "Mean rank", rank, "lower is better", -1),
    *(Column(f"hits@{k}", f"Hits@{k}", share, f"{HITS} {k}; higher is better", 1) for k in (1, 3, 5, 10)),
)
KEPT = Column("best_round", "Kept", count, "the round with the best validation; the latest over sites")
