"""docs/results.md: every table and figure, how much of it was run, and how it compares with the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from re import sub

from fedkge.papers.catalogue import Table, read_tables, recorded
from fedkge.papers.cells import as_good, markdown
from fedkge.papers.choosing import best_lines, place
from fedkge.papers.curves_page import NAME as CURVES
from fedkge.papers.lines import Line, rows_of
from fedkge.papers.protocols import Protocol, read_protocols
from fedkge.papers.records import Record
from fedkge.papers.texts import HEAD

INDEX = Path("docs") / "results.md"
TEXT = f"""\
`fedkge paper NAME` runs what is missing of a table. Numbers of different papers cannot be compared: they
train and measure in different ways. [Curves](results/{CURVES}.md) shows validation MRR over rounds and bytes.

- A row is one method with its options, on one data set, with one model. A run is one row with one seed.
- Runs with seed 0: how many are recorded, of all that the table has. If a paper tried several values of an
  option, each is a run. In a table that draws curves, a run is missing if no point of its curve is recorded.
- A cell is one metric of one of the paper's rows, as the mean over seeds. It is counted if the table's own
  row was run.
- With what validates best: the same cells, but with the rows that the table's page shows under that heading.
  Rows "as printed" are counted only there, and only if they were chosen.
"""
TITLES = (
    "name",
    "paper",
    "what",
    "runs with seed 0",
    "cells as good as the paper's or better",
    "the same cells, with what validates best",
    "instead",
)


def index(root: Path, records: Mapping[str, Record]) -> str:
    """Every table and figure: how much of it was run, or what there is instead."""
    protocols = read_protocols(root)
    body = [row(table, protocols[table.protocol], records) for table in read_tables(root).values()]
    head = f"# Results beside the papers\n\n{HEAD}\n{TEXT}\n"
    return head + markdown([TITLES, ["---"] * len(TITLES), *body])


def row(table: Table, protocol: Protocol, records: Mapping[str, Record]) -> list[str]:
    """A table's line of the index."""
    if not table.runs:
        return [table.name, protocol.paper, table.title, "", "", "", _linked(table.instead)]
    done, every = recorded(table, protocol, records)
    own = _cells(table, [line for line in rows_of(table, protocol, records) if not line.note])
    best = _cells(table, best_lines(table, protocol, records)) if table.beside else {}
    title = f"[{table.title}](results/{table.name}.md)"
    told = [_share(own), _share({of: best[of] for of in own if of in best})]
    return [table.name, protocol.paper, title, f"{done} of {every}", *told, ""]


def _linked(instead: str) -> str:
    """With links to the pages of `docs` that it names."""
    return sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", instead)


def _cells(table: Table, found: Sequence[Line]) -> dict[tuple[str, ...], bool]:
    """Row of the paper and metric -> whether ours is as good."""
    return {
        (*place(line), metric): good
        for line in found
        for metric in table.metrics
        if (good := as_good(line, metric)) is not None
    }


def _share(cells: Mapping[tuple[str, ...], bool]) -> str:
    """`20 of 24`."""
    return f"{sum(cells.values())} of {len(cells)}" if cells else ""
