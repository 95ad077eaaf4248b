"""Unlearning beside what it could be: the same triples forgotten in several ways, measured alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedkge.audits.asked import Questions
from fedkge.audits.standing import standing
from fedkge.errors import ConfigError, suggest
from fedkge.methods.collective import Collective
from fedkge.methods.single import Single
from fedkge.methods.unlearn import Unlearn
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure
from fedkge.runtimes.progress import Watch, ignored
from fedkge.runtimes.run import run
from fedkge.runtimes.unlearning import check_left, planned, unlearn, write_retained
from fedkge.training.interference import Confusion


@dataclass(frozen=True)
class Yardstick:
    """One way to be rid of triples."""

    says: str
    how: Unlearn | None = None  #: unset: a training anew by another method
    method: Callable[[Experiment], Experiment] | None = None


def _by(method: Any) -> Callable[[Experiment], Experiment]:
    return lambda experiment: replace(experiment, method=method)


YARDSTICKS: Mapping[str, Yardstick] = {
    "target": Yardstick("unlearned, to the level of held-out triples", Unlearn("target")),
    "paper": Yardstick("unlearned as FedLU does", Unlearn("paper")),
    "exact": Yardstick("the federation trained again", Unlearn("exact")),
    "alone": Yardstick("each site trained again, alone: FedLU's re-trained local", method=_by(Single())),
    "pooled": Yardstick("trained again on all graphs: FedLU's re-trained global", method=_by(Collective())),
    "finetuned": Yardstick("trained on with what is retained, nothing else", Unlearn("paper", epochs=0)),
    "ascent": Yardstick(
        "up the loss of forgotten triples", Unlearn("paper", decay=0, confusion=Confusion(variant="ascent"))
    ),
}


def chosen(names: Sequence[str]) -> dict[str, Yardstick]:
    """The yardsticks of these names."""
    for name in names:
        if name not in YARDSTICKS:
            known = ", ".join(YARDSTICKS)
            raise ConfigError(
                f"--only: expected some of {known}, got {name!r}{suggest(name, list(YARDSTICKS))}"
            )
    return {name: YARDSTICKS[name] for name in names or YARDSTICKS}


def yardsticks(
    old: Holdings,
    erasure: Erasure,
    out: Path,
    sticks: Mapping[str, Yardstick],
    device: torch.device | str = "cpu",
    watch: Callable[[str], Watch] = lambda name: ignored,
) -> list[dict[str, Any]]:
    """A run folder for each yardstick, and a row for each and for the raw run; what is there stays."""
    runs, retained = {"raw": old}, erasure.retained
    for name, stick in sticks.items():
        folder = out / name
        if not (folder / "summary.json").is_file():
            _made(old, erasure, folder, stick, device, watch(name))
        runs[name] = Holdings.open(folder)
        check_left(folder, runs[name].sources, retained)
    first = next(iter([run for name, run in runs.items() if name != "raw"]))
    asked = Questions.of(erasure, first)
    rows = []
    for name, one in runs.items():
        own = replace(asked, shares=one.experiment.method.shares)
        says = "before" if name == "raw" else sticks[name].says
        rows.append({"run": name, "what": says, **_numbers(standing(own, own.tables(one))), **_cost(one)})
    return rows


def _made(
    old: Holdings, erasure: Erasure, folder: Path, stick: Yardstick, device: torch.device | str, watch: Watch
) -> None:
    resume = (folder / "config.toml").is_file()
    if stick.how is not None:
        unlearn(old, folder, erasure, stick.how, device, resume=resume, watch=watch)
        return
    assert stick.method is not None
    at = folder.with_name(f"{folder.name}-data").absolute()
    plan = planned(old, erasure, Unlearn("exact"), at)
    experiment, data = stick.method(plan), write_retained(old, erasure, plan, resume=at.is_dir())
    run(experiment, RunFolder.create(folder, experiment, resume), torch.device(device), data, watch)


def _numbers(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{view} {split} {metric}": of[split][metric]
        for view, of in found.items()
        for split in ("forget", "test")
        for metric in ("hits@1", "mrr")
        if of[split]["count"]
    }


def _cost(run: Holdings) -> dict[str, Any]:
    sent = run.summary["traffic"]
    return {
        "seconds": run.summary["seconds"]["total"],
        "bytes": sent["up_bytes"] + sent["down_bytes"],
        "rounds": run.summary["rounds"],
    }
