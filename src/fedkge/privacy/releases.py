"""What leaves a site and depends on confidential triples: data, whose cost is asked later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from fedkge.config import build, choose, options
from fedkge.errors import ConfigError
from fedkge.registry import Registry


@dataclass(frozen=True)
class Mechanism:
    """How a sum over triples was blurred before it left.

    One triple, with all its negatives, moves the sum by at most 1 (after scaling by the clipping norm).
    """

    numbers: ClassVar[int] = 1  #: independent draws of the noise in one application
    noise: float  #: the noise multiplier: standard deviation over what one triple can move; 0: none

    def __post_init__(self) -> None:
        if not 0 <= self.noise < inf:
            raise ConfigError(f"noise: expected a number of at least 0, got {self.noise}")

    @property
    def flaw(self) -> str:
        """Why no guarantee follows; empty when one does."""
        return ""


MECHANISMS: Registry[Mechanism] = Registry("mechanism", "fedkge.privacy")


@MECHANISMS.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Independent Gaussian noise on every number that a triple could have moved."""

    def __str__(self) -> str:
        return f"Gaussian noise {self.noise:.4g} on every row"


@MECHANISMS.register("touched-rows")
@dataclass(frozen=True)
class TouchedRows(Mechanism):
    """DPKGE (section 3.4): Gaussian noise on the rows that a batch touches, and on no other."""

    percentile: float | None = None  #: of the private gradients' norms, that clips them; unset: a fixed norm

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.percentile is not None and not 0 < self.percentile <= 100:
            raise ConfigError(f"percentile: expected above 0 and at most 100, got {self.percentile}")

    @property
    def flaw(self) -> str:
        why = "noise on touched rows alone tells which rows changed"
        return why if self.percentile is None else f"{why}; the clipping norm is read off private gradients"

    def __str__(self) -> str:
        return f"Gaussian noise {self.noise:.4g} on touched rows"


@dataclass(frozen=True)
class Sampling:
    """Which triples a sum is over."""

    flaw: ClassVar[str] = ""  #: why no guarantee follows; empty when one does


SAMPLINGS: Registry[Sampling] = Registry("sampling", "fedkge.privacy")


@dataclass(frozen=True)
class Batches(Sampling):
    """A part of the triples."""

    rate: float  #: the share of the confidential triples in a batch, in the mean

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ConfigError(f"rate: expected above 0 and at most 1, got {self.rate}")


@SAMPLINGS.register("poisson")
@dataclass(frozen=True)
class Poisson(Batches):
    """Each triple is in a batch with probability `rate`, independently, by secret randomness."""

    def __str__(self) -> str:
        return f"Poisson, rate {self.rate:.3g}"


@SAMPLINGS.register("shuffled")
@dataclass(frozen=True)
class Shuffled(Batches):
    """Batches of a fixed size from a shuffled list, as most programs take them."""

    flaw: ClassVar[str] = "batches are shuffled, but the accountant takes them for Poisson samples"

    def __str__(self) -> str:
        return f"shuffled, rate {self.rate:.3g}"


@SAMPLINGS.register("everything")
@dataclass(frozen=True)
class Everything(Sampling):
    """All triples, every time: nothing is gained by sampling."""

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True)
class Release:
    """`count` applications of a mechanism, each to a sample of its own: all that an accountant needs."""

    mechanism: Mechanism
    sampling: Sampling
    count: int = 1
    purpose: Literal["training", "upload", "votes", "rows"] = (
        "training"  #: a gradient step, numbers sent beside the rows, teachers' votes, or rows sent to a peer
    )
    unit: Literal["triple", "person", "row"] = (
        "triple"  #: what is protected: one confidential triple, all that is said about one person, or one row
    )
    neighbours: Literal["zero-out-one", "replace-one"] = "zero-out-one"  #: graphs, or tables, that look alike

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"count: expected at least 1, got {self.count}")

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no guarantee follows; none when one does."""
        return tuple(flaw for flaw in (self.mechanism.flaw, self.sampling.flaw) if flaw)

    def plain(self) -> dict[str, Any]:
        """For a line of JSON; `read` gives this release again."""
        return options(self) | {
            "mechanism": {"name": MECHANISMS.name_of(self.mechanism), **options(self.mechanism)},
            "sampling": {"name": SAMPLINGS.name_of(self.sampling), **options(self.sampling)},
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Release:
        """An unknown mechanism, sampling, unit or field is an error: its cost would not be known."""
        parts: dict[str, Any] = dict(plain)
        registries: dict[str, Registry[Any]] = {"mechanism": MECHANISMS, "sampling": SAMPLINGS}
        for name, known in registries.items():
            if not isinstance(parts.get(name), Mapping):
                raise ConfigError(f"{name}: expected a name and its numbers, got {parts.get(name)!r}")
            parts[name] = choose(known, parts[name], name)
        return build(cls, parts, "")
