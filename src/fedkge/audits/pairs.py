"""What a site learns of a row that it shares with exactly one other: it subtracts its own from the mean.

With the hub's mean `m = (E_a + E_b) / 2`, site a knows `E_b = 2 m - E_a`: what b trained, to rounding.
The run's first rounds are played again, so that the letters are those of the run itself, whatever its method,
selection and codec; the attacker reads nothing but its own letters. Where training adds noise, which nobody
can draw again, they are those of another run like it.
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
from fedkge.exchange.rows import Envelope, Memory, Rows, Update
from fedkge.graphs.graph import Axis, Federation
from fedkge.parties import SiteParty
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.federated import Federated, Simulation
from fedkge.runtimes.folder import RunFolder
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
            | {"curve": list(zip(np.quantile(self.error, shares).tolist(), shares.tolist(), strict=True))}
        )


def reconstruct(target: Target, rounds: int, codec: str | None = None) -> list[Reconstruction]:
    """What sites learn in the first `rounds` rounds of a run, with its own codec or with another.

    Nothing where the hub does not average.
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
    return [
        Reconstruction(
            *of, axis, rounds, len(replay.two[axis]), experiment.privacy.noisy, *replay.errors(axis)
        )
        for axis in method.shares
    ]


def noise_note(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """What to say where a replay has trained on confidential statements once more, with noise."""
    noisy = list(dict.fromkeys(row["run"] for row in rows if row["noisy"]))
    if not noisy:
        return None
    return (
        f"The replay of {', '.join(noisy)} drew noise and samples of its own: its letters are not those of "
        "the run. The run's ledger was not charged, as no row left this machine; these numbers are computed "
        "from what the replayed rounds would have released: publishing them costs that once more."
    )


class Replay(Federated):
    """A federation in which every site reads its letters as an attacker would."""

    def __init__(
        self,
        experiment: Experiment,
        federation: Federation,
        folder: RunFolder,
        rounds: int,
        named: Federation | None = None,
    ) -> None:
        self._last = rounds
        self._had: dict[str, Update] = {}  # site -> its rows when it published
        self._sent: dict[
            str, dict[Axis, Rows]
        ] = {}  # the same as the hub decoded them, which their sender knows
        self._found: list[tuple[Axis, Tensor, Tensor]] = []
        super().__init__(experiment, federation, folder, torch.device("cpu"), Simulation(), named)
        shares = experiment.method.shares
        announced = {axis: [party.announced[axis] for party in self.sites.values()] for axis in shares}
        self.two = {axis: _twice(torch.cat(ids)) for axis, ids in announced.items()}

    def _site(self, stack: Stack, name: str) -> SiteParty:
        party = super()._site(stack, name)
        party.line = Tapped(party.line, partial(self._attack, name))
        return party

    def _deliver(self, letter: Envelope) -> list[Envelope]:
        lines = self.hub.lines
        if letter.kind == "upload" and not isinstance(lines[letter.sender], Tapped):
            lines[letter.sender] = Tapped(lines[letter.sender], partial(self._note_upload, letter.sender))
        return super()._deliver(letter)

    def _turn(self, questions: Sequence[Envelope]) -> list[Envelope]:
        if questions[0].round > self._last:
            for letter in questions:
                self.sites[letter.recipient].begin(letter)
            self.hub.phase = "done"
            return []
        answers = super()._turn(questions)
        asked = [letter.recipient for letter in questions]
        axes = self.experiment.method.shares
        self._had = {name: {axis: self.sites[name].site.read(axis) for axis in axes} for name in asked}
        self._sent = {}
        return answers

    def _note_upload(self, name: str, update: Update) -> None:
        """By the ids of the sites: the hub has numbers of its own, in the same order."""
        numbered = self.hub.hub.ids[name]
        self._sent[name] = {}
        for axis, rows in update.items():
            at = torch.searchsorted(numbered[axis], rows.ids)
            self._sent[name][axis] = Rows(self.sites[name].announced[axis][at], rows.values)

    def _attack(self, name: str, told: Update) -> None:
        """For each other site whose rows are in the answer: `2 m - own`, or a mean of one other as it is."""
        for axis, rows in told.items():
            for victim in self._sent.keys() - {name}:
                ids = _common(self.two[axis], rows.ids, self._sent[victim][axis].ids)
                if rows.support is None:
                    own = self._sent[name][axis] if name in self._sent else rows[rows.ids < 0]
                    ids = _common(ids, own.ids)
                    found = 2 * rows.take(ids).values - own.take(ids).values
                else:
                    found = rows.take(ids).values
                row, had = (self._had[site][axis].take(ids).values for site in (victim, name))
                size = row.norm(dim=1).clamp_min(TINY)
                self._found.append((axis, (found - row).norm(dim=1) / size, (had - row).norm(dim=1) / size))

    def errors(self, axis: Axis) -> tuple[Numbers, Numbers]:
        """Relative errors of the rows found, and of taking one's own row for the other's."""
        parts = [(error, guess) for one, error, guess in self._found if one is axis]
        error, guess = (
            torch.cat([torch.empty(0), *(part[i] for part in parts)]).double().numpy() for i in (0, 1)
        )
        return error, guess


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
