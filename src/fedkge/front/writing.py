"""Rows to a file: CSV, Parquet, N-Triples or JSON, by its suffix."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkge.durable import json_text, write_whole
from fedkge.errors import ConfigError, DataError, MissingPackage

SUFFIXES = (".csv", ".parquet", ".nt", ".json")
JSON_VERSION = 1  #: of what `--json` prints and `.json` files hold


def check_out(path: Path, overwrite: bool) -> None:
    """What is wrong with the name of a file is said before anything is computed for it."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--out: expected a name that ends in {', '.join(SUFFIXES)}, got {path.name!r}")
    if path.exists() and not overwrite:
        raise DataError(f"{path}: exists already; choose another file, or replace it with --overwrite")


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows with the same keys; N-Triples has their head, relation and tail, and no scores."""
    write = {".csv": _csv, ".parquet": _parquet, ".nt": _triples, ".json": _json}[path.suffix]
    write_whole(path, write(rows))


def versioned(result: Any) -> dict[str, Any]:
    """The one shape of JSON: `version` changes when a key of some result is renamed or removed."""
    return {"version": JSON_VERSION, "result": result}


def _json(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return json_text(versioned(list(rows)), indent=2, ascii=False).encode()


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    out = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    out.writeheader()
    out.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingPackage("pyarrow", "writing Parquet", "graphs") from None
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), out)
    return out.getvalue()


def _triples(rows: Sequence[Mapping[str, Any]]) -> bytes:
    from fedkge.graphs.rdf import entity_terms, relation_terms

    if rows and "relation" not in rows[0]:
        raise ConfigError("--out: neighbours are no triples; expected .csv, .parquet or .json")
    heads, tails = (entity_terms(str(row[end]) for row in rows) for end in ("head", "tail"))
    relations = relation_terms(str(row["relation"]) for row in rows)
    return "".join(f"{h} {r} {t} .\n" for h, r, t in zip(heads, relations, tails, strict=True)).encode()
