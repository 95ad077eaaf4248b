"""What runs were given and what they took, as plain rows: time, budget, options, machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedkge.reports.compared.experiments import Group, Row
from fedkge.reports.folders.options import KEEP, SEED, chosen, flat, valued
from fedkge.reports.folders.run import Kind, Run

PARTS = ("train", "evaluate", "exchange", "checkpoint")  #: of the time that a run takes
BUDGET = {  #: what decides how much a run may learn, and where a config has it
    "rounds": "rounds",
    "epochs": "trainer.epochs",
    "batch_size": "trainer.batch_size",
    "negatives": "trainer.negatives",
    "sides": "trainer.sides",
    "lr": "trainer.lr",
    "dim": "model.dim",
    "every": "evaluate.every",
    "patience": "evaluate.patience",
    "rule": "evaluate.rule",
    "keep": KEEP,
}
AFTER = "after"  #: what was spent on the tables that a run began with
SHARE = "share of rounds trained"  #: of those until a site's end
TRAINED = "rounds trained per site"  #: their mean over sites; fewer than given where validation ends a run


def time_row(run: Run) -> Row:
    """Seconds per kind of work; speed is training alone, from the journal."""
    rounds = run.rounds.values()
    trained, visited = sum(done.seconds for done in rounds), sum(done.triples for done in rounds)
    so_far = {"train": trained, "exchange": sum(done.exchange_seconds for done in rounds)}
    known = so_far | dict((run.summary or {}).get("seconds", {}))
    parts = sum(known.get(part, 0.0) for part in PARTS)
    total = known.get("total")
    # After a resume `total` is the last process's alone, less than what training took over all of them.
    whole = None if total is None else parts if run.resumed else max(total, parts)
    return {
        **{f"{part}_seconds": known.get(part) for part in PARTS},
        "other_seconds": None if whole is None or run.resumed else whole - parts,
        "seconds": whole,
        "triples": visited,
        "triples_per_s": visited / trained if trained else None,
    }


def budget(run: Run) -> Row:
    """What the run was given to learn with, and how much of it sites have used."""
    options, given = chosen(run), (run.summary or {}).get("budget", {})
    found = {name: given.get(name, options.get(key)) for name, key in BUDGET.items()}
    found |= trained(run) | {AFTER: run.before.spent if run.before else None}
    return {name: value for name, value in found.items() if value is not None}


def trained(run: Run) -> Row:
    """In how many rounds sites have trained, as the journal counts them; None before the first.

    A configured fraction does not tell: where nothing is exchanged, nobody sits a round out.
    """
    losses = run.losses
    who = run.sites if losses.keys() <= set(run.sites) else list(losses)  # pooled, all are one
    done = [len(losses.get(site, ())) for site in who]
    until = [max(losses.get(site, (0,))) if run.kind is Kind.ALONE else run.last_round for site in who]
    if not sum(done):
        return {SHARE: None, TRAINED: None}
    found = {SHARE: sum(done) / sum(until), TRAINED: sum(done) / len(who)}
    return {name: int(value) if value == int(value) else round(value, 2) for name, value in found.items()}


def budget_rows(groups: Sequence[Group]) -> list[Row]:
    """The budget of each experiment; `differs` says that they disagree, those that have a choice."""
    rows = side_by_side(groups, budget)
    for row in rows:
        if BUDGET.get(row["option"]) == KEEP:
            row["differs"] = len({row[group.label] for group in groups} - {None}) > 1
    return rows


def config_rows(groups: Sequence[Group]) -> list[Row]:
    """One row per option, in the order of the files; `differs` says that experiments disagree."""
    return side_by_side(groups, lambda run: flat(run.config))


def side_by_side(groups: Sequence[Group], of: Callable[[Run], Mapping[str, Any]]) -> list[Row]:
    """A column per experiment; what differs between its seeds is listed in one cell."""

    def together(values: Sequence[Any]) -> Any:
        distinct = [value for i, value in enumerate(values) if value not in values[:i]]
        return distinct[0] if len(distinct) == 1 else ", ".join(map(valued, distinct))

    tables = {group.label: [of(run) for run in group.runs] for group in groups}
    rows = []
    for key in dict.fromkeys(key for tables_ in tables.values() for table in tables_ for key in table):
        values = {name: together([table.get(key) for table in of]) for name, of in tables.items()}
        differs = key != SEED and any(value != values[groups[0].label] for value in values.values())
        rows.append({"option": key, "differs": differs, **values})
    return rows
