"""Numbers and dates as tails: counted, put into bins, or skipped.

A tail counts as a value if it is written as a number or a date and is never a head. Bins do not depend on the
data, so that all sites have the same ones: by 1, 2, 5, 10, 20, ... for numbers, by year for dates, or by
edges that the options name.
"""

from __future__ import annotations

import math
import re
import warnings
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedkge.errors import DataWarning
from fedkge.graphs.graph import Mask, Split
from fedkge.graphs.indexing import NamedTriples, triples_by_id
from fedkge.graphs.prefixes import expanded
from fedkge.graphs.table import Table

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
DATE = re.compile(r"-?(\d{4,})[-/.]\d{1,2}([-/.]\d{1,2}([T ]\S+)?)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4})")
STARTS = frozenset("0123456789+-.")
MOST = 0.5  #: of a file's heads: if more are numbers, numbers are names there


def is_value(text: str) -> bool:
    """Whether a text is a number or a date."""
    if text[:1] not in STARTS:
        return False
    return bool(NUMBER.fullmatch(text) or DATE.fullmatch(text))


def treated(splits: Mapping[Split, NamedTriples], table: Table) -> dict[Split, NamedTriples]:
    """The splits of a graph, their values as the options say; unset: as they are, with a warning."""
    likely = {split: _likely(part) for split, part in splits.items()}
    if table.numbers == "keep" or not any(likely.values()):
        return dict(splits)
    heads = {name for part in splits.values() for name in part.entities[: _heads(part)]}
    if sum(map(is_value, heads)) > MOST * len(heads):
        return dict(splits)
    found = {}
    for split, part in splits.items():
        values = np.zeros(len(part.entities), np.bool_)
        values[[i for i in likely[split] if part.entities[i] not in heads]] = True
        chosen = values[part.triples[:, 2]]
        if table.drop:  # later, and nothing has to be said about what goes
            gone = {expanded(name, {**part.prefixes, **table.namespaces()}) for name in table.drop}
            chosen &= np.array([name not in gone for name in part.relations])[part.triples[:, 1]]
        found[split] = _treated(part, chosen, table) if chosen.any() else part
    return found


def _treated(part: NamedTriples, chosen: Mask, table: Table) -> NamedTriples:
    if table.numbers == "bin":
        return _binned(part, chosen, table.borders())
    if table.numbers == "skip":
        _warn_skipped(part, chosen)
        return _only(part, ~chosen)
    _warn(part, chosen)
    return part


def _likely(part: NamedTriples) -> list[int]:
    """The entities that are no heads in this split, and written as values."""
    return [i for i in range(_heads(part), len(part.entities)) if is_value(part.entities[i])]


def _heads(part: NamedTriples) -> int:
    """How many entities are heads: these are numbered first."""
    return int(part.triples[:, 0].max()) + 1 if len(part.triples) else 0


def bin_of(relation: str, text: str, borders: list[float] | None = None) -> str:
    """The name of the bin of a value, as in `age=20..50`; without borders a date's bin is its year."""
    date = None if NUMBER.fullmatch(text) else DATE.fullmatch(text)
    year = date and (date[1] or date[4])
    if year and borders is None:
        return f"{relation}={year}"
    number = float(year or text)
    if borders is None:
        return f"{relation}={_round_bin(number)}"
    place = bisect_right(borders, number)
    below, above = ([""] + [_short(b) for b in borders])[place], [*map(_short, borders), ""][place]
    return f"{relation}={below}..{above}"


def _round_bin(number: float) -> str:
    """The bin of a number between two neighbours of 0, 1, 2, 5, 10, 20, ..., with its sign."""
    size = abs(number)
    if size == 0 or not math.isfinite(size):
        return _short(number)
    power = 10.0 ** math.floor(math.log10(size))
    digit = round(size / power, 9)
    low, high = next((a, b) for a, b in ((1, 2), (2, 5), (5, 10), (10, 20)) if digit < b)
    below, above = _short(low * power), _short(high * power)
    return f"{below}..{above}" if number > 0 else f"-{above}..-{below}"


def _short(number: float) -> str:
    return f"{number:.12g}"


def _binned(part: NamedTriples, chosen: Mask, borders: Mapping[str, list[float]]) -> NamedTriples:
    """The same triples, whose chosen tails are bins of their relation."""
    pairs = np.unique(part.triples[chosen][:, 1:], axis=0)
    entities = list(part.entities)
    known = {name: i for i, name in enumerate(entities)}
    new: dict[tuple[int, int], int] = {}
    for relation, tail in pairs.tolist():
        name = bin_of(part.relations[relation], part.entities[tail], borders.get(part.relations[relation]))
        new[relation, tail] = known.setdefault(name, len(known))
    triples = part.triples.copy()
    triples[chosen, 2] = [new[r, t] for _, r, t in part.triples[chosen].tolist()]
    return _dense(replace(part, triples=triples, entities=list(known)))


def _only(part: NamedTriples, chosen: Mask) -> NamedTriples:
    marks = part.confidential
    return _dense(
        replace(part, triples=part.triples[chosen], confidential=None if marks is None else marks[chosen])
    )


def _dense(part: NamedTriples) -> NamedTriples:
    """The same triples; names that none of them uses are left out, and ids follow their order again."""
    again = triples_by_id(part.source, part.triples, part.entities, part.relations)
    return replace(again, confidential=part.confidential, prefixes=part.prefixes)


def _example(part: NamedTriples, chosen: Mask) -> str:
    _, relation, tail = part.triples[int(np.argmax(chosen))].tolist()
    return f"such as {part.entities[tail]!r} of {part.relations[relation]!r}"


def _warn(part: NamedTriples, chosen: Mask) -> None:
    warnings.warn(
        f"{part.source}: {int(chosen.sum()):,} tails are numbers or dates, {_example(part, chosen)}, each an "
        "entity of its own; data.table.numbers = 'bin' groups them, 'skip' leaves them out, 'keep' is silent "
        "(fedkge data convert --numbers)",
        DataWarning,
        stacklevel=4,
    )


def _warn_skipped(part: NamedTriples, chosen: Mask) -> None:
    warnings.warn(
        f"{part.source}: {int(chosen.sum()):,} triples about numbers or dates skipped, "
        f"{_example(part, chosen)}",
        DataWarning,
        stacklevel=4,
    )
