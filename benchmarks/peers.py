"""FKGE beside equally long training alone, its controls and `fedep`: accuracy and MRR of every site.

    FEDKGE_DATA=... python benchmarks/peers.py --out runs.jsonl [--jobs 2] [--data R3,C3] [--seeds 0,1,2]

Every way trains the same number of rounds per site and keeps its best validation: by accuracy where peers
decide, by MRR in `single` and `fedep`. A line of the output is a site of a run. `--table runs.jsonl` sums
such a file up as Markdown: differences to `single` in points, paired by site and seed, with 95 % intervals
over seeds (Student's t). A site is worse, or better, if its own interval is below, or above, 0.
On DDB14 no site trains on a triple that another is measured by (`data.drop_leaks = "across"`).
A way may be followed by options: `--ways "fkge + scale=1 law='laplace'; fkge + model.dim=32"`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from os import environ
from pathlib import Path
from statistics import mean, stdev
from typing import Any

T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  #: by the number of seeds
RANKED = 3000  #: test triples of a site that are ranked, the same in every run; all are classified
WAYS: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "fedep": {"name": "fedep"},
    "fkge": {"name": "fkge", "adoption": "replace"},
    "fkge, all edges": {"name": "fkge", "adoption": "replace", "edges": "all"},
    "fkge, averaged": {"name": "fkge", "adoption": "average"},
    "fkge, better": {"name": "fkge"},
    "procrustes, better": {"name": "fkge", "translate": "procrustes"},
    "fkge, simple": {"name": "fkge", "adoption": "replace", "virtual": 0},
    "fkge, simple, averaged": {"name": "fkge", "virtual": 0, "adoption": "average"},
    "procrustes": {"name": "fkge", "adoption": "replace", "translate": "procrustes"},
    "procrustes, averaged": {"name": "fkge", "translate": "procrustes", "adoption": "average"},
    "procrustes, simple": {"name": "fkge", "adoption": "replace", "translate": "procrustes", "virtual": 0},
    "random": {"name": "fkge", "adoption": "replace", "translate": "random"},
    "collective": {"name": "collective"},
}
DATA = {
    "R3": ("fb15k-237-R3", 40),
    "C3": ("fb15k-237-C3", 40),
    "C10": ("fb15k-237-C10", 40),
    "DDB14": ("ddb14-T5", 60),
    "domains": ("domains", 60),
    "offices": ("offices", 60),
    "atlas": ("atlas", 60),
}  #: folder or name, and rounds
LEAKS = {"DDB14": "across"}  #: data.drop_leaks: no site trains on a triple that another is measured by


def config(data: str, way: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    folder, rounds = DATA[data]
    rounds = int(options.get("rounds", rounds))
    where: dict[str, Any] = {"name": folder}
    if data != "atlas":
        where = {"path": str(Path(environ["FEDKGE_DATA"]) / folder), "drop_leaks": LEAKS.get(data, False)}
    base, _, changes = way.partition(" + ")
    method = dict(WAYS[base])
    if method["name"] == "fkge":
        usual = {"first": rounds // 2, "passes": 3, "judge": options.get("judge", "accuracy")}
        method = {**usual, "step": 0.002, "orthogonal": 0.01, **method}
    model: dict[str, Any] = {"name": "transe", "dim": 64, "margin": 8.0}
    for key, value in tomllib.loads("\n".join(changes.split())).items():
        if key == "model":
            model |= value
        else:
            method[key] = value
    every = max(2, rounds // 12)
    return {
        "seed": seed,
        "rounds": rounds,
        "data": where,
        "model": model,
        "trainer": {"epochs": 1, "batch_size": 1024, "negatives": 32, "lr": 3e-3},
        "method": method,
        "evaluate": {"every": every, "patience": 0, "keep": "each"},
    }


def one(data: str, way: str, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Train, and measure every site's kept tables."""
    import warnings

    import torch

    from fedkge.evaluation import Known, TypeConstraints, classify, metrics, rank
    from fedkge.randomness import generator
    from fedkge.runs.data import load
    from fedkge.runs.experiment import Experiment
    from fedkge.runs.folder import RunFolder
    from fedkge.runtimes.meeting import Meeting
    from fedkge.runtimes.simulate import Simulated, Simulation

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    began = time.perf_counter()
    experiment = Experiment.parse(config(data, way, seed, options))
    sources = load(experiment)
    with tempfile.TemporaryDirectory() as folder:
        made = RunFolder.create(Path(folder) / "run", experiment, resume=False)
        kind: Any = Meeting if experiment.method.hubless else Simulated
        run = kind(experiment, sources, made, torch.device(options["device"]), Simulation(tables=False))
        run.play()
        spent = time.perf_counter() - began
        if experiment.method.hubless:
            kept = {name: (peer.own.best, peer.own.before) for name, peer in run.peers.items()}
            talks = {name: peer.talks for name, peer in run.peers.items()}
            gains, curves = _gains(Path(folder) / "run"), _curves(Path(folder) / "run")
        else:
            kept = {
                n: (p.of(s.bests[m]), None)
                for s in run.stacks
                for m in s.names
                for n, p in s.members[m].parts.items()
            }
            talks, gains, curves = {}, {}, {}
        lines = []
        for name, (tables, before) in sorted(kept.items()):
            graph = sources.named[name]
            known, typed = Known.from_graph(graph), TypeConstraints.from_train(graph)
            asked = generator(0, "asked", name).permutation(graph.test)[:RANKED]
            views = {"": tables} | ({"before_": before} if before is not None else {})
            line: dict[str, Any] = {"data": data, "way": way, "seed": seed, "site": name, "seconds": spent}
            line["rounds"] = experiment.rounds
            for prefix, of in views.items():
                line |= {
                    f"{prefix}accuracy": classify(of, graph, seed=0, site=name).accuracy,
                    f"{prefix}mrr": metrics(rank(of, asked, known))["mrr"],
                    f"{prefix}typed_mr": metrics(rank(of, asked, known, candidates=typed))["mr"],
                }
            sent = run.record.tally.summary()
            line |= {"bytes": sent["up_bytes"] + sent["down_bytes"], "talks": talks.get(name, 0)}
            line |= {"triples": len(graph.test), "gains": gains.get(name, {}), "curve": curves.get(name, [])}
            lines.append(line)
    return lines


def _gains(run: Path) -> dict[str, dict[str, list[int]]]:
    """Site -> after training alone, or after a conversation -> updates that were gains, and all."""
    from fedkge.nodes.journal import read_journal

    found: dict[str, dict[str, list[int]]] = {}
    for event in read_journal(run / "run.jsonl"):
        if event["event"] == "update" and event["by"] != "first":
            kind = "alone" if event["by"] == "alone" else "talk"
            counts = found.setdefault(event["site"], {}).setdefault(kind, [0, 0])
            counts[0] += bool(event["gained"])
            counts[1] += 1
    return found


def _curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Site -> the round of each update, and the best score on validation after it."""
    from fedkge.nodes.journal import read_journal

    found: dict[str, list[tuple[int, float]]] = {}
    for event in read_journal(run / "run.jsonl"):
        if event["event"] == "update":
            found.setdefault(event["site"], []).append((event["round"], round(event["best"], 5)))
    return found


def rows(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """By data and way: means over sites and seeds, and differences to `single`, paired by site and seed."""
    by: dict[tuple[str, int, str], dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        by[line["data"], line.get("rounds", 0), line["way"]][line["site"], line["seed"]] = line
    for (data, rounds, way), own in sorted(by.items()):
        alone = by.get((data, rounds, "single"), {})
        common = sorted(own.keys() & alone.keys())
        seeds = sorted({seed for _, seed in common})
        row: dict[str, Any] = {"data": data, "way": way, "rounds": rounds, "seeds": len({s for _, s in own})}
        for metric in ("accuracy", "mrr"):
            gaps = {at: own[at][metric] - alone[at][metric] for at in common}
            each = {s: [gaps[at] for at in common if at[0] == s] for s in sorted({s for s, _ in common})}
            row[metric] = mean(line[metric] for line in own.values())
            row[f"{metric} gain"] = [mean(gaps[at] for at in common if at[1] == seed) for seed in seeds]
            row[f"{metric} worse"] = [site for site, found in each.items() if high(found) < 0]
            row[f"{metric} better"] = [site for site, found in each.items() if low(found) > 0]
        row["bytes"] = mean(line["bytes"] for line in own.values())
        yield row


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The rows as a table of Markdown."""
    columns = (
        "rounds, seeds",
        "accuracy",
        "minus alone",
        "worse / better",
        "MRR",
        "minus alone",
        "worse / better",
        "sent, MB",
    )
    yield f"| data | way | {' | '.join(columns)} |"
    yield "|---" * (2 + len(columns)) + "|"
    for row in rows(lines):
        cells = [row["data"], row["way"], f"{row['rounds']}, {row['seeds']}"]
        for metric in ("accuracy", "mrr"):
            gain = row[f"{metric} gain"]
            told = "" if row["way"] == "single" or not gain else interval([100 * one for one in gain])
            worse, better = (", ".join(row[f"{metric} {k}"]) or "none" for k in ("worse", "better"))
            cells += [f"{100 * row[metric]:.2f}", told, f"{worse} / {better}" if told else ""]
        yield "| " + " | ".join([*cells, f"{row['bytes'] / 1e6:.0f}"]) + " |"


COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
WIDE, HIGH, EDGE = 300, 200, 40  #: of one panel, in pixels


def curves(lines: list[dict[str, Any]]) -> str:
    """A picture: the mean over sites and seeds of the best score on validation so far, by round, per data."""
    by: dict[str, dict[str, list[list[list[float]]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line.get("curve") and " + " not in line["way"]:
            by[line["data"]][line["way"]].append(line["curve"])
    panels = []
    for number, (data, ways) in enumerate(sorted(by.items())):
        means = {way: _mean_curve(found) for way, found in sorted(ways.items())}
        panels.append(f'<g transform="translate({number * WIDE} 0)">{_panel(data, means)}</g>')
    size = f'width="{WIDE * len(panels)}" height="{HIGH + 15 * len(COLOURS)}"'
    style = "font-family:sans-serif;font-size:11px;background:white"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{style}">{"".join(panels)}</svg>\n'


def _mean_curve(found: list[list[list[float]]]) -> list[tuple[float, float]]:
    """Steps of single curves, averaged from the round on at which all have begun."""
    first = max(curve[0][0] for curve in found)
    rounds = sorted({at for curve in found for at, _ in curve if at >= first})
    return [(at, mean(max(best for r, best in curve if r <= at) for curve in found)) for at in rounds]


def _panel(data: str, means: dict[str, list[tuple[float, float]]]) -> str:
    every = [point for curve in means.values() for point in curve]
    (x0, x1), (y0, y1) = ((min(axis), max(axis)) for axis in zip(*every, strict=True))

    def at(x: float, y: float) -> str:
        right = EDGE + (x - x0) / max(1, x1 - x0) * (WIDE - EDGE - 20)
        return f"{right:.1f},{HIGH - 25 - (y - y0) / max(1e-9, y1 - y0) * (HIGH - 60):.1f}"

    parts = [f'<text x="{EDGE}" y="16" font-weight="bold">{data}</text>']
    for y in (y0, y1):
        parts.append(f'<text x="2" y="{at(x0, y).split(",")[1]}">{100 * y:.1f}</text>')
    for x in (x0, x1):
        parts.append(f'<text x="{at(x, y0).split(",")[0]}" y="{HIGH - 8}">{x:.0f}</text>')
    for place, (way, curve) in enumerate(means.items()):
        colour = COLOURS[place % len(COLOURS)]
        line = " ".join(at(x, y) for x, y in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{EDGE}" y="{HIGH + 10 + 14 * place}" fill="{colour}">{way}</text>')
    return "".join(parts)


def spread(values: list[float]) -> float:
    return T95[len(values)] * stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("inf")


def high(values: list[float]) -> float:
    return mean(values) + spread(values)


def low(values: list[float]) -> float:
    return mean(values) - spread(values)


def interval(values: list[float]) -> str:
    return f"{mean(values):+.2f} ± {spread(values):.2f}" if len(values) > 1 else f"{mean(values):+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("peers.jsonl"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data", default="R3,C3,DDB14,domains,atlas")
    parser.add_argument("--ways", default="")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--judge", default="accuracy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--curves", type=Path, help="with --table: where a picture goes")
    given = parser.parse_args()
    if given.table is not None:
        lines = [json.loads(line) for line in given.table.read_text().splitlines()]
        print("\n".join(page(lines)))
        if given.curves is not None:
            given.curves.write_text(curves(lines))
        return
    environ.update(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1")
    options = {"judge": given.judge, "device": given.device} | (
        {"rounds": given.rounds} if given.rounds else {}
    )
    ways = [way.strip() for way in given.ways.split(";")] if given.ways else list(WAYS)
    jobs = [(d, w, int(s)) for s in given.seeds.split(",") for d in given.data.split(",") for w in ways]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool, given.out.open("a") as out:
        waiting = {pool.submit(one, *job, options): job for job in jobs}
        for done in as_completed(waiting):
            try:
                lines = done.result()
            except Exception as error:  # one job must not take the others with it
                print("failed:", waiting[done], repr(error), flush=True)
                continue
            for line in lines:
                out.write(json.dumps(line) + "\n")
            out.flush()
            print(
                waiting[done],
                f"{lines[0]['seconds']:.0f} s",
                mean(line["accuracy"] for line in lines),
                flush=True,
            )


if __name__ == "__main__":
    main()
