"""Embeddings in files: safetensors with names beside them, Parquet, TSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from fedkge.config import choose, options
from fedkge.durable import PRIVATE, privately
from fedkge.errors import ConfigError, DataError, MissingPackage, suggest
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.models import MODELS, Model, Tables

FILES = {Axis.ENTITY: "entities", Axis.RELATION: "relations"}
ROWS = "rows"  #: the tensor's name in a safetensors file
AT_A_TIME = 1 << 14  #: rows turned into text or Parquet at a time


class Format(StrEnum):
    """How embeddings are written."""

    SAFETENSORS = "safetensors"  #: entities.safetensors, and the names in row order in entities.tsv
    PARQUET = "parquet"  #: entities.parquet: a column of names, a column of lists per block of the row
    TSV = "tsv"  #: entities.vectors.tsv: the name, then the numbers of its row


def save_embeddings(tables: Tables, graph: Graph, folder: Path, format: Format | str) -> list[Path]:
    """Write both tables by name; returns the files. Numbers come back exactly from every format.

    Only their owner can read them: rows and names may be those of persons.
    """
    if format not in tuple(Format):
        raise ConfigError(
            f"format: expected one of {', '.join(Format)}, got {format!r}{suggest(format, map(str, Format))}"
        )
    names = {Axis.ENTITY: graph.entities, Axis.RELATION: graph.relations}
    for axis, known in names.items():
        if len(known) != len(tables.table(axis)):
            raise DataError(f"{len(known)} {axis} names for {len(tables.table(axis))} rows: not their graph")
        check_names(known)
    folder.mkdir(parents=True, exist_ok=True)
    write = {Format.SAFETENSORS: _safetensors, Format.PARQUET: _parquet, Format.TSV: _tsv}[Format(format)]
    with privately():
        files = [
            path
            for axis in Axis
            for path in write(tables.model, tables.table(axis), names[axis], axis, folder)
        ]
    for path in files:
        path.chmod(PRIVATE)  # one that was there before
    return files


def load_embeddings(folder: Path) -> tuple[Tables, Names, Names]:
    """Tables, entity names and relation names, from what `save_embeddings` wrote as safetensors."""
    entities, described = _read(folder / f"{FILES[Axis.ENTITY]}.safetensors")
    relations, again = _read(folder / f"{FILES[Axis.RELATION]}.safetensors")
    if described != again:
        raise DataError(f"{folder}: entities of {described}, relations of {again}: files of two models")
    model = choose(MODELS, described, str(folder))
    tables = Tables(model, entities, relations)
    names = []
    for axis, file in FILES.items():
        path = folder / f"{file}.tsv"
        known = Names(_read_names(path), axis)
        rows, width = tables.table(axis).shape
        if width != model.width(axis):
            raise DataError(
                f"{folder}: {file} are {width} wide, expected {model.width(axis)} for {described}"
            )
        if len(known) != rows:
            raise DataError(f"{path}: {len(known)} names, expected {rows}, one per row of the table")
        names.append(known)
    return tables, names[0], names[1]


def check_names(names: Names) -> None:
    """Refuse names that a list with one name a line cannot hold."""
    for name in names:
        if "\t" in name or "\n" in name or "\r" in name:
            raise DataError(
                f"{names.axis} {name!r}: a name with a tab or a line break cannot be written; rename it"
            )


def _rows(table: torch.Tensor) -> torch.Tensor:
    return table.detach().cpu().contiguous()


def _safetensors(model: Model, table: torch.Tensor, names: Names, axis: Axis, folder: Path) -> list[Path]:
    try:
        from safetensors.torch import save_file
    except ImportError:
        raise MissingPackage("safetensors", "writing safetensors", "all") from None
    path, beside = folder / f"{FILES[axis]}.safetensors", folder / f"{FILES[axis]}.tsv"
    described = {"name": MODELS.name_of(model), **options(model)}
    save_file({ROWS: _rows(table)}, path, metadata={"model": json.dumps(described)})
    with beside.open("w", encoding="utf-8", newline="\n") as out:
        out.writelines(f"{name}\n" for name in names)
    return [path, beside]


def _read(path: Path) -> tuple[torch.Tensor, dict[str, Any]]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise MissingPackage("safetensors", "reading safetensors", "all") from None
    try:
        with safe_open(path, framework="pt") as file:
            model = json.loads((file.metadata() or {})["model"])
            if isinstance(model, dict):
                return file.get_tensor(ROWS), model
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; expected embeddings saved as safetensors") from None
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: expected a tensor {ROWS!r} and the model it belongs to: {error}") from None
    raise DataError(f"{path}: expected a model's options, found {model!r}")


def _read_names(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            names = [line.removesuffix("\n") for line in file]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; expected one name per line") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}") from None
    if len(set(names)) != len(names):
        raise DataError(f"{path}: a name stands twice; expected one per row")
    return names


def _slices(n: int) -> Iterator[slice]:
    return (slice(start, min(n, start + AT_A_TIME)) for start in range(0, n, AT_A_TIME))


def _parquet(model: Model, table: torch.Tensor, names: Names, axis: Axis, folder: Path) -> list[Path]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingPackage("pyarrow", "writing Parquet", "graphs") from None
    path = folder / f"{FILES[axis]}.parquet"
    number = pa.from_numpy_dtype(_rows(table[:0]).numpy().dtype)
    columns = {"name": pa.string()} | {block: pa.list_(number) for block in model.blocks[axis]}
    with pq.ParquetWriter(path, pa.schema(columns)) as writer:
        for some in _slices(len(names)):
            rows = _rows(table[some])
            arrays = [pa.array(names[some], pa.string())]
            for block, width in model.blocks[axis].items():
                values = model.block(rows, axis, block).reshape(-1).numpy()
                ends = pa.array(range(0, len(values) + 1, width), pa.int32())
                arrays.append(pa.ListArray.from_arrays(ends, pa.array(values)))
            writer.write_batch(pa.record_batch(arrays, schema=pa.schema(columns)))
    return [path]


def _tsv(model: Model, table: torch.Tensor, names: Names, axis: Axis, folder: Path) -> list[Path]:
    path = folder / f"{FILES[axis]}.vectors.tsv"
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for some in _slices(len(names)):
            numbers = _rows(table[some]).numpy().astype(str)  # the shortest text that reads back the same
            for name, row in zip(names[some], numbers, strict=True):
                out.write("\t".join((name, *row)) + "\n")
    return [path]
