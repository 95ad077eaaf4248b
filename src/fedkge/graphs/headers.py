"""A first line that was read as a triple, and looks like the names of columns."""

from __future__ import annotations

import warnings

import numpy as np

from fedkge.errors import DataWarning
from fedkge.graphs.indexing import NamedTriples
from fedkge.graphs.table import Table

USUAL = """head relation tail subject predicate object source target src dst from to start end type label
name id entity node property value edge rel link h r t s p o key head_id tail_id source_id target_id
subject_id object_id entity1 entity2 node1 node2 relation_type patient person item user concept code what
kind attribute category class"""
WORDS = frozenset(USUAL.split())  #: usual names of columns, in lower case
FEW = 20  #: triples; a longer file needs only one usual name in its first line


def warn_of_header(part: NamedTriples, table: Table) -> None:
    """Warn if the names of the first triple stand nowhere else, and are usual names of columns."""
    named = any(isinstance(column, str) for column in table.positions or ())
    if table.header is not None or named or table.key is not None or len(part.triples) < 2:
        return
    head, relation, tail = part.triples[0].tolist()
    names = part.entities[head], part.relations[relation], part.entities[tail]
    if sum(name.lower().strip(" :_") in WORDS for name in names) < (2 if len(part.triples) < FEW else 1):
        return
    ends = part.triples[1:, [0, 2]]
    if (part.triples[1:, 1] == relation).any() or np.isin(ends, (head, tail)).any():
        return
    warnings.warn(
        f"{part.source}: the first line ({', '.join(names)}) looks like names of columns, and is read as a "
        "triple; data.table.header = true passes it over (head, relation and tail name the columns), "
        "false says that it is one; for fedkge data convert these are --header and --no-header",
        DataWarning,
        stacklevel=4,
    )
