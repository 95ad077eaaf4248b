"""What commands on graphs have in common: their arguments, and how graphs are written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedkge.graphs.graph import Federation


class Format(StrEnum):
    """What graphs are written as."""

    TSV = "tsv"
    NT = "nt"


Source = Annotated[str, typer.Argument(metavar="IN", help="A file, a folder, or the name of a data set.")]
Target = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse test entities that train never saw.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it holds a graph.")]
As = Annotated[Format, typer.Option("--format", help="What to write.")]
Compress = Annotated[bool, typer.Option("--compress", help="Write gzipped files.")]


def write_forget(forgotten: Federation, folder: Path, form: Format, compress: bool) -> None:
    """Write triples to be forgotten beside the graphs, as `forget.tsv`."""
    apart = folder.with_name("forgotten")
    write(forgotten, apart, form, compress)
    for path in apart.glob("**/train.*"):
        path.rename(folder / path.relative_to(apart).with_name(path.name.replace("train", "forget", 1)))


def write(federation: Federation, folder: Path, form: Format, compress: bool) -> None:
    """A single site is written as a plain graph: `folder/train.tsv`, not `folder/site/train.tsv`."""
    from fedkge.graphs.files import write_federation, write_graph

    if len(federation) == 1:
        write_graph(next(iter(federation.values())), folder, form.value, compress)
    else:
        write_federation(federation, folder, form.value, compress)


def sizes(federation: Federation) -> list[dict[str, Any]]:
    """A line for each site that was written."""
    from fedkge.graphs.overview import overview

    columns = ("site", "entities", "relations", "train", "valid", "test", "confidential")
    return [{column: getattr(site, column) for column in columns} for site in overview(federation).sites]
