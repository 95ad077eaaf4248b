"""Graphs by name: `load("umls")`, from the package, from `FEDKGE_DATA`, or downloaded once and checked."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

from fedkge.errors import ConfigError, DataError, DataWarning, suggest
from fedkge.graphs.catalogue import ATLAS, DATASETS, Dataset, Dealt, Remote
from fedkge.graphs.download import extract, fetch
from fedkge.graphs.files import read_federation, write_federation
from fedkge.graphs.graph import Graph, Split
from fedkge.graphs.partition import by_relation
from fedkge.graphs.split import parse_ratio, split
from fedkge.graphs.table import PLAIN, Table


def load(name: str, *, strict: bool = False) -> dict[str, Graph]:
    """The federation of that name; a plain graph is a federation of one site."""
    dataset = find(name)
    return read_federation(folder(dataset), strict=strict, drop_leaks=dataset.leaks)


def obtain(source: str, *, strict: bool = False, table: Table = PLAIN) -> dict[str, Graph]:
    """The federation in a file or folder, or else the one of that name; options are for files."""
    path = Path(source)
    if path.exists():
        return read_federation(path, strict=strict, table=table)
    if source.lower() in DATASETS:
        return load(source, strict=strict)
    known = [dataset.name for dataset in DATASETS.values()]
    hint = suggest(source, known) or f" (known: {', '.join(known)})"
    raise DataError(f"{source}: no such file or folder, and no data set of that name{hint}")


def find(name: str) -> Dataset:
    """The data set of that name, in whichever case it is written."""
    if name.lower() not in DATASETS:
        known = [dataset.name for dataset in DATASETS.values()]
        raise DataError(f"no data set is named {name!r}{suggest(name, known)} (known: {', '.join(known)})")
    return DATASETS[name.lower()]


def folder(dataset: Dataset) -> Path:
    """Where its files lie on this machine; they are downloaded and checked first where need be."""
    if dataset is ATLAS:
        with resources.as_file(resources.files("fedkge.graphs")) as package:
            return package / "atlas"
    if (own := _own_data()) and (own / dataset.name).is_dir():
        return own / dataset.name
    home = cache() / dataset.name
    if home.is_dir():
        return home
    if dataset.dealt is not None:
        _deal(dataset, dataset.dealt, home)
        return home
    if not dataset.sources:
        raise DataError(_where_from(dataset, own))
    _install(dataset, home)
    return home


def _where_from(dataset: Dataset, own: Path | None) -> str:
    """What to do about a data set that is not here and cannot be downloaded."""
    name, found = dataset.name, "FEDKGE_DATA is not set" if own is None else f"{own} does not have it"
    if dataset.published is None:
        return (
            f"{name} is not here and cannot be downloaded: {found}; expected a folder {name}, with a folder "
            f"for each site, in the folder that FEDKGE_DATA names ({dataset.about})"
        )
    clone = dataset.published.repository.rsplit("/", 1)[1]
    source, origin = f"{clone}/{dataset.published.folder}", dataset.published.origin
    target = f"{'DATA' if own is None else own}/{name}"
    return (
        f"{name} is not here: {found}; `git clone {dataset.published.repository}`, then `fedkge data convert "
        f"{source} {target} --from {origin}`{', and set FEDKGE_DATA to DATA' if own is None else ''}"
    )


def cache() -> Path:
    """Where downloads are kept: `FEDKGE_CACHE`, or what the platform uses for such files."""
    if chosen := os.environ.get("FEDKGE_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "fedkge"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "fedkge" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedkge"


def _own_data() -> Path | None:
    chosen = os.environ.get("FEDKGE_DATA")
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        raise ConfigError(f"FEDKGE_DATA: {chosen}: no such folder; set it to where your graphs are")
    return Path(chosen)


def _deal(dataset: Dataset, how: Dealt, home: Path) -> None:
    """Make a federation of the graph that it is dealt from, in `home`, which appears when it is whole."""
    ((_, graph),) = load(how.graph).items()
    parts = by_relation(graph, how.sites, how.seed)
    federation = {site: split(part, parse_ratio(how.ratio), how.seed) for site, part in parts.items()}
    found = tuple(sum(len(part.split(one)) for part in federation.values()) for one in Split)
    if dataset.counts not in (None, found):
        raise DataError(
            f"{dataset.name}: dealt out of {how.graph}, it has {_shown(found)} triples in train/valid/test, "
            f"expected {_shown(dataset.counts or ())}: {how.graph} is not the published one"
        )
    with TemporaryDirectory(dir=_made(home.parent), prefix=f"{home.name}.") as staging:
        write_federation(federation, Path(staging) / home.name, compress=True)
        _appear(Path(staging) / home.name, home)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _appear(staging: Path, home: Path) -> None:
    try:
        staging.rename(home)
    except OSError:
        if not home.is_dir():  # otherwise another process was faster, with the same content
            raise
        shutil.rmtree(staging)


def _install(dataset: Dataset, home: Path) -> None:
    """Download to `home`, which appears only when everything in it is whole and has the right counts."""
    failures: list[str] = []
    for i, remotes in enumerate(dataset.sources):
        try:
            _download(dataset, remotes, home.with_name(f"{home.name}.download{i}"), home)
        except DataError as error:
            failures.append(str(error))
        else:
            for failure in failures:
                warnings.warn(f"{failure}; took another address", DataWarning, stacklevel=4)
            return
    raise DataError(
        f"{dataset.name} could not be downloaded; if you have it, put it in a folder {dataset.name} and set "
        "FEDKGE_DATA to the folder above\n  " + "\n  ".join(failures)
    )


def _download(dataset: Dataset, remotes: tuple[Remote, ...], staging: Path, home: Path) -> None:
    """Fill `staging`, which outlives a failed transfer so that the next attempt goes on, and rename it."""
    for remote in remotes:
        target = staging / (remote.file or "archive")
        if not target.exists():
            fetch(remote.url, target, remote.checksum)
        if remote.members:
            with _removed_when_wrong(staging):
                extract(target, {staging / file: member for file, member in remote.members.items()})
            target.unlink()
    with _removed_when_wrong(staging):
        _check_counts(dataset, remotes, staging)
    _appear(staging, home)


@contextmanager
def _removed_when_wrong(staging: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        shutil.rmtree(staging)
        raise


def _check_counts(dataset: Dataset, remotes: tuple[Remote, ...], staging: Path) -> None:
    """Compare the triples in the files, duplicates included, with the published counts."""
    if dataset.counts is None:
        return
    found = tuple(_triples(staging, split) for split in Split)
    if found != dataset.counts:
        raise DataError(
            f"{remotes[0].url}: wrong content: {_shown(found)} triples in train/valid/test, "
            f"expected {_shown(dataset.counts)}; it was removed"
        )


def _triples(staging: Path, split: Split) -> int:
    openke = staging / f"{split}2id.txt"  # its first line is the count
    path = openke if openke.exists() else staging / f"{split}.tsv"
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip()) - (path is openke)


def _shown(counts: tuple[int, ...]) -> str:
    return "/".join(f"{count:,}" for count in counts)
