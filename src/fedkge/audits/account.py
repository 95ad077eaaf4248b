"""The erasure report as data: what was asked, by keyed digests; what changed; what can still be told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedkge.audits.asked import Questions
from fedkge.audits.erasure import verdicts
from fedkge.audits.standing import standing, withdrawn
from fedkge.audits.telling import membership
from fedkge.durable import json_text
from fedkge.errors import DataError
from fedkge.graphs.graph import Axis, Split
from fedkge.models import Tables
from fedkge.nodes.store import write_whole
from fedkge.runs.derived import derived
from fedkge.runs.erased import FORMAT, REPORT, earlier
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure, digests
from fedkge.runtimes.unlearning import Unlearned, original


def account(done: Unlearned, key: bytes, against: Path | None = None, audited: bool = True) -> dict[str, Any]:
    """Everything about an unlearning; written into the new run's folder.

    `against` is a run that was re-trained on what is retained; without `audited` nothing is measured.
    """
    new, old = Holdings.open(done.folder.path), done.old
    retrained = None if against is None else _retrained(against, new)
    found: dict[str, Any] = {
        "format": FORMAT,
        "experiment": original(old).config(),
        "requests": [*earlier(old.folder.path), _request(done, new, key)],
        "tables": tables(done.folder.path),
        "derived": derived(old.folder.path, done.folder.path, done.erasure.sites),
        "audit": _audit(done, new, retrained) if audited else None,
    }
    text = json_text(found, indent=1)
    write_whole(done.folder.path / REPORT, text.encode())
    plain: dict[str, Any] = json.loads(text)
    return plain


def _retrained(path: Path, new: Holdings) -> Holdings:
    other = Holdings.open(path)
    theirs, ours = ({site: g.digest() for site, g in run.sources.named.items()} for run in (other, new))
    if theirs != ours:
        raise DataError(f"{path}: not trained on what is retained here; expected the run of mode exact")
    return other


def _request(done: Unlearned, new: Holdings, key: bytes) -> dict[str, Any]:
    erasure, sent = done.erasure, new.summary["traffic"]
    empty = erasure.empty
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": done.how.mode,
        "options": asdict(done.how),
        "sites": {site: _site(erasure, new, site) for site in erasure.chosen},
        "withdrawn": list(erasure.withdrawn),
        "missing": dict(erasure.missing),
        "digests": digests(key, erasure),
        "unlearning": {site: dict(of) for site, of in done.sites.items()},
        "rounds": 0 if empty else new.summary["rounds"],
        "seconds": done.seconds,
        "bytes": 0 if empty else sent["up_bytes"] + sent["down_bytes"],
        "changed": _changed(done, new),
    }


def _site(erasure: Erasure, new: Holdings, site: str) -> dict[str, Any]:
    before, after = erasure.before[site], new.sources.named[site]
    return {
        "triples": {str(split): int(erasure.chosen[site][split].sum()) for split in Split},
        "lost": {
            "entities": before.n_entities - after.n_entities,
            "relations": before.n_relations - after.n_relations,
        },
    }


def _changed(done: Unlearned, new: Holdings) -> dict[str, dict[str, int]]:
    """By site and table, how many of the rows that are still there are other rows now."""
    asked = Questions.of(done.erasure, new)
    if not _comparable(done.old, new):
        return {}
    before, after = asked.tables(done.old), asked.tables(new)
    return {site: _rows_changed(before[site], after[site]) for site in after}


def _rows_changed(before: Tables, after: Tables) -> dict[str, int]:
    found = {str(a): int((before.table(a) != after.table(a)).any(1).sum()) for a in Axis}
    if before.second is not None and after.second is not None:
        for name, count in _rows_changed(before.second, after.second).items():
            found[f"second {name}"] = count
    return found


def _comparable(old: Holdings, new: Holdings) -> bool:
    return old.experiment.method.members(old.sources.federation).keys() == old.sources.named.keys()


def tables(run: Path) -> dict[str, str]:
    """The SHA-256 of every file of tables: on a CPU whoever repeats mode exact gets the same."""
    files = sorted((run / "sites").rglob("*.safetensors"))
    return {
        str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name in ("entities.safetensors", "relations.safetensors")
    }


def _audit(done: Unlearned, new: Holdings, retrained: Holdings | None) -> dict[str, Any]:
    if not _comparable(done.old, new):
        return {"why": "the method trains one table for several sites: sites cannot be asked one by one"}
    asked = Questions.of(done.erasure, new)
    held: dict[str, Mapping[str, Tables]] = {"before": asked.tables(done.old), "after": asked.tables(new)}
    if retrained is not None:
        held["retrained"] = asked.tables(retrained)
    stand = {name: standing(asked, tables) for name, tables in held.items()}
    found: dict[str, Any] = {"gone": dict(asked.gone), "standing": stand}
    if asked.forgetting:
        told = membership(asked, held["after"], held.get("retrained"), held["before"])
        found["membership"] = told
        found["verdicts"] = verdicts(asked, held["after"], stand["after"], stand.get("retrained"), told)
    if done.erasure.withdrawn:
        runs = {"before": done.old, "after": new} | ({} if retrained is None else {"retrained": retrained})
        found["withdrawn"] = {
            site: {name: withdrawn(done.old, run, site) for name, run in runs.items()}
            for site in done.erasure.withdrawn
        }
    return found
