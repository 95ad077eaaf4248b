"""Where a run is, as its journals say: rounds, metrics, traffic, privacy spent, and who is late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from fedkge.reports.folders.load import CONFIG, RUN

Event: TypeAlias = Mapping[str, Any]
State: TypeAlias = Literal["waits for sites", "trains", "measures", "ended", "failed"]
WAITED, ANSWERED = "is waited for", "has answered"  #: what a site does while a round is open
WAYS = ("up_bytes", "down_bytes")


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Watched:
    """A run, at a moment."""

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
    sites: tuple[SiteNow, ...] = field(default=())

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
    events = list(merge(own, hub, *_of_sites(path), key=_time))
    story = _Story(Watched(str(path), method, model, int(config.get("rounds", 0))))
    for event in events:
        story.hear(event)
    story.count(own)
    story.spend(path, config.get("privacy", {}))
    if (path / RESULT).is_file():  # a site's own folder, at its end
        story.run = replace(story.run, state="ended")
    return story.at(now, max(map(_time, events), default=now))


def _journal(path: Path, **about: str) -> list[Event]:
    return [{**about, **event} for event in read_journal(path)] if path.is_file() else []


def _of_sites(path: Path) -> list[list[Event]]:
    """The journals of sites that are at hand; in a site's own folder its own."""
    files = (*sorted(path.glob(f"sites/*/{JOURNAL}")), *sorted(path.glob(f"*/{JOURNAL}")), path / JOURNAL)
    return [_journal(file, of=file.parent.name) for file in files if file.parent.name != HUB]


def _time(event: Event) -> float:
    time = event.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


class _Story:
    """Hears events in the order of time; `of` is the site that has written one, where a site has."""

    def __init__(self, run: Watched) -> None:
        self.run = run
        self.sites: dict[str, SiteNow] = {}
        self.asked = 0.0  # when the open question was asked

    def _now(self, site: str, **changes: Any) -> None:
        self.sites[site] = replace(self.sites.get(site, SiteNow(site)), **changes)

    def hear(self, event: Event) -> None:
        """Events of kinds that are not known here change nothing."""
        told = getattr(self, f"_hear_{event.get('event')}", None)
        if told is not None:
            told(event, int(event.get("round", 0)))

    def _hear_start(self, event: Event, round: int) -> None:
        self.run = replace(self.run, state="waits for sites", why="")
        for site in event.get("sites", ()):
            self._now(site)

    def _hear_aligned(self, event: Event, round: int) -> None:
        if "of" in event:
            self._now(event["of"])
            return
        found = [
            f"{of['shared']:,} {axis} rows are shared, {of['by_two']:,} of them by exactly two sites"
            for axis, of in event["rows"].items()
        ]
        self.run = replace(self.run, state="trains", notes=tuple(found))

    def _hear_asked(self, event: Event, round: int) -> None:
        self.run = replace(self.run, state="trains" if event["kind"] == "train" else "measures")
        self.asked = _time(event)
        for site in event["sites"]:
            self._now(site, now=WAITED)

    def _hear_answered(self, event: Event, round: int) -> None:
        self._now(event["site"], now=ANSWERED)

    def _hear_trained(self, event: Event, round: int) -> None:
        self._now(event["of"], loss=event.get("loss"), round=round)
        self.run = replace(self.run, state="trains")

    def _hear_round(self, event: Event, round: int) -> None:
        self.run = replace(self.run, state="trains", round=round)
        for site in event.get("participants", ()):
            self._now(site, round=round, now="")
        for site in event.get("late", ()):
            self._now(site, now=f"late in round {round}")
            self._now(site, late=self.sites[site].late + 1)
        for site, why in event.get("refused", {}).items():
            self._now(site, now=why)

    def _hear_evaluate(self, event: Event, round: int) -> None:
        for site, metrics in event.get("sites", {}).items():
            if isinstance(metrics, Mapping) and metrics.get("mrr") is not None:
                self._now(site, mrr=metrics["mrr"])
        for site, one in list(self.sites.items()):
            self._now(site, now="" if one.now == ANSWERED else one.now)
        mrr = event.get("mrr")
        if mrr is None or isnan(mrr):
            return
        if self.run.best is None or mrr > self.run.best:
            self.run = replace(self.run, best=mrr, best_round=round)
        self.run = replace(self.run, mrr=mrr)

    def _hear_declined(self, event: Event, round: int) -> None:
        self._now(event["site"], now=f"declines: {event.get('why')}")

    def _hear_declines(self, event: Event, round: int) -> None:
        self._now(event["of"], now=f"declines: {event.get('why')}")

    def _hear_turned_down(self, event: Event, round: int) -> None:
        self._now(event["of"], now=f"is not let in: {event.get('why')}")

    def _hear_late(self, event: Event, round: int) -> None:
        self._now(event["site"], now=f"the answer to round {round} came too late")

    def _hear_done(self, event: Event, round: int) -> None:
        self.run = replace(self.run, state="ended")

    _hear_end = _hear_done

    def _hear_failed(self, event: Event, round: int) -> None:
        self.run = replace(self.run, state="failed", why=str(event.get("why", "")))

    def count(self, own: Sequence[Event]) -> None:
        """What was sent, over all rounds; of a round that was played twice the later line counts."""
        rounds = {event["round"]: event["sites"] for event in own if event.get("event") == "traffic"}
        if 1 in rounds:
            rounds.pop(0, None)  # it is part of the first round
        sums: dict[str, Counter[str]] = {}
        for sites in rounds.values():
            for site, of in sites.items():
                sums.setdefault(site, Counter()).update({way: of.get(way, 0) for way in WAYS})
        for site, counted in sums.items():
            self._now(site, **counted)

    def spend(self, path: Path, privacy: Mapping[str, Any]) -> None:
        """What sites have spent, by the ledgers that are at hand."""
        delta = privacy.get("delta")
        if delta is None:
            return
        try:
            spent = costs(run_entries(path), delta, privacy.get("accountant"))
        except FedkgeError as error:
            self.run = replace(self.run, notes=(*self.run.notes, f"privacy spent is not known: {error}"))
            return
        self.run = replace(self.run, delta=delta)
        for cost in spent:
            self._now(cost.site, epsilon=cost.epsilon)

    def at(self, now: float, last: float) -> Watched:
        """The run at this time, when the last event was so long ago."""
        for site, one in list(self.sites.items()):
            waits = f"{WAITED} since {max(0.0, now - self.asked):.0f} s"
            open_ = {WAITED: waits, ANSWERED: ANSWERED} if not self.run.over else {WAITED: "", ANSWERED: ""}
            self._now(site, now=open_.get(one.now, one.now))
        sites = [self.sites[site] for site in sorted(self.sites)]
        losses = [one.loss for one in sites if one.loss is not None]
        return replace(
            self.run,
            round=self.run.round or max((one.round for one in sites), default=0),
            loss=sum(losses) / len(losses) if losses else None,
            up_bytes=sum(one.up_bytes for one in sites),
            down_bytes=sum(one.down_bytes for one in sites),
            quiet=max(0.0, now - last),
            sites=tuple(sites),
        )
