"""What a site learns of a row that it shares with exactly one other: it takes its own out of the mean.

With the hub's mean `m = w E_a + (1 - w) E_b`, site a knows `E_b = (m - w E_a) / (1 - w)`: what b trained, to
rounding. The run's first rounds are played again, so that the messages are those of the run itself, whatever
its method, selection and codec; the attacker reads nothing but its own messages. It is taken to know w: who
took part, and how the hub weighs. Where training adds noise, which nobody can draw again, the messages are
those of another run like it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.audits.roc import Numbers, median, share
from fedkge.audits.targets import Target
from fedkge.errors import ConfigError, DataWarning
from fedkge.exchange.codec import CODECS
from fedkge.exchange.line import Line
from fedkge.exchange.rows import Memory, Message, Rows, Update
from fedkge.graphs.graph import Axis, Federation
from fedkge.methods import Pair
from fedkge.parties import SiteParty
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.federated import Federated, Simulation
from fedkge.runtimes.folder import RunFolder
from fedkge.runtimes.record import Watch
from fedkge.runtimes.stack import Stack

NEAR = 0.01  #: a row counts as recovered when it is wrong by at most this part of its norm
TINY = 1e-30  #: the least norm that errors are divided by


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The rows of others that sites computed in some rounds, compared with what those sites had."""

    run: str
    codec: str
    axis: Axis
    rounds: int
    names: int  #: entities (or relations) that exactly two sites have
    noisy: bool  #: whether the replay trained with noise: its own
    part: Numbers  # [n]: how much of the answer was the attacker's own row
    error: Numbers  # [n]: |estimate - row| / |row|
    guess: Numbers  # [n]: |own row - row| / |row|, what the attacker had to begin with

    def plain(self) -> dict[str, Any]:
        row: dict[str, Any] = {"run": self.run, "codec": self.codec, "axis": str(self.axis)}
        row |= {"rounds": self.rounds, "names": self.names, "noisy": self.noisy, "rows": len(self.error)}
        if not len(self.error):
            return row
        recovered = share(int((self.error <= NEAR).sum()), len(self.error))
        shares = np.linspace(0, 1, 41)
        return (
            row
            | recovered.plain("recovered")
            | median(self.error).plain("error")
            | median(self.guess).plain("guess")
            | {"own_part": float(self.part.max())}
            | {"curve": list(zip(np.quantile(self.error, shares).tolist(), shares.tolist(), strict=True))}
        )


def reconstruct(target: Target, rounds: int, codec: str | None = None) -> list[Reconstruction]:
    """What sites learn in the first `rounds` rounds of a run, with its own codec or with another.

    None where the hub does not average.
    """
    if rounds < 1:
        raise ConfigError(f"--rounds: expected at least 1, got {rounds}")
    experiment, method = target.experiment, target.experiment.method
    if not method.averages:
        return []
    if codec is not None:
        experiment = replace(experiment, codec=CODECS[codec]())
    # The answer to a round comes with the next question, or with a validation, of which there is none here.
    total = max(rounds + 1, experiment.rounds)
    evaluate = replace(experiment.evaluate, every=total, patience=0)
    experiment = replace(experiment, rounds=total, evaluate=evaluate)
    with TemporaryDirectory() as home, warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # the run has said them
        federation = experiment.align.apply(target.federation).federation
        replay = Replay(
            experiment,
            federation,
            RunFolder.create(Path(home) / "replay", experiment, False),
            rounds,
            target.federation,
        )
        replay.play(lambda progress: None)
    of = target.name, CODECS.name_of(experiment.coding)
    noisy = experiment.privacy.noisy
    return [
        Reconstruction(*of, axis, rounds, len(replay.two[axis]), noisy, *replay.found(axis))
        for axis in method.shares
    ]


def noise_note(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say where a replay has trained on confidential triples once more, with noise."""
    noisy = list(dict.fromkeys(row["run"] for row in rows if row["noisy"]))
    if not noisy:
        return None
    return (
        f"The replay of {', '.join(noisy)} drew noise and samples of its own: its messages are not those of "
        "the run. The run's ledger was not charged, as no row left this machine; these numbers are computed "
        "from what the replayed rounds would have released: publishing them costs that once more."
    )


class Replay(Federated):
    """A federation in which every site reads its messages as an attacker would."""

    def __init__(
        self,
        experiment: Experiment,
        federation: Federation,
        folder: RunFolder,
        rounds: int,
        named: Federation | None = None,
    ) -> None:
        self._last = rounds
        self._uploads: dict[str, dict[Axis, Sent]] = {}  # that reached the hub, last of each site
        self._late: dict[str, dict[Axis, Sent]] = {}  # of these, what came too late and counts next time
        self._followed = 0  # events of the hub
        self._found: list[tuple[Axis, Tensor, Tensor, Tensor]] = []
        super().__init__(experiment, federation, folder, torch.device("cpu"), Simulation(), named)
        shares = experiment.method.shares
        announced = {axis: [party.announced[axis] for party in self.sites.values()] for axis in shares}
        self.two = {axis: _twice(torch.cat(ids)) for axis, ids in announced.items()}
        self._copies = {
            name: {axis: Copy.none(party.site.read(axis)) for axis in shares}
            for name, party in self.sites.items()
        }

    def _site(self, stack: Stack, name: str) -> SiteParty:
        party = super()._site(stack, name)
        party.line = Tapped(party.line, partial(self._attack, name))
        return party

    def _deliver(self, message: Message) -> list[Message]:
        lines = self.hub.lines
        if message.kind == "upload" and not isinstance(lines[message.sender], Tapped):
            lines[message.sender] = Tapped(lines[message.sender], partial(self._note_upload, message.sender))
        return super()._deliver(message)

    def _turn(self, questions: Sequence[Message]) -> list[Message]:
        if questions[0].round > self._last:
            for message in questions:
                self.sites[message.recipient].begin(message)
            self.hub.phase = "done"
            return []
        return super()._turn(questions)

    def _between_rounds(self, mail: Sequence[Message], watch: Watch) -> None:
        self._follow()
        super()._between_rounds(mail, watch)
        self._followed = 0

    # What the hub has of every site

    def _note_upload(self, name: str, update: Update) -> None:
        """Before its site trains again. The hub has ids of its own, in the same order."""
        self._uploads[name] = {}
        for axis, rows in update.items():
            at = torch.searchsorted(self.hub.hub.ids[name][axis], rows.ids)
            had = self.sites[name].site.read(axis).values[at]
            self._uploads[name][axis] = Sent(at, rows.values, had)

    def _follow(self) -> None:
        """Which uploads have been combined, by what the hub says happened."""
        for event in self.hub.events[self._followed :]:
            if event["event"] == "late" and event["used"]:
                self._late[event["site"]] = self._uploads[event["site"]]
            if event["event"] == "round" and not event["void"]:
                in_time = {name: self._uploads[name] for name in event["participants"]}
                for name, update in {**self._late, **in_time}.items():
                    for axis, sent in update.items():
                        self._copies[name][axis].take_in(sent, event["round"])
                self._late = {}
        self._followed = len(self.hub.events)

    # What a site makes of its messages

    def _attack(self, name: str, told: Update) -> None:
        """For each other site whose rows are in the answer: `(answer - part own) / (1 - part)`."""
        self._follow()
        for axis, rows in told.items():
            guess = self.sites[name].site.read(axis)
            for victim in sorted(self.sites.keys() - {name}):
                ids = _common(self.two[axis], rows.ids, self.sites[victim].announced[axis])
                own, other = (self._copies[site][axis][ids] for site in (name, victim))
                pair = Pair(axis, name, victim, own.round, other.round)
                part = self.experiment.method.own_part(self.hub.hub, pair)
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
class Sent:
    """Rows of an upload: where they are among those that the site announced."""

    at: Tensor  # int64 [n]
    values: Tensor  # [n, width], as the hub decoded them, which their sender knows
    had: Tensor  # [n, width], as the site had them


@dataclass(frozen=True, slots=True)
class Copy:
    """What the hub last took in of each row that a site announced."""

    ids: Tensor  # int64 [n], strictly increasing
    values: Tensor  # [n, width], as decoded
    had: Tensor  # [n, width], as the site had them
    round: Tensor  # int64 [n], when it was; 0: never

    @classmethod
    def none(cls, rows: Rows) -> Copy:
        zeros = torch.zeros_like(rows.values)
        return cls(rows.ids, zeros, zeros.clone(), torch.zeros_like(rows.ids))

    def take_in(self, sent: Sent, round: int) -> None:
        self.values[sent.at], self.had[sent.at], self.round[sent.at] = sent.values, sent.had, round

    def __getitem__(self, ids: Tensor) -> Copy:
        at = torch.searchsorted(self.ids, ids)
        return Copy(ids, self.values[at], self.had[at], self.round[at])


class Tapped(Line):
    """A line that tells what it decodes."""

    def __init__(self, line: Line, heard: Callable[[Update], None]) -> None:
        self.line, self.heard = line, heard

    def encode(self, update: Update, turn: int) -> dict[str, Tensor]:
        return self.line.encode(update, turn)

    def decode(self, body: Mapping[str, Tensor], turn: int) -> Update:
        update = self.line.decode(body, turn)
        self.heard(update)
        return update

    def settle(self, accepted: bool) -> None:
        self.line.settle(accepted)

    def answered(self, turn: int) -> None:
        self.line.answered(turn)

    def memory(self) -> Memory:
        return self.line.memory()

    def load(self, memory: Mapping[str, Tensor]) -> None:
        self.line.load(memory)


def _twice(ids: Tensor) -> Tensor:
    """The ids that stand there exactly twice, ascending."""
    different, counts = ids.unique(return_counts=True)
    return different[counts == 2]


def _common(first: Tensor, *rest: Tensor) -> Tensor:
    """The ids that stand in all."""
    for ids in rest:
        first = first[torch.isin(first, ids)]
    return first
