"""Read run folders, given one by one or as folders that hold them, with the journals of their nodes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import Any

from fedkge.config import read_toml
from fedkge.errors import ConfigError, DataError
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL
from fedkge.reports.folders.before import Kind
from fedkge.reports.folders.options import without_places
from fedkge.reports.folders.run import SIDES, Run
from fedkge.reports.folders.story import Story, number

CONFIG = "config.toml"  #: what makes a folder a run


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """Every run once, in the order given; a folder that is no run stands for all runs below it."""
    paths = list(paths)
    if not paths:
        raise DataError("no run folder given; expected at least one, as `fedkge run` makes")
    folders: dict[Path, Path] = {}
    for path in paths:
        for folder in find_runs(path):
            if folder.resolve() in folders:
                raise DataError(f"{folder}: given twice; a run is compared with others, not with itself")
            folders[folder.resolve()] = folder
    runs = [_load(folder) for folder in folders.values()]
    configs = without_places([run.config for run in runs])
    return [
        replace(run, config=config, written=run.config) for run, config in zip(runs, configs, strict=True)
    ]


def find_runs(path: Path) -> list[Path]:
    """The folder itself if it is a run, else all runs below it: `seed-2` before `seed-10`."""
    found = sorted(_below(path), key=lambda folder: _natural(str(folder)))
    if not found:
        raise DataError(
            f"{path}: not a run folder; expected one with config.toml, as `fedkge run` makes, "
            "or a folder of such"
        )
    return found


def _below(path: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(path):
        if CONFIG in files:
            inner.clear()  # a run holds tables and checkpoints, no other runs
            yield Path(folder)


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in names by size."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def load_run(path: Path) -> Run:
    """One run by itself."""
    return load_runs([path])[0]


def _load(path: Path) -> Run:
    """Read `config.toml`, `run.jsonl` and, if the run has ended, `summary.json`."""
    if not (path / CONFIG).is_file():
        raise DataError(f"{path}: not a run folder; expected one with config.toml, as `fedkge run` makes")
    config, summary = _config(path / CONFIG), _summary(path / "summary.json")
    journal = path / RUN
    story = Story()
    for event in () if _peer(config) else events(path):
        try:
            story.tell(event)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{journal}: a {event.get('event')!r} event that cannot be read ({error!r}); "
                "expected the events that `fedkge run` writes"
            ) from None
    return Run(
        path=path.resolve(),
        config=config,
        summary=summary,
        sites=list(summary["sites"]) if summary else story.sites or _peer(config),
        environment=(summary or {}).get("environment") or story.environment,
        kind=Kind.PEERS if _peer(config) else story.kind or _kind(story, summary),
        started=story.started,
        resumed=story.resumed,
        rounds=story.rounds,
        validations=story.validations,
        links=list(story.links.values()),
        before=story.before,
        over=story.over,
    )


def _peer(config: Mapping[str, Any]) -> list[str]:
    """The peer that a folder is of, where it is one's own on a network and not a run of several."""
    return [str(config["peer"])] if "peer" in config else []


def _kind(story: Story, summary: dict[str, Any] | None) -> Kind:
    """How sites worked together in a run of an earlier version."""
    return Kind.PEERS if summary and "peers" in summary else story.kind_of_rounds()


def _config(path: Path) -> dict[str, Any]:
    try:
        config = read_toml(path)
    except ConfigError as error:
        raise DataError(f"{error}; expected the config.toml of a run") from None
    sides = config.get("evaluate", {}).get("sides", "both")
    if sides not in SIDES:
        raise DataError(f"{path}: evaluate.sides is {sides!r}; expected one of {', '.join(SIDES)}")
    for key in ("model.name", "method.name", "data", "seed"):
        found: Any = config
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            raise DataError(f"{path}: {key} is missing; expected a complete config.toml, as a run writes it")
    return config


def _summary(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}; expected the summary that a run writes") from None
    try:
        number(summary["metrics"]["test"]["mrr"])
        for site in summary["sites"].values():
            counts = [*(site["triples"][split] for split in ("train", "valid", "test"))]
            sum([*counts, site["entities"], site["relations"], number(site["metrics"]["test"]["mrr"])])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error!r}); expected metrics.test.mrr, and for each site its triples, "
            "entities, relations and metrics, as a run writes them"
        ) from None
    return dict(summary)


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
