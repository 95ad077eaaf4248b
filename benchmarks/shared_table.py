"""What `shared.py` measured, as a table: own negatives beside shared ones."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

CHUNKS = (1, 128)  #: own negatives, shared ones


def lines(out: Path) -> list[dict[str, Any]]:
    """What has been measured; the last line of a run that was stopped may be cut off."""
    text = out.read_text() if out.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def table(out: Path) -> str:
    """Markdown: a row for each model, data and method."""
    found: dict[tuple[str, ...], dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for one in lines(out):
        found[one["model"], one["data"], one["method"]][one["chunk"]][one["seed"]] = 100 * one["mrr"]
    rows = [
        "| model | data | method | own | shared by 128 | difference | two deviations | holds | seeds |",
        "|---|---|---|---:|---:|---:|---:|---|---:|",
    ]
    for row, by_chunk in found.items():
        seeds = sorted(by_chunk[1].keys() & by_chunk[128].keys())
        if not seeds:
            continue
        own, shared = ([by_chunk[chunk][seed] for seed in seeds] for chunk in CHUNKS)
        gap = statistics.mean(shared) - statistics.mean(own)
        spread = max(statistics.stdev(own), statistics.stdev(shared)) if len(seeds) > 1 else float("nan")
        holds = "yes" if gap >= -2 * spread else "no"
        means = f"{statistics.mean(own):.2f} | {statistics.mean(shared):.2f} | {gap:+.2f} | {2 * spread:.2f}"
        rows.append(f"| {' | '.join(row)} | {means} | {holds} | {len(seeds)} |")
    return "\n".join(rows)
