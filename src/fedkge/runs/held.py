"""One site's tables and what it knows, from a run's folder or from a pack that needs no data."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedkge.durable import json_text, write_whole
from fedkge.errors import ConfigError, DataError, DataWarning, suggest
from fedkge.evaluation.prediction import unrestricted
from fedkge.exports.files import load_embeddings, save_embeddings
from fedkge.graphs.files import read_graph
from fedkge.graphs.graph import Graph
from fedkge.graphs.persons import without_persons
from fedkge.graphs.writing import write_graph
from fedkge.models import Tables
from fedkge.plugins import load_known
from fedkge.runs.folder import RunFolder
from fedkge.training.confidential import marked

PACK, KNOWN = "pack.json", "known"
FORMAT = 1  #: of packs


@dataclass(frozen=True, eq=False)
class Held:
    """What a site can predict with."""

    site: str
    tables: Tables
    graph: Graph  #: has all names of the tables, in their order

    @property
    def confidential(self) -> bool:
        """Whether answers may depend on confidential triples, as what is known and left out."""
        marks = self.graph.confidential
        return self.graph.persons is not None or (marks is not None and bool(marks.any()))

    def knowing(self, paths: Sequence[Path]) -> Held:
        """The same, with triples that have come since training; names that have no rows are counted."""
        graph, strange, given = self.graph, 0, 0
        for path in paths:
            new = read_graph(path)
            triples, marks = new.all(), np.zeros(len(new.all()), np.bool_)
            if new.confidential is not None:
                marks[: len(new.train)] = new.confidential
            entity, relation = (
                np.array([own.id(name) if name in own else -1 for name in names], np.int64)
                for own, names in ((graph.entities, new.entities), (graph.relations, new.relations))
            )
            ids = np.stack((entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]]), 1)
            has_rows = (ids >= 0).all(1)
            strange, given = strange + int((~has_rows).sum()), given + len(ids)
            before = graph.confidential
            before = np.zeros(len(graph.train), np.bool_) if before is None else before
            train = np.concatenate((graph.train, ids[has_rows]))
            graph = replace(graph, train=train, confidential=np.concatenate((before, marks[has_rows])))
        if strange:
            text = f"{strange:,} of {given:,} new triples name what training never saw: they change nothing"
            warnings.warn(text, DataWarning, stacklevel=2)
        return replace(self, graph=graph)


def hold(path: Path, site: str | None = None, view: str = "") -> Held:
    """A site of a run, or of a pack, which has one."""
    if (path / PACK).is_file():
        return _unpacked(path, site, view)
    folder = RunFolder.open(path)
    site = chosen(folder, site)
    tables, *_ = folder.load_site(site, view)
    return Held(site, tables, _graph(folder, folder.data()[site]))


def chosen(folder: RunFolder, site: str | None) -> str:
    """The site that is meant: the one that is named, or the only one."""
    sites = folder.sites()
    if site is None and len(sites) != 1:
        found = ", ".join(sites) or "none; has the run ended?"
        raise ConfigError(f"site: which one? {folder.path} has {found}")
    return sites[0] if site is None else site


def held_sites(path: Path, view: str = "") -> list[Held]:
    """All sites of a run."""
    folder = RunFolder.open(path)
    names, federation = list(folder.summary()["sites"]), folder.data()
    return [Held(name, folder.load_site(name, view)[0], _graph(folder, federation[name])) for name in names]


def _graph(folder: RunFolder, graph: Graph) -> Graph:
    """Marked as the run took it."""
    return replace(graph, confidential=marked(graph, folder.experiment().privacy))


def pack(
    run: Path, site: str | None, out: Path, known: bool = True, confidential: bool = False, view: str = ""
) -> list[Path]:
    """Write a site's tables and what is known into a folder that predicts without the data; its files.

    Persons are left out, rows and names and all triples about them. Confidential triples are left out unless
    they are asked for, `known` triples altogether if not wanted.
    """
    folder = RunFolder.open(run)
    site = chosen(folder, site)
    if out.exists():
        raise DataError(f"{out}: exists already; choose another folder")
    held, experiment, summary = hold(run, site, view), folder.experiment(), folder.summary()
    tables, graph = shareable(held.tables, held.graph)
    if not confidential:
        graph = unrestricted(graph)
    try:
        files = save_embeddings(tables, graph, out, "safetensors")
        if known:
            whole, none, marks = graph.all(), graph.train[:0], _marks(graph)
            kept = marks if marks.any() else None
            write_graph(replace(graph, train=whole, valid=none, test=none, confidential=kept), out / KNOWN)
            files += sorted((out / KNOWN).iterdir())
        about = {
            "format": FORMAT,
            "site": site,
            "method": summary["method"],
            "view": view,
            "known": len(graph.all()) if known else None,
            "confidential": bool(known and _marks(graph).any()),
            "plugins": list(experiment.plugins),
            "prefixes": dict(graph.entities.prefixes),
        }
        write_whole(out / PACK, json_text(about, indent=1).encode())
    except OSError as error:
        raise DataError(f"{out}: cannot be written: {error.strerror}") from None
    formal = bool(summary["privacy"]) and all(cost["guarantee"] == "formal" for cost in summary["privacy"])
    if held.confidential and not formal and experiment.privacy.mode != "u-only":
        _warn(
            "the tables were trained on confidential triples without a proven protection: whoever has the "
            "pack may find some of them"
        )
    if about["confidential"]:
        _warn("the pack holds confidential triples, as was asked for: keep it at the site")
    return [out / PACK, *files]


def shareable(tables: Tables, graph: Graph) -> tuple[Tables, Graph]:
    """The same without persons."""
    if graph.persons is None:
        return tables, graph
    others = torch.from_numpy(~graph.persons).to(tables.device)
    return Tables(tables.model, tables.entities[others], tables.relations), without_persons(graph)


def _marks(graph: Graph) -> Any:
    """The marks of all triples; those of valid and test have none."""
    marks = np.zeros(len(graph.all()), np.bool_)
    if graph.confidential is not None:
        marks[: len(graph.train)] = graph.confidential
    return marks


def _warn(text: str) -> None:
    warnings.warn(text, DataWarning, stacklevel=3)


def _unpacked(path: Path, site: str | None, view: str) -> Held:
    try:
        about = json.loads((path / PACK).read_text(encoding="utf-8"))
        own, plugins, known = str(about["site"]), about["plugins"], about["known"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path / PACK}: cannot be read ({error!r}); pack the run anew") from None
    if about.get("format") != FORMAT:
        raise DataError(f"{path}: a pack of another version of fedkge; pack the run anew")
    if site not in (None, own):
        raise DataError(f"{path}: a pack of site {own!r}, not of {site!r}{suggest(str(site), [own])}")
    if view not in ("", about.get("view", "")):
        raise DataError(f"{path}: a pack has one kind of tables; pack the run with --view {view}")
    load_known(plugins)
    tables, entities, relations = load_embeddings(path)
    entities.prefixes = relations.prefixes = {str(k): str(v) for k, v in about.get("prefixes", {}).items()}
    none = np.empty((0, 3), np.int64)
    held = Held(own, tables, Graph(entities, relations, none))
    return held if known in (None, 0) else held.knowing([path / KNOWN])
