"""Options of runs: every key with its value, and the keys in which runs were meant to differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from fedkge.reports.folders.run import Run

SEED = "seed"
NAME = "name"  #: of a run; changes nothing of what it does
METHOD = "method.name"
START = "start"  #: with the method, how a run came to its tables
KEEP = "evaluate.keep"  #: no choice where sites stop each for itself, or have one table
MODE = "privacy.mode"  #: what its other options belong to, as those of other parts to their name


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with keys as `--set` takes them: `model.dim`."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def chosen(run: Run) -> dict[str, Any]:
    """A run's options, those that mean something to its method, which is told with what it goes on from.

    What it goes on from is the same for all seeds, if folders differ only in `seed-N`.
    """
    options = flat(run.config) | {METHOD: run.approach}
    if START in options:
        parts = PurePosixPath(str(options[START])).parts
        options[START] = str(PurePosixPath(*(part for part in parts if part != f"seed-{run.seed}")))
    idle = (NAME,) if run.chooses_keep else (NAME, KEEP)
    return {key: of for key, of in options.items() if key not in idle}


def swept_keys(runs: Sequence[Run]) -> list[str]:
    """The keys in which runs differ by choice, in the order of their files; never the seed.

    An option of a named part (`model.margin`) is compared among runs with the same part (`model.name`): that
    TransE and RotatE have different margins is no sweep over margins. Privacy is known by its mode.
    """
    tables = [chosen(run) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if key != SEED and _differs(key, tables)]


def _differs(key: str, tables: Sequence[Mapping[str, Any]]) -> bool:
    part = key.rpartition(".")[0]
    owner = MODE if part == MODE.rpartition(".")[0] else f"{part}.name" if part else None
    owner = None if owner == key else owner
    seen: dict[str, set[str]] = {}
    for table in tables:
        if key in table:
            seen.setdefault(same(table.get(owner) if owner else None), set()).add(same(table[key]))
    return any(len(values) > 1 for values in seen.values())


def same(value: Any) -> str:
    """Equal for equal values, and something that a set can hold."""
    return json.dumps(value, sort_keys=True, default=str)


def tails(paths: Iterable[str]) -> dict[str, str]:
    """Every path by its last parts, as few as tell all of them apart."""
    parts = {path: [part for part in re.split(r"[/\\]", path) if part] for path in paths}
    few = 1
    while len({tuple(of[-few:]) for of in parts.values()}) < len(parts):
        few += 1
    return {path: "/".join(of[-few:]) for path, of in parts.items()}


def without_places(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same options with short paths: readers need not know where files lie on a machine."""
    short = tails({value for config in configs for value in flat(config).values() if _is_place(value)})

    def replaced(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: replaced(of) for key, of in value.items()}
        return short.get(value, value) if isinstance(value, str) else value

    return [replaced(config) for config in configs]


def _is_place(value: Any) -> bool:
    """Whether an option is a whole path, as run folders keep them."""
    return isinstance(value, str) and (
        PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    )


def short(key: str, keys: Sequence[str]) -> str:
    """The last part of a key, where it is the only such among `keys`."""
    last = key.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in keys) <= 1 else key


def spoken(key: str, value: Any, keys: Sequence[str]) -> str:
    """An option for a label: `mu=0.1`; a part is known by its name alone: `int8`."""
    plain = valued(value)
    return plain if key.endswith(".name") or key == MODE else f"{short(key, keys)}={plain}"


def valued(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def listed(values: Sequence[Any], most: int) -> str:
    """The first values, for a sentence."""
    return ", ".join(map(valued, values[:most])) + ", …" * (len(values) > most)


def spelled(first: str, options: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A label: something, where given, and the options that tell it from others."""
    told = [spoken(key, options[key], keys) for key in keys if key in options]
    return " · ".join([first, *told] if first else told)


def differing(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Option -> its values, where these are several; unset is one of them. Seeds do not count."""
    found: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for table in tables for key in table if key != SEED):
        values = {same(table.get(key)): table.get(key) for table in tables}
        if len(values) > 1:
            found[key] = list(values.values())
    return found
