"""How each paper trains and measures, what it reports, and which of its rows an experiment is.

Papers measure different things: a number of one protocol says nothing beside a row of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fedkge.config import read_toml, variants
from fedkge.errors import ConfigError
from fedkge.reports.folders.options import flat, spoken, valued
from fedkge.runs.experiment import Experiment

OWN = ("method", "select", "codec", "aggregate")  #: tables in which runs of one protocol differ
PLAIN = {"select": "full", "codec": "float32", "aggregate": "mean"}  #: names that a row leaves out
ALWAYS = ("method.affinity",)  #: named even where it is the preset's: the paper has a row for each
#: what a row's name leaves out: it is in a record's key, or follows from data and mode
IDLE = ("model.name", "privacy.delta", "privacy.accountant", "privacy.rules")
VALUES = Path("papers") / "values.json"
Options = Mapping[str, Any]


def checkout(start: Path | None = None) -> Path:
    """The checkout of this project: around here, or the one that the package is installed from."""
    here = (start or Path()).resolve()
    for folder in (here, *here.parents, *Path(__file__).resolve().parents):
        if (folder / VALUES).is_file():
            return folder
    raise ConfigError(
        f"no {VALUES} here or above; the tables of papers, their presets and their records are in the "
        "project's repository: run this command in a checkout of it"
    )


@dataclass(frozen=True, eq=False)
class Protocol:
    """A paper's way to train and measure, and what it reports."""

    key: str  #: as presets begin: `feds-2024`
    paper: str
    note: str  #: what a reader of its rows must know
    presets: tuple[str, ...]  #: patterns of files in examples/
    #: method, model or data, or several of them -> options that the paper states; a list: one of these
    options: Mapping[str, Options]
    rows: tuple[Options, ...]  #: MRR and Hits in per cent, P in units of the paper's reference, R in rounds
    root: Path

    def row(self, data: str, model: str, name: str) -> Options:
        """What the paper reports; empty where it does not."""
        wanted = {"data": data, "model": model, "method": name}
        return next((row for row in self.rows if wanted.items() <= row.items()), {})

    @cached_property
    def experiments(self) -> tuple[Options, ...]:
        """Every variant of every preset, with every option."""
        files = sorted(path for pattern in self.presets for path in (self.root / "examples").glob(pattern))
        every = (options for path in files for options in variants(read_toml(path)).values())
        return tuple(Experiment.parse(options).config() for options in every)

    def alike(self, config: Options) -> list[Options]:
        """Presets of the same data and model, or where there are none of the same data."""
        same = [preset for preset in self.experiments if _subject(preset) == _subject(config)]
        return same or [preset for preset in self.experiments if _subject(preset)[0] == _subject(config)[0]]

    def name(self, config: Options) -> str:
        """The row's name: the method, what is sent if not plain rows, and options unlike the preset's."""
        own, told = flat(config), self._told(config)
        sent = [config[part]["name"] for part in PLAIN if config[part]["name"] != PLAIN[part]]
        return " ".join([config["method"]["name"], *sent, *(spoken(key, own[key], told) for key in told)])

    def _told(self, config: Options) -> list[str]:
        """Options that a row's name tells: those unlike the preset's.

        Of several presets with one method it is the first, as the others differ from it by options.
        """
        method = config["method"]["name"]
        presets = self.alike(config)
        first = next((of for of in presets if of["method"]["name"] == method), None)
        usual = first or {**presets[0], "method": {"name": method}}
        parts = {part: {"name": config[part]["name"]} for part in PLAIN}
        usual = flat(Experiment.parse({**usual, **parts}).config())
        own = flat({part: of for part, of in config.items() if part not in ("seed", "data")})
        told = [key for key in own if key in ALWAYS or own[key] != usual.get(key)]
        return [key for key in told if key not in IDLE]

    def departures(self, config: Options) -> list[str]:
        """Where an experiment departs from what the paper states: `mu=0.001 (paper: 0.1)`.

        Options in the name of a row that the paper has, too, are the paper's own.
        """
        (place, model), method = _subject(config), config["method"]["name"]
        data = Path(place).name
        stated: dict[str, Any] = {}
        for words in sorted(self.options, key=lambda key: len(key.split())):
            if {*words.split()} <= {method, model, data}:
                stated |= self.options[words]
        shared = self._told(config) if self.row(data, model, self.name(config)) else []
        own = flat(config)
        keys = [key for key in stated if key in own and key not in shared and not _as(own[key], stated[key])]
        return [f"{spoken(key, own[key], keys)} (paper: {_stated(stated[key])})" for key in keys]


@cache
def read_protocols(root: Path) -> dict[str, Protocol]:
    """Rows and options may be another protocol's, by its key, where settings are this project's own."""
    found = json.loads((root / VALUES).read_text(encoding="utf-8"))

    def part(of: Options, name: str) -> Any:
        value = of.get(name, {})
        return found[value][name] if isinstance(value, str) else value

    return {
        key: Protocol(
            key,
            of["paper"],
            of["note"],
            tuple(of["presets"]),
            part(of, "options"),
            tuple(part(of, "rows")),
            root,
        )
        for key, of in found.items()
    }


def _as(own: Any, stated: Any) -> bool:
    return own in stated if isinstance(stated, list) else bool(own == stated)


def _stated(value: Any) -> str:
    """`0.1`; of several that were tried `10, 20 or 50`."""
    *others, last = map(valued, value if isinstance(value, list) else [value])
    return f"{', '.join(others)} or {last}" if others else last


def _subject(config: Options) -> tuple[str, str]:
    data = config["data"]
    return str(data.get("name") or data["path"]), str(config["model"]["name"])


def setting(config: Options) -> Options:
    """What compared experiments have in common: all options but seed, method and exchange."""
    return {key: value for key, value in config.items() if key not in ("seed", *OWN)}
