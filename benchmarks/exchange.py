"""What choosing, coding and merging costs a site: a million shared rows, and a round of FB15k-237-R10.

python benchmarks/exchange.py [--rows 1000000] [--codec int8] [--delta]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace

import torch

from fedkge.exchange.codec import CODECS
from fedkge.exchange.line import line
from fedkge.exchange.rows import Rows
from fedkge.exchange.select import Choice, TopK
from fedkge.graphs.graph import Axis
from fedkge.methods.base import Shared, Site
from fedkge.models import MODELS, Tables

WIDTH = 256


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--codec", default="int8")
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--turns", type=int, default=4)
    options = parser.parse_args()
    codec = CODECS[options.codec]()
    if options.delta:
        codec = replace(codec, delta=True)  # type: ignore[type-var]
    ids = torch.arange(options.rows)
    table = torch.randn(options.rows, WIDTH)
    tables = Tables(MODELS["transe"](dim=WIDTH), table, torch.zeros(1, WIDTH))
    none = Shared(ids[:0], ids[:0])
    site = Site("site", tables, {Axis.ENTITY: Shared(ids, ids), Axis.RELATION: none}, {})
    choice = Choice(TopK(p=0.4), {Axis.ENTITY: site.read(Axis.ENTITY)})
    announced, widths = {Axis.ENTITY: ids}, {Axis.ENTITY: WIDTH}
    here, there = (line(codec, announced, widths, hub=hub) for hub in (False, True))
    spent: dict[str, list[float]] = {"up": [], "down": []}
    for turn in range(1, options.turns + 1):
        table.add_(torch.randn(WIDTH), alpha=0.01)
        started = time.perf_counter()
        update = choice.up({Axis.ENTITY: site.read(Axis.ENTITY)}, turn)
        body = here.encode(update, turn)
        spent["up"].append(time.perf_counter() - started)
        rows = there.decode(body, turn)[Axis.ENTITY]
        here.settle(True)
        choice.settle(True)
        support = torch.ones(len(rows), dtype=torch.int64)
        answer = there.encode({Axis.ENTITY: Rows(rows.ids, rows.values, support)}, turn + 1)
        started = time.perf_counter()
        site.write(site.merged(here.decode(answer, turn + 1)))
        spent["down"].append(time.perf_counter() - started)
        there.settle(True)
    median = {way: statistics.median(seconds[1:]) for way, seconds in spent.items()}
    found = {"up_s": round(median["up"], 3), "down_s": round(median["down"], 3)}
    total = round(sum(median.values()), 3)
    print(
        json.dumps(
            {"name": "exchange", "seconds": total, "rows": options.rows, "codec": options.codec, **found}
        )
    )


if __name__ == "__main__":
    main()
