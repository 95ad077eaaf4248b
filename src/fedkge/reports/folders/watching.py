"""Where a run is, as its journals say: rounds, metrics, traffic, privacy spent, and who is late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import merge
from math import isnan
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedkge.config import read_toml
from fedkge.errors import DataError, FedkgeError
from fedkge.exchange.rows import HUB
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL, RESULT, run_entries
from fedkge.privacy import costs
from fedkge.reports.folders.load import CONFIG, RUN, time_of

Event: TypeAlias = Mapping[str, Any]
State: TypeAlias = Literal["waits for sites", "trains", "measures", "ended", "failed"]
WAITED, ANSWERED = "is waited for", "has answered"  #: what a site does while a round is open


@dataclass(slots=True)
class SiteNow:
    """A site, as far as the journals at hand know it."""

    site: str
    round: int = 0  #: the last that it took part in
    late: int = 0  #: rounds that were closed without its answer
    loss: float | None = None  #: of its last training, where its journal is at hand
    mrr: float | None = None  #: of its last validation
    up_bytes: int = 0
    down_bytes: int = 0
    epsilon: float | None = None  #: spent, where its ledger is at hand
    now: str = ""  #: what it is waited for, or why it is not heard


@dataclass(slots=True)
class Watched:
    """A run, at a moment; it changes while events are heard, in the order of time."""

    run: str
    method: str
    model: str
    rounds: int  #: as planned
    state: State = "waits for sites"
    why: str = ""  #: it failed
    round: int = 0  #: the last that was closed
    mrr: float | None = None  #: of the last validation
    best: float | None = None
    best_round: int | None = None
    loss: float | None = None  #: mean over the sites whose journals are at hand
    up_bytes: int = 0
    down_bytes: int = 0
    delta: float | None = None  #: that the sites' ε are meant at
    quiet: float = 0.0  #: seconds since something was last written down
    notes: tuple[str, ...] = ()
    sites: tuple[SiteNow, ...] = ()

    @property
    def over(self) -> bool:
        return self.state in ("ended", "failed")

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def watched(path: Path, now: float) -> Watched:
    """The run, or the node, of a folder; `now` is the time, in seconds since 1970."""
    if not (path / CONFIG).is_file():
        raise DataError(f"{path}: not a run folder; expected one with {CONFIG}, as `fedkge run` makes")
    config = read_toml(path / CONFIG)
    method, model = (str(config.get(part, {}).get("name", "?")) for part in ("method", "model"))
    own, hub = _journal(path / RUN), _journal(path / HUB / JOURNAL)
    # The journals of sites that are at hand; in a site's own folder its own.
    files = (*sorted(path.glob(f"sites/*/{JOURNAL}")), *sorted(path.glob(f"*/{JOURNAL}")), path / JOURNAL)
    sites = [_journal(file, of=file.parent.name) for file in files if file.parent.name != HUB]
    events = list(merge(own, hub, *sites, key=time_of))
    story = _Story(Watched(str(path), method, model, int(config.get("rounds", 0))))
    for event in events:
        story.hear(event)
    story.count(own)
    story.spend(path, config.get("privacy", {}))
    if (path / RESULT).is_file():  # a site's own folder, at its end
        story.run.state = "ended"
    return story.at(now, max(map(time_of, events), default=now))


def _journal(path: Path, **about: str) -> list[Event]:
    return [{**about, **event} for event in read_journal(path)] if path.is_file() else []


class _Story:
    """Hears events in the order of time; `of` is the site that has written one, where a site has."""

    def __init__(self, run: Watched) -> None:
        self.run = run
        self.sites: dict[str, SiteNow] = {}
        self.asked = 0.0  # when the open question was asked

    def site(self, name: str) -> SiteNow:
        return self.sites.setdefault(name, SiteNow(name))

    def hear(self, event: Event) -> None:
        """Events of kinds that are not known here change nothing."""
        run, round, why = self.run, int(event.get("round", 0)), event.get("why")
        match event.get("event"):
            case "start":
                run.state, run.why = "waits for sites", ""
                for name in event.get("sites", ()):
                    self.site(name)
            case "aligned" if "of" in event:
                self.site(event["of"])
            case "aligned":
                run.state = "trains"
                run.notes = tuple(
                    f"{of['shared']:,} {axis} rows are shared, {of['by_two']:,} of them by exactly two sites"
                    for axis, of in event["rows"].items()
                )
            case "asked":
                run.state = "trains" if event["kind"] == "train" else "measures"
                self.asked = time_of(event)
                for name in event["sites"]:
                    self.site(name).now = WAITED
            case "answered":
                self.site(event["site"]).now = ANSWERED
            case "trained":
                run.state = "trains"
                site = self.site(event["of"])
                site.loss, site.round = event.get("loss"), round
            case "round":
                self._close(event, round)
            case "evaluate":
                self._measure(event, round)
            case "declined" | "declines" as kind:
                self.site(event["site" if kind == "declined" else "of"]).now = f"declines: {why}"
            case "turned_down":
                self.site(event["of"]).now = f"is not let in: {why}"
            case "late":
                self.site(event["site"]).now = f"the answer to round {round} came too late"
            case "done" | "end":
                run.state = "ended"
            case "failed":
                run.state, run.why = "failed", str(event.get("why", ""))

    def _close(self, event: Event, round: int) -> None:
        self.run.state, self.run.round = "trains", round
        for site in map(self.site, event.get("participants", ())):
            site.round, site.now = round, ""
        for site in map(self.site, event.get("late", ())):
            site.late, site.now = site.late + 1, f"late in round {round}"
        for name, why in event.get("refused", {}).items():
            self.site(name).now = why

    def _measure(self, event: Event, round: int) -> None:
        for name, metrics in event.get("sites", {}).items():
            if isinstance(metrics, Mapping) and metrics.get("mrr") is not None:
                self.site(name).mrr = metrics["mrr"]
        for site in self.sites.values():
            site.now = "" if site.now == ANSWERED else site.now
        mrr, run = event.get("mrr"), self.run
        if mrr is not None and not isnan(mrr):
            run.mrr = mrr
            if run.best is None or mrr > run.best:
                run.best, run.best_round = mrr, round

    def count(self, own: Sequence[Event]) -> None:
        """What was sent, over all rounds; of a round that was played twice the later line counts."""
        rounds = {event["round"]: event["sites"] for event in own if event.get("event") == "traffic"}
        if 1 in rounds:
            rounds.pop(0, None)  # it is part of the first round
        for sites in rounds.values():
            for name, of in sites.items():
                site = self.site(name)
                site.up_bytes += of.get("up_bytes", 0)
                site.down_bytes += of.get("down_bytes", 0)

    def spend(self, path: Path, privacy: Mapping[str, Any]) -> None:
        """What sites have spent, by the ledgers that are at hand."""
        delta = privacy.get("delta")
        if delta is None:
            return
        try:
            spent = costs(run_entries(path), delta, privacy.get("accountant"))
        except FedkgeError as error:
            self.run.notes += (f"privacy spent is not known: {error}",)
            return
        self.run.delta = delta
        for cost in spent:
            self.site(cost.site).epsilon = cost.epsilon

    def at(self, now: float, last: float) -> Watched:
        """The run at this time, when the last event was so long ago."""
        run, sites = self.run, [self.sites[name] for name in sorted(self.sites)]
        for site in sites:
            if site.now in (WAITED, ANSWERED) and run.over:
                site.now = ""
            elif site.now == WAITED:
                site.now = f"{WAITED} since {max(0.0, now - self.asked):.0f} s"
        losses = [site.loss for site in sites if site.loss is not None]
        run.round = run.round or max((site.round for site in sites), default=0)
        run.loss = sum(losses) / len(losses) if losses else None
        run.up_bytes = sum(site.up_bytes for site in sites)
        run.down_bytes = sum(site.down_bytes for site in sites)
        run.quiet, run.sites = max(0.0, now - last), tuple(sites)
        return run
