"""What releases cost: ε for a δ, by dp-accounting; a release that an accountant does not know is refused."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

from fedkge.errors import ConfigError, MissingPackage
from fedkge.privacy.delta import check_delta
from fedkge.privacy.pate import GaussianVotes, LaplaceVotes
from fedkge.privacy.releases import Batches, Everything, Gaussian, Poisson, Release, TouchedRows
from fedkge.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Law: TypeAlias = Literal["gaussian", "laplace"]


class Step(NamedTuple):
    """One application, as accountants compose them."""

    noise: float  #: multiplier: standard deviation, of Laplace noise b, over what one unit can move
    rate: float = 1.0  #: of Poisson samples
    law: Law = "gaussian"


Steps: TypeAlias = Mapping[Step, int]  #: how often each was applied
COARSE = 1e-3  #: interval of privacy losses, to search with: ten times as fast as the default
PAPER_ORDERS = (*(1 + i / 10 for i in range(1, 100)), *map(float, range(12, 64)))  #: of TensorFlow Privacy


@dataclass(frozen=True)
class Accountant(ABC):
    """Composes releases. Composition is adaptive: a release may depend on all that were made before it."""

    about: ClassVar[str]  #: what ε is printed with

    @property
    def rough(self) -> tuple[Accountant, float] | None:
        """A quick one to start a search with, and by which part its noise is off, about."""
        return None

    def epsilon(self, releases: Iterable[Release], delta: float) -> float:
        """The smallest ε it can prove at this δ for all releases together; 0 for none."""
        check_delta(delta)
        steps: Counter[Step] = Counter()
        for release in releases:
            steps[self.read(release)] += release.count * release.mechanism.numbers
        if not steps:
            return 0.0
        if any(step.noise == 0 for step in steps):
            return math.inf
        return self._epsilon(steps, delta)

    def read(self, release: Release) -> Step:
        """What is composed; a release that is not of such a kind is refused."""
        match release.mechanism, release.sampling:
            case Gaussian(noise=noise) | GaussianVotes(noise=noise), Everything():
                return Step(noise)
            case Gaussian(noise=noise), Poisson(rate=rate):
                return Step(noise, rate)
            case LaplaceVotes(noise=noise), Everything():
                return Step(noise, law="laplace")
        why = "; ".join(release.flaws) or "expected Gaussian noise on every row, of all or of Poisson samples"
        raise ConfigError(
            f"{ACCOUNTANTS.name_of(self)} cannot account for {release.mechanism} with sampling "
            f"{release.sampling}: {why}"
        )

    @abstractmethod
    def _epsilon(self, steps: Steps, delta: float) -> float: ...


ACCOUNTANTS: Registry[Accountant] = Registry("accountant", "fedkge.privacy")


@ACCOUNTANTS.register("pld")
@dataclass(frozen=True)
class Pld(Accountant):
    """Privacy loss distributions, composed numerically: the tightest, and always an upper bound."""

    interval: float = 1e-4  #: of the grid that losses are rounded up to; coarser is faster and larger

    about = "privacy loss distributions (PLD)"

    @property
    def rough(self) -> tuple[Accountant, float]:
        return (Pld(COARSE), 0.001) if self.interval < COARSE else (Rdp(), 0.15)

    def _epsilon(self, steps: Steps, delta: float) -> float:
        first, *rest = (_loss(*step, self.interval).self_compose(count) for step, count in steps.items())
        for other in rest:
            first = first.compose(other)
        return float(first.get_epsilon_for_delta(delta))


@ACCOUNTANTS.register("rdp")
@dataclass(frozen=True)
class Rdp(Accountant):
    """Rényi differential privacy, turned into ε by Canonne, Kamath and Steinke (2020), Proposition 12."""

    about = "Rényi DP (RDP)"

    def _epsilon(self, steps: Steps, delta: float) -> float:
        orders, divergence = _composed(steps, None)
        return float(_package().rdp.compute_epsilon(orders, divergence, delta)[0])


@ACCOUNTANTS.register("rdp-paper")
@dataclass(frozen=True)
class PaperRdp(Accountant):
    """What the paper evidently ran: RDP, turned into ε by Mironov (2017), ε = RDP(α) + ln(1/δ) / (α - 1).

    It takes touched-row noise for noise on every row and shuffled batches for Poisson samples. Without these
    it is a bound like the others, only larger.
    """

    about = "Rényi DP, older conversion, as in the DPKGE paper"

    def read(self, release: Release) -> Step:
        match release.mechanism, release.sampling:
            case Gaussian(noise=noise) | TouchedRows(noise=noise), Batches(rate=rate):
                return Step(noise, rate)
            case TouchedRows(noise=noise), Everything():
                return Step(noise)
        return super().read(release)

    def _epsilon(self, steps: Steps, delta: float) -> float:
        orders, divergence = _composed(steps, PAPER_ORDERS)
        return float((divergence + math.log(1 / delta) / (orders - 1)).min())


def _package() -> Any:
    try:
        import dp_accounting
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError:
        raise MissingPackage("dp-accounting", "privacy accounting", "privacy") from None
    return dp_accounting


@lru_cache(maxsize=32)
def _loss(noise: float, rate: float, law: Law, interval: float) -> Any:
    """The privacy loss distribution of one step."""
    distributions = _package().pld.privacy_loss_distribution
    if law == "laplace":
        return distributions.from_laplace_mechanism(noise, value_discretization_interval=interval)
    return distributions.from_gaussian_mechanism(
        standard_deviation=noise, sampling_prob=rate, value_discretization_interval=interval
    )


@lru_cache(maxsize=256)
def _divergence(
    noise: float, rate: float, law: Law, orders: tuple[float, ...] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Orders and the Rényi divergences of one step at them; no orders given: dp-accounting's."""
    package = _package()
    accountant = package.rdp.RdpAccountant(orders)
    event = package.PoissonSampledDpEvent(rate, package.GaussianDpEvent(noise))
    with _quietly():
        accountant.compose(package.LaplaceDpEvent(noise) if law == "laplace" else event)
    return accountant.orders, accountant.rdp


@contextmanager
def _quietly() -> Iterator[None]:
    """Without a line for every order that the package leaves out: ε by the others is a bound all the same."""
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _composed(
    steps: Steps, orders: tuple[float, ...] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Divergences add up. One that rounding has made negative proves nothing, so its order is left out."""
    (used, total), *rest = (
        (found, count * divergence)
        for (found, divergence), count in ((_divergence(*step, orders), n) for step, n in steps.items())
    )
    for _, more in rest:
        total = total + more
    proven = total >= 0
    return used[proven], total[proven]
