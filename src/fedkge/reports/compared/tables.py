"""Results as plain rows: the same numbers for the terminal, for machines, and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

from fedkge.reports.compared.baseline import BETTER, WORSE, Differences, alone, versus
from fedkge.reports.compared.details import Row, time_row
from fedkge.reports.compared.experiments import Group, Spread, experiments
from fedkge.reports.folders.run import Curve, Run

METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@5", "hits@10")
ALL_SITES = "all sites"


def metric_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per experiment: test metrics over all sites, and what they took."""
    groups = experiments(runs)
    several = any(len(group.runs) > 1 for group in groups)
    rows = []
    for group in groups:
        row: Row = {"run": group.label, **({"seeds": len(group.runs)} if several else {})}
        for metric in METRICS:
            row |= told(metric, group.test(metric), several)
        for name, split in other_sides(runs).items():
            row |= told(name, group.test(split=split), several)
        for view in views(runs):
            row |= told(f"{view}_mrr", group.test(view=view), several)
        spent = [time_row(run) for run in group.runs]
        row |= {
            "rounds": mean(run.last_round for run in group.runs),
            "best_round": mean(max(run.kept.values(), default=None) for run in group.runs),
            "up_bytes": mean(run.traffic.up_bytes for run in group.runs),
            "down_bytes": mean(run.traffic.down_bytes for run in group.runs),
            "bytes": mean(run.traffic.bytes for run in group.runs),
            **{
                name: mean(row[name] for row in spent)
                for name in ("train_seconds", "seconds", "triples_per_s")
            },
        }
        rows.append(row)
    return rows


def site_rows(runs: Sequence[Run], metric: str = "mrr") -> list[Row]:
    """One row per site and one for all: a test metric of each experiment, by its label.

    `gains` are differences from every site alone, by label, where that is known.
    """
    groups = experiments(runs)
    sites = list(dict.fromkeys(site for group in groups for site in group.sites))
    bases = [alone(group, groups) for group in groups]
    rows = []
    for site in [*sites, None]:
        counts = (run.metrics(run.headline(), site).get("count") for run in runs)
        queries = next((int(count) for count in counts if count is not None), None)
        gains: dict[str, float | None] = {}
        row: Row = {"site": ALL_SITES if site is None else site, "queries": queries, "gains": gains}
        for group in groups:
            row |= told(group.label, group.test(metric, site), len(group.runs) > 1)
        for group, base in zip(groups, bases, strict=True):
            if base is not None and group.ended:
                gains[group.label] = _minus(
                    group.test(metric, site), base.test(metric, site, group.first.headline())
                )
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
            losses = sorted(found.losers, key=found.sites.__getitem__)
            row: Row = {"run": group.label, "gain": found.gain, "sites": len(found.sites)}
            row |= {"winners": len(found.winners), "losers": len(found.losers)}
            row["least"] = min(found.sites.values(), default=None)
            row["most"] = max(found.sites.values(), default=None)
            row["lost"] = {site: found.sites[site] for site in losses}
            known = (beyond or {}).get(group.label)
            for name, verdict in (("better_off", BETTER), ("worse_off", WORSE)):
                row[name] = [site for site, one in known.items() if one.verdict == verdict] if known else None
            rows.append(row)
    return rows


def own_rows(run: Run) -> list[Row]:
    """One row per site and one for all: every test metric of a single run."""
    rows = []
    for site in [*run.sites, None]:
        test = run.metrics(run.headline(), site)
        row = {
            "site": ALL_SITES if site is None else site,
            **{metric: test.get(metric) for metric in METRICS},
        }
        kept = max(run.kept.values(), default=None) if site is None else run.kept.get(site)
        beside = {f"{view}_mrr": run.headline(view) for view in views([run])}
        row |= {
            name: run.metrics(split, site).get("mrr") for name, split in (other_sides([run]) | beside).items()
        }
        rows.append({**row, "best_round": kept})
    return rows


def views(runs: Iterable[Run]) -> list[str]:
    """What else methods have measured on test, besides the tables that a run is judged by."""
    splits = dict.fromkeys(split for run in runs for split in (run.summary or {}).get("metrics", {}))
    found = [split.removeprefix("test_") for split in splits if split.startswith("test_")]
    return [view for view in found if not f"_{view}".endswith(("_head", "_tail"))]


def other_sides(runs: Iterable[Run]) -> dict[str, str]:
    """What stands beside the MRR that runs are judged by, and whose questions it is over: column -> split."""
    judged = {run.sides for run in runs}
    return ({"both_mrr": "test"} if judged - {"both"} else {}) | (
        {"tail_mrr": "test_tail"} if judged - {"tail"} else {}
    )


def told(name: str, found: Spread | None, several: bool) -> Row:
    """A number's cells: its mean and, when there are several seeds, its deviation."""
    row: Row = {name: None if found is None else found.mean}
    return row | ({f"{name}_std": None if found is None else found.std} if several else {})


def mean(values: Iterable[float | None]) -> float | None:
    """Of what is known; a single number stays what it is."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(set(known)) > 1 else known[0] if known else None


def _minus(value: Spread | None, base: Spread | None) -> float | None:
    return None if value is None or base is None else value.mean - base.mean


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


Dial: TypeAlias = Mapping[str, Mapping[int, float]]  # site -> validated round -> told from then on


def dial_rows(groups: Sequence[Group]) -> list[dict[str, str | int]]:
    """A row per run whose method has such numbers: what became of each."""
    return [
        {"run": group.label, "seed": run.seed, **{name: _at_sites(dial) for name, dial in dials(run).items()}}
        for group in groups
        for run in group.runs
        if dials(run)
    ]


def dials(run: Run) -> Mapping[str, Dial]:
    """By name, what each site was told after each validation."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for number in sorted(run.validations):
        for name, told in run.validations[number].dials.items():
            for site, value in told.items():
                found.setdefault(name, {}).setdefault(site, {})[number] = value
    return found


def _at_sites(dial: Dial) -> str:
    """Of all sites at once, or where theirs differ, of each."""
    alike: dict[str, list[str]] = {}
    for site, told in dial.items():
        alike.setdefault(changes(told), []).append(site)
    if len(alike) == 1:
        return next(iter(alike))
    return "; ".join(f"{what} ({', '.join(sites)})" for what, sites in alike.items())


def changes(told: Curve) -> str:
    """`round 4` where a number left zero there, once; `never`; or everything that it became."""
    rounds = sorted(told)
    steps = [(n, told[n]) for before, n in pairwise(rounds) if told[n] != told[before]]
    first = told[rounds[0]]
    if not steps:
        return "never" if first == 0 else f"{first:g} from round {rounds[0]} on, the first validated"
    if first == 0 and [value for _, value in steps] == [1]:
        return f"round {steps[0][0]}"
    return ", ".join([f"{first:g} at first", *(f"{value:g} after round {n}" for n, value in steps)])
