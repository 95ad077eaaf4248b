"""Run folders as training leaves them, without training."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedkge.config import to_toml

SITES = ("airline", "gazetteer", "government", "languages")
START = 1_760_000_000.0
ENVIRONMENT = {
    "fedkge": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "machine": "x86_64",
    "device": "cpu",
}


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
        "evaluate": {"every": 5, "patience": 3, "rule": "patience"},
    }


def metrics(mrr: float, count: int) -> dict[str, float]:
    hits = {f"hits@{k}": min(1.0, mrr * (0.75 + 0.09 * k)) for k in (1, 3, 5, 10)}
    return {"mrr": mrr, "mr": 12 / mrr, **hits, "count": count}


def loss_at(place: int, number: int, level: float) -> float:
    return 0.75 - level + 0.04 * place + 1.6 * math.exp(-number / (6 + place))


def mrr_at(place: int, number: int, level: float) -> float:
    rise = level * (1 - math.exp(-number / (8 + 2 * place)))
    return min(0.9, rise * (1 + 0.07 * place)) - 0.0006 * max(0, number - 40)


def write_run(
    folder: Path,
    method: str = "single",
    *,
    sites: Sequence[str] = SITES,
    level: float = 0.3,
    ended: bool = True,
    overlap: bool = True,
    seed: int = 0,
    model: str = "transe",
    data: str = "atlas",
    last: Mapping[str, int] | int = 55,
) -> Path:
    """One folder; `single` trains a course per site, every other method one course of all sites."""
    folder.mkdir(parents=True)
    folder.joinpath("config.toml").write_text(to_toml(config(method, model, seed, data)), encoding="utf-8")
    courses = {site: [site] for site in sites} if method == "single" else {method: list(sites)}
    events: list[dict[str, Any]] = [{"event": "start", "environment": ENVIRONMENT, "sites": list(sites)}]
    for course, members in courses.items():
        until = last if isinstance(last, int) else last[course]
        events += course_events(course, members, sites, level, until)
    summary = summarise(method, model, data, seed, sites, events, level, overlap)
    if ended:
        events.append({"event": "end", "metrics": summary["metrics"]})
        folder.joinpath("summary.json").write_text(json.dumps(summary), encoding="utf-8")
    lines = [json.dumps({"time": START + i, **event}) + "\n" for i, event in enumerate(events)]
    folder.joinpath("run.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def course_events(
    course: str, members: Sequence[str], sites: Sequence[str], level: float, until: int
) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for number in range(1, until + 1):
        losses = {site: {"loss": loss_at(sites.index(site), number, level)} for site in members}
        done = {"seconds": 0.8 * len(members), "triples": 21_000 * len(members), "sites": losses}
        events.append({"event": "round", "course": course, "round": number, **done})
        if number % 5 == 0:
            found = {
                site: metrics(mrr_at(sites.index(site), number, level), 400 + 100 * sites.index(site))
                for site in members
            }
            total = sum(of["count"] for of in found.values())
            mrr = sum(of["mrr"] * of["count"] for of in found.values()) / total
            event = {"course": course, "round": number, "split": "valid", "sites": found, "mrr": mrr}
            events.append({"event": "evaluate", **event})
    return events


def summarise(
    method: str,
    model: str,
    data: str,
    seed: int,
    sites: Sequence[str],
    events: Sequence[Mapping[str, Any]],
    level: float,
    overlap: bool,
) -> dict[str, Any]:
    rounds = [event for event in events if event["event"] == "round"]
    train = sum(event["seconds"] for event in rounds)
    own = {
        site: metrics(min(0.9, 0.97 * level * (1 + 0.07 * i)), 400 + 100 * i) for i, site in enumerate(sites)
    }
    total = sum(of["count"] for of in own.values())
    names = [name for name in next(iter(own.values())) if name != "count"]
    mean = {name: sum(of[name] * of["count"] for of in own.values()) / total for name in names}
    last = max(event["round"] for event in rounds)
    summary: dict[str, Any] = {
        "method": method,
        "model": model,
        "dataset": data,
        "seed": seed,
        "rounds": last,
        "best_round": 40,
        "courses": {event["course"]: {"rounds": last, "best_round": 40} for event in rounds},
        "seconds": {"train": train, "evaluate": train / 6, "total": train * 1.25},
        "device": "cpu",
        "environment": ENVIRONMENT,
        "metrics": {
            "valid": {**mean, "count": total},
            "test": {**mean, "count": total},
            "test_tail": {**metrics(mean["mrr"] * 1.2, total // 2)},
        },
        "sites": {
            site: {
                "triples": {"train": 7000 + 2300 * i, "valid": 200 + 50 * i, "test": 200 + 50 * i},
                "entities": 2100 + 400 * i,
                "relations": 7 + i,
                "metrics": {"valid": own[site], "test": own[site], "test_tail": own[site]},
            }
            for i, site in enumerate(sites)
        },
        "traffic": {"up_bytes": 0, "down_bytes": 0, "up_values": 0, "down_values": 0, "per_round": []},
        "privacy": [],
    }
    if overlap:
        size = [summary["sites"][site]["entities"] for site in sites]
        counts = [[min(a, b) // (1 + abs(i - j) * 2) for j, b in enumerate(size)] for i, a in enumerate(size)]
        summary["overlap"] = {"sites": list(sites), "entities": counts}
    return summary
