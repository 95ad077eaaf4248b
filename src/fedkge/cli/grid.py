"""The grid of a sweep: `--grid KEY=V1,V2` to points, and points to names of folders."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkge.cli.experiments import Origin, varied
from fedkge.errors import ConfigError

if TYPE_CHECKING:
    from fedkge.runs.experiment import Experiment

LONGEST = 120  #: characters of a folder's name before it is cut


def by_grid(
    path: Path, assignments: Sequence[str], grids: Sequence[str], chosen: str | None, beside: Path
) -> dict[str, Experiment]:
    """The experiment at each point of the grid, under the name of its folder; the last key runs fastest.

    Points that differ only in options that their method, model or codec does not have are one point.
    """
    from fedkge.reports.folders.options import flat

    axes = dict(axis(text) for text in grids)
    if len(axes) < len(grids):
        keys = [text.partition("=")[0].strip() for text in grids]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"--grid: {twice} stands twice; name all its values at once")
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    found = {}
    for point, experiment in varied(Origin(path, assignments, "--grid", chosen, beside), points):
        options = flat(experiment.config())
        found[folder_name({key: options[key] for key in point if key in options})] = experiment
    return found


def axis(text: str, flag: str = "--grid") -> tuple[str, list[str]]:
    """A key, and its values as TOML."""
    key, equals, rest = text.partition("=")
    key, values = key.strip(), [value.strip() for value in split(rest)]
    if not equals or not key or not all(values):
        raise ConfigError(f"{flag} {text}: expected KEY=V1,V2, as in method.mu=0,0.1,1")
    if key == "seed":
        raise ConfigError(f"{flag} seed: a seed is no choice but a repetition; give --seeds 0,1,2")
    plain = [_value(value) for value in values]
    for value, written in zip(plain, values, strict=True):
        if isinstance(value, dict):
            raise ConfigError(
                f"{flag} {key}: expected plain values, got {written}; name a key of it, as in {key}.name"
            )
        if plain.count(value) > 1:
            raise ConfigError(f"{flag} {key}: {written} stands twice")
    return key, values


def split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no brackets and no quotes."""
    begin, depth, quote = 0, 0, ""
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def _value(text: str) -> Any:
    """A TOML value; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def folder_name(point: Mapping[str, Any]) -> str:
    """`method.mu=0.1,model.dim=64`; what is replaced for the file system is told apart by a digest."""
    exact = ",".join(f"{key}={_spelled(value)}" for key, value in point.items())
    safe = ",".join(
        f"{key}={re.sub(r'[^A-Za-z0-9_.+-]+', '_', _spelled(value))}" for key, value in point.items()
    )
    if safe == exact and len(safe) <= LONGEST:
        return safe
    return f"{safe[:LONGEST]}-{blake2b(exact.encode(), digest_size=4).hexdigest()}"


def _spelled(value: Any) -> str:
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
