"""What `shared.py` measured, as tables: own negatives beside shared ones."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = [
    "| model | data | method | own | shared | by | difference | two deviations | holds | seeds |",
    "|---|---|---|---:|---:|---:|---:|---:|---|---:|",
]


def lines(out: Path) -> list[dict[str, Any]]:
    """What has been measured; the last line of a run that was stopped may be cut off."""
    text = out.read_text() if out.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def table(out: Path, setting: str) -> str:
    """Markdown of one setting: a row for each model, data, method, and number of positives that share.

    Empty if nothing can be compared.
    """
    found: dict[tuple[str, ...], dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for one in lines(out):
        if one["setting"] == setting:
            found[one["model"], one["data"], one["method"]][one["chunk"]][one["seed"]] = 100 * one["mrr"]
    rows = []
    for row, by_chunk in found.items():
        for chunk in sorted(by_chunk.keys() - {1}, reverse=True):
            if cells := compared(by_chunk[1], by_chunk[chunk], chunk):
                rows.append(f"| {' | '.join((*row, *cells))} |")
    return "\n".join([*HEAD, *rows]) if rows else ""


def compared(own: Mapping[int, float], shared: Mapping[int, float], chunk: int) -> list[str]:
    """The cells of a row, from what each seed gave; none without a seed that both have."""
    seeds = sorted(own.keys() & shared.keys())
    if not seeds:
        return []
    both = [[of[seed] for seed in seeds] for of in (own, shared)]
    means = [statistics.mean(one) for one in both]
    spread = max(map(statistics.stdev, both)) if len(seeds) > 1 else float("nan")
    gap = means[1] - means[0]
    holds = "yes" if gap >= -2 * spread else "no"
    numbers = [f"{means[0]:.2f}", f"{means[1]:.2f}", str(chunk), f"{gap:+.2f}", f"{2 * spread:.2f}"]
    return [*numbers, holds, str(len(seeds))]
