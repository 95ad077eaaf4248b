"""Read a run folder: what was asked, what each round did, and how it ended if it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fedkge.config import read_toml
from fedkge.errors import ConfigError, DataError
from fedkge.runtimes.journal import read_journal

T = TypeVar("T")
Curves: TypeAlias = dict[str, dict[int, float]]  # site -> round -> value


@dataclass(frozen=True)
class Round:
    """One round of one course; a course is what is trained in one go: a site alone, or sites together."""

    seconds: float
    triples: int  #: statements visited, once per side and epoch
    losses: Mapping[str, float]  # site -> mean loss


@dataclass(frozen=True)
class Validation:
    """One look at the validation statements of a course's sites."""

    mrr: float  #: over all sites of the course
    sites: Mapping[str, Mapping[str, float]]  # site -> metrics


@dataclass(frozen=True)
class Run:
    """A run folder's content; `summary` is None as long as the run has not ended."""

    path: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    sites: Sequence[str]
    environment: Mapping[str, Any]
    started: float | None  #: seconds since 1970
    resumed: int  #: how often a course went on from its checkpoint
    rounds: Mapping[str, Mapping[int, Round]]  # course -> round
    validations: Mapping[str, Mapping[int, Validation]]  # course -> round

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def ended(self) -> bool:
        return self.summary is not None

    @property
    def method(self) -> str:
        return str(self.config["method"]["name"])

    @property
    def model(self) -> str:
        return str(self.config["model"]["name"])

    @property
    def dataset(self) -> str:
        data = self.config["data"]
        return str(data.get("name") or data["path"])

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def last_round(self) -> int:
        """The furthest round of any course; 0 before the first has ended."""
        return max((number for course in self.rounds.values() for number in course), default=0)

    @property
    def losses(self) -> Curves:
        """Training loss per site and round."""
        curves: Curves = {}
        for course in self.rounds.values():
            for number in sorted(course):
                for site, loss in course[number].losses.items():
                    curves.setdefault(site, {})[number] = loss
        return curves

    def validation(self, metric: str = "mrr") -> Curves:
        """A validation metric per site and round, where the site had any questions."""
        curves: Curves = {}
        for course in self.validations.values():
            for number in sorted(course):
                for site, metrics in course[number].sites.items():
                    if isfinite(metrics[metric]):
                        curves.setdefault(site, {})[number] = metrics[metric]
        return curves

    @property
    def kept(self) -> dict[str, int]:
        """The round whose tables each site keeps: the first with the best validation of its course."""
        return {
            site: max(sorted(course), key=lambda number: course[number].mrr)
            for course in self.validations.values()
            for validation in course.values()
            for site in validation.sites
        }

    def metrics(self, split: str, site: str | None = None) -> Mapping[str, float]:
        """Metrics of one site or of all; without those that are not known (yet), or no number."""
        of = self.summary or {}
        if site is not None:
            of = of.get("sites", {}).get(site, {})
        found = of.get("metrics", {}).get(split, {})
        return {name: value for name, value in found.items() if isfinite(value)}


def load_runs(paths: Iterable[Path]) -> list[Run]:
    """Every run folder once, in the order given."""
    paths = list(paths)
    if not paths:
        raise DataError("no run folder given; expected at least one, as `fedkge run` makes")
    resolved = [path.resolve() for path in paths]
    for i, path in enumerate(resolved):
        if path in resolved[:i]:
            raise DataError(f"{paths[i]}: given twice; a run is compared with others, not with itself")
    return [load_run(path) for path in paths]


def load_run(path: Path) -> Run:
    """Read `config.toml`, `run.jsonl` and, if the run has ended, `summary.json`."""
    if not (path / "config.toml").is_file():
        raise DataError(f"{path}: not a run folder; expected one with config.toml, as `fedkge run` makes")
    config, summary = _config(path / "config.toml"), _summary(path / "summary.json")
    journal = path / "run.jsonl"
    story = _Story()
    for event in read_journal(journal):
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
        sites=list(summary["sites"]) if summary else story.sites,
        environment=(summary or {}).get("environment") or story.environment,
        started=story.started,
        resumed=story.resumed,
        rounds=story.rounds,
        validations=story.validations,
    )


@dataclass
class _Story:
    """The journal's events put together; of a round that was done again only the last time counts."""

    sites: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    started: float | None = None
    resumed: int = 0
    rounds: dict[str, dict[int, Round]] = field(default_factory=dict)
    validations: dict[str, dict[int, Validation]] = field(default_factory=dict)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take the next event; kinds that no table or plot needs are passed over."""
        kinds: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "start": self._start,
            "resumed": self._resumed,
            "round": self._round,
            "evaluate": self._evaluate,
        }
        kind = kinds.get(str(event.get("event")))
        if kind is not None:
            kind(event)

    def _start(self, event: Mapping[str, Any]) -> None:
        self.sites, self.environment = list(event["sites"]), dict(event["environment"])
        if self.started is None:
            self.started = float(event["time"])

    def _resumed(self, event: Mapping[str, Any]) -> None:
        """What the course did after its checkpoint is lost, and will be done again."""
        self.resumed += 1
        course, last = event["course"], int(event["round"])
        self.rounds[course] = _until(last, self.rounds.get(course, {}))
        self.validations[course] = _until(last, self.validations.get(course, {}))

    def _round(self, event: Mapping[str, Any]) -> None:
        losses = {site: float(found["loss"]) for site, found in event["sites"].items()}
        done = Round(float(event["seconds"]), int(event["triples"]), losses)
        self.rounds.setdefault(event["course"], {})[int(event["round"])] = done

    def _evaluate(self, event: Mapping[str, Any]) -> None:
        if event["split"] == "valid":
            found = Validation(
                float(event["mrr"]), {site: dict(metrics) for site, metrics in event["sites"].items()}
            )
            self.validations.setdefault(event["course"], {})[int(event["round"])] = found


def _until(last: int, course: Mapping[int, T]) -> dict[int, T]:
    return {number: done for number, done in course.items() if number <= last}


def _config(path: Path) -> dict[str, Any]:
    try:
        config = read_toml(path)
    except ConfigError as error:
        raise DataError(f"{error}; expected the config.toml of a run") from None
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
        float(summary["metrics"]["test"]["mrr"])
        for site in summary["sites"].values():
            counts = [*(site["triples"][split] for split in ("train", "valid", "test"))]
            sum([*counts, site["entities"], site["relations"], site["metrics"]["test"]["mrr"]])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error!r}); expected metrics.test.mrr, and for each site its triples, "
            "entities, relations and metrics, as a run writes them"
        ) from None
    return dict(summary)
