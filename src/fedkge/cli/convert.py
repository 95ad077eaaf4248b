"""`fedkge data convert`: graphs of any format, tables as they come, and files that papers have published."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkge.cli.destination import destination
from fedkge.cli.graphs import (
    As,
    Compress,
    Format,
    Json,
    Overwrite,
    Source,
    Strict,
    Target,
    sizes,
    write,
    write_forget,
)
from fedkge.cli.output import command, show
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.graphs.graph import Federation


class Origin(StrEnum):
    """Whose published files are read."""

    FEDE = "fede"
    FEDLU = "fedlu"
    FKGE = "fkge"


def convert(
    source: Source,
    out: Target,
    form: As = Format.TSV,
    compress: Compress = False,
    head: Annotated[str | None, typer.Option(help="The column with heads: its name, or position.")] = None,
    relation: Annotated[str | None, typer.Option(help="The column with relations.")] = None,
    tail: Annotated[str | None, typer.Option(help="The column with tails.")] = None,
    mark: Annotated[str | None, typer.Option(help="The column that marks confidential triples.")] = None,
    key: Annotated[str | None, typer.Option(help="Of a wide table: the column that names a row.")] = None,
    columns: Annotated[list[str], typer.Option("--column", help="Of a wide table: use this column.")] = [],  # noqa: B006
    node: Annotated[str | None, typer.Option(help="Of Neo4j: the property that names a node.")] = None,
    separator: Annotated[str | None, typer.Option(help="The character between fields.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="The first line names the columns.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Count bad rows, and go on.")] = False,
    drop: Annotated[list[str], typer.Option(help="A relation to leave out; again for another.")] = [],  # noqa: B006
    numbers: Annotated[str | None, typer.Option(help="Numbers and dates: keep, bin or skip.")] = None,
    edges: Annotated[list[str], typer.Option(help="Of bins, as in age=18,40,65.")] = [],  # noqa: B006
    prefixes: Annotated[list[str], typer.Option("--prefix", help="As in ex=https://care.example/.")] = [],  # noqa: B006
    origin: Annotated[
        Origin | None, typer.Option("--from", help="Files as the authors of this method publish them.")
    ] = None,
    names: Annotated[
        Path | None, typer.Option(help="With --from fede: the folder with entity2id.txt and relation2id.txt.")
    ] = None,
    links: Annotated[
        Path | None, typer.Option(help="With --from fkge: write the links between entities to this file.")
    ] = None,
    strict: Strict = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Read any format, write TSV or N-Triples. Options say how tables are read."""
    with command(), destination(out, overwrite) as fresh:
        from fedkge.config import build
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.table import PLAIN, Table

        said = {"head": head, "relation": relation, "tail": tail, "mark": mark, "key": key}
        places = {name: int(one) if one and one.isdigit() else one for name, one in said.items()}
        listed = {"columns": columns, "drop": drop, "edges": edges, "prefixes": prefixes}
        others = {"node": node, "separator": separator, "header": header, "numbers": numbers}
        table = build(Table, {**places, **listed, **others, "skip_bad": skip_bad}, "")
        if origin is None:
            if names is not None or links is not None:
                raise ConfigError("--names, --links: of no use without --from fede, --from fkge")
            federation: Federation = obtain(source, strict=strict, table=table)
            write(federation, fresh, form, compress)
        elif table != PLAIN:
            raise ConfigError(f"--from {origin}: these files are no tables; expected no options for tables")
        else:
            federation = _published(Path(source), fresh, origin, names, links, form, compress)
        show(sizes(federation), as_json, str(out))


def _published(
    source: Path,
    folder: Path,
    origin: Origin,
    names: Path | None,
    links: Path | None,
    form: Format,
    compress: bool,
) -> Federation:
    """Write a federation out of published files, and what comes with it."""
    from fedkge.graphs.files import write_federation
    from fedkge.graphs.published import read_fede, read_fedlu, read_fkge

    if (names is not None and origin is not Origin.FEDE) or (links is not None and origin is not Origin.FKGE):
        raise ConfigError("--names is for --from fede, and --links for --from fkge")
    if origin is Origin.FEDE:
        found = read_fede(source, names)
    else:
        found = read_fedlu(source) if origin is Origin.FEDLU else read_fkge(source)
    if links is not None and links.exists():
        raise ConfigError(f"--links: {links}: is there already; choose another name")
    write_federation(found.federation, folder, form.value, compress)
    if found.forget:
        write_forget(found.forget, folder, form, compress)
    if links is not None:
        links.write_text("".join("\t".join(link) + "\n" for link in found.links), encoding="utf-8")
    elif found.links:
        print(
            f"note: {len(found.links):,} links between entities; --links FILE.tsv writes them",
            file=sys.stderr,
        )
    return found.federation
