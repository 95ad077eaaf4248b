"""What the nodes of a run have written down, each in its own journal, put together as one story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from pathlib import Path
from typing import Any

from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL

RUN = "run.jsonl"  #: what the runtime wrote: when it started, what was carried, how it ended


def events(run: Path) -> Iterator[dict[str, Any]]:
    """In the order of time; events of one journal stay in its order.

    A round has what was sent in it, and what the sites at hand noted of their training.
    """
    own, hub = list(read_journal(run / RUN)), run / "hub" / JOURNAL
    sent = {event.get("round"): event for event in own if event.get("event") == "traffic"}
    trained = _trained(run)
    told = (
        _whole(event, sent.get(event.get("round"), {}), trained.get(event.get("round"), {}))
        if event.get("event") == "round"
        else event
        for event in (read_journal(hub) if hub.is_file() else ())
    )
    yield from merge(own, told, key=_time)


def _time(event: Mapping[str, Any]) -> float:
    time = event.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _trained(run: Path) -> dict[int | None, dict[str, Any]]:
    """Round -> site -> what it noted, the last time that it trained it."""
    found: dict[int | None, dict[str, Any]] = {}
    for journal in (*sorted(run.glob(f"*/{JOURNAL}")), *sorted(run.glob(f"sites/*/{JOURNAL}"))):
        for event in read_journal(journal):
            if event.get("event") == "trained":
                found.setdefault(event.get("round"), {})[journal.parent.name] = event
    return found


def _whole(event: dict[str, Any], sent: dict[str, Any], trained: dict[str, Any]) -> dict[str, Any]:
    sites: dict[str, dict[str, Any]] = {
        site: {"loss": one["loss"]} for site, one in trained.items() if "loss" in one
    }
    for site, sums in sent.get("sites", {}).items():
        sites[site] = {**sites.get(site, {}), **sums}
    totals = {name: sum(one.get(name, 0) for one in trained.values()) for name in ("seconds", "triples")}
    rest = {
        name: value
        for name, value in sent.items()
        if name not in ("event", "time", "round", "seconds", "sites")
    }
    return {**rest, **event, **totals, "sites": sites}
