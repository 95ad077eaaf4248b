"""Several seeds of the same experiments: what each site reaches, as mean and standard deviation."""

from __future__ import annotations

from collections.abc import Sequence

from fedkge.reports.compared.details import Row
from fedkge.reports.compared.experiments import Group, experiments
from fedkge.reports.compared.tables import METRICS, told, views
from fedkge.reports.folders.run import Run

ALL = "all"


def seed_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per site and one for all sites, of every experiment: each metric's `x` and `x_std` over seeds.

    `run` names the experiment when there are several. A deviation is None with a single seed.
    """
    groups = experiments(runs)
    rows = []
    for group in groups:
        for site in [*group.sites, None]:
            row: Row = {"run": group.label} if len(groups) > 1 else {}
            row |= {"site": ALL if site is None else site, "seeds": len(group.ended)}
            for metric in METRICS:
                row |= told(metric, group.test(metric, site), True)
            for view in views(group.runs):
                row |= told(f"{view}_mrr", group.test(site=site, view=view), True)
            rows.append(row)
    return rows


def each_seed_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per run of the experiments that have several: what the means are made of."""
    return [
        {
            "run": group.label,
            "seed": run.seed,
            **{metric: run.metrics(run.headline()).get(metric) for metric in METRICS},
            "rounds": run.last_round,
            "best_round": max(run.kept.values(), default=None),
        }
        for group in groups
        if len(group.runs) > 1
        for run in group.runs
    ]
