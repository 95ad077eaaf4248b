"""Plain values beside rows: how many a site says that it has, its metrics, and what a method says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from torch import Tensor

from fedkge.errors import DataError
from fedkge.evaluation import combined
from fedkge.evaluation.metrics import are_metrics
from fedkge.graphs.graph import Axis
from fedkge.methods import Hub, Method


def totals(site: str, note: Mapping[str, Any], ids: Mapping[Axis, Tensor]) -> dict[Axis, int]:
    """How many rows, shared or not, each table of a site has that joins with this note."""
    found, shared = note.get("totals"), {axis.value: len(own) for axis, own in ids.items()}
    if isinstance(found, Mapping) and found.keys() == shared.keys():
        counts = {Axis(axis): found[axis] for axis in shared}
        if all(type(count) is int and count >= shared[axis] for axis, count in counts.items()):
            return counts
    raise DataError(f"{site} joins with totals {found!r}, expected numbers of rows of at least {shared}")


def are_by_site(found: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether something that a site sent is metrics, by whose triples."""
    return isinstance(found, Mapping) and bool(found) and all(map(are_metrics, found.values()))


def mrr_of(metrics: Mapping[str, Mapping[str, Mapping[str, float]]], sites: Iterable[str]) -> float:
    """Over all queries of these sites."""
    return combined(m for site in sites for m in metrics[site].values())["mrr"]


def dialled(method: Method, hub: Hub, sites: Sequence[str]) -> dict[str, Any]:
    """What sites are told from now on: a number by dial, or where theirs are not alike, one by site."""
    told = {site: method.dialled(hub, site) for site in (sites if method.dials else ())}
    found = {name: {site: told[site][name] for site in sites} for name in method.dials}
    return {n: of if len(set(of.values())) > 1 else of[sites[0]] for n, of in found.items()}


def noted(sites: Sequence[str], notes: Mapping[str, Tensor]) -> dict[str, Any]:
    """Numbers [s, s] between sites as a journal has them, to six digits; nothing where there are none."""
    found = {
        name: {"sites": list(sites), "values": [[float(f"{v:.6g}") for v in row] for row in values.tolist()]}
        for name, values in notes.items()
    }
    return {"notes": found} if found else {}
