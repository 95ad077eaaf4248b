"""Results as plain rows: the same numbers for the terminal, for machines, and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from fedkge.reports.compared.baseline import BETTER, WORSE, Differences, alone, versus
from fedkge.reports.compared.details import time_row
from fedkge.reports.compared.experiments import METRICS, Group, Row, experiments, mean, minus, repeated, told
from fedkge.reports.folders.run import Curve, Curves, Run, by_site

ALL_SITES = "all sites"
ALL = "all"
LOCAL = "local"  #: the tables that a run is judged by, where there are others: they never leave their site


def metric_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per experiment: test metrics over all sites, and what they took."""
    groups = experiments(runs)
    several = repeated(groups)
    rows = []
    for group in groups:
        row: Row = {"run": group.label, **({"seeds": len(group.runs)} if several else {})}
        row |= group.all_test(several)
        row |= told({name: group.test(split=split) for name, split in other_sides(runs).items()}, several)
        row |= told({f"{view}_mrr": group.test(view=view) for view in views(runs)}, several)
        took = took_row(group)
        row |= {"rounds": took.pop("rounds"), "best_round": mean(map(kept_at, group.runs))} | took
        rows.append(row)
    return rows


def took_row(group: Group) -> Row:
    """What an experiment took, means over its seeds: rounds, bytes and seconds."""
    spent = ("train_seconds", "seconds", "triples_per_s")
    return {
        "rounds": mean(run.last_round for run in group.runs),
        **{way: mean(getattr(run.traffic, way) for run in group.runs) for way in WAYS},
        **{name: mean(time_row(run)[name] for run in group.runs) for name in spent},
    }


WAYS = ("up_bytes", "down_bytes", "bytes")


def site_rows(runs: Sequence[Run], metric: str = "mrr") -> list[Row]:
    """One row per site and one for all: a test metric of each experiment, by its label.

    `gains` are differences from every site alone, by label, where that is known.
    """
    groups = experiments(runs)
    bases = {group.label: base for group in groups if (base := alone(group, groups)) and group.ended}
    rows = []
    for site in [*dict.fromkeys(site for group in groups for site in group.sites), None]:
        counts = (run.metrics(run.headline(), site).get("count") for run in runs)
        queries = next((int(count) for count in counts if count is not None), None)
        row: Row = {"site": ALL_SITES if site is None else site, "queries": queries, "gains": {}}
        for group in groups:
            found = group.test(metric, site)
            row |= told({group.label: found}, len(group.runs) > 1)
            if base := bases.get(group.label):
                row["gains"][group.label] = minus(found, base.test(metric, site, group.first.headline()))
        rows.append(row)
    return rows


def joining_rows(groups: Sequence[Group], beyond: Mapping[str, Differences] | None = None) -> list[Row]:
    """Per experiment beside every site alone: how many sites gain and lose by joining, and which lose.

    `better_off` and `worse_off` are sites that are so beyond chance, by the differences of `against_alone`;
    None where these are not known.
    """
    rows = []
    for group in groups:
        found = versus(group, alone(group, groups))
        if found is not None:
            row: Row = {"run": group.label, "gain": found.gain, "sites": len(found.sites)}
            row |= {"winners": len(found.winners), "losers": len(found.losers)}
            row["least"] = min(found.sites.values(), default=None)
            row["most"] = max(found.sites.values(), default=None)
            row["lost"] = {site: found.sites[site] for site in found.losers}
            known = (beyond or {}).get(group.label)
            for name, verdict in (("better_off", BETTER), ("worse_off", WORSE)):
                row[name] = [site for site, one in known.items() if one.verdict == verdict] if known else None
            rows.append(row)
    return rows


def own_rows(run: Run) -> list[Row]:
    """One row per site and one for all: every test metric of a single run."""
    rows = []
    beside = other_sides([run]) | {f"{view}_mrr": run.headline(view) for view in views([run])}
    for site in [*run.sites, None]:
        test = run.metrics(run.headline(), site)
        row: Row = {"site": ALL_SITES if site is None else site} | {name: test.get(name) for name in METRICS}
        row |= {name: run.metrics(split, site).get("mrr") for name, split in beside.items()}
        rows.append({**row, "best_round": kept_at(run) if site is None else run.kept.get(site)})
    return rows


def views(runs: Iterable[Run]) -> list[str]:
    """What else methods have measured on test, besides the tables that a run is judged by."""
    splits = dict.fromkeys(split for run in runs for split in (run.summary or {}).get("metrics", {}))
    found = [split.removeprefix("test_") for split in splits if split.startswith("test_")]
    return [view for view in found if not f"_{view}".endswith(("_head", "_tail"))]


def has_views(runs: Iterable[Run]) -> bool:
    """Whether any run measures or validates more than the tables that it is judged by."""
    runs = list(runs)
    return bool(views(runs)) or any(of.views for run in runs for of in run.validations.values())


def other_sides(runs: Iterable[Run]) -> dict[str, str]:
    """What stands beside the MRR that runs are judged by, and whose questions it is over: column -> split."""
    judged = {run.sides for run in runs}
    both = {"both_mrr": "test"} if judged - {"both"} else {}
    return both | ({"tail_mrr": "test_tail"} if judged - {"tail"} else {})


def kept_at(run: Run, view: str = "") -> int | None:
    """The round whose tables a view is of; the latest over sites. The empty one are the local tables."""
    return max(run.kept_rounds(view), default=None)


def view_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per table of each experiment that measures several: test metrics over all sites, kept round."""
    groups, rows = experiments(runs), []
    for group in groups:
        names = views(group.runs)
        for view in ["", *names] if names else []:
            row = {"run": group.label, "table": view or LOCAL} | group.all_test(repeated(groups), view=view)
            rows.append({**row, "best_round": mean(kept_at(run, view) for run in group.runs)})
    return rows


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
            row |= group.all_test(True, site)
            beside = {f"{view}_mrr": group.test(site=site, view=view) for view in views(group.runs)}
            rows.append(row | told(beside, True))
    return rows


def each_seed_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per run of the experiments that have several: what the means are made of."""
    return [
        {"run": group.label, "seed": run.seed}
        | {metric: run.metrics(run.headline()).get(metric) for metric in METRICS}
        | {"rounds": run.last_round, "best_round": kept_at(run)}
        for group in groups
        if len(group.runs) > 1
        for run in group.runs
    ]


def dial_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A row per run whose method has such numbers: what became of each."""
    return [
        {"run": group.label, "seed": run.seed, **{name: _at_sites(dial) for name, dial in dials(run).items()}}
        for group in groups
        for run in group.runs
        if dials(run)
    ]


def dials(run: Run) -> Mapping[str, Curves]:
    """By name, what each site was told after each validation, from then on."""
    names = dict.fromkeys(name for n in sorted(run.validations) for name in run.validations[n].dials)
    rounds = {name: {n: one.dials.get(name, {}) for n, one in run.validations.items()} for name in names}
    return {name: by_site(of) for name, of in rounds.items()}


def _at_sites(dial: Curves) -> str:
    """Of all sites at once, or where theirs differ, of each."""
    alike: dict[str, list[str]] = {}
    for site, course in dial.items():
        alike.setdefault(changes(course), []).append(site)
    if len(alike) == 1:
        return next(iter(alike))
    return "; ".join(f"{what} ({', '.join(sites)})" for what, sites in alike.items())


def changes(course: Curve) -> str:
    """`round 4` where a number left zero there, once; `never`; or everything that it became."""
    rounds = sorted(course)
    steps = [(n, course[n]) for before, n in pairwise(rounds) if course[n] != course[before]]
    first = course[rounds[0]]
    if not steps:
        return "never" if first == 0 else f"{first:g} from round {rounds[0]} on, the first validated"
    if first == 0 and [value for _, value in steps] == [1]:
        return f"round {steps[0][0]}"
    return ", ".join([f"{first:g} at first", *(f"{value:g} after round {n}" for n, value in steps)])
