"""What a run's folder says about an erasure: a draft while it is under way, then the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkge.durable import json_text, write_whole

REPORT = "erasure.json"  #: in the folder of a run that has forgotten something
FORMAT = 1


def report(folder: Path) -> dict[str, Any] | None:
    """The report or its draft; none in the folder of a run that has forgotten nothing."""
    path = folder / REPORT
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def under_way(folder: Path) -> str | None:
    """The mode of an unlearning that has no report yet."""
    mode = (report(folder) or {}).get("under way")
    return None if mode is None else str(mode)


def begin(folder: Path, old: Path, experiment: Mapping[str, Any], mode: str) -> None:
    """Write the draft: `experiment` is the one that tables were first trained by."""
    draft = {
        "format": FORMAT,
        "under way": mode,
        "experiment": dict(experiment),
        "requests": earlier(old),
        "tables": {},
        "derived": [],
        "audit": None,
    }
    write_whole(folder / REPORT, json_text(draft, indent=1).encode())


def earlier(old: Path) -> list[dict[str, Any]]:
    """The requests that the old run had followed already."""
    found: list[dict[str, Any]] = (report(old) or {}).get("requests", [])
    return found
