"""Entities of all sites in one plane, by t-SNE (van der Maaten and Hinton, 2008; FedLU, Figure 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkge.errors import DataError, MissingPackage
from fedkge.randomness import name_keys
from fedkge.reports.compared.experiments import COLOURS, Group
from fedkge.reports.drawing.figure import Canvas, Figure, Trace, mark, text
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import notice, soft

MOST = 2000  #: entities that are placed, of all sites together
FACETS = 12  #: sites that get a small plot of their own
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up")
SHARED, OWN = "s1", "plain"  #: colours
NOTE = (
    "Rows of entities as they were kept, placed so that neighbours stay neighbours; distances and directions "
    "between groups mean little."
)
PERSONS = "not drawn, as some entities are persons: a point would show the name and the row of one."
BELOW = "Below, each site by itself: what another site has too, by name, stands out."


@dataclass(frozen=True, eq=False)
class Placed:
    """Some entities of a site in the plane."""

    names: Sequence[str]
    at: NDArray[np.float32]  # [n, 2]
    shared: NDArray[np.bool_]  # [n]: another site has the name


def planes(page: Canvas, groups: Sequence[Group]) -> str:
    """A plane for every experiment, of several seeds the first's; says so where scikit-learn is missing."""
    parts = []
    for group in groups:
        if not group.first.ended:
            continue
        if group.first.names_persons:
            parts.append(notice(f"{group.label}: {PERSONS}"))
            continue
        try:
            sites = placed(group.first)
        except MissingPackage as error:
            return notice(str(error))
        seeds = f", seed {group.first.seed}" if len(group.runs) > 1 else ""
        label = f"{group.label}{seeds}" if len(groups) > 1 or seeds else ""
        few = len(sites) <= FACETS
        parts.append(page.place(plane_figure(sites, label), f"{NOTE} {BELOW}" if few else NOTE))
        if few:
            parts.append(page.grid([site_figure(site, sites) for site in sites]))
    return "".join(parts) or soft("Known once a run has ended.")


def placed(run: Run, most: int = MOST) -> dict[str, Placed]:
    """Entities of every site by where t-SNE puts them; the same run gives the same plane.

    Of more than `most`, each site shows its part. Which ones depends on their names alone, so that an entity
    is shown by all its sites or by few.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise MissingPackage("scikit-learn", "a t-SNE of entities", "partition") from None
    names, rows = {}, []
    known = {site: _names(run, site) for site in run.sites}
    owners = Counter(name for of in known.values() for name in of)
    total = sum(map(len, known.values()))
    for site, of in known.items():
        part = len(of) if total <= most else max(1, most * len(of) // total)
        chosen = np.sort(np.argsort(name_keys(of), kind="stable")[:part])
        names[site] = [of[i] for i in chosen.tolist()]
        rows.append(_rows(run, site, len(of))[chosen])
    widths = {table.shape[1] for table in rows}
    if len(widths) > 1:
        raise DataError(f"{run.path}: rows of different widths {sorted(widths)}; expected one model's")
    whole = np.concatenate(rows)
    if len(whole) < 4:
        raise DataError(f"{run.path}: {len(whole)} entities; a plane needs at least 4")
    perplexity = min(30.0, (len(whole) - 1) / 3)
    at = TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(whole)
    parts = np.split(at, np.cumsum([len(of) for of in names.values()])[:-1])
    return {
        site: Placed(of, part, np.array([owners[name] > 1 for name in of], np.bool_))
        for (site, of), part in zip(names.items(), parts, strict=True)
    }


def _names(run: Run, site: str) -> list[str]:
    path = run.path / "sites" / site / "entities.tsv"
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected the tables that a run keeps of each site")
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _rows(run: Run, site: str, entities: int) -> NDArray[np.float32]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = run.path / "sites" / site / "entities.safetensors"
    try:
        rows: NDArray[np.float32] = load(path.read_bytes())["rows"]
    except (SafetensorError, KeyError, OSError) as error:
        raise DataError(f"{path}: cannot be read ({error}); expected a table, as a run writes it") from None
    if rows.ndim != 2 or len(rows) != entities:
        raise DataError(f"{path}: {len(rows)} rows, expected {entities}, one per name in entities.tsv")
    return rows


def plane_figure(sites: Mapping[str, Placed], name: str = "") -> Figure:
    """All sites in one plane, a colour each; `name` is the experiment's where there are several."""
    traces = []
    for i, (site, of) in enumerate(sites.items()):
        whole = np.ones(len(of.names), np.bool_)
        symbol = SYMBOLS[i // COLOURS % len(SYMBOLS)]
        traces.append(_points(site, of, whole, f"s{i % COLOURS}", symbol))
    shown = sum(len(of.names) for of in sites.values())
    title = f"{f'{name}: ' if name else ''}{shown:,} entities, by site"
    return Figure(title, f"t-SNE of {title}: a colour for each.", traces, _axes(sites), 560, tools=True)


def site_figure(site: str, sites: Mapping[str, Placed]) -> Figure:
    """One site in the same plane: what others have too in colour."""
    of = sites[site]
    own, others = (~of.shared, OWN), (of.shared, SHARED)
    traces = [_points("its own", of, *own), _points("others have it too", of, *others)]
    many = f"{int(of.shared.sum()):,} of {len(of.names):,}"
    layout, label = _axes(sites) | {"showlegend": False}, f"t-SNE of entities of {site}: {many} are shared."
    return Figure(f"{site}: {many} shared", label, traces, layout, 240)


def _axes(sites: Mapping[str, Placed]) -> dict[str, Any]:
    """One scale in both directions and for all plots; places have no units."""
    whole = np.concatenate([of.at for of in sites.values()]).astype(np.float64)
    low, high = whole.min(0), whole.max(0)
    room = 0.05 * (high - low)
    x, y = np.stack((low - room, high + room), axis=1).round(2).tolist()
    bare = {"showgrid": False, "zeroline": False, "showticklabels": False}
    axes = {"xaxis": {**bare, "range": x}, "yaxis": {**bare, "range": y, "scaleanchor": "x"}}
    return {**axes, "hovermode": "closest"}


def _points(name: str, of: Placed, chosen: NDArray[np.bool_], series: str, symbol: str = "circle") -> Trace:
    x, y = of.at[chosen].astype(np.float64).round(2).T.tolist()
    look = {"size": 5, "opacity": 0.75, "symbol": symbol, "line": {"width": 0}}
    names = [text(of.names[i]) for i in np.flatnonzero(chosen).tolist()]
    hover = "%{customdata}<extra>%{fullData.name}</extra>"
    return mark("scatter", name, series, 0, hover, mode="markers", x=x, y=y, customdata=names, marker=look)
