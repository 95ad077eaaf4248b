"""Keywords to experiments: a keyword is a table of the experiment, or one option that can stand by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

from fedkge.errors import ConfigError, suggest
from fedkge.plugins import load_files
from fedkge.runs.experiment import PARTS, Data, Experiment
from fedkge.training import Trainer

Part: TypeAlias = str | Mapping[str, Any]  #: a name, or a table with `name` and options
FLAT = ("model", "method", "trainer", "data")  #: tables whose options can stand by themselves: `dim=32`
PATHS = (
    ("", "start"),
    ("data", "path"),
    ("marks", "relations"),
    ("marks", "triples"),
    ("align", "entities"),
    ("align", "relations"),
    ("align", "secret"),
    ("align", "withhold"),
    ("account", "folder"),
    ("persons", "names"),
    ("persons", "relations"),
)  #: options that name files, part and key: kept whole in a run's config


def experiments(
    data: Mapping[str, Any], methods: Sequence[Part], model: Part, options: Mapping[str, Any]
) -> list[Experiment]:
    """An experiment for each method; an option of `method` goes to those that have it.

    `options` are keywords: a table of the experiment (`trainer={"lr": 0.01}`), `seed`, `rounds`, `start`,
    `plugins`, or an option of model, method, trainer or data (`dim=32`).
    """
    given = {name: _plain(value) for name, value in options.items()}
    if "plugins" in given:
        given["plugins"] = load_files(given["plugins"], Path())
    known = {field.name for field in fields(Experiment)}
    base: dict[str, Any] = {"model": _table(model, "model"), "data": dict(data)}
    for name in [name for name in given if name in known]:
        value = given.pop(name)
        if name in ("data", "method"):
            raise ConfigError(f"{name}: given twice, as the argument and as a keyword")
        base[name] = _table(value, name) if name in PARTS else value
    tables = [{**base, "data": dict(base["data"]), "method": _table(one, "method")} for one in methods]
    for name, value in given.items():
        table = _owner(name, [one["method"]["name"] for one in tables], base["model"]["name"], known)
        for one in tables:
            if table == "method" and name not in _names("method", one["method"]["name"]):
                continue
            if not isinstance(one.get(table, {}), Mapping) or name in one.get(table, {}):
                raise ConfigError(f"{name}: given twice, by itself and in {table}")
            one[table] = {**one.get(table, {}), name: value}
    return [Experiment.parse(_absolute(one)) for one in tables]


def _owner(name: str, methods: Sequence[str], model: str, known: set[str]) -> str:
    """The table that an option by itself belongs to."""
    of: dict[str, set[str]] = {
        "model": _names("model", model),
        "method": set().union(*(_names("method", method) for method in methods)),
        "trainer": {field.name for field in fields(Trainer)},
        "data": {field.name for field in fields(Data)} - {"name", "path"},
    }
    owners = [table for table in FLAT if name in of[table]]
    if len(owners) == 1:
        return owners[0]
    if owners:
        ways = " or ".join(f"{table}={{'{name}': ...}}" for table in owners)
        raise ConfigError(f"{name}: an option of {' and of '.join(owners)}; write {ways}")
    every = sorted(known.union(*of.values()) - {"data"})
    raise ConfigError(f"{name}: no such option{suggest(name, every)} (known: {', '.join(every)})")


def _names(part: str, name: str) -> set[str]:
    return {field.name for field in fields(PARTS[part][name])}


def _table(value: Any, part: str) -> dict[str, Any]:
    """A part by its name, or with options beside it."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise ConfigError(f"{part}: expected a name, or a table as in {{'name': ...}}, got {value!r}")
    return dict(table)


def _plain(value: Any) -> Any:
    """As TOML has it: numbers of NumPy are numbers, paths are text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") and not hasattr(value, "columns") else value


def _absolute(options: dict[str, Any]) -> dict[str, Any]:
    """Paths from where one stands, which a run's configuration keeps whole."""
    found = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}
    for part, key in PATHS:
        table = found.get(part) if part else found
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = str(Path(table[key]).resolve())
    return found
