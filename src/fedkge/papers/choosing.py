"""Of all rows of this project that are one row of a paper, the one that validates best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedkge.papers.catalogue import Table, read_tables
from fedkge.papers.lines import Line, rows_of, validated
from fedkge.papers.protocols import Protocol, read_protocols
from fedkge.papers.records import Record


def best_lines(table: Table, protocol: Protocol, records: Mapping[str, Record]) -> list[Line]:
    """A line for each row of the paper that anything was run for; its note says what it was chosen from.

    What cannot be compared, because validation was not kept when it was run, is left out.
    """
    tables, protocols = read_tables(protocol.root), read_protocols(protocol.root)
    rivals: dict[tuple[str, ...], list[Line]] = {}
    for line in rows_of(table, protocol, records):
        if line.paper:
            rivals.setdefault(_place(line), []).append(line)
    for other in map(tables.__getitem__, table.beside):
        for line in rows_of(other, protocols[other.protocol], records):
            found = replace(line, paper=protocol.row(*line.subject, line.asked), note=other.name)
            if found.paper and _place(found) in rivals:
                rivals[_place(found)].append(found)
    ran = ([line for line in of if line.records] for of in rivals.values())
    return [best for of in ran if (best := _best(of))]


def _place(line: Line) -> tuple[str, ...]:
    return *line.subject, line.paper["method"]


def _best(rivals: Sequence[Line]) -> Line | None:
    if len(rivals) < 2:
        return next(iter(rivals), None)
    found = {mrr: line for line in rivals if (mrr := validated(line)) is not None}
    if len(found) < len(rivals):
        return None
    best = found[max(found)]
    return replace(best, note=", ".join(filter(None, (best.note, f"best of {len(rivals)} on validation"))))
