"""Runs as plain rows: the same numbers for the terminal, for machines, and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fedkge.reports.load import Run

Row: TypeAlias = dict[str, Any]
METRICS = ("mrr", "mr", "hits@1", "hits@3", "hits@5", "hits@10")
ALL_SITES = "all sites"
ALONE = "single"  #: the method that others are compared with: every site for itself


def labels(runs: Sequence[Run]) -> list[str]:
    """The shortest name of the same kind for every run that tells them apart."""
    kinds: Sequence[Callable[[Run], str]] = (
        lambda run: run.method,
        lambda run: f"{run.method} · {run.model}",
        lambda run: f"{run.method} · seed {run.seed}",
        lambda run: f"{run.method} · {run.model} · seed {run.seed}",
        lambda run: f"{run.method} · {run.name}",
    )
    for kind in kinds:
        names = [kind(run) for run in runs]
        if len(set(names)) == len(names):
            return names
    return [f"{run.method} · {run.path}" for run in runs]


def alone(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run to compare with: every site alone, same data and model, and the same seed if there is one."""
    if run.method == ALONE:
        return None
    fit = [
        other
        for other in runs
        if other.method == ALONE and other.ended and (other.dataset, other.model) == (run.dataset, run.model)
    ]
    return min(fit, key=lambda other: other.seed != run.seed, default=None)


def metric_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per run: test metrics over all sites, and what they took. None is not known (yet)."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        test = run.metrics("test")
        spent = time_row(run)
        rows.append(
            {
                "run": label,
                **{metric: test.get(metric) for metric in METRICS},
                "tail_mrr": run.metrics("test_tail").get("mrr"),
                "rounds": run.last_round,
                "best_round": max(run.kept.values(), default=None),
                "train_seconds": spent["train_seconds"],
                "triples_per_s": spent["triples_per_s"],
            }
        )
    return rows


def site_rows(runs: Sequence[Run], metric: str = "mrr") -> list[Row]:
    """One row per site and one for all: a test metric of each run, and how much it differs from alone."""
    names = labels(runs)
    sites = list(dict.fromkeys(site for run in runs for site in run.sites))
    rows = []
    for site in [*sites, None]:
        found = {name: run.metrics("test", site).get(metric) for name, run in zip(names, runs, strict=True)}
        counts = [run.metrics("test", site).get("count") for run in runs]
        row: Row = {
            "site": ALL_SITES if site is None else site,
            "queries": next((int(count) for count in counts if count is not None), None),
            **found,
        }
        for name, run in zip(names, runs, strict=True):
            base = alone(run, runs)
            if base is not None and run.ended:
                row[versus(name)] = _minus(found[name], base.metrics("test", site).get(metric))
        rows.append(row)
    return rows


def own_rows(run: Run) -> list[Row]:
    """One row per site and one for all: every test metric of a single run."""
    rows = []
    for site in [*run.sites, None]:
        test, tail = run.metrics("test", site), run.metrics("test_tail", site)
        row = {
            "site": ALL_SITES if site is None else site,
            **{metric: test.get(metric) for metric in METRICS},
        }
        kept = max(run.kept.values(), default=None) if site is None else run.kept.get(site)
        rows.append({**row, "tail_mrr": tail.get("mrr"), "best_round": kept})
    return rows


def versus(label: str) -> str:
    """The column of a run's difference from every site alone."""
    return f"{label} − {ALONE}"


def _minus(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


def size_rows(runs: Sequence[Run]) -> list[Row]:
    """What each site holds, from runs that have ended; a data set is counted once."""
    rows: dict[tuple[str, str], Row] = {}
    for run in runs:
        for site, found in (run.summary or {}).get("sites", {}).items():
            splits = found["triples"]
            row = {
                "site": site,
                "dataset": run.dataset,
                "statements": sum(splits.values()),
                **{split: splits[split] for split in ("train", "valid", "test")},
                "entities": found["entities"],
                "relations": found["relations"],
            }
            rows.setdefault((run.dataset, site), row)
    return list(rows.values())


def time_row(run: Run) -> Row:
    """Seconds per kind of work; speed is training alone, from the journal."""
    rounds = [done for course in run.rounds.values() for done in course.values()]
    trained = sum(done.seconds for done in rounds)
    visited = sum(done.triples for done in rounds)
    known = (run.summary or {}).get("seconds", {})
    train, evaluate = known.get("train", trained), known.get("evaluate")
    total = known.get("total")
    # After a resume `total` is the last process's alone, less than what training took over all of them.
    rest = None if total is None or run.resumed else max(0.0, total - train - (evaluate or 0.0))
    return {
        "train_seconds": train,
        "evaluate_seconds": evaluate,
        "other_seconds": rest,
        "triples": visited,
        "triples_per_s": visited / trained if trained else None,
    }


def time_rows(runs: Sequence[Run]) -> list[Row]:
    """Where each run's time went."""
    return [{"run": label, **time_row(run)} for label, run in zip(labels(runs), runs, strict=True)]


def config_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per option, in the order of the files; `differs` says that runs disagree."""
    return _side_by_side(runs, [_flat(run.config) for run in runs])


def environment_rows(runs: Sequence[Run]) -> list[Row]:
    """What each run ran on."""
    return _side_by_side(runs, [_flat(run.environment) for run in runs])


def _side_by_side(runs: Sequence[Run], tables: Sequence[Mapping[str, Any]]) -> list[Row]:
    names = labels(runs)
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = []
    for key in keys:
        values = [table.get(key) for table in tables]
        differs = any(value != values[0] for value in values)
        rows.append({"option": key, "differs": differs, **dict(zip(names, values, strict=True))})
    return rows


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
