"""Runs in Python: what they found, as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.errors import ConfigError, DataError, MissingPackage, suggest
from fedkge.front.asking import Asked, Pack
from fedkge.front.frames import frame
from fedkge.graphs.graph import Axis
from fedkge.plugins import trust as trusted
from fedkge.reports.folders import run as told
from fedkge.runs.folder import RunFolder
from fedkge.runs.held import PACK, Held, chosen, hold, pack, shareable

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure


class Run(Asked):
    """A finished run. Its folder has everything; nothing here changes it."""

    def __init__(self, path: str | Path) -> None:
        from fedkge.reports.folders.load import load_run

        self.path = Path(path)
        self._folder = RunFolder.open(self.path)
        self.summary: dict[str, Any] = self._folder.summary()
        self._told: told.Run = load_run(self.path)
        self._sites: dict[str, Held] = {}

    @property
    def method(self) -> str:
        return str(self.summary["method"])

    @property
    def model(self) -> str:
        return str(self.summary["model"])

    @property
    def sites(self) -> list[str]:
        return list(self.summary["sites"])

    @property
    def config(self) -> dict[str, Any]:
        """Every option of the experiment with its value."""
        return self._folder.experiment().config()

    @property
    def metrics(self) -> DataFrame:
        """Test metrics, a row per site and one for all: MRR, mean rank, hits@k, the round that was kept."""
        from fedkge.reports.compared.tables import own_rows

        return frame(own_rows(self._told), "site")

    @property
    def curves(self) -> DataFrame:
        """Training loss and validation MRR by round and site."""
        losses, valid = self._told.losses, self._told.validation()
        rows = [
            {"round": round, "site": site, "loss": losses.get(site, {}).get(round), "mrr": of}
            for site in dict.fromkeys((*losses, *valid))
            for round in sorted({*losses.get(site, {}), *valid.get(site, {})})
            for of in [valid.get(site, {}).get(round)]
        ]
        return frame(rows)

    @property
    def privacy(self) -> DataFrame:
        """What each site has spent, with all that ε must be read with; empty where nothing is protected."""
        return frame(self.summary["privacy"])

    def evaluate(self, split: str = "test", by_relation: bool = False) -> DataFrame:
        """Measure the tables again: filtered ranks of a split, by side, or by relation."""
        from fedkge.evaluation import Known, metrics_by_relation, metrics_by_side, rank

        rows = []
        for site in self.sites:
            held = self._held(site)
            ranks = rank(held.tables, held.graph.split(split), Known.from_graph(held.graph), site=site)
            if by_relation:
                found = metrics_by_relation(ranks, "realistic").items()
                rows += [{"site": site, "relation": held.graph.relations[r], **one} for r, one in found]
            else:
                sides = metrics_by_side(ranks, "realistic").items()
                rows += [{"site": site, "side": side, **one} for side, one in sides]
        return frame(rows)

    def embeddings(
        self, site: str | None = None, axis: str = "entity", persons: bool = False, view: str = ""
    ) -> DataFrame:
        """A site's rows, a line per entity or relation; rows of persons only if they are asked for."""
        import pandas

        if axis not in map(str, Axis):
            raise ConfigError(f"axis: expected entity or relation, got {axis!r}")
        held = hold(self.path, chosen(self._folder, site), view)
        tables, graph = (held.tables, held.graph) if persons else shareable(held.tables, held.graph)
        rows = tables.table(Axis(axis)).detach().cpu().numpy()
        return pandas.DataFrame(rows, index=pandas.Index(list(graph.names(Axis(axis))), name=axis))

    def compare(self, *others: Run) -> Comparison:
        """This run beside others."""
        return Comparison([self, *others])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the page about the run; where it is."""
        return _report([self], Path(path) if path is not None else self.path / "report.html")

    def pack(
        self, out: str | Path, site: str | None = None, known: bool = True, confidential: bool = False
    ) -> Pack:
        """A folder that predicts without the run and its data; confidential triples only if asked for."""
        pack(self.path, site, Path(out), known, confidential)
        return Pack(out)

    def _held(self, site: str | None) -> Held:
        name = chosen(self._folder, site)
        if name not in self._sites:
            self._sites[name] = hold(self.path, name)
        return self._sites[name]

    def __repr__(self) -> str:
        mrr = self.summary["metrics"]["test"]["mrr"]
        shown = "not measured" if mrr is None else f"{mrr:.4f}"
        return f"Run({self.method}, {self.model}, {len(self.sites)} sites, test MRR {shown}, {self.path})"

    def _repr_html_(self) -> str:
        return str(self.metrics._repr_html_())


class Comparison(Sequence[Run]):
    """Runs side by side: by number, or by the name of their method where it stands once."""

    def __init__(self, runs: Sequence[Run]) -> None:
        if not runs:
            raise DataError("expected at least one run to compare")
        self.runs = list(runs)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.runs[key]
        found = [run for run in self.runs if run.method == key]
        if len(found) != 1:
            known = [run.method for run in self.runs]
            raise KeyError(f"{len(found)} runs are by {key!r}{suggest(key, known)} (there are {known})")
        return found[0]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @property
    def metrics(self) -> DataFrame:
        """A row per experiment: test metrics over all sites, rounds, bytes, seconds; over seeds, means."""
        from fedkge.reports.compared.tables import metric_rows

        return frame(metric_rows(self._told), "run")

    @property
    def sites(self) -> DataFrame:
        """Test MRR, a row per site and a column per experiment, and gains against every site alone."""
        from fedkge.reports.compared.tables import site_rows

        rows = []
        for row in site_rows(self._told):
            gains = row.pop("gains", None) or {}
            rows.append(row | {f"{label} gain": gain for label, gain in gains.items()})
        return frame(rows, "site")

    @property
    def joining(self) -> DataFrame:
        """Per experiment beside every site alone: how many sites gain and lose, beyond chance too."""
        from fedkge.reports.compared.baseline import against_alone
        from fedkge.reports.compared.experiments import experiments
        from fedkge.reports.compared.tables import joining_rows

        groups = experiments(self._told)
        return frame(joining_rows(groups, against_alone(groups)), "run")

    def plot(self) -> Figure:
        """Test MRR of each site, experiments side by side."""
        from fedkge.reports.compared.experiments import experiments
        from fedkge.reports.drawing.plots import site_figure

        try:
            from plotly.graph_objects import Figure
        except ImportError:
            raise MissingPackage("plotly", "a plot", "notebook") from None
        drawn = site_figure(experiments(self._told))
        if drawn is None:
            raise DataError("nothing to plot: no run has ended")
        layout = dict(drawn.layout) | {"title": {"text": drawn.title}, "height": drawn.height}
        traces = [{key: value for key, value in trace.items() if key != "meta"} for trace in drawn.data]
        return Figure(data=traces, layout=layout)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write one page about all runs; where it is."""
        return _report(self.runs, Path(path))

    @property
    def _told(self) -> list[told.Run]:
        return [run._told for run in self.runs]

    def __repr__(self) -> str:
        return f"Comparison({', '.join(map(repr, self.runs))})"

    def _repr_html_(self) -> str:
        return str(self.sites._repr_html_())


def open_run(path: str | Path, trust: Sequence[str | Path] = ()) -> Run | Pack:
    """The run of a folder, or a pack; `trust` are plugin files of yours that it needs."""
    trusted([Path(file) for file in trust])
    return Pack(path) if (Path(path) / PACK).is_file() else Run(path)


def _report(runs: Sequence[Run], path: Path) -> Path:
    from fedkge.reports.pages.html import write_report
    from fedkge.reports.pages.sections import Shown

    write_report([run._told for run in runs], path, Shown(show_test=True))
    return path
