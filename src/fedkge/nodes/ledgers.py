"""Where nodes keep their ledgers, and whether a ledger has all that its node knows to have released."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedkge.errors import DataError
from fedkge.nodes.journal import read_journal
from fedkge.privacy.ledger import Entry, Ledger, whole_ledger

LEDGER, JOURNAL, RESULT = "ledger.jsonl", "journal.jsonl", "metrics.json"  #: names in a node's folder


def ledger_at(home: Path) -> Path:
    """The file in which the node of this folder records what it releases."""
    return home / LEDGER


def open_ledger(home: Path, key: bytes | None = None) -> Ledger:
    """A node's ledger; an error if its journal or its result know of releases that the ledger lacks.

    With the site's key its lines are signed, and those that are there must be signed by it.
    """
    return whole_ledger(ledger_at(home), _last_trained(home), _result(home), key=key)


def homes(run: Path) -> list[Path]:
    """The folders of a run that may have a ledger: its own, those of other parties, and those of sites."""
    return [run, *sorted(path for path in run.glob("*") if path.is_dir()), *sorted(run.glob("sites/*"))]


def run_ledgers(run: Path) -> Iterator[Ledger]:
    """The ledgers of all nodes of a run that are at hand; runs of earlier versions have one for all."""
    for home in homes(run):
        known = (_last_trained(home), _result(home))
        if ledger_at(home).is_file() or any(one is not None and "ledger" in one for one in known):
            yield open_ledger(home)


def run_entries(run: Path) -> list[Entry]:
    """Everything that the sites of a run have released."""
    return [entry for ledger in run_ledgers(run) for entry in ledger.entries]


def _last_trained(home: Path) -> dict[str, Any] | None:
    path, last = home / JOURNAL, None
    for event in read_journal(path) if path.is_file() else ():
        if event.get("event") == "trained":
            last = event
    return last


def _result(home: Path) -> dict[str, Any] | None:
    path = home / RESULT
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not JSON: {error}; expected the result that a node writes") from None
    return found if isinstance(found, dict) else None


def check_begun(hub: Path, sites: Mapping[str, Path]) -> None:
    """An error if the hub's journal has rounds of a site that makes releases, and the site's ledger none.

    `hub` and `sites` are folders, of those sites that train with noise.
    """
    journal = hub / JOURNAL
    asked: set[str] = set()
    for event in read_journal(journal) if journal.is_file() else ():
        if event.get("event") == "round":
            asked |= {site for name in ("participants", "late", "refused") for site in event.get(name, ())}
    for site, home in sites.items():
        if site in asked:
            Ledger(ledger_at(home)).check_begun(journal)
