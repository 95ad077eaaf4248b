"""Sites from whatever a notebook has: DataFrames, arrays, lists of triples, files, folders, names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedkge.durable import PRIVATE
from fedkge.errors import ConfigError, DataError, suggest
from fedkge.front.cells import mark_of, name_of
from fedkge.front.frames import frame
from fedkge.graphs.datasets import obtain
from fedkge.graphs.graph import Axis, Federation, Graph, Split
from fedkge.graphs.indexing import NamedTriples, graph_from_triples, triples_by_name
from fedkge.graphs.links import Link, read_links
from fedkge.graphs.overview import overview
from fedkge.graphs.split import parse_ratio, split
from fedkge.graphs.unify import LinkReport, unify
from fedkge.graphs.writing import write_federation

if TYPE_CHECKING:
    from pandas import DataFrame

Table: TypeAlias = Any  #: a pandas or polars DataFrame, an array [n, 3], or rows of three names
HEADINGS = (("head", "relation", "tail"), ("subject", "predicate", "object"))
MARKS = "confidential"  #: a fourth column of true and false
ALONE = "graph"  #: what a site is called that nobody has named


class Sites(Mapping[str, Graph]):
    """The graphs of a federation by the names of their sites; it stays as it is, methods make another."""

    def __init__(
        self, graphs: Federation, reports: Sequence[LinkReport] = (), origin: str | None = None
    ) -> None:
        self._graphs, self._reports = dict(graphs), tuple(reports)
        self.origin = origin  #: the path or the name that they were loaded from: whose triples they are

    def __getitem__(self, site: str) -> Graph:
        if site not in self._graphs:
            known = ", ".join(self._graphs)
            raise KeyError(f"no site is named {site!r}{suggest(str(site), self._graphs)} (known: {known})")
        return self._graphs[site]

    def __iter__(self) -> Iterator[str]:
        return iter(self._graphs)

    def __len__(self) -> int:
        return len(self._graphs)

    def __repr__(self) -> str:
        return f"Sites({', '.join(f'{site}: {graph!r}' for site, graph in self._graphs.items())})"

    def _repr_html_(self) -> str:
        return str(self.stats._repr_html_())

    def split(self, ratio: str = "8:1:1", seed: int = 0) -> Sites:
        """All triples divided anew into train, valid and test; train has every entity and relation."""
        parts = parse_ratio(ratio)
        parted = {site: split(graph, parts, seed) for site, graph in self.items()}
        return Sites(parted, self._reports, self.origin)

    def align(self, entities: Any = None, relations: Any = None, names: bool = True) -> Sites:
        """The same graphs under names that say who is the same at different sites.

        Links are a file, or pairs of names: a list, or a table with two columns. Without `names`, only links
        count. `links` then says what became of them.
        """
        given = {Axis.ENTITY: entities, Axis.RELATION: relations}
        links = {axis: _links(value, axis) for axis, value in given.items() if value is not None}
        unified = unify(self._graphs, names, links)
        return Sites(unified.federation, unified.reports, self.origin)

    def triples(self, site: str) -> DataFrame:
        """A site's triples by name: head, relation, tail, and which split each is in."""
        graph = self[site]
        names, relations = graph.entities, graph.relations
        return frame(
            [
                {"head": names[h], "relation": relations[r], "tail": names[t], "split": str(part)}
                for part, triples in graph.splits().items()
                for h, r, t in triples.tolist()
            ]
        )

    @property
    def stats(self) -> DataFrame:
        """A row per site: entities, relations, triples of each split, confidential ones."""
        return frame([asdict(site) for site in overview(self._graphs).sites])

    @property
    def links(self) -> DataFrame:
        """What became of the links of `align`: given, used, left out, unmatched."""
        return frame([asdict(report) | {"axis": str(report.axis)} for report in self._reports])


def load(data: Any, columns: Sequence[Any] | None = None) -> Sites:
    """Sites from `data`.

    A text or path is a file, a folder with one folder per site, or the name of a data set. A mapping has a
    site for each key: a DataFrame (pandas or polars), an array, a list of triples, a path, or a mapping with
    `train`, `valid` and `test` of these. Anything else is one site. `columns` names the columns of tables
    that have head, relation and tail; they are found by themselves if they are called so, or are the only
    three. A column `confidential` marks triples. Whole numbers are fine as names.
    """
    if isinstance(data, Sites):
        return data
    if isinstance(data, str | Path):
        path = Path(data)
        return Sites(obtain(str(data)), origin=str(path.resolve() if path.exists() else data))
    if isinstance(data, Mapping) and not set(data) <= set(map(str, Split)):
        return Sites({name_of(site, "a site"): _graph(own, str(site), columns) for site, own in data.items()})
    return Sites({ALONE: _graph(data, ALONE, columns)})


def saved(sites: Sites, folder: Path) -> Path:
    """Where these sites lie as files, below a folder: written once, under a digest of their content."""
    state = blake2b(digest_size=8)
    for site, graph in sites.items():
        state.update(f"{site}\n{graph.digest()}\n".encode())
    home = folder / "data" / state.hexdigest()
    if not home.is_dir():
        write_federation(sites, home)
        for path in home.rglob("*"):
            path.chmod(0o700 if path.is_dir() else PRIVATE)
    return home.resolve()


def _graph(data: Any, where: str, columns: Sequence[Any] | None) -> Graph:
    if isinstance(data, Graph):
        return data
    if isinstance(data, str | Path):
        found = obtain(str(data))
        if len(found) != 1:
            raise DataError(f"{data}: expected the graph of one site, found {len(found)}: {', '.join(found)}")
        return next(iter(found.values()))
    given = data if isinstance(data, Mapping) and set(data) <= set(map(str, Split)) else {"train": data}
    if "train" not in given:
        raise DataError(f"{where}: expected train, valid and test, found {', '.join(given) or 'nothing'}")
    return graph_from_triples(
        {Split(part): _named(f"{where}, {part}", table, columns) for part, table in given.items()}
    )


def _named(where: str, table: Table, columns: Sequence[Any] | None) -> NamedTriples:
    rows, marks = _rows(table, where, columns)
    named = triples_by_name(
        where,
        ([name_of(value, f"{where}[{i}]") for value in row] for i, row in enumerate(rows)),
    )
    return named if marks is None else replace(named, confidential=np.array(marks, np.bool_))


def _rows(table: Table, where: str, columns: Sequence[Any] | None) -> tuple[Iterable[Any], list[bool] | None]:
    """Rows of three values, and marks where the table has any."""
    table = table.collect() if hasattr(table, "collect") else table  # polars, lazy
    table = (
        table.to_pandas() if hasattr(table, "to_pandas") and hasattr(table, "to_pydict") else table
    )  # pyarrow
    if not hasattr(table, "columns"):
        return _listed(table, where)
    known = list(table.columns)
    if len(set(map(str, known))) < len(known):
        raise DataError(
            f"{where}: expected columns with names of their own, found {', '.join(map(str, known))}"
        )
    names = _chosen(known, where, columns)
    marks = [list(table[name]) for name in known if str(name).lower() == MARKS and name not in names]
    found = [mark_of(mark, f"{where}[{i}]") for i, mark in enumerate(marks[0])] if marks else None
    return zip(*(list(table[name]) for name in names), strict=True), found


def _listed(table: Table, where: str) -> tuple[Iterable[Any], list[bool] | None]:
    """Of an array, or of rows one by one; a fourth value of all of them is a mark."""
    rows = np.asarray(table).tolist() if hasattr(table, "__array__") else table
    if not isinstance(rows, Iterable):
        raise DataError(f"{where}: expected a table, an array or rows of three names, found {rows!r}")
    found = list(rows)
    widths = {3, 4} if not found or not hasattr(found[0], "__len__") else {len(found[0])} & {3, 4}
    for i, row in enumerate(found):
        if isinstance(row, str) or not hasattr(row, "__len__") or len(row) not in widths:
            raise DataError(f"{where}[{i}]: expected head, relation and tail, found {row!r}")
    marks = [mark_of(row[3], f"{where}[{i}]") for i, row in enumerate(found)] if widths == {4} else None
    return [row[:3] for row in found], marks


def _chosen(known: list[Any], where: str, columns: Sequence[Any] | None) -> list[Any]:
    """The three columns of a table with head, relation and tail."""
    if columns is not None:
        for name in columns:
            if name not in known:
                hint = suggest(str(name), map(str, known))
                raise DataError(f"{where}: no column {name!r}{hint} (there are {', '.join(map(str, known))})")
        if len(columns) != 3:
            raise ConfigError(f"columns: expected those of head, relation and tail, got {list(columns)!r}")
        return list(columns)
    lower = {str(name).lower(): name for name in known}
    for heading in HEADINGS:
        if set(heading) <= set(lower):
            return [lower[name] for name in heading]
    others = [name for name in known if str(name).lower() != MARKS]
    if len(others) != 3:
        raise DataError(
            f"{where}: which columns are head, relation and tail? it has {', '.join(map(str, known))}; name "
            "them, as in columns=['from', 'kind', 'to']"
        )
    return others


def _links(given: Any, axis: Axis) -> list[Link]:
    if isinstance(given, str | Path):
        return list(read_links(Path(given), axis))
    rows = zip(*(given[name] for name in given.columns), strict=True) if hasattr(given, "columns") else given
    found = []
    for i, row in enumerate(rows):
        where = f"{axis} links[{i}]"
        if isinstance(row, str) or len(row) != 2:
            raise DataError(f"{where}: expected two names, found {row!r}")
        found.append(Link(None, name_of(row[0], where), None, name_of(row[1], where), where))
    return found
