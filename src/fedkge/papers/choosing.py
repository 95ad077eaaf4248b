"""Of all rows of this project that are one row of a paper, the one that validates best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedkge.papers.catalogue import Table, read_tables
from fedkge.papers.comparing import best_of
from fedkge.papers.lines import Line, rows_of
from fedkge.papers.protocols import Protocol, read_protocols
from fedkge.papers.records import Record
from fedkge.papers.seen import departures


def best_lines(table: Table, protocol: Protocol, records: Mapping[str, Record]) -> list[Line]:
    """A line for each row of the paper that anything was run for; its `choice` says why it stands.

    Rows of the table come first, then those of the tables beside it, in the order of the catalogue.
    """
    tables, protocols = read_tables(protocol.root), read_protocols(protocol.root)
    rivals: dict[tuple[str, ...], list[Line]] = {}
    for line in rows_of(table, protocol, records):
        if line.paper:
            rivals.setdefault(place(line), []).append(line)
    for other in map(tables.__getitem__, table.beside):
        for line in rows_of(other, protocols[other.protocol], records):
            paper = protocol.row(*line.subject, line.asked)
            if line.records and paper and (*line.subject, paper["method"]) in rivals:
                found = _beside(line, other, protocol)
                rivals[place(found)].append(found)
    ran = ([line for line in of if line.records] for of in rivals.values())
    return [replace(best, choice=why) for of in ran if of for best, why in [best_of(of)]]


def place(line: Line) -> tuple[str, ...]:
    """The row of the paper that a line stands beside."""
    return *line.subject, line.paper["method"]


def _beside(line: Line, table: Table, protocol: Protocol) -> Line:
    """Another table's line, as it stands beside this paper: with its numbers, and what it departs in."""
    return replace(
        line,
        paper=protocol.row(*line.subject, line.asked),
        departures=departures(protocol, line.job.experiment().config()),
        note=table.name,
    )
