"""`fedkge evaluate`, `predict`, `pack`, `embeddings`: use what a run made."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, Trust, View
from fedkge.cli.output import check, command, show
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.evaluation import Ranks
    from fedkge.runs.held import Held

Run = Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)]
AnySite = Annotated[str | None, typer.Option("--site", help="Whose tables; needed where there are several.")]


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
        from fedkge.runs.held import held_sites

        check("--split", split, ("valid", "test"))
        check("--ties", ties, ("optimistic", "realistic", "pessimistic"))
        check("--types", types, ("none", "train", "openke"))
        if keep_ranks and (split, types, classify, view) != ("test", "none", False, ""):
            raise ConfigError("--keep-ranks: expected ranks of test among all entities, as runs keep them")
        rows = []
        for held in held_sites(run, view):
            if classify:
                rows.append(_classified(held, with_thresholds=json))
                continue
            ranks = _ranks(held, split, types)
            rows += _measured(held, ranks, ties, by_relation)
            if keep_ranks:
                RunFolder.open(run).save_ranks(held.site, ranks, held.graph.test)
        title = "test, triple classification" if classify else f"{split}, {ties} ties"
        show(rows, json, f"{run}: {title}{f', {view}' if view else ''}")


def _classified(held: Held, with_thresholds: bool) -> dict[str, Any]:
    from fedkge.evaluation import classify

    site, graph = held.site, held.graph
    found = classify(held.tables, graph, seed=0, site=site)
    row = {name: getattr(found, name) for name in ("accuracy", "auc", "count", "without_valid")}
    if with_thresholds:
        row["thresholds"] = dict(zip(graph.relations, found.thresholds.tolist(), strict=True))
    return {"site": site, **row}


def _ranks(held: Held, split: str, types: str) -> Ranks:
    from fedkge.evaluation import Known, TypeConstraints, rank

    graph = held.graph
    constraints = {"none": None, "train": TypeConstraints.from_train, "openke": TypeConstraints.openke}[types]
    candidates = None if constraints is None else constraints(graph)
    return rank(
        held.tables, graph.split(split), Known.from_graph(graph), candidates=candidates, site=held.site
    )


def _measured(held: Held, ranks: Ranks, ties: str, by_relation: bool) -> list[dict[str, Any]]:
    from fedkge.evaluation import metrics_by_relation, metrics_by_side

    site, graph = held.site, held.graph
    if by_relation:
        found = metrics_by_relation(ranks, ties)
        return [{"site": site, "relation": graph.relations[r], **values} for r, values in found.items()]
    return [{"site": site, "side": side, **found} for side, found in metrics_by_side(ranks, ties).items()]


def predict(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a pack.", show_default=False)],
    site: AnySite = None,
    head: Annotated[str | None, typer.Option(help="By name; leave out what is asked for.")] = None,
    relation: Annotated[str | None, typer.Option(help="By name.")] = None,
    tail: Annotated[str | None, typer.Option(help="By name.")] = None,
    questions: Annotated[
        Path | None,
        typer.Option(help="Many at once: CSV, TSV or Parquet with head, relation, tail; ? is asked for."),
    ] = None,
    missing: Annotated[
        bool,
        typer.Option("--missing", help="The likeliest triples that are not there; of --relation, or of all."),
    ] = False,
    neighbours: Annotated[str | None, typer.Option(help="The entities nearest to this one.")] = None,
    top: Annotated[int, typer.Option(help="How many.")] = 10,
    known: Annotated[bool, typer.Option(help="Also what the graph already states.")] = False,
    data: Annotated[
        list[Path],
        typer.Option(help="Triples that have come since training, and are known now.", show_default=False),
    ] = [],  # noqa: B006
    unrestricted: Annotated[
        bool,
        typer.Option("--unrestricted", help="As if only unrestricted triples were known: for others to see."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the answers to a .csv, .parquet, .nt or .json file.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace that file.")] = False,
    view: View = "",
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """The likeliest tails, heads or relations by name; many at once, missing triples, or neighbours."""
    with command(trust):
        from fedkge.front import questions as asking
        from fedkge.front.writing import check_out, write_rows
        from fedkge.runs.held import hold

        given = (head, relation, tail)
        _one_way(given, questions, missing, neighbours)
        if out is not None:
            check_out(out, overwrite)
        asked = {"": given} if questions is None else asking.read_questions(questions)
        held = hold(run, site, view).knowing(data)
        if not unrestricted and held.confidential and neighbours is None:
            _warn_of_confidential(known)
        if missing:
            rows = asking.missing(held, relation, top, unrestricted)
        elif neighbours is not None:
            rows = asking.neighbours(held, neighbours, top, unrestricted)
        else:
            rows = asking.answered(held, asked, top, known, unrestricted)
        if out is None:
            prefixes = held.graph.entities.prefixes
            show(rows if json else [_short(row, prefixes) for row in rows], json)
        else:
            write_rows(rows, out)
            show([{"file": str(out), "rows": len(rows)}], json)


def _short(row: Mapping[str, Any], prefixes: Mapping[str, str]) -> dict[str, Any]:
    """A row for people: IRIs by their short names, which every command takes."""
    from fedkge.graphs.prefixes import shortened

    return {
        key: shortened(value, prefixes) if isinstance(value, str) else value for key, value in row.items()
    }


def _one_way(
    given: tuple[str | None, ...], questions: Path | None, missing: bool, neighbours: str | None
) -> None:
    """An error where two kinds of questions are asked at once."""
    ways = {
        "--questions": questions is not None,
        "--missing": missing,
        "--neighbours": neighbours is not None,
    }
    ways["--head, --tail"] = given[0] is not None or given[2] is not None
    ways["--relation"] = given[1] is not None and not missing and not ways["--head, --tail"]
    if sum(ways.values()) > 1:
        both = " and ".join(name for name, chosen in ways.items() if chosen)
        raise ConfigError(f"{both}: expected one kind of question")


def pack(
    run: Run,
    site: Annotated[str | None, typer.Argument(help="Whose tables; of a run with one site, that.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to make.", show_default="SITE.pack")] = None,
    no_known: Annotated[bool, typer.Option("--no-known", help="Leave out what the graph states.")] = False,
    confidential: Annotated[
        bool, typer.Option("--confidential", help="Confidential triples too: for the site alone.")
    ] = False,
    view: View = "",
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Make a folder that predicts without the run and its data; `fedkge predict` takes it like a run."""
    with command(trust):
        from fedkge.runs.folder import RunFolder
        from fedkge.runs.held import chosen
        from fedkge.runs.held import pack as packed

        if no_known and confidential:
            raise ConfigError("--no-known and --confidential: expected one of the two")
        site = chosen(RunFolder.open(run), site)
        files = packed(run, site, out or Path(f"{site}.pack"), not no_known, confidential, view)
        show([{"file": str(path), "bytes": path.stat().st_size} for path in files], json)


def embeddings(
    run: Run,
    out: Annotated[Path, typer.Option(help="A folder for the files.")],
    site: AnySite = None,
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
        from fedkge.runs.held import hold, shareable

        check("--format", format, (*map(str, Format), "pykeen"))
        held = hold(run, site, view)
        tables, graph = (held.tables, held.graph) if persons else shareable(held.tables, held.graph)
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
