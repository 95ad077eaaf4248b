"""What can be named in an experiment, and its options, as DataFrames."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fedkge.errors import ConfigError, suggest
from fedkge.front.described import Described, Option, attacks, options, parts
from fedkge.front.frames import frame

if TYPE_CHECKING:
    from pandas import DataFrame


def available(kind: str | None = None) -> DataFrame:
    """What has a name: methods, models, codecs, losses, data sets, ...; of one kind, as in "method"."""
    found = [part for part in (*parts(), *attacks()) if part.kind != "table"]
    kinds = dict.fromkeys(part.kind for part in found)
    if kind is not None and kind not in kinds:
        raise ConfigError(f"kind: expected one of {', '.join(kinds)}, got {kind!r}{suggest(kind, kinds)}")
    rows = [{"kind": one.kind, "name": one.name, "about": one.about} for one in found]
    return frame([row for row in rows if kind in (None, row["kind"])])


def explain(name: str) -> DataFrame:
    """The options of a method, model, codec or table, or those of that name: type, default, meaning."""
    found, keys = find(name)
    rows = [asdict(option) for option in (*(one for part in found for one in part.options), *keys)]
    return frame([{"option": row.pop("path"), **row} for row in rows])


def find(name: str) -> tuple[list[Described], list[Option]]:
    """The parts of that name, and the options of that path; also by the last word of it, as in `mu`."""
    known, every = [*parts(), *attacks()], list(options())
    found = [part for part in known if part.name.lower() == name.lower()]
    keys = [option for option in every if name in (option.path, option.path.rpartition(".")[2])]
    if not found and not keys:
        names = [part.name for part in known] + [option.path for option in every]
        words = [option.path.rpartition(".")[2] for option in every]
        raise ConfigError(
            f"explain: nothing is named {name!r}{suggest(name, names) or suggest(name, words)} "
            "(`fedkge list` shows what has a name, `fedkge explain trainer` the options of a table; "
            "parts of a plugin need --trust FILE)"
        )
    return found, keys
