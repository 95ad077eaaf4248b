"""What runs reach beside what papers report: docs/results.md, from run folders.

    python benchmarks/papers.py runs/*/summary.json

papers.json has the papers' rows, docs/results.json keeps what was taken from each run. Runs of FedS's
protocol are told in units of the `fedep` run of the same data, model and seed: one that is given, or else the
one that is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkge.errors import DataError, FedkgeError
from fedkge.reports.compared.reference import (
    CONVERGED,
    LEVELS,
    NEVER,
    RATIOS,
    SPENT,
    Cost,
    Unit,
    cost_row,
    unit,
)
from fedkge.reports.compared.tables import views
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.run import Run
from papers_page import page
from papers_protocols import ROOT, Protocol, read_protocols, recognise

REFERENCE = "fedep"  #: whose costs are the unit, under
COSTED = "feds-2024"
Result = dict[str, Any]


def taken(run: Run, protocol: Protocol, name: str) -> Result:
    """What is kept of a run; its metrics are those of the sides that the protocol judges by."""
    if run.summary is None:
        raise DataError(f"{run.path.name}: has no summary.json; expected a run that has ended")
    measured = run.summary["metrics"]
    return {
        "protocol": protocol.key,
        "dataset": run.dataset,
        "model": run.model,
        "method": name,
        "seed": run.seed,
        "courses": run.summary["courses"],
        "environment": dict(run.environment),
        "metrics": {f"{name} {view}".strip(): measured[run.headline(view)] for view in ("", *views([run]))},
    }


def key_of(result: Mapping[str, Any], name: str | None = None) -> str:
    parts = (result["protocol"], result["dataset"], result["model"], name or result["method"], result["seed"])
    return "/".join(map(str, parts))


def costs(given: Mapping[str, tuple[Run, Result]], kept: Mapping[str, Result]) -> None:
    """Write into the results what their runs spent to converge, and to get as far as the reference."""
    for run, result in given.values():
        key = key_of(result, REFERENCE)
        if key in given:
            base = unit(given[key][0])
        elif key in kept:
            base = _kept_unit(kept[key]["spent"])
        else:
            what = f"told in units of {key}, which is not there"
            raise DataError(f"{run.path.name}: {what}; give its folder too")
        result["spent"] = cost_row(run, base) | {"reference_mrr": base.mrr}
        if result["spent"]["valid_mrr"] is None:
            raise DataError(f"{run.path.name}: no validation in its run.jsonl; expected a whole journal")


def _kept_unit(spent: Mapping[str, Any]) -> Unit:
    levels = (CONVERGED, *LEVELS)
    return Unit(
        spent["valid_mrr"],
        {level: Cost(*(spent[f"{SPENT[what]}@{level}"] for what in Cost._fields)) for level in levels},
    )


def check_references(results: Mapping[str, Result]) -> None:
    """Results told in units of a run that was since replaced are stale."""
    for key, result in results.items():
        if "spent" in result:
            base, spent = _kept_unit(results[key_of(result, REFERENCE)]["spent"]), result["spent"]
            told = [
                (spent[f"{RATIOS[what]}@{level}"], spent[f"{SPENT[what]}@{level}"], getattr(of, what))
                for level, of in base.spent.items()
                for what in Cost._fields
            ]
            same = all(ratio == own / unit for ratio, own, unit in told if own != NEVER and unit)
            if spent["reference_mrr"] != base.mrr or not same:
                raise DataError(
                    f"{key}: told in units of a {REFERENCE} run that was replaced; give its folder too"
                )


def add(
    results: Mapping[str, Result], runs: Sequence[Run], protocols: Mapping[str, Protocol]
) -> dict[str, Result]:
    """`results` and what the runs give, which replaces what was there of the same row and seed."""
    given: dict[str, tuple[Run, Result]] = {}
    for run in runs:
        protocol, name = recognise(run, protocols)
        result = taken(run, protocol, name)
        key = key_of(result)
        if key in given:
            raise DataError(f"{run.path.name}, {given[key][0].path.name}: both are {key}; give one of them")
        given[key] = run, result
    costs({key: found for key, found in given.items() if found[1]["protocol"] == COSTED}, results)
    found = {**results, **{key: result for key, (_, result) in given.items()}}
    check_references(found)
    return found


def main() -> None:
    docs, protocols = ROOT / "docs", read_protocols()
    kept = docs / "results.json"
    results = json.loads(kept.read_text(encoding="utf-8"))
    paths = [path.parent if path.name == "summary.json" else path for path in map(Path, sys.argv[1:])]
    try:
        results = add(results, load_runs(paths) if paths else [], protocols)
    except FedkgeError as error:
        raise SystemExit(f"error: {error}") from None
    kept.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    docs.joinpath("results.md").write_text(page(results.values(), protocols), encoding="utf-8")


if __name__ == "__main__":
    main()
