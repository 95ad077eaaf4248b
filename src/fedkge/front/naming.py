"""What can be named in an experiment, and its options, as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedkge.errors import ConfigError, suggest
from fedkge.front.described import attacks, options, parts
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
    known, every = [*parts(), *attacks()], list(options())
    found = [option for part in known if part.name.lower() == name.lower() for option in part.options]
    found += [one for one in every if name in (one.path, one.path.rpartition(".")[2]) and one not in found]
    if not found and name not in [part.name for part in known]:
        names = [part.name for part in known] + [option.path for option in every]
        raise ConfigError(f"explain: nothing is named {name!r}{suggest(name, names)}")
    return frame(
        [
            {"option": one.path, "of": one.of, "type": one.type, "default": one.default, "about": one.about}
            for one in found
        ]
    )
