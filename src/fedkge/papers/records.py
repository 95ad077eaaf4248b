"""One compact record per run: what was asked, what came out, what it took. Pages are made of records only.

A run may share negatives where its preset has own ones. Its record has the same key, and a place of its own.

Records of runs from before there were records lack curve, sites, seconds, bytes and digest. Their `config` is
that of the preset with the same key (`inferred`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from fedkge.durable import json_text
from fedkge.errors import DataError
from fedkge.nodes.result import RANKS
from fedkge.reports.compared.reference import progress
from fedkge.reports.compared.tables import views
from fedkge.reports.folders.run import Run

FOLDER = Path("papers") / "records"
Record: TypeAlias = dict[str, Any]
NEEDED = ("protocol", "dataset", "model", "method", "seed", "courses", "environment", "metrics", "config")
DIGITS = 6  #: of numbers between 0 and 1 in curves
SHARED = "/shared"  #: ends the place of a record with shared negatives


def key_of(record: Mapping[str, Any]) -> str:
    """`fedlu-2023/fb15k-237-C3/transe/fedep/0`."""
    return "/".join(str(record[part]) for part in ("protocol", "dataset", "model", "method", "seed"))


def shared_by(record: Mapping[str, Any]) -> int:
    """How many positives share their negatives; 1: each has its own."""
    return int(record["config"]["trainer"].get("chunk", 1))


def place_of(record: Mapping[str, Any]) -> str:
    """A record's key, with `/shared` at its end if negatives are shared."""
    return key_of(record) + (SHARED if shared_by(record) > 1 else "")


def of_key(records: Mapping[str, Record], key: str) -> list[Record]:
    """What is recorded under a key: own negatives first, then shared ones."""
    return [records[place] for place in (key, key + SHARED) if place in records]


def seconds_of(record: Mapping[str, Any]) -> float:
    """How long a run took. After an interruption the total begins anew, and its parts go on."""
    parts = dict(record["seconds"])
    total: float = parts.pop("total")
    return max(total, sum(parts.values()))


def by_cap(record: Mapping[str, Any]) -> bool:
    """Whether the cap ended a run, or the training of one of its sites, and not its validation."""
    evaluate, cap = record["config"]["evaluate"], record["config"]["rounds"]
    needed = evaluate["patience"] * evaluate["every"]
    alone = len(record["courses"]) > 1 or evaluate.get("keep", "together") == "together"
    judged = needed > 0 and evaluate.get("rule", "patience") == "patience" and alone
    for course in record["courses"].values():
        best = max(course["best_round"], *course.get("best_rounds", {}).values(), 0)
        if course["rounds"] == cap and not (judged and cap - best >= needed):
            return True
    return False


def but_sharing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options without `trainer.chunk`: those that make a row."""
    trainer = {name: value for name, value in config["trainer"].items() if name != "chunk"}
    return {**config, "trainer": trainer}


def taken(run: Run, protocol: str, name: str) -> Record:
    """What is kept of a run that has ended; metrics are of the sides that the run is judged by."""
    if run.summary is None:
        raise DataError(f"{run.path}: has no summary.json; expected a run that has ended")
    summary, measured = run.summary, run.summary["metrics"]
    rounds = run.rounds.values()
    return {
        "protocol": protocol,
        "dataset": Path(run.dataset).name,
        "model": run.model,
        "method": name,
        "seed": run.seed,
        "courses": summary["courses"],
        "environment": dict(run.environment),
        "metrics": {f"{name} {view}".strip(): measured[run.headline(view)] for view in ("", *views([run]))},
        "valid": dict(run.metrics(run.chosen_by)),
        "sites": {
            site: {"count": of["count"], "mrr": round(of["mrr"], DIGITS)}
            for site in run.sites
            if (of := run.metrics(run.headline(), site))
        },
        "curve": _curve(run),
        "triples": sum(one.triples for one in rounds),
        "seconds": {name: round(spent, 2) for name, spent in summary["seconds"].items()},
        "bytes": {"up": run.traffic.up_bytes, "down": run.traffic.down_bytes},
        "ranks": ranks_digest(run.path),
        "config": portable(run.config),
    }


def portable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options without the place of data on this machine."""
    data = dict(config["data"])
    if "path" in data:
        data["path"] = Path(data["path"]).name
    return {**config, "data": data}


def _curve(run: Run) -> list[list[float]]:
    """Round, validation MRR, values, bytes sent; where each site keeps its own, the mean of their bests."""
    found = {n: one.mrr for n, one in sorted(run.validations.items()) if isfinite(one.mrr)}
    curve = progress(run) if run.keeps_each else found
    values, sent = run.sent("values"), run.sent("bytes")
    return [[n, round(mrr, DIGITS), values.get(n, 0), sent.get(n, 0)] for n, mrr in curve.items()]


def ranks_digest(folder: Path) -> str:
    """Of every site's ranks of test triples: two runs with the same digest rank everything alike."""
    digest = blake2b(digest_size=16)
    for path in sorted((folder / "sites").glob(f"*/{RANKS}")):
        digest.update(path.parent.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def numbered(path: Path, torn: bool) -> Iterator[tuple[int, Record]]:
    """The number and record of each line; with `torn`, an unfinished last line is left out."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = _parsed(line)
        except (ValueError, RecursionError) as error:
            if torn and number == len(lines):
                break
            raise DataError(f"{path}, line {number}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(
                f"{path}, line {number}: expected an object, found {line[:40].decode(errors='replace')}"
            )
        if missing := [part for part in NEEDED if part not in record]:
            raise DataError(f"{path}, line {number}: no record of a run: {missing[0]} is missing")
        yield number, record


def _parsed(line: bytes) -> Any:
    def no_number(word: str) -> float:
        raise ValueError(f"{word} is no number")

    return json.loads(line.decode("utf-8"), parse_constant=no_number)


def read_lines(path: Path) -> dict[str, Record]:
    """The records of a file, by place; an unfinished last line is left out."""
    return {place_of(record): record for _, record in numbered(path, torn=True)} if path.is_file() else {}


def read_records(root: Path) -> dict[str, Record]:
    """All that the checkout has."""
    found: dict[str, Record] = {}
    for path in sorted((root / FOLDER).glob("*.jsonl")):
        found |= read_lines(path)
    return found


def append(path: Path, record: Mapping[str, Any]) -> None:
    """One more line, which is there even if the process is killed next; a torn last line is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    *_, last = content.split(b"\n")
    torn = bool(last) and not _is_json(last)
    if torn:
        os.truncate(path, len(content) - len(last))
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * (bool(last) and not torn) + json_text(record) + "\n")


def _is_json(line: bytes) -> bool:
    try:
        _parsed(line)
    except (ValueError, RecursionError):
        return False
    return True


def write_records(root: Path, records: Iterable[Record]) -> None:
    """Add to what the checkout has; a record replaces the one of the same place."""
    by_file: dict[Path, list[Record]] = {}
    for record in records:
        by_file.setdefault(root / FOLDER / file_of(record), []).append(record)
    texts = {}
    for path, given in by_file.items():
        found = read_lines(path) | {place_of(record): record for record in given}
        texts[path] = "".join(json_text(found[place]) + "\n" for place in sorted(found))
    publish_all(texts)


def publish(path: Path, text: str) -> None:
    """Write a file for everybody, whole or not at all."""
    publish_all({path: text})


def publish_all(texts: Mapping[Path, str]) -> None:
    """Write files for everybody: none of them is replaced before all are on the disk."""
    drafts = {path: path.with_name(f".{path.name}.part") for path in texts}
    try:
        for path, draft in drafts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(texts[path], encoding="utf-8")
    except OSError:
        for draft in drafts.values():
            with suppress(OSError):
                draft.unlink()
        raise
    for path, draft in drafts.items():
        draft.replace(path)


def file_of(record: Mapping[str, Any]) -> str:
    """One file for each protocol, data set and model."""
    return f"{record['protocol']}-{record['dataset']}-{record['model']}.jsonl"
