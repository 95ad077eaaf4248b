"""Read run folders, one by one or below a folder; the events of their journals put together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import merge
from math import nan
from pathlib import Path
from typing import Any

from fedkge.config import read_toml
from fedkge.errors import ConfigError, DataError
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL
from fedkge.reports.folders.options import without_places
from fedkge.reports.folders.run import SIDES, Before, Between, Kind, Round, Run, Traffic, Validation

CONFIG = "config.toml"  #: what makes a folder a run
RUN = "run.jsonl"  #: what the runtime wrote: when it started, what was carried, how it ended
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)  #: how content of another form fails


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """Every run once, in the order given; a folder that is no run stands for all runs below it."""
    folders: dict[Path, Path] = {}
    for folder in (folder for path in paths for folder in find_runs(path)):
        if folder.resolve() in folders:
            raise DataError(f"{folder}: given twice; a run is compared with others, not with itself")
        folders[folder.resolve()] = folder
    if not folders:
        raise DataError("no run folder given; expected at least one, as `fedkge run` makes")
    runs = [_load(folder) for folder in folders.values()]
    configs = without_places([run.config for run in runs])
    return [
        replace(run, config=config, written=run.config) for run, config in zip(runs, configs, strict=True)
    ]


def load_run(path: Path) -> Run:
    """One run by itself."""
    return load_runs([path])[0]


def find_runs(path: Path) -> list[Path]:
    """The folder itself if it is a run, else all runs below it: `seed-2` before `seed-10`."""
    found = []
    for folder, inner, files in os.walk(path):
        if CONFIG in files:
            inner.clear()  # a run holds tables and checkpoints, no other runs
            found.append(Path(folder))
    if not found:
        raise DataError(
            f"{path}: not a run folder; expected one with config.toml, as `fedkge run` makes, "
            "or a folder of such"
        )

    def natural(folder: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", str(folder))
        return [(int(part), "") if part.isdigit() else (0, part) for part in parts]

    return sorted(found, key=natural)


def _load(path: Path) -> Run:
    """Read `config.toml`, the journals and, if the run has ended, `summary.json`."""
    config, summary = _config(path / CONFIG), _summary(path / "summary.json")
    story = Story()
    if "peer" in config:  # a peer's own folder on a network, not a run of several
        story.sites, story.kind = [str(config["peer"])], Kind.PEERS
    for event in () if "peer" in config else events(path):
        try:
            story.tell(event)
        except UNREADABLE as error:
            raise DataError(
                f"{path / RUN}: a {event.get('event')!r} event that cannot be read ({error!r}); "
                "expected the events that `fedkge run` writes"
            ) from None
    if summary is not None:
        story.sites = list(summary["sites"])
        story.environment = summary.get("environment") or story.environment
    return Run(path=path.resolve(), config=config, summary=summary, **vars(story))


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
    except UNREADABLE as error:
        raise DataError(
            f"{path}: cannot be read ({error!r}); expected metrics.test.mrr, and for each site its triples, "
            "entities, relations and metrics, as a run writes them"
        ) from None
    return dict(summary)


def events(run: Path) -> Iterator[dict[str, Any]]:
    """In the order of time; events of one journal stay in its order.

    A round has what was sent in it, and what the sites at hand noted of their training.
    """
    own, hub = list(read_journal(run / RUN)), run / "hub" / JOURNAL
    sent = {event.get("round"): event for event in own if event.get("event") == "traffic"}
    trained: dict[int | None, dict[str, Any]] = {}  # round -> site -> what it noted last
    for journal in (*sorted(run.glob(f"*/{JOURNAL}")), *sorted(run.glob(f"sites/*/{JOURNAL}"))):
        for event in read_journal(journal):
            if event.get("event") == "trained":
                trained.setdefault(event.get("round"), {})[journal.parent.name] = event
    told = (
        _whole(event, sent.get(event.get("round"), {}), trained.get(event.get("round"), {}))
        if event.get("event") == "round"
        else event
        for event in (read_journal(hub) if hub.is_file() else ())
    )
    yield from merge(own, told, key=time_of)


def time_of(event: Mapping[str, Any]) -> float:
    """Seconds since 1970, for an order; 0 where an event has none."""
    time = event.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _whole(event: dict[str, Any], sent: dict[str, Any], trained: dict[str, Any]) -> dict[str, Any]:
    sites = {site: {"loss": one["loss"]} for site, one in trained.items() if "loss" in one}
    for site, sums in sent.get("sites", {}).items():
        sites[site] = {**sites.get(site, {}), **sums}
    totals = {name: sum(one.get(name, 0) for one in trained.values()) for name in ("seconds", "triples")}
    own = ("event", "time", "round", "seconds", "sites")
    rest = {name: value for name, value in sent.items() if name not in own}
    return {**rest, **event, **totals, "sites": sites}


@dataclass
class Story:
    """What the events so far have told, by the names that a `Run` has for it."""

    sites: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    kind: Kind = Kind.HUB
    started: float | None = None
    resumed: int = 0
    rounds: dict[int, Round] = field(default_factory=dict)
    validations: dict[int, Validation] = field(default_factory=dict)
    links: dict[str, dict[str, Any]] = field(default_factory=dict)
    before: Before | None = None
    over: bool = False

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take the next event; kinds that no table or plot needs are passed over."""
        match event.get("event"):
            case "start":
                self.over, self.kind = False, Kind(event["kind"])
                self.sites, self.environment = list(event["sites"]), dict(event["environment"])
                self.started = float(event["time"]) if self.started is None else self.started
            case "links":
                counts = ("given", "used", "left_out", "within_site", "unmatched")
                self.links[str(event["axis"])] = {"axis": event["axis"], "examples": event["examples"]} | {
                    name: int(event[name]) for name in counts
                }
            case "warm_start":
                self.before = Before.read(event)
            case "resumed":  # what was done after the checkpoint is lost, and will be done again
                self.resumed += 1
                last = int(event["round"])
                self.rounds = {n: done for n, done in self.rounds.items() if n <= last}
                self.validations = {n: found for n, found in self.validations.items() if n <= last}
            case "round":
                self.rounds[int(event["round"])] = _round(event)
            case "evaluate" if event["split"] == "valid":
                self.validations[int(event["round"])] = _validation(event)
            case "end":
                self.over = True


def _round(event: Mapping[str, Any]) -> Round:
    sites = event["sites"]
    traffic = {site: Traffic.read(found) for site, found in sites.items()}
    return Round(
        seconds=float(event["seconds"]),
        exchange_seconds=float(event.get("exchange_seconds", 0.0)),
        triples=int(event["triples"]),
        losses={site: number(found["loss"]) for site, found in sites.items() if "loss" in found},
        participants=frozenset(event.get("participants", sites)),
        late=frozenset(event.get("late", [])),
        refused=dict(event.get("refused", {})),
        void=bool(event.get("void", False)),
        sites=traffic,
        traffic=Traffic.read(event) if "up_bytes" in event else Traffic.total(traffic.values()),
    )


def _validation(event: Mapping[str, Any]) -> Validation:
    return Validation(
        mrr=number(event["mrr"]),
        sites={site: dict(metrics) for site, metrics in event["sites"].items()},
        views={view: number(mrr) for view, mrr in event.get("views", {}).items()},
        notes={name: _between(found) for name, found in event.get("notes", {}).items()},
        dials={name: _by_site(told, event["sites"]) for name, told in event.get("dials", {}).items()},
    )


def number(value: float | None) -> float:
    """As written down; null, which stands for what is no number, is NaN again."""
    return nan if value is None else float(value)


def _by_site(told: float | Mapping[str, float], sites: Iterable[str]) -> dict[str, float]:
    """What each site is told, where a single number is for all of them."""
    by_site = told if isinstance(told, Mapping) else dict.fromkeys(sites, told)
    return {site: number(value) for site, value in by_site.items()}


def _between(found: Mapping[str, Any]) -> Between:
    sites, values = list(found["sites"]), [[number(value) for value in row] for row in found["values"]]
    if {len(values), *map(len, values)} != {len(sites)}:
        raise ValueError(f"numbers between {len(sites)} sites that are not {len(sites)} rows of as many")
    return Between(sites, values)
