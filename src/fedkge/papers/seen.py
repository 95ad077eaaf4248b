"""Options whose values were chosen with test figures in view: rows that have them say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedkge.config import build, read_toml
from fedkge.errors import ConfigError
from fedkge.papers.catalogue import CATALOGUE, SEEN
from fedkge.papers.protocols import Options, Protocol
from fedkge.reports.folders.options import flat, spoken

IN_VIEW = "chosen with test figures in view"


@dataclass(frozen=True)
class Seen:
    """An entry of the catalogue's list."""

    method: str
    option: str  #: `method.mu`
    values: tuple[float, ...]
    models: tuple[str, ...] = ()  #: none: all
    data: tuple[str, ...] = ()  #: names of data sets; none: all

    def holds(self, config: Options) -> bool:
        """Whether an experiment has one of the values, where they were chosen."""
        data = config["data"]
        place = Path(data.get("name") or data["path"]).name
        return (
            config["method"]["name"] == self.method
            and flat(config).get(self.option) in self.values
            and (not self.models or config["model"]["name"] in self.models)
            and (not self.data or place in self.data)
        )


@cache
def read_seen(root: Path) -> tuple[Seen, ...]:
    """The catalogue's list."""
    entries = read_toml(root / CATALOGUE).get(SEEN, [])
    if not isinstance(entries, list):
        raise ConfigError(f"{root / CATALOGUE}: {SEEN}: expected a list, as in [[{SEEN}]]")
    return tuple(build(Seen, entry, f"{SEEN}[{number}]") for number, entry in enumerate(entries))


def departures(protocol: Protocol, config: Options) -> list[str]:
    """Where an experiment departs from the paper, and which values were chosen with test figures in view."""
    found = protocol.departures(config)
    for entry in read_seen(protocol.root):
        if entry.holds(config):
            found = _marked(found, spoken(entry.option, flat(config)[entry.option], []))
    return found


def _marked(found: Sequence[str], option: str) -> list[str]:
    """`mu=4 (paper: 2; chosen with test figures in view)`; without the paper if it states nothing."""
    marked = [f"{told[:-1]}; {IN_VIEW})" if told.startswith(f"{option} (paper: ") else told for told in found]
    return marked if marked != found else [*found, f"{option} ({IN_VIEW})"]
