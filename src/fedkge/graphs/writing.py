"""Graphs to files: all is written under a hidden name first, so that a failure leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from fedkge.errors import DataError
from fedkge.graphs.delimited import is_blank
from fedkge.graphs.graph import Federation, Graph, Ids, Mask, Split
from fedkge.graphs.rdf import entity_terms, relation_terms
from fedkge.graphs.streams import created

Format: TypeAlias = Literal["tsv", "nt"]
CHUNK = 100_000  #: triples written at a time
DOCUMENTS = re.compile(r"\..*|(readme|license|licence|notice|attribution)(\..*)?|.*\.md", re.IGNORECASE)
UNWRITABLE = re.compile("\ufeff.*|.*[\t\r\n].*", re.DOTALL)


def write_graph(graph: Graph, folder: Path, format: Format = "tsv", compress: bool = False) -> None:
    """Write the splits that have triples as `train.tsv`, `valid.nt.gz`, ... into a new or empty folder.

    TSV keeps marks of confidentiality in a fourth column; N-Triples cannot, and refuses a marked graph.
    """
    with _staged(folder) as stage:
        _write(graph, stage, folder, format, compress)


def write_federation(
    federation: Federation, folder: Path, format: Format = "tsv", compress: bool = False
) -> None:
    """Write each site's graph into a folder of its own, all of them or none."""
    for site in federation:
        if not site or "/" in site or "\\" in site or DOCUMENTS.fullmatch(site):
            raise DataError(f"{folder}: expected site names that can name a visible folder, found {site!r}")
    with _staged(folder) as stage:
        for site, graph in federation.items():
            (stage / site).mkdir()
            _write(graph, stage / site, folder / site, format, compress)


def visible(folder: Path) -> list[Path]:
    """What lies in the folder by name, without hidden files and documents such as READMEs and licences."""
    return sorted(path for path in folder.iterdir() if not DOCUMENTS.fullmatch(path.name))


@dataclass(frozen=True)
class _Form:
    """How a triple is spelled: terms, what stands between them, what stands at the end."""

    entities: Callable[[Iterable[str]], list[str]]
    relations: Callable[[Iterable[str]], list[str]]
    between: str
    end: str


def _tsv_terms(names: Iterable[str]) -> list[str]:
    terms = list(names)
    for name in terms:
        if is_blank(name) or UNWRITABLE.fullmatch(name):
            raise DataError(
                f"expected names with visible characters, without tabs and line ends, found {name!r}"
            )
    return terms


FORMS = {
    "tsv": _Form(_tsv_terms, _tsv_terms, "\t", "\n"),
    "nt": _Form(entity_terms, relation_terms, " ", " .\n"),
}


def _write(graph: Graph, stage: Path, folder: Path, format: Format, compress: bool) -> None:
    form = FORMS.get(format)
    if form is None:
        raise DataError(f"{folder}: expected one of the formats {', '.join(FORMS)}, found {format!r}")
    marks = graph.confidential
    if format == "nt" and marks is not None:
        if marks.any():
            raise DataError(
                f"{folder}: N-Triples cannot mark {marks.sum():,} confidential triples; write tsv"
            )
        marks = None
    try:
        entities, relations = form.entities(graph.entities), form.relations(graph.relations)
        for split, triples in graph.splits().items():
            if len(triples) or split is Split.TRAIN:
                with created(stage / f"{split}.{format}{'.gz' if compress else ''}") as stream:
                    for lines in _lines(form, entities, relations, triples, marks):
                        stream.write(lines.encode())
            marks = None
    except UnicodeEncodeError as error:
        raise DataError(f"{folder}: expected names that are text, found {error.object!r}") from None
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None


def _lines(
    form: _Form, entities: list[str], relations: list[str], triples: Ids, marks: Mask | None
) -> Iterator[str]:
    ends = [form.end] if marks is None else [f"\t0{form.end}", f"\t1{form.end}"]
    before = [f"{term}{form.between}" for term in entities]  # strings are made once per term, not per triple
    within = [f"{term}{form.between}" for term in relations]
    for start in range(0, len(triples), CHUNK):
        block = triples[start : start + CHUNK]
        marked = np.zeros(len(block), np.int64) if marks is None else marks[start : start + CHUNK].astype(int)
        pieces = [""] * (4 * len(block))
        for place, (terms, ids) in enumerate(
            zip((before, within, entities, ends), (*block.T, marked), strict=True)
        ):
            pieces[place::4] = map(terms.__getitem__, ids.tolist())
        yield "".join(pieces)


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A hidden folder beside `folder`; its content becomes the content of `folder` if the body succeeds."""
    if folder.exists() and (not folder.is_dir() or visible(folder)):
        raise DataError(f"{folder}: expected a new or empty folder, found one in use; choose another")
    stage = folder.parent / f".{folder.name}.{os.getpid()}.partial"
    try:
        stage.mkdir(parents=True)
        yield stage
        if folder.exists():
            for path in stage.iterdir():
                path.rename(folder / path.name)
            stage.rmdir()
        else:
            stage.rename(folder)
    except OSError as error:
        raise DataError(f"{folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
