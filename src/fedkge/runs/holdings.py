"""What the sites of a finished run hold: their graphs, and the tables that they kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedkge.errors import DataError
from fedkge.models import Tables
from fedkge.runs.data import Sources, load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder


@dataclass(frozen=True, eq=False)
class Holdings:
    """A finished run: its data, and each site's kept tables in the ids of its graph."""

    folder: RunFolder
    experiment: Experiment
    sources: Sources
    summary: dict[str, Any]

    @classmethod
    def open(cls, path: Path) -> Holdings:
        folder = RunFolder.open(path)
        summary, experiment = folder.summary(), folder.experiment()
        sources = load(experiment)
        folder.check_data(sources.named)
        return cls(folder, experiment, sources, summary)

    def tables(self, site: str, device: torch.device | str = "cpu") -> Tables:
        """What a site kept; with a second table where the method has one."""
        terms = self.experiment
        tables = self._loaded(site, "").to(device)
        second = terms.method.second(terms.embedding)
        if second is not None:
            (view,) = (view.name for view in terms.method.views() if view.second)
            tables.second = self._loaded(site, view).to(device)
            if not second.relations:
                tables.second.relations = tables.relations
        return tables

    def _loaded(self, site: str, view: str) -> Tables:
        tables, entities, relations = self.folder.load_site(site, view)
        graph = self.sources.named[site]
        if entities != graph.entities or relations != graph.relations:
            raise DataError(
                f"{self.folder.path}: the tables of site {site!r} are of other names than its graph; "
                "expected those that the run has written"
            )
        return tables
