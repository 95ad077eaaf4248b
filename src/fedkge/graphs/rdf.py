"""RDF, through pyoxigraph: an IRI is a name without its brackets, a literal is no entity.

A name that is no IRI is written as `urn:fedkge:` and the name, percent-encoded, and read back as it was.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote, unquote

from fedkge.errors import DataError, DataWarning, MissingPackage
from fedkge.graphs.delimited import is_blank
from fedkge.graphs.indexing import NamedTriples, triples_by_name
from fedkge.graphs.streams import RATIO, most, opened
from fedkge.graphs.values import is_value

FORMATS = {
    ".nt": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".ttl": "TURTLE",
    ".trig": "TRIG",
    ".rdf": "RDF_XML",
    ".jsonld": "JSON_LD",
}  #: pyoxigraph's names of formats, by suffix
OURS = "urn:fedkge:"
BLANK = re.compile(r"_:[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
ENTITY = 300  #: bytes that the declaration of an XML entity may have
RANDOM = re.compile(r"[0-9a-f]{24,32}")  # 128 random bits in hexadecimal, without leading zeros


def read_rdf(path: Path, values: bool = False) -> NamedTriples:
    """The triples between IRIs and blank nodes, in all named graphs; literals are skipped.

    `values`: numbers and dates are tails, as they are written. A blank node keeps its label, in all files of
    a graph; one without a label is counted within its file.
    """
    try:
        import pyoxigraph as ox
    except ImportError:
        raise MissingPackage("pyoxigraph", f"{path}: reading RDF", "graphs") from None
    form = getattr(ox.RdfFormat, FORMATS[Path(path.name.removesuffix(".gz")).suffix])
    labelled = form in (ox.RdfFormat.N_TRIPLES, ox.RdfFormat.N_QUADS)
    anonymous = None if labelled else _Anonymous(path.name.split(".")[0])
    skipped = Counter[bool]()  # whether it was a number or a date
    prefixes: dict[str, str] = {}
    if form == ox.RdfFormat.RDF_XML:
        _check_entities(path)

    def rows(parser: ox.QuadParser) -> Iterator[tuple[str, str, str]]:
        left = most(path)
        for quad in parser:
            head, tail = quad.subject, quad.object
            left -= (
                len(quad.predicate.value) + len(getattr(head, "value", "")) + len(getattr(tail, "value", ""))
            )
            if left < 0:
                raise DataError(
                    f"{path}: prefixes make its names more than {RATIO} times as long as the file, "
                    "as no honest graph does; if this one does, write whole IRIs"
                )
            if not prefixes:
                prefixes.update(parser.prefixes)
            if isinstance(head, Node) and isinstance(tail, Node):
                yield name(head), name(quad.predicate), name(tail)
                continue
            value = isinstance(head, Node) and isinstance(tail, ox.Literal) and is_value(tail.value)
            if value and values:
                yield name(head), name(quad.predicate), tail.value
            else:
                skipped[value] += 1

    def name(node: ox.NamedNode | ox.BlankNode) -> str:
        value = node.value
        if isinstance(node, ox.BlankNode):
            return f"_:{anonymous[value]}" if anonymous is not None else f"_:{value}"
        return _decoded(path, value) if value.startswith(OURS) else value

    Node = (ox.NamedNode, ox.BlankNode)
    with opened(path) as stream:
        try:
            named = triples_by_name(str(path), rows(ox.parse(cast(IO[bytes], stream), format=form)))
        except SyntaxError as error:
            line = "" if error.lineno is None else f":{error.lineno}"
            raise DataError(f"{path}{line}: {error.msg}{_advice(error.msg)}") from None
    tell_skipped(str(path), sum(skipped.values()), skipped[True])
    if not len(named.triples):
        raise DataError(f"{path}: expected triples between IRIs, found none")
    return replace(named, prefixes=prefixes)


def _check_entities(path: Path) -> None:
    """XML's entities may name namespaces, and no more: a few nested ones unpack to gigabytes."""
    with opened(path) as stream:
        text = b""
        while chunk := stream.read(1 << 20):
            text = text[-ENTITY:] + chunk
            for found in re.finditer(rb"<!ENTITY[^>]*", text):
                if b"&" in found[0] or len(found[0]) > ENTITY:
                    raise DataError(
                        f"{path}: expected short entities without entities inside, found "
                        f"{found[0][:40].decode(errors='replace')!r}...; write them out"
                    )


def tell_skipped(source: str, literals: int, values: int) -> None:
    """Warn of triples about literals that are left out, `values` of them about numbers or dates."""
    if not literals:
        return
    most = ""
    if values:
        most = f", {values:,} of them about numbers or dates (data.table.numbers = 'bin' uses them)"
    warnings.warn(f"{source}: {literals:,} triples about literals skipped{most}", DataWarning, stacklevel=5)


def _advice(message: str) -> str:
    if "LoadDocumentCallback" in message:
        return "; nothing is fetched from the network: write the context into the file"
    return "; write whole IRIs, or a base into the file" if "No scheme" in message else ""


class _Anonymous(dict[str, str]):
    """Labels for blank nodes: their own, or a count where pyoxigraph made one up at random (for `[]`)."""

    def __init__(self, stem: str) -> None:
        self.stem, self.nameless = stem, 0

    def __missing__(self, label: str) -> str:
        self[label] = label
        if RANDOM.fullmatch(label):
            self.nameless += 1
            self[label] = f"{self.stem}-anonymous-{self.nameless}"
        return self[label]


def _decoded(path: Path, iri: str) -> str:
    try:
        decoded = unquote(iri.removeprefix(OURS), errors="strict")
    except UnicodeDecodeError:
        decoded = ""
    if is_blank(decoded):
        raise DataError(f"{path}: expected a percent-encoded name after {OURS}, found <{iri}>")
    return decoded


def entity_terms(names: Iterable[str]) -> list[str]:
    """The names as they stand in N-Triples: an IRI, or a blank node if it looks like one."""
    encoded = _encoder()
    return [name if BLANK.fullmatch(name) else encoded(name) for name in names]


def relation_terms(names: Iterable[str]) -> list[str]:
    """The names as they stand in N-Triples, where a predicate is always an IRI."""
    return list(map(_encoder(), names))


def _encoder() -> Callable[[str], str]:
    try:
        from pyoxigraph import NamedNode
    except ImportError:
        raise MissingPackage("pyoxigraph", "writing N-Triples", "graphs") from None

    def encoded(name: str) -> str:
        if not name.startswith(OURS):
            with suppress(ValueError):
                return str(NamedNode(name))
        return f"<{OURS}{quote(name, safe='')}>"

    return encoded
