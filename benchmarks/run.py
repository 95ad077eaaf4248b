"""Measure everything, print the table, and write docs/benchmarks.md from what was measured.

    FEDKGE_DATA=... python benchmarks/run.py             # on this machine's CPU
    FEDKGE_DATA=... python benchmarks/run.py --gpu       # on its CUDA device
    python benchmarks/run.py --merge FILE                # take in what `--out FILE` measured elsewhere

docs/benchmarks.json keeps the last measurement of each name on each machine, with its date; the page is made
from it, so that no number stands there without a run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from fedkge.machine import prepare
from reach_plot import picture
from shared_table import table

HERE = Path(__file__).parent
RESULTS, PAGE = HERE.parent / "docs" / "benchmarks.json", HERE.parent / "docs" / "benchmarks.md"
PICTURE = HERE.parent / "docs" / "benchmarks-reach.svg"
ACCURACY = HERE.parent / "docs" / "shared.jsonl"  #: runs of shared.py
HIDDEN = ("machine", "date", "course")  #: values that are not among a row's details
CPU = (
    ("train.py",),
    ("train.py", "--shared"),
    ("rank.py",),
    ("row_adam.py",),
    ("load.py", "--triples", "10000000"),
    ("federation.py",),
    ("fedlu.py",),
    ("federation.py", "--only", "whole", "--method", "feds"),
    ("federation.py", "--only", "whole", "--method", "fedternary"),
    ("exchange.py",),
    ("private.py",),
    ("scale.py",),
    ("reach.py",),
    ("reach.py", "--pykeen"),
)
EXCHANGES = [
    f"exchange-{select}-{codec}"
    for select in ("full", "topk", "moved")
    for codec in ("int8", "int4", "int4-delta", "ternary", "ternary-delta")
]
GPU = (
    ("train.py", "--device", "cuda"),
    ("train.py", "--device", "cuda", "--shared"),
    ("rank_gpu.py",),
    ("federation.py", "--device", "cuda"),
    ("federation.py", "--device", "cuda", "--only", "whole", "--chunk", "128"),
    ("fedlu.py", "--device", "cuda"),
    ("private.py", "--device", "cuda"),
    ("scale.py", "--device", "cuda", "--dim", "256"),
    ("reach.py", "--device", "cuda"),
)
SIZES = (10_000, 100_000, 1_000_000, 5_000_000)  #: entities of scale.py
SCALE = {
    f"scale-{size}": ("triples_per_s", ">=", 0, f"triples/s, a site of {size:,} entities") for size in SIZES
}
REACH = ("seconds", ">=", 0, "seconds of training to 99 % of the final MRR, FB15k-237-C3, TransE")
PRIVATE = {
    "private-sgd": ("ratio", ">=", 0, "times a plain step"),
    "private-persons-wide": ("ratio", "<=", 1.5, "times a step on as many triples"),
    "private-persons-paper": ("ratio", "<=", 1.5, "times a step on as many triples"),
}
#: name of a measurement -> (value that has a target, what it must be, how the value is put)
TARGETS = {
    "train-transe": ("ratio", ">=", 40, "times PyKEEN's triples/s"),
    "train-rotate": ("ratio", ">=", 80, "times PyKEEN's triples/s"),
    "train-complex": ("ratio", ">=", 100, "times PyKEEN's triples/s"),
    "shared-transe": ("ratio", ">=", 3, "times the triples/s of own negatives"),
    "shared-rotate": ("ratio", ">=", 2, "times the triples/s of own negatives"),
    "shared-complex": ("ratio", ">=", 3, "times the triples/s of own negatives"),
    "rank-transe": ("ratio", ">=", 5, "times PyKEEN's evaluator"),
    "rank-rotate": ("ratio", ">=", 5, "times PyKEEN's evaluator"),
    "rank-complex": ("ratio", ">=", 1, "times PyKEEN's evaluator"),
    "row-adam": ("ratio", "<=", 4, "times the step at 100 thousand entities, at 10 million"),
    "stacked": ("ratio", ">=", 0.98, "times site by site, a round of FB15k-237-R10; equal is the aim"),
    "overhead": ("ratio", "<=", 0.05, "of a round is exchange, FB15k-237-R10"),
    "overhead-feds": ("ratio", "<=", 0.02, "of a round is exchange, FB15k-237-R10"),
    "overhead-fedternary": ("ratio", "<=", 0.02, "of a round is exchange, FB15k-237-R10"),
    **dict.fromkeys(EXCHANGES, ("seconds", "<=", 3, "seconds of a site's turn, a million rows of 256")),
    "thousand-sites": ("seconds", "<=", 5, "seconds a round of 1,000 sites of 100 triples"),
    "fedlu-transe": ("ratio", "<=", 2.5, "times a round of fedep, three sites of FB15k-237-R10"),
    "fedlu-rotate": ("ratio", "<=", 2.5, "times a round of fedep, three sites of FB15k-237-R10"),
    "fedlu-complex": ("ratio", "<=", 2.5, "times a round of fedep, three sites of FB15k-237-R10"),
    "private-wide": ("ratio", "<=", 1.3, "times a plain step"),
    "private-paper": ("ratio", "<=", 2.3, "times a plain step"),
    **PRIVATE,
    "private-opacus-paper": ("ratio", ">=", 20, "times Opacus's step"),
    "private-opacus-wide": ("ratio", ">=", 0, "times Opacus's step"),
    **SCALE,
    "reach": REACH,
    "reach-pykeen": ("triples_per_s", ">=", 0, "triples/s of PyKEEN with the model of `reach`"),
    "load": ("triples_per_s", ">=", 1_000_000, "triples/s from TSV"),
    "gpu-train-transe": ("ours_per_s", ">=", 3_000_000, "triples/s"),
    "gpu-train-rotate": ("ours_per_s", ">=", 1_500_000, "triples/s"),
    "gpu-train-complex": ("ours_per_s", ">=", 0, "triples/s"),
    "gpu-shared-transe": ("shared_per_s", ">=", 12_000_000, "triples/s, negatives shared by 128"),
    "gpu-shared-rotate": ("shared_per_s", ">=", 8_000_000, "triples/s, negatives shared by 128"),
    "gpu-shared-complex": ("shared_per_s", ">=", 12_000_000, "triples/s, negatives shared by 128"),
    "gpu-federation": ("total_s", "<=", 60, "seconds for 100 rounds of fedep, FB15k-237-R10, all in all"),
    "gpu-federation-shared": ("total_s", "<=", 20, "seconds for the same, negatives shared by 128"),
    "gpu-captured": ("ratio", ">=", 3, "times site by site, not captured"),
    "gpu-stacked": ("ratio", ">=", 1, "times site by site, captured"),
    "gpu-overhead": ("ratio", "<=", 0.05, "of a round is exchange, FB15k-237-R10"),
    "gpu-fedlu-transe": ("ratio", "<=", 2.5, "times a round of fedep, FB15k-237-R10"),
    "gpu-fedlu-rotate": ("ratio", "<=", 2.5, "times a round of fedep, FB15k-237-R10"),
    "gpu-fedlu-complex": ("ratio", "<=", 2.5, "times a round of fedep, FB15k-237-R10"),
    "gpu-private-wide": ("ratio", "<=", 2, "times a plain step"),
    "gpu-private-paper": ("ratio", "<=", 2, "times a plain step"),
    **{f"gpu-{name}": target for name, target in PRIVATE.items()},
    **{f"gpu-{name}": target for name, target in SCALE.items()},
    "gpu-reach": REACH,
    "gpu-rank-transe": ("ours_s", "<=", 3, "seconds for all of FB15k-237's test"),
    "gpu-rank-rotate": ("ours_s", "<=", 3, "seconds for all of FB15k-237's test"),
    "gpu-rank-complex": ("ours_s", "<=", 3, "seconds for all of FB15k-237's test"),
}
REACHED = (
    "## Time to accuracy",
    "",
    "FB15k-237-C3, every site alone, TransE, dim 128, negatives shared by 128 (benchmarks/reach.py). The dot",
    "marks the first round with 99 % of the final validation MRR. Ranking validation triples is not counted.",
)
RANKED_ONCE = (
    "- `rank-*` are one measurement each, by an earlier rank.py: no turns, no median, no spread. PyKEEN",
    "  ran in our process. It ranked `pykeen_triples` test triples. `pykeen_s`, for all test triples, is",
    "  extrapolated from them.",
)
RANKED_IN_TURNS = (
    "- In `rank-*` PyKEEN ranks `pykeen_triples` test triples in a process of its own, in turns with us.",
    "  `pykeen_s`, for all test triples, is extrapolated from them.",
)
EXTRAPOLATED = (
    "PyKEEN's time is a measured speed times the triples that we needed. It was not trained so long, so that",
    "its MRR after that time is not known.",
)
SHARED = (
    "## Accuracy of shared negatives",
    "",
    "Test MRR in percent, dim 128, 256 negatives, one H200 (benchmarks/shared.py; docs/shared.jsonl has the",
    "runs). Means over seeds. The deviation is the larger one of own and shared negatives. A row holds if",
    "shared negatives lose at most two deviations.",
)
SETTINGS_OF_SHARED = {
    "preset": (
        "As presets in examples/ train, for a fixed number of rounds (`PRESET` in benchmarks/shared.py).\n"
        "TransE and RotatE with lr 0.0001 and batches of 512, ComplEx with L3, lr 0.001 and batches of 1024."
    ),
    "quick": "Quick runs: lr 0.001, batches of 1024, 30 rounds of 3 epochs.",
}
#: how a measurement's name begins -> the script that measures it; the first that fits
SCRIPTS = {
    "train": "train.py",
    "shared": "train.py --shared",
    "rank": "rank.py",
    "row-adam": "row_adam.py",
    "load": "load.py",
    "overhead-feds": "federation.py --only whole --method feds",
    "overhead-fedternary": "federation.py --only whole --method fedternary",
    "federation-shared": "federation.py --chunk 128",
    **dict.fromkeys(("stacked", "captured", "overhead", "thousand", "federation"), "federation.py"),
    "fedlu": "fedlu.py",
    "exchange": "exchange.py",
    "private-opacus": "private.py --opacus",
    "private": "private.py",
    "scale": "scale.py",
    "reach-pykeen": "reach.py --pykeen",
    "reach": "reach.py",
    "gpu-rank": "rank_gpu.py",
}
MEMORY = ("memory_ratio", 0.25)  #: of PyKEEN's peak, at most
Values: TypeAlias = dict[str, Any]  # of one measurement, with its machine and date
Results: TypeAlias = dict[str, list[Values]]  # by name: the last measurement on each machine, the latest last


def machine(gpu: bool) -> str:
    import torch

    if gpu:
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "CPU")
    return (
        f"{os.cpu_count()} cores of {model}, {platform.python_implementation()} {platform.python_version()}"
    )


def measure(script: tuple[str, ...], where: str) -> Results:
    """What one script prints, by name."""
    name, *arguments = script
    print(f"... {name} {' '.join(arguments)}", file=sys.stderr)
    done = subprocess.run(
        [sys.executable, str(HERE / name), *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    date = datetime.now(UTC).date().isoformat()
    found: Results = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            values = json.loads(line) | {"machine": where, "date": date}
            found[values.pop("name")] = [values]
    return found


def take_in(results: Results, found: Results) -> None:
    """Measurements take the place of those of the same name on the same machine."""
    for name, several in found.items():
        machines = {values["machine"] for values in several}
        kept = [values for values in results.get(name, []) if values["machine"] not in machines]
        results[name] = sorted([*kept, *several], key=lambda values: str(values["date"]))


def latest(results: Results) -> dict[str, Values]:
    """By name, the latest measurement."""
    return {name: several[-1] for name, several in results.items()}


def met(name: str, values: Values) -> bool:
    key, sign, target, _ = TARGETS[name]
    if key not in values:
        return False
    enough: bool = values[key] >= target if sign == ">=" else values[key] <= target
    return enough and values.get(MEMORY[0], 0) <= MEMORY[1]


def _put(value: Any) -> str:
    """A value as readers see it; a spread is a list of the lowest and the highest."""
    if isinstance(value, list):
        return " to ".join(map(_put, value))
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def page(results: Results) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Generated by `make bench` (benchmarks/run.py) from docs/benchmarks.json; do not edit. `python",
        "benchmarks/run.py --gpu` measures the rows `gpu-*`. Each row names its script in benchmarks/. The",
        "first lines of the script say what exactly it measures. What was measured on several machines has a",
        "row for each.",
        "",
        "- `train-*`, `shared-*` and `rank-*` are FB15k-237-C3's site 2 (191,840 training and 23,980 test",
        "  triples, 12,110 entities) with batches of 1024, 256 negatives, dim 256. Other rows have data and",
        "  settings of their own.",
        "- PyKEEN is release 1.11.1. In `train-*` and `shared-*` it runs in a process of its own, as its",
        "  users run it, and takes turns with us.",
        *ranked(latest(results)),
        "- A row with `turns` has medians of as many turns, each with the lowest and the highest",
        "  (`from_to`). A ratio is the median of the turns' ratios, so that it differs from the ratio of two",
        "  medians. `load_before` is the machine's load average of the minute before.",
        "- Memory is the peak of a process of its own, with imports.",
        "- `gpu-train-*` is an older measurement of own negatives. `own_per_s` of `gpu-shared-*` is the",
        "  newer one.",
        "- MRR in `gpu-rank-*` is that of tables that were never trained.",
        "",
        "| what | measured | target | met | details | script | machine | date |",
        "|---|---:|---:|---|---|---|---|---|",
    ]
    for name in TARGETS:
        lines += [_row(name, values) for values in reversed(results.get(name, []))]
    if picture(latest(results)):
        lines += [
            "",
            *REACHED,
            *(EXTRAPOLATED if "reach-pykeen" in results else ()),
            "",
            f"![Validation MRR over the seconds of training]({PICTURE.name})",
        ]
    if ACCURACY.exists():
        lines += ["", *SHARED]
        for setting, words in SETTINGS_OF_SHARED.items():
            if found := table(ACCURACY, setting):
                lines += ["", words, "", found]
    return "\n".join(lines) + "\n"


def ranked(found: Mapping[str, Values]) -> Sequence[str]:
    """How the rows `rank-*` were measured: in turns, or by what rank.py was before."""
    rows = [values for name, values in found.items() if name.startswith("rank-")]
    return RANKED_ONCE if any("turns" not in values for values in rows) else RANKED_IN_TURNS


def _row(name: str, values: Values) -> str:
    key, sign, target, put = TARGETS[name]
    rest = {k: v for k, v in values.items() if k not in (key, *HIDDEN)}
    details = ", ".join(f"{k} {_put(v)}" for k, v in sorted(rest.items()))
    measured = f"{_put(values[key])} {put}" if key in values else f"no {key}"
    wanted = f"{sign} {target:,}" if target else "none"
    if MEMORY[0] in values:
        wanted += f", memory_ratio <= {MEMORY[1]}"
    reached = ("yes" if met(name, values) else "no") if target else "–"
    return (
        f"| `{name}` | {measured} | {wanted} | {reached} "
        f"| {details} | {script(name)} | {values['machine']} | {values['date']} |"
    )


def script(name: str) -> str:
    """What measures a row, as it is called; all but the device."""
    names = (name, name.removeprefix("gpu-"))
    return next(call for one in names for start, call in SCRIPTS.items() if one.startswith(start))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gpu", action="store_true", help="measure the CUDA device")
    parser.add_argument("--only", action="append", default=[], help="scripts to run, as in train.py")
    parser.add_argument("--merge", type=Path, help="take in the results in a file; measure nothing")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are kept")
    asked = parser.parse_args()
    prepare()  # as the command line does: training is measured as users see it
    results: Results = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    if asked.merge:
        take_in(results, json.loads(asked.merge.read_text()))
    else:
        for script in GPU if asked.gpu else CPU:
            if not asked.only or script[0] in asked.only:
                take_in(results, measure(script, machine(asked.gpu)))
                asked.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    asked.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    if asked.out == RESULTS:
        PAGE.write_text(page(results))
        if drawn := picture(latest(results)):
            PICTURE.write_text(drawn)
    print(page(results))


if __name__ == "__main__":
    main()
