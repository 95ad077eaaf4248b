"""How a site protects its confidential triples: the options."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from math import inf
from typing import Literal

from fedkge.errors import ConfigError, DataWarning
from fedkge.privacy.accountants import ACCOUNTANTS, Accountant
from fedkge.privacy.budget import Budget
from fedkge.privacy.delta import caution, check_delta, check_share
from fedkge.privacy.releases import Gaussian, Poisson, Release, Shuffled, TouchedRows
from fedkge.privacy.units import unit_of

CLIP, PERCENTILE = 1.0, 20.0
PER_PERSON = 32
LEAST = 0.01  #: noise multiplier; accountants cannot count far less
SHORTEST = 1e-9  #: clip: squares of shorter norms leave the range of float32


@dataclass(frozen=True)
class Privacy:
    """Differentially private training on confidential triples.

    `strict` has a proven guarantee; `paper` is DPKGE as published, which has none; `fulldp` takes all
    triples for confidential; `u-only` trains on the unrestricted alone, and needs no noise. Unset options
    take the values of their mode, so that a run's configuration is complete.
    """

    mode: Literal["off", "strict", "paper", "fulldp", "u-only"] = "off"  #: off: no triple is protected
    unit: Literal["triple", "entity"] = "triple"  #: what is protected; entity: all about one person
    epsilon: float | None = None  #: budget; without `noise` it also decides the noise
    delta: float | None = None  #: δ of ε; keep it far below one over the number of confidential triples
    noise: float | None = None  #: noise multiplier; unset: the smallest that keeps the plan within epsilon
    clip: float | None = None  #: norm to which a triple's gradient is clipped; unset: 1, or the percentile
    percentile: float | None = None  #: paper: clips at this percentile of the private norms; unset: 20
    accountant: str | None = None  #: pld, rdp or rdp-paper; unset: pld, by the paper's rules rdp-paper
    batch_size: int | None = None  #: mean number of triples, or persons, in a step; unset: the trainer's
    per_person: int | None = None  #: unit entity: most triples of a person that are trained on; unset: 32
    lr: float | None = None  #: learning rate of confidential steps; unset: the trainer's
    rules: Literal["strict", "paper"] | None = None  #: rules of fulldp; unset: strict

    def __post_init__(self) -> None:
        self._check_unit()
        if self.mode in ("off", "u-only"):
            self._check_unused()
            return
        self._check_numbers()
        self._check_rules()
        self._complete()
        accountant = ACCOUNTANTS[str(self.accountant)]()
        try:
            accountant.read(self.release(noise=1.0, rate=0.5, count=1))
        except ConfigError as error:
            raise ConfigError(f"accountant: {error}; expected rdp-paper") from None

    def _check_unit(self) -> None:
        if self.by_person and self.mode not in ("strict", "u-only"):
            raise ConfigError(f"unit: 'entity' goes with mode 'strict' or 'u-only', not with {self.mode!r}")
        if self.per_person is not None and not self.by_person:
            raise ConfigError("per_person: of no use unless unit is 'entity'")
        if self.per_person is not None and self.per_person < 1:
            raise ConfigError(f"per_person: expected at least 1, got {self.per_person}")

    def _check_unused(self) -> None:
        for name in (field.name for field in fields(self) if field.name not in ("mode", "unit")):
            if getattr(self, name) is not None:
                raise ConfigError(f"{name}: of no use in mode {self.mode!r}, which adds no noise")

    def _check_numbers(self) -> None:
        for name in ("epsilon", "noise", "clip", "lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:  # NaN is neither
                raise ConfigError(f"{name}: expected a number above 0, got {value}")
        if self.noise is not None and self.noise < LEAST:
            raise ConfigError(f"noise: {self.noise:g} protects nobody; expected at least {LEAST:g}")
        if self.clip is not None and self.clip < SHORTEST:
            raise ConfigError(
                f"clip: expected at least {SHORTEST:g}, which float32 can square, got {self.clip:g}"
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch_size: expected at least 1, got {self.batch_size}")
        if self.epsilon is None and self.noise is None:
            raise ConfigError("epsilon, noise: expected a target epsilon, a noise multiplier, or both")
        if self.delta is None:
            raise ConfigError("delta: expected a number well below 1 / the confidential triples, as in 1e-6")
        check_delta(self.delta)

    def _check_rules(self) -> None:
        if self.rules is not None and self.mode != "fulldp" and self.rules != self.mode:
            raise ConfigError(f"rules: {self.mode!r} has its own; only 'fulldp' can choose")
        if self.lr is not None and self._rules() == "paper":
            raise ConfigError(
                "lr: by the paper's rules all steps have one optimizer; expected trainer.lr alone"
            )
        if self.percentile is not None and self.clip is not None:
            raise ConfigError("clip, percentile: expected one of the two")
        if self.percentile is not None and self._rules() == "strict":
            raise ConfigError(
                "percentile: gradient norms are private, so that strict mode cannot clip by them; give clip"
            )

    def _rules(self) -> Literal["strict", "paper"]:
        return self.rules or ("paper" if self.mode == "paper" else "strict")

    def _complete(self) -> None:
        chosen: dict[str, object] = {"rules": self._rules()}
        if self._rules() == "paper":
            if self.clip is None and self.percentile is None:
                chosen["percentile"] = PERCENTILE
        elif self.clip is None:
            chosen["clip"] = CLIP
        if self.by_person and self.per_person is None:
            chosen["per_person"] = PER_PERSON
        if self.accountant is None:
            chosen["accountant"] = "rdp-paper" if self._rules() == "paper" else "pld"
        for name, value in chosen.items():
            object.__setattr__(self, name, value)

    @property
    def by_person(self) -> bool:
        """Whether everything said about one person is protected together."""
        return self.unit == "entity"

    @property
    def released(self) -> Literal["triple", "person"]:
        """The unit that a ledger has."""
        return "person" if self.by_person else "triple"

    @property
    def noisy(self) -> bool:
        """Whether confidential triples are trained on, with noise."""
        return self.mode in ("strict", "paper", "fulldp")

    @property
    def closed(self) -> bool:
        """Whether messages depend on confidential triples by nothing but noisy steps."""
        return self.strict or self.mode == "u-only"

    @property
    def strict(self) -> bool:
        """Whether the rules are kept that the guarantee needs."""
        return self.noisy and self.rules == "strict"

    def release(self, noise: float, rate: float, count: int) -> Release:
        """`count` steps on batches of `rate` of the triples, or persons, as this mode makes them."""
        if self.rules == "paper":
            return Release(TouchedRows(noise, self.percentile), Shuffled(rate), count)
        return Release(Gaussian(noise), Poisson(rate), count, unit=self.released)

    @property
    def counted_by(self) -> Accountant:
        return ACCOUNTANTS[str(self.accountant)]()

    @property
    def budget(self) -> Budget | None:
        """What a site may spend; None without a target: then all planned steps are taken."""
        if self.epsilon is None or self.delta is None:
            return None
        return Budget(self.epsilon, self.delta, self.counted_by)

    def multiplier(self, rate: float, steps: int) -> float:
        """The noise multiplier for that many steps: as given, or the least that keeps them in the budget."""
        if self.noise is not None:
            return self.noise
        assert self.budget is not None, "without noise there is a target"
        return self.budget.noise(lambda noise: [self.release(noise, rate, steps)])

    def check_units(self, site: str, count: int) -> None:
        """δ allows publishing that share of the triples, or persons: strict mode wants it far below one."""
        if not self.strict or self.delta is None:
            return
        what = unit_of(self.released).all
        try:
            check_share(self.delta, site, count, what)
        except ConfigError as error:
            raise ConfigError(f"privacy.{error}") from None
        if warning := caution(self.delta, site, count, what):
            warnings.warn(f"privacy.delta: {warning}", DataWarning, stacklevel=2)
