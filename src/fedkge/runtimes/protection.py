"""What a run needs to train on confidential triples: marks that are there, noise, a ledger, secrets."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedkge.errors import ConfigError, DataWarning, MissingPackage
from fedkge.methods import Member
from fedkge.privacy import LEDGER, Ledger, Spending, accounts, whole_ledger
from fedkge.runtimes.experiment import Experiment
from fedkge.runtimes.folder import RunFolder
from fedkge.runtimes.journal import read_journal
from fedkge.training.cadence import Cadence
from fedkge.training.confidential import marked, unmarked
from fedkge.training.private import Protection
from fedkge.training.secret import Secret


class Protected:
    """Who trains in private and how, and what that has cost."""

    def __init__(
        self,
        experiment: Experiment,
        members: Mapping[str, Member],
        folder: RunFolder,
        checkpoint: Mapping[str, Any] | None,
    ) -> None:
        self.privacy, self.experiment = experiment.privacy, experiment
        found = {name: marked(member.graph, self.privacy) for name, member in members.items()}
        hiding = {name: marks for name, marks in found.items() if marks.any()}
        self.ledger = _ledger(folder, checkpoint, hiding)
        epochs = experiment.rounds * experiment.trainer.epochs
        self.sites: dict[str, Protection] = {}
        multipliers: dict[tuple[float, int], float] = {}
        for name, marks in hiding.items():
            self.privacy.check_triples(name, int(marks.sum()))
            cadence = Cadence.of(experiment.trainer, self.privacy, int(marks.sum()))
            plan = cadence.rate, epochs * cadence.steps
            if plan not in multipliers:  # finding one takes seconds
                multipliers[plan] = self.privacy.multiplier(*plan)
            spending = Spending(self.ledger, name, self.privacy.budget, int(marks.sum()))
            secret = self.secret(name)
            self.sites[name] = Protection(self.privacy, marks, multipliers[plan], cadence, secret, spending)
        self.others = len(self.sites) < len(members)  # some sites have nothing to hide, and never run out

    def secret(self, name: str) -> Secret:
        """A site's, new whenever a run starts or is resumed, and kept nowhere: no noise is drawn twice."""
        return Secret.new()

    def rounds_left(self, done: int) -> int:
        """How many of the planned rounds can still be trained before no site has a step left."""
        planned = self.experiment.rounds - done
        if self.others:
            return planned
        return min(planned, max(self._rounds(name, planned) for name in self.sites))

    def _rounds(self, name: str, planned: int) -> int:
        one = self.sites[name]
        each = one.cadence.steps * self.experiment.trainer.epochs
        left = one.spending.left(one.cadence.release(self.privacy, one.noise, 1), planned * each)
        return -(-left // each)

    def check_budget(self) -> None:
        """An error where not one step fits: there would be nothing to keep."""
        for name, one in self.sites.items():
            if not one.spending.left(one.cadence.release(self.privacy, one.noise, 1), 1):
                spent = self.ledger.count(name)
                raise ConfigError(
                    f"privacy.epsilon: not one {'more ' * bool(spent)}step with noise {one.noise:g} fits "
                    f"{self.privacy.epsilon:g} at delta {self.privacy.delta:g} for site {name!r}, which has "
                    f"taken {spent:,}; take more noise, smaller batches or a larger epsilon, in a new run"
                )

    def plain(self) -> dict[str, Any]:
        """For `summary.json`: what each site has spent, and what the ledger must still have later."""
        return {"privacy": self._accounts(), **self.ledger.seal}

    def _accounts(self) -> list[dict[str, Any]]:
        assert self.privacy.delta is not None, "with noise there is a delta"
        try:
            found = accounts(self.ledger.entries, self.privacy.delta, self.privacy.accountant)
        except MissingPackage as error:
            message = f"{error}; `fedkge privacy RUN` tells epsilon where it is installed"
            warnings.warn(message, DataWarning, stacklevel=2)
            return []
        return [account.plain() for account in found]


def _ledger(folder: RunFolder, checkpoint: Mapping[str, Any] | None, hiding: Container[str]) -> Ledger:
    """What the run has spent so far; an error if checkpoint, summary or journal know of more.

    `hiding` has the members that train with noise.
    """
    summary = folder.summary() if (folder.path / "summary.json").is_file() else None
    ledger = whole_ledger(folder.path / LEDGER, checkpoint, summary)
    journal = folder.journal.path
    for event in read_journal(journal) if journal.is_file() else ():
        if event.get("event") == "round" and any(
            name in hiding and "loss" in own for name, own in event["sites"].items()
        ):
            ledger.check_begun(journal)
            break
    return ledger


def openly(experiment: Experiment, members: Mapping[str, Member]) -> Mapping[str, Member]:
    """What may be trained on: all, unless the mode leaves confidential triples out."""
    if experiment.privacy.mode != "u-only":
        return members
    left = {
        name: replace(member, graph=unmarked(member.graph, experiment.privacy))
        for name, member in members.items()
    }
    for name, member in left.items():
        if not len(member.graph.train):
            raise ConfigError(
                f"privacy.mode: all training triples of site {name!r} are confidential, so that 'u-only' "
                "leaves none to train on"
            )
    return left


def check_marks(experiment: Experiment, members: Mapping[str, Member]) -> None:
    """Marks and mode must go together: said before hours of training, and before anything is released."""
    privacy = experiment.privacy
    counts = {name: int(marked(member.graph, privacy).sum()) for name, member in members.items()}
    if privacy.mode == "off":
        for name, count in counts.items():
            if count:
                warnings.warn(
                    f"site {name!r}: {count:,} confidential triples are trained on like all others "
                    "(privacy.mode is off)",
                    DataWarning,
                    stacklevel=2,
                )
    elif not any(counts.values()):
        raise ConfigError(
            f"privacy.mode: {privacy.mode!r}, but no training triple of any site is confidential; mark "
            "some with `fedkge data mark`, or as in marks = { share = 0.5 }"
        )
    if privacy.strict or privacy.mode == "u-only":
        _check_validation(experiment, members)


def _check_validation(experiment: Experiment, members: Mapping[str, Member]) -> None:
    """Validation triples cannot be marked; those of relations that none has in the open are so too."""
    if experiment.evaluate.every >= experiment.rounds:  # one validation, at the end, that chooses nothing
        return
    for member in members.values():
        for site, view in member.views.items():
            graph = view.graph
            marks = marked(graph, experiment.privacy)
            found = graph.valid[~np.isin(graph.valid[:, 1], graph.train[~marks, 1])]
            if len(found) and marks.any():
                first = graph.relations[int(found[0, 1])]
                raise ConfigError(
                    f"evaluate: {len(found):,} of {len(graph.valid):,} validation triples of {site!r} are "
                    "confidential, as no training triple in the open has their relations (first: "
                    f"{first!r}); choosing a round by them would reveal them past the noise. Leave them out "
                    f"of valid, or have nothing chosen: evaluate.every = {experiment.rounds}, as many as "
                    "there are rounds"
                )
