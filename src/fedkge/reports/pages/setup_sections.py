"""The page's parts on what runs were given: budget, options, machines."""

from __future__ import annotations

from collections.abc import Sequence

from fedkge.reports.compared.details import SHARE, Row, budget_rows, config_rows, environment_rows, trained
from fedkge.reports.compared.experiments import Group
from fedkge.reports.folders.options import valued
from fedkge.reports.pages.markup import Column, table, words

GIVEN = "What each run was given to learn with; rounds that sites trained are counted in the journal."
SAT_OUT = (
    "Not every site trained in every round; where a method exchanges nothing every site does, whatever is "
    "configured."
)
COLUMNS = 6  #: experiments that get a column of options; of more, the distinct values are listed


def configuration(groups: Sequence[Group]) -> str:
    """The budget, then every option; those in which experiments differ come first."""
    note = "Options in which the runs differ are highlighted and come first." if len(groups) > 1 else ""
    caption = f"Every option with its value, defaults included. {note}".strip()
    budget = f"{GIVEN} {SAT_OUT if _sits_out(groups) else ''}".strip()
    given = _options(groups, budget_rows(groups), "Budget", budget)
    return given + _options(groups, config_rows(groups), "Option", caption)


def _sits_out(groups: Sequence[Group]) -> bool:
    shares = [trained(run)[SHARE] for group in groups for run in group.runs]
    return any(share is not None and share < 1 for share in shares)


def environment(groups: Sequence[Group]) -> str:
    """Software and hardware."""
    rows = environment_rows(groups)
    return _options(groups, rows, "", "Software and hardware that the runs used.")


def _options(groups: Sequence[Group], rows: Sequence[Row], heading: str, caption: str) -> str:
    rows = sorted(rows, key=lambda row: not row["differs"])
    marked = {i for i, row in enumerate(rows) if row["differs"]}
    names = [group.label for group in groups]
    columns = [Column("option", heading, words)]
    if len(groups) > COLUMNS:
        rows = [{"option": row["option"], "values": _distinct([row[name] for name in names])} for row in rows]
        columns.append(Column("values", "Values", words, words=True))
    else:
        columns += [Column(name, name, words, words=True) for name in names]
    return table(rows, columns, caption, marked=marked)


def _distinct(values: Sequence[object]) -> str:
    known = [value for value in values if value is not None]
    return ", ".join(dict.fromkeys(valued(value) for value in known)) + (
        " (not all have it)" if len(known) < len(values) else ""
    )
