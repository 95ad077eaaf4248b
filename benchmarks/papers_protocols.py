"""Which paper's protocol a run follows, and which of its rows the run is, by the run's configuration.

A run follows a protocol if its options are those of the protocol's presets in examples/ for the same data and
model, in everything but the seed, the method, the selection and the codec. Anything else is an error: papers
measure different things, and a number of one protocol says nothing beside a row of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fedkge.config import read_toml, variants
from fedkge.errors import DataError
from fedkge.reports.folders.options import flat, spoken, valued
from fedkge.reports.folders.run import Run
from fedkge.runs.experiment import Experiment

ROOT = Path(__file__).parent.parent
OWN = ("method", "select", "codec", "aggregate")  #: tables in which runs of one protocol differ
PLAIN = {"select": "full", "codec": "float32", "aggregate": "mean"}  #: names that a row leaves out
ALWAYS = ("method.affinity",)  #: named even where it is the preset's: the paper has a row for each
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Protocol:
    """A paper's way to train and measure, and what it reports."""

    key: str  #: as presets begin: `feds-2024`
    paper: str
    presets: tuple[str, ...]  #: patterns of files in examples/
    rows: tuple[Options, ...]  #: MRR and Hits in per cent, P in units of the paper's reference, R in rounds

    def row(self, data: str, model: str, name: str) -> Options:
        """What the paper reports; empty where it does not."""
        wanted = {"data": data, "model": model, "method": name}
        return next((row for row in self.rows if wanted.items() <= row.items()), {})

    @cached_property
    def experiments(self) -> tuple[Options, ...]:
        """Every variant of every preset, with every option."""
        files = sorted(path for pattern in self.presets for path in (ROOT / "examples").glob(pattern))
        every = (options for path in files for options in variants(read_toml(path)).values())
        return tuple(Experiment.parse(options).config() for options in every)

    def alike(self, config: Options) -> list[Options]:
        """Presets of the same data and model."""
        return [preset for preset in self.experiments if _subject(preset) == _subject(config)]

    def differences(self, config: Options) -> dict[str, tuple[Any, Any]]:
        """Where a run departs from the protocol: option -> (found, expected); None is not set."""
        own, asked = _shared(config), _shared(self.alike(config)[0])
        return {
            key: (own.get(key), asked.get(key)) for key in {**asked, **own} if own.get(key) != asked.get(key)
        }

    def name(self, config: Options) -> str:
        """The row's name: the method, what is sent if not plain rows, and options unlike the preset's."""
        method = config["method"]["name"]
        presets = self.alike(config)
        asked = next((of["method"] for of in presets if of["method"]["name"] == method), {"name": method})
        parts = {part: {"name": config[part]["name"]} for part in PLAIN}
        usual = flat(Experiment.parse({**presets[0], **parts, "method": asked}).config())
        own = flat({part: config[part] for part in OWN})
        told = [key for key in own if key in ALWAYS or own[key] != usual.get(key)]
        sent = [config[part]["name"] for part in PLAIN if config[part]["name"] != PLAIN[part]]
        return " ".join([method, *sent, *(spoken(key, own[key], told) for key in told)])


@cache
def read_protocols() -> Mapping[str, Protocol]:
    """Rows may be another protocol's, by its key, where settings are this project's own."""
    found = json.loads((Path(__file__).parent / "papers.json").read_text(encoding="utf-8"))
    rows = {
        key: of["rows"] if isinstance(of["rows"], list) else found[of["rows"]]["rows"]
        for key, of in found.items()
    }
    return {
        key: Protocol(key, of["paper"], tuple(of["presets"]), tuple(rows[key])) for key, of in found.items()
    }


def recognise(run: Run, protocols: Mapping[str, Protocol]) -> tuple[Protocol, str]:
    """The protocol that a run follows and the name of its row; an error if it follows none."""
    config = Experiment.parse(run.config).config()
    near = [protocol for protocol in protocols.values() if protocol.alike(config)]
    for protocol in near:
        if not protocol.differences(config):
            return protocol, protocol.name(config)
    where = f"{run.path.name}: follows no protocol of a paper"
    if not near:
        subjects = {" ".join(_subject(of)) for one in protocols.values() for of in one.experiments}
        known = ", ".join(sorted(subjects))
        raise DataError(f"{where}: no preset has {' '.join(_subject(config))}; expected one of {known}")
    nearest = min(near, key=lambda protocol: len(protocol.differences(config)))
    raise DataError(
        f"{where}: {nearest.key}, the nearest, has {_told(nearest.differences(config))}; "
        "run a preset of examples/, changing the seed and the method alone"
    )


def _subject(config: Options) -> tuple[str, str]:
    data = config["data"]
    return str(data.get("name") or data["path"]), str(config["model"]["name"])


def _shared(config: Options) -> dict[str, Any]:
    """What all runs of a protocol with the same data and model have in common."""
    return flat({key: value for key, value in config.items() if key not in ("seed", *OWN)})


def _told(differences: Mapping[str, tuple[Any, Any]]) -> str:
    words = (
        f"{key} {_word(asked)} and not {_word(found)}" for key, (found, asked) in sorted(differences.items())
    )
    return ", ".join(words)


def _word(value: Any) -> str:
    return "unset" if value is None else valued(value)
