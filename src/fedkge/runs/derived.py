"""Runs that may remember what another has forgotten: begun with its tables, or trained on its data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedkge.config import read_toml
from fedkge.errors import FedkgeError

DEPTH = 3  #: folders below the one beside the run that are looked into


def derived(run: Path, beside: Path | None = None) -> list[dict[str, str]]:
    """Run folders near this one that began with its tables or were trained on the same triples, and why."""
    own, home = _digests(run), (beside or run.parent).resolve()
    found = []
    for folder in _runs(home):
        if folder.resolve() == run.resolve():
            continue
        start = _start(folder)
        if start is not None and _is(start, run):
            found.append({"run": str(folder), "why": "it began with the tables of this run"})
        elif own and own & _digests(folder):
            found.append({"run": str(folder), "why": "it was trained on the same triples"})
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


def _digests(folder: Path) -> set[Any]:
    try:
        sites = json.loads((folder / "run.json").read_text(encoding="utf-8"))["sites"]
        return set(sites.values())
    except (OSError, ValueError, KeyError, AttributeError):
        return set()
