"""What a site learns of a row that it shares with exactly one other: it takes its own out of the mean.

With the hub's mean `m = w E_a + (1 - w) E_b`, site a knows `E_b = (m - w E_a) / (1 - w)`: what b trained, to
rounding. The run's first rounds are played again, so that the messages are those of the run itself, whatever
its method, selection and codec; the attacker reads nothing but its own messages. It is taken to know w: who
took part, and how the hub weighs. Where training adds noise, which nobody can draw again, the messages are
those of another run like it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from fedkge.audits.base import ATTACKS, Attack, Curves, Row, Watching, interval, unwatched
from fedkge.audits.roc import Numbers, median, proportion
from fedkge.audits.targets import Target
from fedkge.audits.transcript import Transcript
from fedkge.errors import ConfigError, DataWarning
from fedkge.exchange.codec import CODECS, Codec
from fedkge.exchange.rows import HUB, Message, Rows, Update
from fedkge.graphs.graph import Axis
from fedkge.methods import Pair
from fedkge.nodes.base import Event
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.simulate import Simulated

NEAR = 0.01  #: a row counts as recovered when it is wrong by at most this part of its norm
TINY = 1e-30  #: the least norm that errors are divided by
SMALL = 1e-3  #: a part of an answer that need not be taken off: rows are wrong by about as much with it
THINGS = {"entity": "entities", "relation": "relations"}


@ATTACKS.register("pairs")
@dataclass(frozen=True)
class Pairs(Attack):
    """Every site takes its own rows out of the answers that it gets in the run's first rounds.

    What it finds is compared with what the other site had. Nothing is tried where the hub does not average.
    """

    rounds: int = 1  #: how many rounds of the exchange are played again
    codec: tuple[str, ...] = ()  #: codecs to try besides the run's own, as in int8,ternary

    title = "Rows of others, computed from the hub's means"
    caption = (
        "Recovered: wrong by at most 1 % of the row's norm (Wilson interval). Own row instead: the error of "
        "taking one's own row for the other's, which needs no attack."
    )

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"rounds: expected at least 1, got {self.rounds}")

    def run(self, targets: Sequence[Target], watch: Watching = unwatched) -> list[Row]:
        return [
            row
            for target in targets
            if target.experiment.method.averages
            for codec in (target.experiment.codec, *(CODECS[name]() for name in self.codec))
            for row in self._against(target, codec, watch(f"{target.name}, {CODECS.name_of(codec)}"))
        ]

    def _against(self, target: Target, codec: Codec, watch: Watch) -> Iterator[Row]:
        # The answer to a round comes with the next question, or with a validation: there is none here.
        total = max(self.rounds + 1, target.experiment.rounds)
        evaluate = replace(target.experiment.evaluate, every=total, patience=0)
        experiment = replace(target.experiment, rounds=total, evaluate=evaluate, codec=codec)
        with TemporaryDirectory() as home, warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the run has said them
            folder = RunFolder.create(Path(home) / "replay", experiment, resume=False)
            replay = Replay(experiment, target.sources, folder, self.rounds, watch)
            replay.play()
        about = {"run": target.name, "codec": CODECS.name_of(experiment.coding), "rounds": self.rounds}
        about["noisy"] = experiment.privacy.noisy
        for axis in experiment.method.shares:
            names = len(replay.transcript.twice(axis))
            yield {**about, "axis": str(axis), "names": names} | judged(*replay.found(axis))

    def words(self, rows: Sequence[Row]) -> str:
        lines = list(dict.fromkeys(map(_said, rows)))
        if not lines:
            return "By the method's word, its hub does not answer with means: there is nothing to subtract."
        if noisy := list(dict.fromkeys(row["run"] for row in rows if row["noisy"])):
            lines.append(
                f"The replay of {', '.join(noisy)} drew noise and samples of its own: its messages are not "
                "those of the run. These numbers are computed from what the replayed rounds would have "
                "released. So the sites' accounts were charged for these rounds; the run's ledger was not."
            )
        return "\n".join(lines)

    def shown(self, row: Row) -> Row:
        return {
            "run": row["run"],
            "codec": row["codec"],
            "of two sites": f"{row['names']:,} {THINGS[row['axis']]}",
            "rows read": row["rows"],
            "recovered": interval(row, "recovered"),
            "median error": interval(row, "error", ".2g"),
            "own row instead": interval(row, "guess", ".2g"),
            "own part of the mean": f"{row['own_part']:.2g}" if "own_part" in row else None,
        }

    def plots(self, rows: Sequence[Row]) -> list[Curves]:
        read = [row for row in rows if row["rows"]]
        lines = [(f"{r['codec']}, {r['run']}", [(max(x, 1e-9), y) for x, y in r["curve"]]) for r in read]
        axes = "relative error of the row that was computed", "share of rows"
        hover = "%{y:.0%} of rows are wrong by at most %{x:.3g}"
        return [Curves("Rows of others, computed from means", *axes, hover, lines)] if lines else []


def judged(part: Numbers, error: Numbers, guess: Numbers) -> Row:
    """Of n rows that sites computed, how wrong they are, and what the attacker needed for it.

    `part` is how much of the answer was the attacker's own row, `error` is |estimate - row| / |row|, and
    `guess` is the same of its own row, which it had to begin with.
    """
    if not len(error):
        return {"rows": 0}
    shares = np.linspace(0, 1, 41)
    return (
        {"rows": len(error)}
        | proportion(int((error <= NEAR).sum()), len(error)).plain("recovered")
        | median(error).plain("error")
        | median(guess).plain("guess")
        | {"own_part": float(part.max())}
        | {"curve": list(zip(np.quantile(error, shares).tolist(), shares.tolist(), strict=True))}
    )


def _said(row: Row) -> str:
    things = THINGS[row["axis"]]
    if not row["names"]:
        return f"{row['run']}: no {things} are at exactly two sites: no row can be computed this way."
    start = f"{row['run']}, {row['codec']}: {row['names']:,} {things} are at exactly two sites, "
    if not row["rows"]:
        return (
            f"{start}but none of those sites was told the other's row in {row['rounds']} "
            f"round{'s' if row['rounds'] > 1 else ''}: try more --rounds."
        )
    return (
        f"{start}and each of the two computes the other's rows with a median error of {row['error']:.2g} of "
        f"their norm; {row['recovered']:.1%} are recovered to 1 %. {_taken_off(row['own_part'])}"
    )


def _taken_off(part: float) -> str:
    """What the attacker has to know of the hub's weights, where its own row is at most this part."""
    if part <= SMALL:
        own = f", but for {part:.1g} of them at most, which is a site's own" if part else ""
        return f"The answers are the other's rows as they are{own}: nothing need be known to read them."
    return (
        f"A site's own row, up to {part:.2g} of an answer, is taken off: the attacker is taken to know how "
        "much, that is how the hub weighs and who took part."
    )


class Replay:
    """The first rounds of a run, played again: what each site makes of its own messages, and the truth.

    The rows that were sent and told are read from the transcript. The hub's events say which of them it has
    used: the attacker is taken to know that. Only the truth is read from the nodes.
    """

    def __init__(
        self,
        experiment: Experiment,
        sources: Sources,
        folder: RunFolder,
        rounds: int,
        watch: Watch = ignored,
    ) -> None:
        self.experiment, self.rounds = experiment, rounds
        self.transcript = Transcript(experiment)
        self.run = Simulated(experiment, sources, folder, torch.device("cpu"), watch=watch, tap=self._hear)
        self.run.record.rounds = rounds
        self.run.hub.setting = replace(self.run.hub.setting, tell=self._happened)
        self._uploads: dict[str, tuple[Update, Update]] = {}  # each site's last, as heard and as it had them
        self._late: dict[str, tuple[Update, Update]] = {}  # of these, what came too late and counts next time
        self._copies: dict[tuple[str, Axis], Copy] = {}
        self._found: list[tuple[Axis, Tensor, Tensor, Tensor]] = []

    def play(self) -> None:
        """Until the answers to the last of the rounds are told, with the questions of the next one."""
        self.run.play(until=lambda round: round > self.rounds)
        self.run.record.write()  # of the last round too

    # What is heard

    def _hear(self, message: Message) -> None:
        """A message is sent, and not yet delivered."""
        update = self.transcript.read(message)
        if message.kind == "upload":
            had = {axis: self._has(message.sender, axis).take(rows.ids) for axis, rows in update.items()}
            self._uploads[message.sender] = update, had
        elif message.sender == HUB:
            self._attack(message.recipient, update)

    def _happened(self, node: str, event: Event) -> None:
        """Something happened at the hub: follow which uploads it has aggregated."""
        if event["event"] != "aligned":  # the run has said how many rows are exposed
            self.run.record.hear(node, event)
        if event["event"] == "late" and event["used"]:
            self._late[event["site"]] = self._uploads[event["site"]]
        if event["event"] == "round" and not event["void"]:
            in_time = {site: self._uploads[site] for site in event["participants"]}
            for site, (update, had) in {**self._late, **in_time}.items():
                for axis, rows in update.items():
                    self._copy(site, axis).take_in(rows, had[axis], event["round"])
            self._late = {}

    def _copy(self, site: str, axis: Axis) -> Copy:
        if (site, axis) not in self._copies:
            self._copies[site, axis] = Copy.none(self._has(site, axis))
        return self._copies[site, axis]

    def _has(self, site: str, axis: Axis) -> Rows:
        """The truth: what a site has of the rows that it shares, as numbered in the transcript."""
        return Rows(self.transcript.wires[site].shared[axis], self.run.sites[site].site.read(axis).values)

    # What a site makes of its messages

    def _attack(self, name: str, told: Update) -> None:
        """For each other site whose rows are in the answer: `(answer - part own) / (1 - part)`."""
        wires = self.transcript.wires
        for axis, rows in told.items():
            guess, two = self._has(name, axis), self.transcript.twice(axis)
            for victim in sorted(wires.keys() - {name}):
                ids = _common(two, rows.ids, wires[victim].shared[axis])
                own, other = (self._copy(site, axis)[ids] for site in (name, victim))
                pair = Pair(axis, name, victim, own.round, other.round)
                part = self.experiment.method.own_part(self.run.hub.hub, pair)
                learnt = (other.round > 0) & (part < 1)
                w = part[learnt, None]
                answer, mine, row = (
                    values[learnt].double() for values in (rows.take(ids).values, own.values, other.had)
                )
                found = (answer - w * mine) / (1 - w)
                size = row.norm(dim=1).clamp_min(TINY)
                errors = ((one - row).norm(dim=1) / size for one in (found, guess.take(ids).values[learnt]))
                self._found.append((axis, part[learnt], *errors))

    def found(self, axis: Axis) -> tuple[Numbers, Numbers, Numbers]:
        """The attackers' own parts of answers, the relative errors of rows found, and of own rows instead."""
        found = [one[1:] for one in self._found if one[0] is axis]
        empty = torch.empty(0, dtype=torch.float64)
        part, error, guess = (torch.cat([empty, *(one[i] for one in found)]).numpy() for i in range(3))
        return part, error, guess


@dataclass(frozen=True, slots=True)
class Copy:
    """What the hub last took in of each row that a site announced."""

    ids: Tensor  # int64 [n], strictly increasing
    values: Tensor  # [n, width], as decoded, which their sender knows
    had: Tensor  # [n, width], as the site had them
    round: Tensor  # int64 [n], when it was; 0: never

    @classmethod
    def none(cls, rows: Rows) -> Copy:
        zeros = torch.zeros_like(rows.values)
        return cls(rows.ids, zeros, zeros.clone(), torch.zeros_like(rows.ids))

    def take_in(self, rows: Rows, had: Rows, round: int) -> None:
        at = torch.searchsorted(self.ids, rows.ids)
        self.values[at], self.had[at], self.round[at] = rows.values, had.values, round

    def __getitem__(self, ids: Tensor) -> Copy:
        at = torch.searchsorted(self.ids, ids)
        return Copy(ids, self.values[at], self.had[at], self.round[at])


def _common(first: Tensor, *rest: Tensor) -> Tensor:
    """The ids that stand in all."""
    for ids in rest:
        first = first[torch.isin(first, ids)]
    return first
