"""What choosing, coding and merging costs a site: a million shared rows of 256 numbers.

    python benchmarks/exchange.py [--rows 1000000] [--select topk --codec ternary --delta]

Without a codec, every pair that could be a way to say less: seconds of a site's turn, up and down. The hub's
half is played in between and not counted, nor is the first turn, in which both ends hold nothing yet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace

import torch

from fedkge.exchange.channel import channel
from fedkge.exchange.codec import CODECS, Codec
from fedkge.exchange.rows import Rows
from fedkge.exchange.select import SELECTIONS, History, Selection
from fedkge.graphs.graph import Axis
from fedkge.methods.state import Shared, Site
from fedkge.models import MODELS, Tables

WIDTH = 256
PAIRS = [
    (select, codec, delta)
    for select in ("full", "topk", "moved")
    for codec, delta in (
        ("int8", False),
        ("int4", False),
        ("int4", True),
        ("ternary", False),
        ("ternary", True),
    )
]


def measure(selection: Selection, codec: Codec, rows: int, turns: int) -> dict[str, float]:
    """Seconds of a turn, up (choose, code) and down (decode, merge): medians."""
    ids, table = torch.arange(rows), torch.randn(rows, WIDTH)
    tables = Tables(MODELS["transe"](dim=WIDTH), table, torch.zeros(1, WIDTH))
    none = Shared(ids[:0], ids[:0])
    site = Site("site", tables, {Axis.ENTITY: Shared(ids, ids), Axis.RELATION: none}, {})
    history = History(selection, {Axis.ENTITY: site.read(Axis.ENTITY)})
    announced, widths = {Axis.ENTITY: ids}, {Axis.ENTITY: WIDTH}
    here, there = (channel(codec, announced, widths, hub=hub) for hub in (False, True))
    spent: dict[str, list[float]] = {"up_s": [], "down_s": []}
    for turn in range(1, turns + 1):
        table.add_(torch.randn(WIDTH), alpha=0.01)
        started = time.perf_counter()
        body = here.encode(history.chosen({Axis.ENTITY: site.read(Axis.ENTITY)}, turn), turn)
        spent["up_s"].append(time.perf_counter() - started)
        sent = there.decode(body, turn)[Axis.ENTITY]
        support = None if len(sent) == rows else torch.ones(len(sent), dtype=torch.int64)
        answer = there.encode({Axis.ENTITY: Rows(sent.ids, sent.values, support)}, turn + 1)
        del sent, body
        started = time.perf_counter()
        here.settle(True)
        history.settle(True)
        site.write(site.merged(here.decode(answer, turn + 1)))
        spent["down_s"].append(time.perf_counter() - started)
        there.settle(True)
    return {way: round(statistics.median(seconds[1:]), 3) for way, seconds in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--select", default="full")
    parser.add_argument("--codec")
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--turns", type=int, default=6)
    asked = parser.parse_args()
    pairs = [(asked.select, asked.codec, asked.delta)] if asked.codec else PAIRS
    for select, name, delta in pairs:
        codec = CODECS[name]()
        if delta:
            codec = replace(codec, delta=True)  # type: ignore[type-var]
        found = measure(SELECTIONS[select](), codec, asked.rows, asked.turns)
        label = f"exchange-{select}-{name}{'-delta' if delta else ''}"
        total = round(sum(found.values()), 2)
        print(json.dumps({"name": label, "seconds": total, "rows": asked.rows, **found}), flush=True)


if __name__ == "__main__":
    main()
