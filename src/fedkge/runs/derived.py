"""Runs that may remember what another has forgotten: begun with its tables, or trained on its data."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from fedkge.config import read_toml
from fedkge.errors import FedkgeError

DEPTH = 3  #: folders below the one beside the run that are looked into


def derived(run: Path, new: Path, forgetting: Collection[str]) -> list[dict[str, str]]:
    """Run folders near this one that began with its tables or were trained on its triples, and why.

    `new` is the run that forgets, `forgetting` are the sites that do. Of a run on their same graphs it is
    known that it remembers; one on the same graphs of other sites may be an earlier or a later version.
    """
    own, found = _digests(run), []
    for folder in _runs(run.parent.resolve()):
        if folder.resolve() in (run.resolve(), new.resolve()):
            continue
        start, theirs = _start(folder), _digests(folder)
        same = [site for site, digest in own.items() if theirs.get(site) == digest]
        if start is not None and _is(start, run):
            found.append({"run": str(folder), "why": "it began with the tables of this run"})
        elif any(site in forgetting for site in same):
            found.append({"run": str(folder), "why": "it was trained on the same triples"})
        elif same:
            sites = ", ".join(site for site in sorted(forgetting) if site in theirs) or "none of these"
            why = f"it was trained on the same triples of other sites, and on another graph of {sites}"
            found.append({"run": str(folder), "why": why})
    return found


def _runs(home: Path) -> Iterator[Path]:
    for depth in range(1, DEPTH + 1):
        for config in sorted(home.glob("/".join(["*"] * depth) + "/config.toml")):
            if (config.parent / "run.jsonl").is_file():  # a node's folder has a configuration too
                yield config.parent


def _start(folder: Path) -> Path | None:
    try:
        start = read_toml(folder / "config.toml").get("start")
    except FedkgeError:
        return None
    return None if start is None else Path(start)


def _is(start: Path, run: Path) -> bool:
    return run.resolve() in (start.resolve(), *(path.resolve() for path in start.glob("seed-*")))


def _digests(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / "run.json").read_text(encoding="utf-8"))["sites"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
