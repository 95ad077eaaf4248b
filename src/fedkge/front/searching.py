"""What a search tries: options with ranges or choices, each given to the parts that have it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from fedkge.errors import ConfigError
from fedkge.reports.compared.choosing import CONDITION_TABLES, CONDITIONS
from fedkge.reports.folders.options import METHOD
from fedkge.runs.experiment import PARTS

if TYPE_CHECKING:
    from optuna.trial import Trial

#: Options that change the question and not the answer: validation cannot choose among their values.
QUESTION = ({*CONDITIONS} - {METHOD}) | {*CONDITION_TABLES, "evaluate", "rounds"}
EXAMPLES = "trainer.lr=1e-4..1e-2:log, model.dim=64..256:64 or method.mu=0,0.1,1"


@dataclass(frozen=True)
class Axis:
    """One option: a range, or choices."""

    key: str
    choices: tuple[str, ...] = ()  #: as TOML
    low: float = 0.0
    high: float = 0.0
    step: int = 1  #: of whole numbers
    whole: bool = False
    log: bool = False

    @classmethod
    def parse(cls, text: str, words: Sequence[str]) -> Axis:
        """`KEY=LOW..HIGH[:log|:STEP]`, or `KEY=` and `words`, the choices in it."""
        key, _, rest = text.partition("=")
        key, rest = key.strip(), rest.strip()
        if ".." not in rest:
            return cls(key, tuple(words))
        ends, _, kind = rest.partition(":")
        low, high = (_number(text, end) for end in ends.split("..", 1))
        whole = isinstance(low, int) and isinstance(high, int)
        step = _number(text, kind) if kind not in ("", "log") else 1
        if low >= high or not isinstance(step, int) or step < 1 or (kind not in ("", "log") and not whole):
            raise ConfigError(f"--over {text}: expected a range, as in {EXAMPLES}")
        if kind == "log" and low <= 0:
            raise ConfigError(f"--over {text}: a logarithmic range begins above 0")
        return cls(key, (), low, high, step, whole, kind == "log")

    @property
    def size(self) -> int | None:
        """How many values it has; None: more than can be counted."""
        if self.choices:
            return len(self.choices)
        return (int(self.high) - int(self.low)) // self.step + 1 if self.whole else None

    def suggest(self, trial: Trial) -> str:
        """A value that the search chooses, as TOML."""
        if self.choices:
            return str(trial.suggest_categorical(self.key, self.choices))
        if self.whole:
            step = {} if self.log else {"step": self.step}
            return str(trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log, **step))
        return repr(trial.suggest_float(self.key, self.low, self.high, log=self.log))


def _number(text: str, end: str) -> int | float:
    try:
        value = tomllib.loads(f"value = {end.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"--over {text}: expected numbers around .., as in {EXAMPLES}")
    return value


def suggested(axes: Sequence[Axis], base: Mapping[str, Any], trial: Trial) -> dict[str, str]:
    """A point: names of parts first, then the options that the chosen parts have."""
    point: dict[str, str] = {}
    for axis in sorted(axes, key=lambda axis: not axis.key.endswith(".name")):
        if applies(axis.key, base, point):
            point[axis.key] = axis.suggest(trial)
    return point


def applies(key: str, base: Mapping[str, Any], point: Mapping[str, str]) -> bool:
    """Whether the part that a point chooses, or else the experiment has, has this option."""
    part, _, option = key.partition(".")
    if part not in PARTS or option in ("", "name"):
        return True
    name = point.get(f"{part}.name", base[part]["name"]).strip("\"'")
    return option in {field.name for field in fields(PARTS[part][name])}


def points(axes: Sequence[Axis], base: Mapping[str, Any]) -> int | None:
    """How many points there are; None: more than can be counted."""
    names = [axis for axis in axes if axis.key.endswith(".name") and axis.choices]
    total = 0
    for chosen in product(*(axis.choices for axis in names)):
        point = dict(zip((axis.key for axis in names), chosen, strict=True))
        used = [axis for axis in axes if axis not in names and applies(axis.key, base, point)]
        sizes = [axis.size for axis in used]
        if None in sizes:
            return None
        total += prod(size for size in sizes if size is not None)
    return total


def check_question(axes: Sequence[Axis]) -> None:
    """An option is an error if scores of its values do not compare."""
    for axis in axes:
        if axis.key in QUESTION or axis.key.partition(".")[0] in QUESTION:
            raise ConfigError(
                f"--over {axis.key}: changes the question and not the answer, so scores of its values do not "
                f"compare; expected an option of {', '.join(PARTS)} or trainer. "
                f"`fedkge sweep --grid {axis.key}=...` shows what each value gives"
            )


def check_used(axes: Sequence[Axis], bases: Sequence[Mapping[str, Any]]) -> None:
    """An option that nothing has that is searched is an error."""
    names = {axis.key: axis.choices for axis in axes if axis.key.endswith(".name")}
    for axis in axes:
        part = axis.key.partition(".")[0]
        points = [{f"{part}.name": name} for name in names.get(f"{part}.name", ())] or [{}]
        if not any(applies(axis.key, base, point) for base in bases for point in points):
            chosen = ", ".join(dict.fromkeys(base[part]["name"] for base in bases))
            raise ConfigError(f"--over {axis.key}: no such option of {chosen}")
