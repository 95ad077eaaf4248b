"""`fedkge cluster`: whether two runs put the same entities together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedkge.cli.arguments import Json, Trust
from fedkge.cli.output import check, command, show

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def cluster(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Two or more: runs, or folders with one per seed.")
    ],
    site: Annotated[
        str | None, typer.Option(help="Whose tables; unset, the only site.", show_default=False)
    ] = None,
    relation: Annotated[
        str | None, typer.Option(help="Cluster its heads (or --side tail).", show_default=False)
    ] = None,
    side: Annotated[str, typer.Option(help="head or tail, of --relation.")] = "head",
    entities: Annotated[
        Path | None, typer.Option(help="A file with a name per line, instead.", show_default=False)
    ] = None,
    k: Annotated[str, typer.Option(help="Numbers of clusters.")] = "2,3,4",
    repeats: Annotated[int, typer.Option(help="Clusterings of each run or folder of runs.")] = 5,
    seed: Annotated[int, typer.Option(help="Of k-means.")] = 0,
    trust: Trust = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Cluster the same entities by the rows of several runs, and say how far the clusters agree (NMI)."""
    with command(trust):
        from fedkge.audits.clustering import agreements
        from fedkge.cli.experiments import listed
        from fedkge.errors import ConfigError

        check("--side", side, ("head", "tail"))
        if len(runs) < 2 or len({path.resolve() for path in runs}) < len(runs):
            raise ConfigError("RUN...: expected at least two runs, all different")
        if relation is not None and entities is not None:
            raise ConfigError("--relation, --entities: expected one of the two")
        numbers = listed("--k", k, "2,3,4")
        if not all(number.isdigit() for number in numbers):
            raise ConfigError(f"--k: expected whole numbers, as in 2,3,4, got {k!r}")
        names, models = _rows(runs, site, relation, side, entities)
        found = agreements(models, [int(number) for number in numbers], repeats, seed)
        rows = [one.plain() for one in found]
        if json:
            show(rows, True)
            return
        for row in rows:
            row["nmi"] = f"{row['nmi']:.3f} ± {row.pop('nmi_std'):.3f}"
        show(rows, False, f"{len(names):,} entities: mutual information of k-means clusters, from 0 to 1")


def _rows(
    runs: list[Path], site: str | None, relation: str | None, side: str, entities: Path | None
) -> tuple[list[str], dict[str, list[NDArray[np.floating]]]]:
    """The entities chosen, by the first run, and their rows in every run of each folder."""
    from fedkge.audits.clustering import chosen, rows_of
    from fedkge.errors import ConfigError
    from fedkge.graphs.marks import read_names
    from fedkge.runs.folder import RunFolder

    names: list[str] | None = None
    models: dict[str, list[NDArray[np.floating]]] = {}
    for label, path in zip(_labels(runs), runs, strict=True):
        models[label] = []
        for one in _below(path):
            folder = RunFolder.open(one)
            own = site or (folder.sites()[0] if len(folder.sites()) == 1 else None)
            if own is None:
                raise ConfigError(
                    f"{one}: --site: whose tables? one of {', '.join(folder.sites()) or 'none'}"
                )
            tables, known, _ = folder.load_site(own)
            if names is None:
                graph = folder.data()[own]
                listed = None if entities is None else list(map(graph.entities.full, read_names(entities)))
                names = chosen(graph, relation, side, listed)
            models[label].append(rows_of(names, known, tables.entities.numpy(), str(one)))
    return names or [], models


def _below(path: Path) -> list[Path]:
    """The run, or the runs of several seeds below the folder."""
    below = sorted(config.parent for config in path.glob("*/config.toml"))
    return below if below and not (path / "config.toml").exists() else [path]


def _labels(runs: list[Path]) -> list[str]:
    """Folder names, or whole paths where names are the same."""
    names: list[Any] = [path.resolve().name for path in runs]
    return names if len(set(names)) == len(names) else [str(path) for path in runs]
