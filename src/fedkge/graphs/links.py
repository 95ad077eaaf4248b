"""Given alignments: names that are said to mean the same thing at different sites, as read from files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkge.errors import DataError, DataWarning
from fedkge.graphs.delimited import CSV, TSV, Dialect, is_blank, rows
from fedkge.graphs.graph import Axis
from fedkge.graphs.prefixes import OWL
from fedkge.graphs.rdf import FORMATS, read_rdf
from fedkge.graphs.streams import opened

SAME = {Axis.ENTITY: ("sameAs",), Axis.RELATION: ("equivalentProperty", "sameAs")}  #: which terms of OWL link


@dataclass(frozen=True, slots=True)
class Link:
    """Two names that are said to mean one thing; a site of None is any site that has the name."""

    left_site: str | None
    left: str
    right_site: str | None
    right: str
    where: str  #: for messages: file:line, or the file alone if it is RDF, whose triples have no number


def read_links(path: Path, axis: Axis) -> list[Link]:
    """The links of a file, in its order, of which there is at least one.

    TSV and CSV have two fields (name, name) or four (site, name, site, name) in every line, and no header. In
    RDF links are `owl:sameAs`, for relations `owl:equivalentProperty` too; every other triple is passed
    over. Names are read as they are for graphs, so that equal terms are equal names.
    """
    match Path(path.name.removesuffix(".gz")).suffix:
        case ".tsv":
            links = list(_delimited(path, TSV))
        case ".csv":
            links = list(_delimited(path, CSV))
        case suffix if suffix in FORMATS:
            return _rdf(path, axis)
        case suffix:
            expected = f"a suffix of {' '.join(('.tsv', '.csv', *FORMATS))}, with or without .gz"
            raise DataError(f"{path}: expected {expected}, found {suffix!r}; rename the file by its format")
    if not links:
        raise DataError(f"{path}: expected links between names, found none")
    return links


def _delimited(path: Path, dialect: Dialect) -> Iterator[Link]:
    width = blank = 0
    with opened(path) as stream:
        for line, fields in rows(path, stream, dialect):
            if not fields:
                blank = blank or line
                continue
            if blank:
                raise DataError(f"{path}:{blank}: expected a link, found a blank line")
            if len(fields) != width:
                width = _width(path, line, dialect, width, len(fields))
            for name in fields[:4]:
                if is_blank(name):
                    found = "a field of white space" if name else "an empty field"
                    raise DataError(f"{path}:{line}: expected {_columns(width)}, found {found}")
            where = f"{path}:{line}"
            sites = (None, None) if width == 2 else (fields[0], fields[2])
            left, right = fields if width == 2 else (fields[1], fields[3])
            yield Link(sites[0], left, sites[1], right, where)


def _width(path: Path, line: int, dialect: Dialect, before: int, found: int) -> int:
    """The number of fields that every line has, which the first one decides (`before` is 0)."""
    if before:
        expected = f"{before} {dialect.called} fields as in line 1"
    elif found in (2, 4, 5):
        return found
    else:
        expected = f"2 {dialect.called} fields ({_columns(2)}), 4 ({_columns(4)}), or 5 with a remark"
    raise DataError(f"{path}:{line}: expected {expected}, found {found}")


def _columns(width: int) -> str:
    return "name, name" if width == 2 else "site, name, site, name"


def _rdf(path: Path, axis: Axis) -> list[Link]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # literals link nothing: passed over like the rest
        named = read_rdf(path)
    linking = [i for i, name in enumerate(named.relations) if name in {OWL + term for term in SAME[axis]}]
    said = named.triples[np.isin(named.triples[:, 1], linking)]
    if not len(said):
        expected = " or ".join(f"owl:{term}" for term in SAME[axis])
        raise DataError(
            f"{path}: expected {expected} between {axis} names, found none in {len(named.triples):,} triples"
        )
    name = named.entities
    return [Link(None, name[left], None, name[right], str(path)) for left, _, right in said.tolist()]
