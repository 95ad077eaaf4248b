"""What an attack is: one frozen dataclass that reads runs, and says in numbers and words how well it does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from fedkge.registry import Registry
from fedkge.runtimes.progress import Watch, ignored

if TYPE_CHECKING:
    from fedkge.audits.targets import Target

ATTACKS: Registry[Attack] = Registry("attack", "fedkge.audits")
Row: TypeAlias = dict[str, Any]  #: plain values, as JSON has them
Watching: TypeAlias = Callable[[str], Watch]  #: by the name of what is played, who is told after every round
Drawn: TypeAlias = tuple[str, Sequence[tuple[float, float]]]  #: its name, and points from left to right


def unwatched(name: str) -> Watch:
    """Nobody watches."""
    return ignored


class Attack(ABC):
    """Its fields are its options. Everything but `run` reads rows and nothing else."""

    title: ClassVar[str]
    caption: ClassVar[str]  #: what the columns of its table mean

    @abstractmethod
    def run(self, targets: Sequence[Target], watch: Watching = unwatched) -> list[Row]:
        """How well it does against a run, or against two on the same triples, without and with protection.

        `watch` gives whoever is told of rounds that are played again.
        """

    @abstractmethod
    def words(self, rows: Sequence[Row]) -> str:
        """What the numbers mean: a sentence or two, a line each."""

    @abstractmethod
    def shown(self, row: Row) -> Row:
        """A line of a table for people: few columns, and numbers with their intervals."""

    def plots(self, rows: Sequence[Row]) -> Sequence[Curves | Bars]:
        """What a page has beside the table."""
        return ()


class Curves(NamedTuple):
    """Lines over one another."""

    title: str
    x: str  #: a logarithmic axis
    y: str
    hover: str  #: how the pointer reads a point, as in `%{y:.3f} found at %{x:.4f} false alarms`
    lines: Sequence[Drawn]
    beside: Sequence[Drawn] = ()  #: what was not measured, as what guessing gives


class Bars(NamedTuple):
    """Counts by name, of whole numbers from each edge up to the next."""

    title: str
    x: str
    y: str
    edges: Sequence[float]
    counts: Mapping[str, Sequence[int]]


def interval(row: Row, key: str, form: str = ".3f") -> str:
    """`0.812 [0.790, 0.834]`, or a dash where it was not measured."""
    if row.get(key) is None:
        return "–"
    value, low, high = (row[name] for name in (key, f"{key}_low", f"{key}_high"))
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def between(row: Row, key: str) -> str:
    """An interval in a sentence."""
    return f"95 % from {row[f'{key}_low']:.3f} to {row[f'{key}_high']:.3f}"
