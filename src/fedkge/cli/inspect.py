"""`fedkge evaluate`, `predict`, `embeddings`: use what a run made."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, Trust, View
from fedkge.cli.output import check, command, show
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.evaluation import Ranks
    from fedkge.graphs.graph import Graph
    from fedkge.models import Tables

Run = Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)]
Site = Annotated[str, typer.Option(help="Whose tables.")]


def evaluate(
    run: Run,
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    ties: Annotated[str, typer.Option(help="optimistic, realistic or pessimistic.")] = "realistic",
    types: Annotated[
        str, typer.Option(help="Candidates by type: none, train, or openke (sees test).")
    ] = "none",
    by_relation: Annotated[bool, typer.Option(help="A row per relation.")] = False,
    classify: Annotated[bool, typer.Option(help="Triple classification instead of ranks.")] = False,
    keep_ranks: Annotated[
        bool, typer.Option("--keep-ranks", help="Keep ranks of test in the run's folder, as runs do.")
    ] = False,
    view: View = "",
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Measure a run's tables again: ranks by any tie rule, by relation, or triple classification."""
    with command(trust):
        from fedkge.runs.folder import RunFolder

        check("--split", split, ("valid", "test"))
        check("--ties", ties, ("optimistic", "realistic", "pessimistic"))
        check("--types", types, ("none", "train", "openke"))
        if keep_ranks and (split, types, classify, view) != ("test", "none", False, ""):
            raise ConfigError("--keep-ranks: expected ranks of test among all entities, as runs keep them")
        rows = []
        for site, tables, graph in _sites(run, view=view):
            if classify:
                rows.append(_classified(site, tables, graph, with_thresholds=json))
                continue
            ranks = _ranks(site, tables, graph, split, types)
            rows += _measured(site, ranks, graph, ties, by_relation)
            if keep_ranks:
                RunFolder.open(run).save_ranks(site, ranks)
        title = "test, triple classification" if classify else f"{split}, {ties} ties"
        show(rows, json, f"{run}: {title}{f', {view}' if view else ''}")


def _classified(site: str, tables: Tables, graph: Graph, with_thresholds: bool) -> dict[str, Any]:
    from fedkge.evaluation import classify

    found = classify(tables, graph, seed=0, site=site)
    row = {name: getattr(found, name) for name in ("accuracy", "auc", "count", "without_valid")}
    if with_thresholds:
        row["thresholds"] = dict(zip(graph.relations, found.thresholds.tolist(), strict=True))
    return {"site": site, **row}


def _ranks(site: str, tables: Tables, graph: Graph, split: str, types: str) -> Ranks:
    from fedkge.evaluation import Known, TypeConstraints, rank

    constraints = {"none": None, "train": TypeConstraints.from_train, "openke": TypeConstraints.openke}[types]
    candidates = None if constraints is None else constraints(graph)
    return rank(tables, graph.split(split), Known.from_graph(graph), candidates=candidates, site=site)


def _measured(site: str, ranks: Ranks, graph: Graph, ties: str, by_relation: bool) -> list[dict[str, Any]]:
    from fedkge.evaluation import metrics_by_relation, metrics_by_side

    if by_relation:
        found = metrics_by_relation(ranks, ties)
        return [{"site": site, "relation": graph.relations[r], **values} for r, values in found.items()]
    return [{"site": site, "side": side, **found} for side, found in metrics_by_side(ranks, ties).items()]


def predict(
    run: Run,
    site: Site,
    head: Annotated[str | None, typer.Option(help="By name; leave out what is asked for.")] = None,
    relation: Annotated[str | None, typer.Option()] = None,
    tail: Annotated[str | None, typer.Option()] = None,
    top: Annotated[int, typer.Option(help="How many.")] = 10,
    known: Annotated[bool, typer.Option(help="Also what the graph already states.")] = False,
    unrestricted: Annotated[
        bool,
        typer.Option("--unrestricted", help="As if only unrestricted triples were known: for others to see."),
    ] = False,
    view: View = "",
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """The likeliest tails, heads or relations by name; give two of the three."""
    with command(trust):
        from fedkge.evaluation import predict as best

        ((_, tables, graph),) = _sites(run, site, view)
        marks = graph.confidential
        if not unrestricted and (graph.persons is not None or (marks is not None and marks.any())):
            _warn_of_confidential(known)
        how = {"exclude_known": not known, "openly": unrestricted}
        found = best(tables, graph, head=head, relation=relation, tail=tail, top=top, **how)
        show([asdict(one) for one in found], json)


def embeddings(
    run: Run,
    site: Site,
    out: Annotated[Path, typer.Option(help="A folder for the files.")],
    format: Annotated[str, typer.Option(help="safetensors, parquet, tsv or pykeen.")] = "safetensors",
    persons: Annotated[
        bool, typer.Option("--persons", help="Rows of persons too: for the site alone.")
    ] = False,
    view: View = "",
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """A site's rows by name, for other programs."""
    with command(trust):
        from fedkge.errors import DataError
        from fedkge.exports.files import Format, save_embeddings
        from fedkge.exports.pykeen_files import save_pykeen

        check("--format", format, (*map(str, Format), "pykeen"))
        ((_, tables, graph),) = _sites(run, site, view)
        if graph.persons is not None and not persons:
            tables, graph = _without_persons(tables, graph)
        try:
            if format == "pykeen":
                files = save_pykeen(tables, graph, out)
            else:
                files = save_embeddings(tables, graph, out, format)
        except OSError as error:
            raise DataError(f"{out}: cannot be written: {error.strerror}") from None
        show([{"file": str(path), "bytes": path.stat().st_size} for path in files], json)


def _warn_of_confidential(known: bool) -> None:
    """Answers that depend on confidential triples without noise are for the site alone."""
    which = "answers marked as known" if known else "known answers, which are left out,"
    print(
        f"warning: {which} may be confidential triples: keep this at the site, or give --unrestricted, which "
        "knows unrestricted ones only",
        file=sys.stderr,
    )


def _without_persons(tables: Tables, graph: Graph) -> tuple[Tables, Graph]:
    import torch

    from fedkge.graphs.persons import without_persons
    from fedkge.models import Tables

    assert graph.persons is not None
    others = torch.from_numpy(~graph.persons).to(tables.device)
    return Tables(tables.model, tables.entities[others], tables.relations), without_persons(graph)


def _sites(run: Path, site: str | None = None, view: str = "") -> list[tuple[str, Tables, Graph]]:
    """The run's sites with their graphs, loaded from where the run had them."""
    from fedkge.runs.folder import RunFolder
    from fedkge.training.confidential import marked

    folder = RunFolder.open(run)
    names = folder.summary()["sites"] if site is None else [site]
    tables = {name: folder.load_site(name, view)[0] for name in names}
    experiment, federation = folder.experiment(), folder.data()
    return [
        (name, own, replace(federation[name], confidential=marked(federation[name], experiment.privacy)))
        for name, own in tables.items()
    ]
