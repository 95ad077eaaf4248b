"""Numbers that a hub tells sites before they train, in words: after which validated round each changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from fedkge.reports.compared.experiments import Group
from fedkge.reports.folders.run import Curve, Run

Dial: TypeAlias = Mapping[str, Mapping[int, float]]  # site -> validated round -> told from then on


def dial_rows(groups: Sequence[Group]) -> list[dict[str, str | int]]:
    """A row per run whose method has such numbers: what became of each."""
    return [
        {"run": group.label, "seed": run.seed, **{name: _at_sites(dial) for name, dial in dials(run).items()}}
        for group in groups
        for run in group.runs
        if dials(run)
    ]


def dials(run: Run) -> Mapping[str, Dial]:
    """By name, what each site was told after each validation."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for number in sorted(run.validations):
        for name, told in run.validations[number].dials.items():
            for site, value in told.items():
                found.setdefault(name, {}).setdefault(site, {})[number] = value
    return found


def _at_sites(dial: Dial) -> str:
    """Of all sites at once, or where theirs differ, of each."""
    alike: dict[str, list[str]] = {}
    for site, told in dial.items():
        alike.setdefault(changes(told), []).append(site)
    if len(alike) == 1:
        return next(iter(alike))
    return "; ".join(f"{what} ({', '.join(sites)})" for what, sites in alike.items())


def changes(told: Curve) -> str:
    """`round 4` where a number left zero there, once; `never`; or everything that it became."""
    rounds = sorted(told)
    steps = [(n, told[n]) for before, n in pairwise(rounds) if told[n] != told[before]]
    first = told[rounds[0]]
    if not steps:
        return "never" if first == 0 else f"{first:g} from round {rounds[0]} on, the first validated"
    if first == 0 and [value for _, value in steps] == [1]:
        return f"round {steps[0][0]}"
    return ", ".join([f"{first:g} at first", *(f"{value:g} after round {n}" for n, value in steps)])
