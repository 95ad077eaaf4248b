"""`fedkge data align`: what an alignment does, before anything is trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, Trust
from fedkge.cli.output import command, print_json, show
from fedkge.errors import ConfigError, DataError, visible

if TYPE_CHECKING:
    from fedkge.graphs.alignment import Traced
    from fedkge.graphs.graph import Axis
    from fedkge.runs.experiment import Align, Data

FATES = {"used": "used", "left_out": "ambiguous", "within_site": "within one site", "unmatched": "unmatched"}


def align(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="An experiment, or a folder, file or name of a data set.")
    ],
    entities: Annotated[Path | None, typer.Option(help="Links between entities.")] = None,
    relations: Annotated[Path | None, typer.Option(help="Links between relations.")] = None,
    names: Annotated[
        bool | None, typer.Option("--names/--no-names", help="Equal names are the same thing.")
    ] = None,
    suggest: Annotated[
        Path | None, typer.Option(help="Write links between similar names to this file, to be edited.")
    ] = None,
    relation_names: Annotated[
        bool, typer.Option("--of-relations", help="Suggest links between relations, not entities.")
    ] = False,
    similarity: Annotated[float, typer.Option(help="How alike suggested names are, at least.")] = 0.7,
    top: Annotated[int, typer.Option(help="Links that are listed, of each kind.")] = 10,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Show what sites have in common and what becomes of links; suggest links by similar names."""
    with command(trust):
        from fedkge.graphs.across import leaks, told
        from fedkge.graphs.alignment import common, traced
        from fedkge.graphs.graph import Axis
        from fedkge.graphs.said import lifted
        from fedkge.runs.aligning import aligned, links_of
        from fedkge.runs.data import read_data
        from fedkge.runs.dividing import split_by

        data, chosen, seed = _asked(source)
        given = {"entities": entities, "relations": relations, "names": names}
        chosen = _with(chosen, {name: one for name, one in given.items() if one is not None})
        if chosen.secret is not None:
            raise ConfigError("align.secret: with a secret every site aligns by itself; expected none here")
        federation, said = lifted(split_by(data, read_data(data), seed))
        unified = aligned(chosen, federation, said)
        links = links_of(chosen, federation)
        found = {axis: traced(federation, axis, chosen.names, links.get(axis, ()), said) for axis in Axis}
        counts = {axis: common(unified.federation, axis) for axis in Axis}
        rows = [_row(axis, counts[axis].all, counts[axis].shared, found[axis]) for axis in Axis]
        listed = [row for axis in Axis for row in _listed(axis, found[axis], top)]
        axis = Axis.RELATION if relation_names else Axis.ENTITY
        made = None if suggest is None else _suggest(suggest, unified.federation, axis, similarity)
        found_leaks = leaks(unified.federation)
        if json:
            by_site = {site: of.plain() for site, of in found_leaks.items()}
            print_json({"axes": rows, "links": listed, "suggested": made, "leaks": by_site})
            return
        show(rows, False, f"{source}: what {len(federation)} sites have in common")
        if listed:
            show(listed, False, "Links that do nothing")
        if (said_leaks := told(found_leaks, unified.federation)) is not None:
            print(f"{said_leaks} stand in the train of another site (data.drop_leaks = 'across').")
        if made is not None:
            print(
                f"{made['links']:,} links suggested in {suggest}, {made['ambiguous']:,} names with several "
                "candidates. Delete the lines that are wrong, then use the file: "
                f"align = {{ {'relations' if relation_names else 'entities'} = {str(suggest)!r} }}"
            )


def _asked(source: str) -> tuple[Data, Align, int]:
    """The data and the alignment of an experiment, or of data alone."""
    from fedkge.cli.experiments import one
    from fedkge.config import read_toml
    from fedkge.graphs.catalogue import DATASETS
    from fedkge.runs.experiment import Align, Data

    path = Path(source)
    if path.suffix == ".toml" and path.is_file() and "data" in read_toml(path):
        experiment = one(path, ())
        return experiment.data, experiment.align, experiment.seed
    if path.exists() or source.lower() not in DATASETS:
        return Data(path=path), Align(), 0
    return Data(name=source), Align(), 0


def _with(align: Align, given: dict[str, Any]) -> Align:
    from dataclasses import replace

    return replace(align, **given)


def _row(axis: Axis, every: int, shared: int, found: list[Traced]) -> dict[str, Any]:
    fates = Counter(one.fate for one in found)
    counts = {word.replace(" ", "_"): fates[fate] for fate, word in FATES.items()}  # type: ignore[index]
    return {"what": str(axis), "different": every, "shared": shared, "links": len(found), **counts}


def _listed(axis: Axis, found: list[Traced], top: int) -> list[dict[str, Any]]:
    rows = []
    for fate in ("unmatched", "left_out", "within_site"):
        for one in [one for one in found if one.fate == fate][:top]:
            rows.append(
                {
                    "what": str(axis),
                    "link": f"{one.link.left} = {one.link.right}",
                    "where": one.link.where,
                    "why": FATES[fate],
                    "no site has": one.missing,
                    "near": ", ".join(one.near),
                }
            )
    return rows


def _suggest(path: Path, federation: Any, axis: Axis, least: float) -> dict[str, Any]:
    from fedkge.graphs.similar import ambiguous, lines, suggestions

    if not 0 < least <= 1:
        raise ConfigError(f"--similarity: expected above 0 and at most 1, got {least}")
    if path.suffix != ".tsv":
        raise ConfigError(f"--suggest: {path}: expected a name that ends in .tsv")
    names = {site: list(graph.names(axis)) for site, graph in federation.items()}
    found = suggestions(names, least)
    try:
        with path.open("x", encoding="utf-8") as file:  # an edited file is never overwritten
            file.writelines(lines(found))
    except FileExistsError:
        raise DataError(f"{path}: is there already, perhaps edited; choose another name") from None
    return {"file": visible(str(path)), "links": len(found), "ambiguous": ambiguous(found)}
