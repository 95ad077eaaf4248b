"""What runs were given and what they took, as plain rows: sizes, links, time, budget, options, machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fedkge.reports.compared.experiments import Group
from fedkge.reports.folders.before import Kind
from fedkge.reports.folders.options import KEEP, SEED, chosen, flat, valued
from fedkge.reports.folders.run import Run

Row: TypeAlias = dict[str, Any]  #: None is not known (yet); beside `x`, `x_std` is its deviation over seeds
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


def size_rows(runs: Sequence[Run]) -> list[Row]:
    """What each site holds, from runs that have ended; a data set is counted once."""
    rows: dict[tuple[str, str], Row] = {}
    for run in runs:
        for site, found in (run.summary or {}).get("sites", {}).items():
            splits = found["triples"]
            row = {
                "site": site,
                "dataset": run.dataset,
                "triples": sum(splits.values()),
                **{split: splits[split] for split in ("train", "valid", "test")},
                "entities": found["entities"],
                "relations": found["relations"],
            }
            rows.setdefault((run.dataset, site), row)
    return list(rows.values())


def shared_rows(run: Run) -> list[Row]:
    """Per site how many of its entities and relations have rows that may travel; empty where none do."""
    rows = []
    for site, found in (run.summary or {}).get("sites", {}).items():
        shared = found.get("shared", {})
        entity, relation = shared.get("entity", 0), shared.get("relation", 0)
        row = {"site": site, "entities": entity, "relations": relation}
        row["entity_share"] = entity / found["entities"] if found["entities"] else None
        row["relation_share"] = relation / found["relations"] if found["relations"] else None
        rows.append(row)
    return rows if any(row["entities"] or row["relations"] for row in rows) else []


def link_rows(run: Run) -> list[Row]:
    """Alignments that were given, and what became of them."""
    return [
        {**link, "examples": ", ".join(map(str, link["examples"])) or None}
        for link in run.links
        if link["given"]
    ]


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


def total_seconds(run: Run) -> float | None:
    """From start to end."""
    return time_row(run)["seconds"]


def budget(run: Run) -> Row:
    """What the run was given to learn with, and how much of it sites have used."""
    options = chosen(run)
    given = dict((run.summary or {}).get("budget", {}))
    found = {name: given.get(name, options.get(key)) for name, key in BUDGET.items()}
    found |= trained(run)
    found[AFTER] = run.before.spent if run.before else None
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
    return {SHARE: _short(sum(done) / sum(until)), TRAINED: _short(sum(done) / len(who))}


def _short(value: float) -> float:
    """To two digits, without any where there are none."""
    return int(value) if value == int(value) else round(value, 2)


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


def environment_rows(groups: Sequence[Group]) -> list[Row]:
    """What each experiment ran on."""
    return side_by_side(groups, lambda run: flat(run.environment))


def side_by_side(groups: Sequence[Group], of: Callable[[Run], Mapping[str, Any]]) -> list[Row]:
    """A column per experiment; what differs between its seeds is listed in one cell."""
    tables = [[of(run) for run in group.runs] for group in groups]
    keys = dict.fromkeys(key for tables_ in tables for table in tables_ for key in table)
    rows = []
    for key in keys:
        values = [_together([table.get(key) for table in tables_]) for tables_ in tables]
        differs = key != SEED and any(value != values[0] for value in values)
        names = [group.label for group in groups]
        rows.append({"option": key, "differs": differs, **dict(zip(names, values, strict=True))})
    return rows


def _together(values: Sequence[Any]) -> Any:
    distinct = [value for i, value in enumerate(values) if value not in values[:i]]
    return distinct[0] if len(distinct) == 1 else ", ".join(map(valued, distinct))
