"""How long each GPU kernel takes, for the four similarities and several tile shapes (a star: the default).

    python benchmarks/gpu_kernels.py [--only forward,backward] [--defaults] [--batch 1024] [--json FILE]

`cold` times single calls after the L2 cache was emptied, `warm` replays of a CUDA graph, where tables of this
size stay in the cache as they do in training. Both are medians in milliseconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
import triton
from torch import Tensor
from triton.testing import do_bench, do_bench_cudagraph

from fedkge.kernels.base import Adam, Contribution, Draw, Pace, Similarity
from fedkge.kernels.gpu import (
    backend,
    contrasting,
    grouping,
    optimizers,
    ranking,
    sampling,
    shelving,
    similarity,
    stepping,
)
from fedkge.kernels.gpu.grouping import Groups
from fedkge.kernels.gpu.launch import Tiles
from fedkge.kernels.gpu.ranking import Square

WIDTHS = {Similarity.L1: 256, Similarity.L2: 256, Similarity.MODULUS: 512, Similarity.DOT: 512}
ADAM = Adam(1e-3)
TEST_QUERIES, TEST_ENTITIES = 2 * 20_466, 14_541  # FB15k-237: both sides of every test triple


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    call: Callable[[], object]
    detail: str = ""
    default: bool = True
    captured: bool = True


@dataclass(frozen=True)
class Batch:
    """A training batch of random rows, and the tables around it."""

    table: Tensor
    part: Contribution
    gradient: Tensor
    m: Tensor
    v: Tensor
    pace: Pace

    @classmethod
    def of(cls, kind: Similarity, b: int, n: int, e: int, hub: int = 0) -> Batch:
        """A batch whose first `hub` positions all name row 0."""
        w = WIDTHS[kind]
        table = torch.randn(e, w, device="cuda")
        query, index = torch.randn(b, w, device="cuda"), torch.randint(e, (b, n), device="cuda")
        index.view(-1)[:hub] = 0
        ids, values = torch.randint(e, (b,), device="cuda"), torch.randn(b, w, device="cuda")
        scores = backend.forward(kind, query, table, index)
        part = Contribution(kind, query, index, scores, torch.randn_like(scores), ids, values)
        one = torch.ones(1, dtype=torch.int64, device="cuda")
        pace = Pace(one * e, one, one.bool())
        return cls(table, part, *(torch.zeros_like(table) for _ in range(3)), pace)


def tilings(default: Tiles, elements: tuple[int, ...], warps: tuple[int, ...]) -> Iterator[Tiles]:
    yield default
    for size, count in product(elements, warps):
        tiles = Tiles(size, count, default.rows, default.longest)
        if tiles != default:
            yield tiles


def described(tiles: Tiles, kind: Similarity) -> str:
    shape = tiles.fit(kind, WIDTHS[kind], 1 << 20)
    return f"{shape['BLOCK']}x{shape['CHUNK']}, {tiles.warps} warps"


def forward(kind: Similarity, batch: Batch) -> Iterator[Case]:
    scores, part = torch.empty_like(batch.part.scores), batch.part
    for tiles in tilings(similarity.FORWARD, (2048, 4096, 8192), (4, 8)):
        yield Case(
            "forward",
            lambda tiles=tiles: similarity.forward(scores, kind, part.query, batch.table, part.index, tiles),
            described(tiles, kind),
            tiles == similarity.FORWARD,
        )


def backward(kind: Similarity, batch: Batch) -> Iterator[Case]:
    part, d_query = batch.part, torch.empty_like(batch.part.query)
    factors = (kind, part.query, batch.table, part.index, part.scores, part.d_scores)
    for tiles in tilings(similarity.BACKWARD, (1024, 2048, 4096), (4, 8)):
        yield Case(
            "backward query",
            lambda tiles=tiles: similarity.backward_query(d_query, *factors, tiles=tiles),
            described(tiles, kind),
            tiles == similarity.BACKWARD,
        )
    yield Case("contrast", lambda: backend.contrast(part.scores, 1.0))


def contrasted(kind: Similarity, batch: Batch) -> Iterator[Case]:
    """Scores and the queries' gradient in one pass, a query's candidates dealt out to programs or not."""
    part, d_query = batch.part, torch.empty_like(batch.part.query)
    factors = (kind, part.query, batch.table, part.index, 9.0, 1.0)
    scores = torch.empty_like(part.scores)
    choices = product(tilings(contrasting.CONTRAST, (512, 1024, 2048), (1, 2)), (1, 4096, 8192, 16384))
    for tiles, programs in choices:
        yield Case(
            "contrast_rows",
            lambda t=tiles, p=programs: contrasting.contrast_rows(scores, d_query, *factors, t, p),
            f"{described(tiles, kind)}, {programs} programs",
            (tiles, programs) == (contrasting.CONTRAST, contrasting.PROGRAMS),
        )


def shelved(kind: Similarity, batch: Batch) -> Iterator[Case]:
    part, state = batch.part, (batch.m, batch.v, batch.pace, ADAM)
    yield Case("shelve", lambda: shelving.Shelves.of(part, len(batch.table)))
    for tiles in tilings(shelving.SHELF, (512, 1024, 2048), (1, 2)):
        detail, default = described(tiles, kind), tiles == shelving.SHELF
        yield Case(
            "add shelves", lambda t=tiles: shelving.add(batch.gradient, batch.table, part, t), detail, default
        )
        yield Case(
            "adam on shelves",
            lambda t=tiles: stepping.adam_whole(batch.table, part, *state, t),
            detail,
            default,
        )


def grouped(kind: Similarity, batch: Batch) -> Iterator[Case]:
    part, e = batch.part, len(batch.table)
    yield Case("sort into groups", lambda: Groups.of(part, e))
    groups = Groups.of(part, e)
    state = (batch.m, batch.v, batch.pace, ADAM)
    choices = product(tilings(grouping.GROUPS, (1024, 2048, 4096), (4,)), (8, 16, 32))
    for tiles, length in sorted(choices, key=lambda choice: choice != (grouping.GROUPS, grouping.SLICE)):
        detail, default = f"{described(tiles, kind)}, slices of {length}", tiles == grouping.GROUPS
        yield Case(
            "add groups",
            lambda t=tiles, s=length: grouping.add(
                batch.gradient, batch.table, part, groups, groups.rows, t, s
            ),
            detail,
            default and length == grouping.SLICE,
        )
        yield Case(
            "adam on groups",
            lambda t=tiles, s=length: stepping.adam_touched(batch.table, part, groups, *state, t, s),
            detail,
            default and length == grouping.SLICE,
        )
    skewed = Batch.of(kind, *part.index.shape, e, hub=10_000)
    yield Case(
        "adam_touched_, hub of 10,000",
        lambda: backend.adam_touched_(skewed.table, skewed.part, skewed.m, skewed.v, skewed.pace, ADAM),
    )


def dense(kind: Similarity, batch: Batch) -> Iterator[Case]:
    tables, pace = (batch.table, batch.gradient, batch.m, batch.v), batch.pace
    for tiles in tilings(optimizers.DENSE, (1024, 2048, 4096), (4, 8)):
        detail, default = described(tiles, Similarity.DOT), tiles == optimizers.DENSE
        yield Case("adam", lambda t=tiles: optimizers.adam(*tables, pace, ADAM, t), detail, default)
    yield Case("adagrad", lambda: optimizers.adagrad(*tables[:3], pace, 0.1))
    yield Case("sgd", lambda: optimizers.sgd(*tables[:2], pace, 0.1))


def drawn(kind: Similarity, batch: Batch) -> Iterator[Case]:
    b, e = len(batch.part.index), len(batch.table)
    index = batch.part.index.clone()
    draw, clock = _draw(b, e), torch.tensor([3, 4], device="cuda")
    yield Case("negatives, 8 answers each", lambda: sampling.negatives_(index, draw, clock))
    items = torch.arange(272_115, device="cuda")
    site, epoch = torch.zeros_like(items), torch.tensor(4, device="cuda")
    call = lambda: sampling.order_keys(draw.keys, site, items, 3, epoch)  # noqa: E731
    yield Case("order_keys, 272,115", call)
    keys = torch.randint(1 << 60, (e,), device="cuda")
    yield Case("uniform", lambda: sampling.uniform(5, keys, WIDTHS[kind], torch.float32))


def _draw(b: int, e: int) -> Draw:
    """Eight answers to leave out of each query: 0, 10, .., 70."""
    start = torch.arange(b, device="cuda") * 8
    one, zero = torch.ones(1, dtype=torch.int64, device="cuda"), torch.zeros_like(start)
    known = (torch.arange(8, device="cuda") * 9).repeat(b)
    return Draw(one * 77, one * 0, one * e, known, zero, torch.arange(b, device="cuda"), start, start + 8)


def ranked(kind: Similarity, batch: Batch) -> Iterator[Case]:
    """All scores of the FB15k-237 test queries, 2,048 queries at a time."""
    chunk, w = 2048, WIDTHS[kind]
    query, table = torch.randn(TEST_QUERIES, w, device="cuda"), torch.randn(TEST_ENTITIES, w, device="cuda")
    if kind is Similarity.DOT:
        yield Case(
            "rank FB15k-237",
            lambda: [backend.all_scores(kind, part, table) for part in query.split(chunk)],
            captured=False,
        )
        return
    scores = torch.empty(chunk, TEST_ENTITIES, device="cuda")
    squares = (ranking.SQUARE, Square(32, 64), Square(32, 32), Square(64, 128, 4, 8), Square(64, 64, 2))
    for square in squares:
        yield Case(
            "rank FB15k-237",
            lambda square=square: [
                ranking.all_scores(scores[: len(part)], kind, part, table, square)
                for part in query.split(chunk)
            ],
            f"{square.queries}x{square.rows}x{square.depth}, {square.warps} warps",
            square == ranking.SQUARE,
            captured=False,
        )


def steps(kind: Similarity, batch: Batch) -> Iterator[Case]:
    """Whole steps but for the model's queries: what passes over the candidates and whole gradients cost."""
    part, state = batch.part, (batch.table, batch.gradient, batch.m, batch.v, batch.pace, ADAM)
    stepped = (batch.table, part, batch.m, batch.v, batch.pace, ADAM)
    draw, clock = _draw(len(part.index), len(batch.table)), torch.tensor([3, 4], device="cuda")

    def start() -> None:
        backend.negatives_(part.index, draw, clock)
        backend.contrast(backend.forward(kind, part.query, batch.table, part.index), 1.0)

    def two_passes() -> None:
        start()
        backend.backward_query(kind, part.query, batch.table, part.index, part.scores, part.d_scores)
        backend.accumulate_(batch.gradient, batch.table, part)
        backend.adam_(*state)

    def one_pass() -> None:
        backend.negatives_(part.index, draw, clock)
        backend.contrast_rows(kind, part.query, batch.table, part.index, 9.0, 1.0)
        backend.adam_whole_(*stepped)

    def touched() -> None:
        start()
        backend.backward_query(kind, part.query, batch.table, part.index, part.scores, part.d_scores)
        backend.adam_touched_(*stepped)

    yield Case("step, two passes", two_passes)
    yield Case("step, contrast_rows and adam_whole_", one_pass)
    yield Case("step, adam_touched_", touched)


TOPICS = {
    "forward": forward,
    "backward": backward,
    "contrasted": contrasted,
    "shelved": shelved,
    "grouped": grouped,
    "dense": dense,
    "drawn": drawn,
    "ranked": ranked,
    "steps": steps,
}


def timed(case: Case) -> dict[str, float | None]:
    cold = do_bench(case.call, warmup=10, rep=40, return_mode="median")
    warm = None
    if case.captured:
        warm = do_bench_cudagraph(case.call, rep=20, return_mode="median")
    return {"cold": cold, "warm": warm}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(TOPICS), help="topics, separated by commas")
    parser.add_argument("--kinds", default="l1,l2,modulus,dot")
    parser.add_argument("--defaults", action="store_true", help="leave out other tile shapes")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--candidates", type=int, default=257)
    parser.add_argument("--entities", type=int, default=12_110)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"batch {options.batch}, {options.candidates} candidates, {options.entities} entities")
    print(f"{'similarity':12}{'kernel':32}{'tiles':34}{'cold ms':>9}{'warm ms':>9}")
    rows = []
    for kind in (Similarity[name.upper()] for name in options.kinds.split(",")):
        batch = Batch.of(kind, options.batch, options.candidates, options.entities)
        for case in (case for topic in options.only.split(",") for case in TOPICS[topic](kind, batch)):
            if options.defaults and not case.default:
                continue
            label = f"{kind.name.lower()} {WIDTHS[kind]}"
            row = {"similarity": label, "kernel": case.name, "tiles": case.detail, **timed(case)}
            rows.append(row | {"default": case.default})
            warm = f"{row['warm']:9.4f}" if row["warm"] is not None else f"{'':9}"
            star = "*" if case.default else " "
            print(f"{label:12}{star}{case.name:31}{case.detail:34}{row['cold']:9.4f}{warm}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
