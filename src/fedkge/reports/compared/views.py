"""Methods that measure several tables: what each of them reaches, and the round at which it was kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.compared.tables import METRICS, mean, told, views
from fedkge.reports.folders.run import Run

LOCAL = "local"  #: the tables that a run is judged by, where there are others: they never leave their site


def view_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per table of each experiment that measures several: test metrics over all sites, kept round."""
    groups = experiments(runs)
    several = any(len(group.runs) > 1 for group in groups)
    rows = []
    for group in groups:
        names = views(group.runs)
        for view in ["", *names] if names else []:
            row: Row = {"run": group.label, "table": view or LOCAL}
            for metric in METRICS:
                row |= told(metric, group.test(metric, view=view), several)
            rows.append({**row, "best_round": mean(kept_at(run, view) for run in group.runs)})
    return rows


def kept_at(run: Run, view: str) -> int | None:
    """The round whose tables a view is of; the latest over sites. The empty one are the local tables."""
    return max(run.kept_rounds(view), default=None)


def has_views(runs: Iterable[Run]) -> bool:
    """Whether any run measures or validates more than the tables that it is judged by."""
    runs = list(runs)
    return bool(views(runs)) or any(of.views for run in runs for of in run.validations.values())
