"""`fedkge data`: look at graphs, convert them, deal them out."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedkge.cli.align import align
from fedkge.cli.convert import convert
from fedkge.cli.destination import destination
from fedkge.cli.front import Group
from fedkge.cli.graphs import (
    As,
    Compress,
    Format,
    Json,
    Overwrite,
    Seed,
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
    from fedkge.graphs.graph import Graph

app = typer.Typer(cls=Group, help="Look at graphs, convert them, deal them out.", no_args_is_help=True)
app.command()(align)
app.command()(convert)


class By(StrEnum):
    """How a graph is dealt out."""

    RELATION = "relation"
    CLUSTER = "cluster"
    TRIPLE = "triple"
    HALF = "half"


@app.command()
def stats(source: Source, strict: Strict = False, as_json: Json = False) -> None:
    """Sizes of the sites, what they have in common, and what one is measured by and another trains on."""
    with command():
        from fedkge.graphs.across import leaks, told
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.overview import overview
        from fedkge.graphs.said import blank_apart

        federation = obtain(source, strict=strict)
        known = blank_apart(federation)
        found, leaked = overview(federation), leaks(known)
        sites = [asdict(site) for site in found.sites]
        if len(sites) > 1:
            for site in sites:
                of = leaked[site["site"]]
                site |= {"valid_elsewhere_trained": of.valid, "test_elsewhere_trained": of.test}
        together = {
            "entities": found.entities,
            "relations": found.relations,
            "shared_by_two": found.shared_by_two,
            "shared_by_all": found.shared_by_all,
            "mean_shared_entities_per_pair": found.mean_entity_overlap,
            "mean_shared_relations_per_pair": found.mean_relation_overlap,
            "valid_elsewhere_trained": sum(of.valid for of in leaked.values()),
            "test_elsewhere_trained": sum(of.test for of in leaked.values()),
        }
        overlaps = {"entity_overlap": found.entity_overlap, "relation_overlap": found.relation_overlap}
        if as_json:
            show([{"sites": sites, **together, **{k: v.tolist() for k, v in overlaps.items()}}], as_json)
            return
        show([{**site, "density": f"{site['density']:.2e}"} for site in sites], as_json, "Sites")
        if len(sites) > 1:
            show([together], as_json, "Together")
            names = [site.site for site in found.sites]
            for title, overlap in overlaps.items():
                rows = zip(names, overlap.tolist(), strict=True)
                table = [{"site": name, **dict(zip(names, row, strict=True))} for name, row in rows]
                show(table, as_json, title.replace("_", " ").capitalize())
            if (said := told(leaked, known)) is not None:
                print(f"{said} stand in the train of another site (data.drop_leaks = 'across').")


@app.command()
def partition(
    source: Source,
    out: Target,
    by: Annotated[By, typer.Option(help="What is dealt out; half: two graphs with much in common.")],
    sites: Annotated[int | None, typer.Option(help="How many sites; two for --by half.")] = None,
    seed: Seed = 0,
    ratio: Annotated[str | None, typer.Option(help="train:valid:test at each site [default: 8:1:1]")] = None,
    keep_split: Annotated[bool, typer.Option("--keep-split", help="Do not split anew.")] = False,
    form: As = Format.TSV,
    compress: Compress = False,
    strict: Strict = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Deal one graph out to sites, then split each site's triples."""
    with command(), destination(out, overwrite) as fresh:
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.files import write_federation
        from fedkge.graphs.split import parse_ratio, split

        if keep_split and ratio is not None:
            raise ConfigError("--ratio and --keep-split: split triples anew, or leave them, not both")
        parts = parse_ratio(ratio or "8:1:1")
        federation = obtain(source, strict=strict)
        if len(federation) != 1:
            raise ConfigError(f"{source}: expected one graph to deal out, found {len(federation)} sites")
        dealt = _dealt(next(iter(federation.values())), by, sites, seed, keep_split)
        if not keep_split:
            dealt = {site: split(graph, parts, seed) for site, graph in dealt.items()}
        write_federation(dealt, fresh, form.value, compress)
        show(sizes(dealt), as_json, str(out))


@app.command(name="split")
def split_command(
    source: Source,
    out: Target,
    ratio: Annotated[str, typer.Option(help="train:valid:test.")] = "8:1:1",
    seed: Seed = 0,
    keep_confidential: Annotated[
        bool,
        typer.Option("--keep-confidential", help="Confidential triples stay in train."),
    ] = False,
    form: As = Format.TSV,
    compress: Compress = False,
    strict: Strict = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Divide triples anew, keeping every entity and relation in train."""
    with command(), destination(out, overwrite) as fresh:
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.split import parse_ratio, split

        parts = parse_ratio(ratio)
        federation = obtain(source, strict=strict)
        marked = any(graph.confidential is not None for graph in federation.values())
        if keep_confidential and not marked:
            raise ConfigError("--keep-confidential: no triple is marked; `fedkge data mark` marks some first")
        divided = {site: split(graph, parts, seed, keep_confidential) for site, graph in federation.items()}
        write(divided, fresh, form, compress)
        show(sizes(divided), as_json, str(out))


@app.command(name="prune")
def prune_command(
    source: Source,
    out: Target,
    min_degree: Annotated[int, typer.Option(help="Triples that an entity must stand in.")],
    form: As = Format.TSV,
    compress: Compress = False,
    strict: Strict = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Drop entities that too few triples speak of, until all that are left have enough."""
    with command(), destination(out, overwrite) as fresh:
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.prune import prune

        pruned = {site: prune(graph, min_degree) for site, graph in obtain(source, strict=strict).items()}
        left = {site: graph for site, (graph, _) in pruned.items()}
        write(left, fresh, form, compress)
        dropped = [
            {
                "dropped_entities": gone.entities,
                "dropped_relations": gone.relations,
                "dropped_triples": gone.triples,
                "dropped_unseen": gone.unseen,
            }
            for _, gone in pruned.values()
        ]
        show([size | gone for size, gone in zip(sizes(left), dropped, strict=True)], as_json, str(out))


@app.command()
def mark(
    source: Source,
    out: Target,
    relations: Annotated[Path | None, typer.Option(help="A file with a relation per line.")] = None,
    triples: Annotated[Path | None, typer.Option(help="A file of triples, in any format.")] = None,
    share: Annotated[float | None, typer.Option(help="A random share of each site's train.")] = None,
    seed: Seed = 0,
    compress: Compress = False,
    strict: Strict = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Mark training triples as confidential: a fourth column of TSV says so."""
    with command(), destination(out, overwrite) as fresh:
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.files import read_graph
        from fedkge.graphs.marks import mark_relations, mark_share, mark_triples, read_names

        if sum(given is not None for given in (relations, triples, share)) != 1:
            raise ConfigError("expected one of --relations, --triples, --share: what is confidential?")
        federation = obtain(source, strict=strict)
        if relations is not None:
            marked = mark_relations(federation, read_names(relations))
        elif triples is not None:
            marked = mark_triples(federation, read_graph(triples))
        else:
            assert share is not None
            marked = mark_share(federation, share, seed)
        write(marked, fresh, Format.TSV, compress)
        show(sizes(marked), as_json, str(out))


@app.command(name="forget")
def forget_command(
    source: Source,
    out: Target,
    share: Annotated[float, typer.Option(help="How much of each site's train is to be forgotten.")] = 0.01,
    seed: Seed = 0,
    form: As = Format.TSV,
    compress: Compress = False,
    strict: Strict = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Choose training triples to forget: OUT has the graph without them, and them in a file `forget`."""
    with command(), destination(out, overwrite) as fresh:
        from fedkge.graphs.datasets import obtain
        from fedkge.graphs.marks import forget

        chosen = forget(obtain(source, strict=strict), share, seed)
        retained = {site: choice.retained for site, choice in chosen.items()}
        forgotten = {site: choice.as_graph() for site, choice in chosen.items()}
        write(retained, fresh, form, compress)
        write_forget(forgotten, fresh, form, compress)
        counts = [{"forgotten": len(choice.forgotten)} for choice in chosen.values()]
        show([size | count for size, count in zip(sizes(retained), counts, strict=True)], as_json, str(out))


def _dealt(graph: Graph, by: By, sites: int | None, seed: int, keep_split: bool) -> dict[str, Graph]:
    from fedkge.graphs.partition import by_cluster, by_relation, by_triple, halves

    if by is By.HALF:
        if sites not in (None, 2):
            raise ConfigError(f"--sites: two halves are two sites, not {sites}")
        return halves(graph, seed, keep_split=keep_split)
    if sites is None:
        raise ConfigError(f"--sites: how many sites? --by {by} needs a number")
    deal = {By.RELATION: by_relation, By.CLUSTER: by_cluster, By.TRIPLE: by_triple}[by]
    return deal(graph, sites, seed, keep_split=keep_split)
