"""Whether the parts of a record agree with each other: no run could have made one whose parts do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedkge.errors import DataError

ROUNDED = 2e-6  #: between two numbers that were rounded to six digits apart
EXACT = 1e-9  #: between sums of the same numbers in another order
LEAST = 1.5  #: the rank after the first: ties count half


def check_agreement(record: Mapping[str, Any]) -> None:
    """An error that names two parts that contradict each other; the form of each must be right."""
    cap = record["config"].get("rounds")
    for name, course in record["courses"].items():
        if isinstance(cap, int) and course["rounds"] > cap:
            raise _unlike(f"courses.{name}.rounds", f"at most config.rounds ({cap})", course["rounds"])
    measured = {f"metrics.{name}": of for name, of in record["metrics"].items()}
    if "valid" in record:
        measured["valid"] = record["valid"]
    for where, of in measured.items():
        _check_hits(where, of)
    if "curve" in record:
        _check_sites(record)
        _check_curve(record)


def _check_hits(where: str, of: Mapping[str, Any]) -> None:
    """Hits bound the MRR: a rank among the first K, but not among fewer, is at most K."""
    levels = sorted((int(name[5:]), value) for name, value in of.items() if name.startswith("hits@"))
    least, before = 0.0, 0.0
    for k, hits in levels:
        if hits < before - EXACT:
            raise _unlike(f"{where}.hits@{k}", f"at least the hits before it ({before:g})", hits)
        least, before = least + (hits - before) / k, hits
    most = dict(levels).get(1, 1.0)
    most += (1 - most) / LEAST
    if not least - EXACT <= of["mrr"] <= most + EXACT:
        raise _unlike(f"{where}.mrr", f"{least:.6f} to {most:.6f}, as its hits say", of["mrr"])


def _check_sites(record: Mapping[str, Any]) -> None:
    """Metrics are the means over the sites, weighted by their test questions."""
    sites, whole = record["sites"], record["metrics"][record["method"]]
    count = sum(of["count"] for of in sites.values())
    for name, of in record["metrics"].items():
        if of["count"] != count:
            raise _unlike(f"metrics.{name}.count", f"the sum over sites ({count})", of["count"])
    mean = sum(of["count"] * of["mrr"] for of in sites.values()) / count
    if abs(mean - whole["mrr"]) > ROUNDED:
        expected = f"the mean over sites ({mean:.6f})"
        raise _unlike(f"metrics.{record['method']}.mrr", expected, whole["mrr"])
    named = set(record["courses"])
    if len(named) > 1 and named != set(sites):
        raise _unlike("courses", f"one, or one for each site ({', '.join(sites)})", ", ".join(sorted(named)))


def _check_curve(record: Mapping[str, Any]) -> None:
    """The round that is kept was validated, and the run's validation is the curve's best.

    Private runs are an exception: their rounds are validated without the confidential triples.
    """
    curve = {point[0]: point[1] for point in record["curve"]}
    last = max(course["rounds"] for course in record["courses"].values())
    if max(curve) > last:
        raise _unlike("curve", f"no point after round {last}", f"one of round {max(curve)}")
    for name, course in record["courses"].items():
        if course["best_round"] not in curve:
            raise _unlike(f"courses.{name}.best_round", "a round of the curve", course["best_round"])
    best, valid = max(curve.values()), record["valid"]["mrr"]
    open_to_all = record["config"].get("privacy", {}).get("mode", "off") == "off"
    if open_to_all and abs(best - valid) > ROUNDED:
        raise _unlike("valid.mrr", f"the best of the curve ({best:g})", valid)


def _unlike(where: str, expected: str, found: object) -> DataError:
    return DataError(f"{where}: expected {expected}, found {found}")
