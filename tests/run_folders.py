"""Run folders as training leaves them, without training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedkge.config import override, to_toml

SITES = ("airline", "gazetteer", "government", "languages")
START = 1_760_000_000.0
ENVIRONMENT = {
    "fedkge": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "machine": "x86_64",
    "device": "cpu",
}
SILENT = ("single", "collective")  #: methods in which nothing travels
TRAFFIC = ("up_bytes", "down_bytes", "up_values", "down_values")


def config(method: str, model: str = "transe", seed: int = 0, data: str = "atlas") -> dict[str, Any]:
    return {
        "seed": seed,
        "rounds": 60,
        "model": {"name": model, "dim": 128, "margin": 10.0, "norm": 1},
        "data": {"name": data, "strict": False},
        "trainer": {
            "epochs": 3,
            "batch_size": 512,
            "negatives": 256,
            "lr": 0.001,
            "loss": "self-adversarial",
        },
        "method": {"name": method},
        "codec": {"name": "float32"},
        "participation": {"fraction": 1.0, "quorum": 1.0, "late": "refuse"},
        "evaluate": {"every": 5, "patience": 3, "rule": "patience"},
    }


@dataclass(frozen=True)
class Away:
    """Rounds in which sites did not simply take part: site -> rounds."""

    absent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    late: Mapping[str, Sequence[int]] = field(default_factory=dict)
    refused: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def took_part(self, site: str, number: int) -> bool:
        return not any(number in of.get(site, ()) for of in (self.absent, self.late, self.refused))


def write_run(
    folder: Path,
    method: str = "single",
    *,
    sites: Sequence[str] = SITES,
    level: float = 0.3,
    tilt: float = 0.0,
    ended: bool = True,
    overlap: bool = True,
    seed: int = 0,
    model: str = "transe",
    data: str = "atlas",
    last: Mapping[str, int] | int = 55,
    options: Sequence[str] = (),
    width: int = 128,
    away: Away | None = None,
    links: Sequence[Mapping[str, Any]] = (),
    killed_at: int | None = None,
) -> Path:
    """One folder.

    `level` is about what is reached and `tilt` what each site in turn loses of it, `last` the last round (of
    each site, under `single`), `options` as `--set` takes them, `width` the numbers in a row that travels;
    `killed_at` leaves a torn line after that round, and the two before it are done again.
    """
    folder.mkdir(parents=True)
    options_ = override(config(method, model, seed, data), options)
    folder.joinpath("config.toml").write_text(to_toml(options_), encoding="utf-8")
    skill = _Skill(level + 0.004 * math.sin(2.0 * seed), tilt, list(sites))
    until = {site: last if isinstance(last, int) else last[site] for site in sites}
    rounds = _rounds(method, skill, until, width, away or Away())
    kinds = {"single": "alone", "collective": "pooled", "fkge": "peers"}
    start = {"event": "start", "environment": ENVIRONMENT, "kind": kinds.get(method, "hub")}
    start["sites"] = list(sites)
    known = [{"event": "links", **link} for link in links]
    summary = summarise(method, options_, skill, rounds, overlap, until)
    lines = [_line(i, event) for i, event in enumerate([start, *known])]
    for number, events in rounds.items():
        lines += [_line(number, event) for event in events]
        if number == killed_at:
            back = number - 2
            lines.append(_line(number, events[0])[:60] + "\n")
            lines += [_line(number, start), _line(number, {"event": "resumed", "round": back})]
            lines += [_line(n, event) for n in range(back + 1, number + 1) for event in rounds[n]]
    if ended:
        lines.append(_line(len(lines), {"event": "end", "metrics": summary["metrics"]}))
        folder.joinpath("summary.json").write_text(
            json.dumps({**summary, "links": [_counts(link) for link in links]}), encoding="utf-8"
        )
    folder.joinpath("run.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def _line(after: float, event: Mapping[str, Any]) -> str:
    return json.dumps({"time": START + after, **event}) + "\n"


def _counts(link: Mapping[str, Any]) -> dict[str, Any]:
    return {name: link[name] for name in ("axis", "given", "used", "left_out")}


@dataclass(frozen=True)
class _Skill:
    """What sites reach, and how fast."""

    level: float
    tilt: float
    sites: list[str]

    def best(self, site: str) -> float:
        place = self.sites.index(site)
        return min(0.9, self.level * (1 + 0.07 * place) - self.tilt * place)

    def mrr(self, site: str, number: int) -> float:
        place = self.sites.index(site)
        return self.best(site) * (1 - math.exp(-number / (8 + 2 * place))) - 0.0006 * max(0, number - 40)

    def loss(self, site: str, number: int) -> float:
        place = self.sites.index(site)
        return 0.75 - self.level + 0.04 * place + 1.6 * math.exp(-number / (6 + place))

    def queries(self, site: str) -> int:
        return 400 + 100 * self.sites.index(site)

    def shared(self, site: str) -> int:
        return 300 + 80 * self.sites.index(site)


def metrics(mrr: float, count: int) -> dict[str, float]:
    hits = {f"hits@{k}": min(1.0, mrr * (0.75 + 0.09 * k)) for k in (1, 3, 5, 10)}
    return {"mrr": mrr, "mr": 12 / mrr, **hits, "count": count}


def _rounds(
    method: str, skill: _Skill, until: Mapping[str, int], width: int, away: Away
) -> dict[int, list[dict[str, Any]]]:
    """Round -> its events."""
    found: dict[int, list[dict[str, Any]]] = {}
    for number in range(1, max(until.values()) + 1):
        going = [site for site in skill.sites if number <= until[site]]
        members = [site for site in going if away.took_part(site, number)]
        sites: dict[str, dict[str, float]] = {
            site: {"loss": skill.loss(site, number), **_sent(method, skill, site, number, width)}
            for site in members
        }
        event = {
            "event": "round",
            "round": number,
            "seconds": 0.8 * len(members),
            "exchange_seconds": 0.0 if method in SILENT else 0.02 * len(members),
            "triples": 21_000 * len(members),
            "participants": members,
            "late": [site for site in going if number in away.late.get(site, ())],
            "refused": {
                site: f"round {number} had closed" for site in going if number in away.refused.get(site, ())
            },
            "sites": sites,
            **{name: sum(int(of[name]) for of in sites.values()) for name in TRAFFIC},
        }
        found[number] = [event, *(_validation(skill, going, number) if number % 5 == 0 else [])]
    return found


def _sent(method: str, skill: _Skill, site: str, number: int, width: int) -> dict[str, int]:
    values = 0 if method in SILENT else skill.shared(site) * width
    head = 0 if method in SILENT else 120 + 8 * skill.shared(site) * (number == 1)
    return {
        "up_bytes": 4 * values + head,
        "down_bytes": (4 * values + head) * 9 // 10,
        "up_values": values,
        "down_values": values * 9 // 10,
    }


def _validation(skill: _Skill, going: Sequence[str], number: int) -> list[dict[str, Any]]:
    found = {site: metrics(skill.mrr(site, number), skill.queries(site)) for site in going}
    total = sum(of["count"] for of in found.values())
    mrr = sum(of["mrr"] * of["count"] for of in found.values()) / total
    return [{"event": "evaluate", "round": number, "split": "valid", "sites": found, "mrr": mrr}]


def summarise(
    method: str,
    options: Mapping[str, Any],
    skill: _Skill,
    rounds: Mapping[int, Sequence[Mapping[str, Any]]],
    overlap: bool,
    until: Mapping[str, int],
) -> dict[str, Any]:
    done = [events[0] for events in rounds.values()]
    train = sum(event["seconds"] for event in done)
    exchange = sum(event["exchange_seconds"] for event in done)
    own = {site: metrics(0.97 * skill.best(site), skill.queries(site)) for site in skill.sites}
    total = sum(of["count"] for of in own.values())
    names = [name for name in next(iter(own.values())) if name != "count"]
    mean = {name: sum(of[name] * of["count"] for of in own.values()) / total for name in names}
    courses = _courses(method, until, rounds)
    sent = {s: {k: sum(e["sites"].get(s, {}).get(k, 0) for e in done) for k in TRAFFIC} for s in skill.sites}
    summary: dict[str, Any] = {
        "method": method,
        "model": options["model"]["name"],
        "dataset": options["data"]["name"],
        "seed": options["seed"],
        "rounds": max(rounds),
        "best_round": max(course["best_round"] for course in courses.values()),
        "courses": courses,
        "seconds": {
            "train": train,
            "evaluate": train / 6,
            "exchange": exchange,
            "checkpoint": train / 50,
            "total": train * 1.25 + exchange,
        },
        "device": "cpu",
        "environment": ENVIRONMENT,
        "budget": {
            "rounds": options["rounds"],
            **{name: options["trainer"][name] for name in ("epochs", "batch_size", "negatives", "lr")},
            "sides": "both",
            "dim": options["model"]["dim"],
        },
        "metrics": {
            "valid": {**mean, "count": total},
            "test": {**mean, "count": total},
            "test_tail": {**metrics(mean["mrr"] * 1.2, int(total) // 2)},
        },
        "sites": {
            site: {
                "triples": {"train": 7000 + 2300 * i, "valid": 200 + 50 * i, "test": 200 + 50 * i},
                "entities": 2100 + 400 * i,
                "relations": 7 + i,
                "digest": f"{i:064x}",
                "metrics": {"valid": own[site], "test": own[site], "test_tail": own[site]},
                "structure": {
                    "degrees": [[1, 100 * (i + 1)], [2, 60], [7, 20], [90 + i, 3]],
                    "mean_degree": 2.5 + i,
                    "coefficients": [*[10 + i] * 19, 40],
                    "mean_clustering": 0.2 + 0.1 * i,
                },
                "shared": {"entity": 0 if method in SILENT else skill.shared(site), "relation": 0},
                "traffic": sent[site],
            }
            for i, site in enumerate(skill.sites)
        },
        "traffic": {
            **{name: sum(of[name] for of in sent.values()) for name in TRAFFIC},
            "per_round": []
            if method in SILENT
            else [{"round": event["round"], **{name: event[name] for name in TRAFFIC}} for event in done],
        },
        "privacy": [],
    }
    if overlap:
        size = [summary["sites"][site]["entities"] for site in skill.sites]
        counts = [[min(a, b) // (1 + abs(i - j) * 2) for j, b in enumerate(size)] for i, a in enumerate(size)]
        summary["overlap"] = {"sites": skill.sites, "entities": counts}
    return summary


def _courses(
    method: str, until: Mapping[str, int], rounds: Mapping[int, Sequence[Mapping[str, Any]]]
) -> dict[str, dict[str, int]]:
    """Per course its last round and the first with the best validation."""
    validated = [event for events in rounds.values() for event in events if event["event"] == "evaluate"]

    def best(site: str | None) -> int:
        found = {
            event["round"]: event["mrr"] if site is None else event["sites"][site]["mrr"]
            for event in validated
            if site is None or site in event["sites"]
        }
        return max(found, key=found.__getitem__, default=0)

    if method == "single":
        return {site: {"rounds": last, "best_round": best(site)} for site, last in until.items()}
    name = "collective" if method == "collective" else "federation"
    return {name: {"rounds": max(until.values()), "best_round": best(None)}}


def write_ranks(folder: Path, ranks: Mapping[str, Sequence[float]]) -> Path:
    """Ranks of a run's test questions by site: the first half of heads, the others of tails."""
    import numpy as np
    from safetensors.numpy import save

    for site, values in ranks.items():
        head, tail = np.split(np.array(values, np.float32), 2)
        own = folder / "sites" / site
        own.mkdir(parents=True, exist_ok=True)
        own.joinpath("ranks.safetensors").write_bytes(save({"head": head, "tail": tail}))
    return folder


def write_tables(folder: Path, entities: Mapping[str, Sequence[str]], width: int = 4) -> Path:
    """Random rows of a run's entities by site."""
    import numpy as np
    from safetensors.numpy import save

    random = np.random.default_rng(0)
    for site, names in entities.items():
        own = folder / "sites" / site
        own.mkdir(parents=True, exist_ok=True)
        rows = random.normal(size=(len(names), width)).astype(np.float32)
        own.joinpath("entities.safetensors").write_bytes(save({"rows": rows}))
        own.joinpath("entities.tsv").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return folder


def write_seeds(folder: Path, method: str, seeds: Sequence[int] = (0, 1, 2), **options: Any) -> Path:
    """A folder of runs that differ in their seed alone."""
    for seed in seeds:
        write_run(folder / f"seed-{seed}", method, seed=seed, **options)
    return folder


def write_sweep(folder: Path, method: str, key: str, values: Mapping[str, float], **options: Any) -> Path:
    """A folder per value of one key, which decides the level reached."""
    for value, level in values.items():
        write_run(folder / f"{key}={value}", method, level=level, options=[f"{key}={value}"], **options)
    return folder


def write_questions(folder: Path, site: str, triples: Sequence[tuple[str, str, str]], ranks: Any) -> Path:
    """Test triples of a site with the ranks of their heads and tails: two rows of numbers."""
    import numpy as np
    from safetensors.numpy import save

    own = folder / "sites" / site
    own.mkdir(parents=True, exist_ok=True)
    entities = sorted({end for head, _, tail in triples for end in (head, tail)})
    relations = sorted({relation for _, relation, _ in triples})
    own.joinpath("entities.tsv").write_text("".join(f"{name}\n" for name in entities))
    own.joinpath("relations.tsv").write_text("".join(f"{name}\n" for name in relations))
    ids = [[entities.index(h), relations.index(r), entities.index(t)] for h, r, t in triples]
    head, tail = np.array(ranks, np.float32)
    found = {"triples": np.array(ids, np.int32), "head": head, "tail": tail}
    own.joinpath("ranks.safetensors").write_bytes(save(found))
    return folder
