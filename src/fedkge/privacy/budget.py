"""A budget of ε at a δ: the noise that keeps within it, and the steps that it allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import exp, inf, log

from fedkge.errors import ConfigError
from fedkge.privacy.accountants import Accountant, Pld
from fedkge.privacy.delta import check_delta
from fedkge.privacy.releases import Release

LEAST, MOST = log(0.2), log(4096)  #: of the noise multipliers that are tried
TOLERANCE = 5e-4  #: of the noise that is searched for, relative
NEAR = 2e-3  #: an ε that is below the budget's by so much, relative, is near enough


@dataclass(frozen=True)
class Budget:
    """What all releases of a site together may cost."""

    epsilon: float
    delta: float
    accountant: Accountant = field(default_factory=Pld)

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < inf:
            raise ConfigError(f"epsilon: expected a number above 0, got {self.epsilon}")
        check_delta(self.delta)

    def spent(self, releases: Iterable[Release]) -> float:
        return self.accountant.epsilon(releases, self.delta)

    def noise(self, plan: Callable[[float], Sequence[Release]]) -> float:
        """The least noise multiplier with which `plan(noise)` stays within the budget, or 0.2 % more."""
        from scipy.optimize import brentq  # comes with dp-accounting

        @cache
        def excess(x: float) -> float:
            return self.spent(plan(exp(x))) - self.epsilon

        start, stride = self._start(plan)
        if -NEAR * self.epsilon <= excess(start) <= 0:
            return exp(start)
        low = high = start
        while (over := excess(high)) > 0:
            if high == MOST:
                raise ConfigError(
                    f"epsilon: no noise reaches {self.epsilon:g} at delta {self.delta:g}; it is still "
                    f"{over + self.epsilon:.4g} at noise multiplier {exp(high):g}; take fewer epochs, "
                    "smaller batches, or a larger epsilon or delta"
                )
            low, high, stride = high, min(high + stride, MOST), 2 * stride
        while low == high:  # enough; is less enough too?
            low, stride = max(high - stride, LEAST), 2 * stride
            if low == high:
                return exp(high)
            if excess(low) <= 0:
                high = low
        found = float(brentq(excess, low, high, xtol=TOLERANCE))
        return exp(next(x for x in (found, found + TOLERANCE, found + 2 * TOLERANCE, high) if excess(x) <= 0))

    def _start(self, plan: Callable[[float], Sequence[Release]]) -> tuple[float, float]:
        """Where to look first, and in which strides, that double: log noise multipliers."""
        if self.accountant.rough is None:
            return 0.0, log(2)
        rough, off = self.accountant.rough
        try:
            return log(replace(self, accountant=rough).noise(plan)), off
        except ConfigError:  # it takes nearly all the noise there is, or more
            return MOST, log(2)

    def allowed(self, step: Release, spent: Sequence[Release], most: int) -> int:
        """How often, up to `most`, a step can follow what was spent; once more would pass the budget."""

        def fits(count: int) -> bool:
            return self.spent([*spent, replace(step, count=count)]) <= self.epsilon

        if most < 1 or not fits(1):
            return 0
        if fits(most):
            return most
        low, high = 1, most  # fits(low), not fits(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low
