"""Accountants: closed forms, dp-accounting called directly, the paper's column, and refusals."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from math import exp, inf, isqrt, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from fedkge.errors import ConfigError, MissingPackage
from fedkge.privacy import ACCOUNTANTS, Release, accountants
from fedkge.privacy.accountants import PAPER_ORDERS, Pld, Rdp
from fedkge.privacy.releases import Everything, Gaussian, Mechanism, Poisson, Shuffled, TouchedRows

pytest.importorskip("dp_accounting")
import dp_accounting.pld
import dp_accounting.rdp

SOUND = ("pld", "rdp", "rdp-paper")
PHI = NormalDist().cdf

# FB15k and FB15k-237: training triples; half of them confidential, or all (FullDP).
STATEMENTS = {"FB15k": 483_142, "FB15k-237": 272_115}
PUBLISHED = {  # Tables 5 and 7 of the paper: noise -> ε; the same for all four models
    ("FB15k", "half"): {0.7: 8.79, 1.0: 3.92, 1.3: 2.60, 10.0: 0.30},
    ("FB15k", "all"): {0.7: 6.02, 1.0: 2.70, 1.3: 1.81, 10.0: 0.25},
    ("FB15k-237", "half"): {0.7: 10.08, 1.0: 4.49, 1.3: 2.96, 10.0: 0.32},
    ("FB15k-237", "all"): {0.7: 6.86, 1.0: 3.08, 1.3: 2.05, 10.0: 0.26},
}


def delta_of_gaussians(epsilon: float, mu: float) -> float:
    """Balle and Wang (2018), with mu = sqrt(steps) / noise: exact, for one Gaussian or many."""
    return PHI(-epsilon / mu + mu / 2) - exp(epsilon) * PHI(-epsilon / mu - mu / 2)


def steps(noise: float, rate: float, count: int) -> Release:
    return Release(Gaussian(noise), Poisson(rate), count)


# The paper


@pytest.mark.parametrize(("data", "confidential"), PUBLISHED)
@pytest.mark.parametrize("noise", [0.7, 1.0, 1.3, 10.0])
def test_the_papers_column(data: str, confidential: str, noise: float) -> None:
    n = STATEMENTS[data]
    c = n if confidential == "all" else n // 2
    batch = isqrt(n)
    release = Release(TouchedRows(noise, 20.0), Shuffled(batch / c), 99 * (c // batch))
    epsilon = ACCOUNTANTS["rdp-paper"]().epsilon([release], 1 / n)
    assert epsilon == pytest.approx(PUBLISHED[data, confidential][noise], abs=0.01)
    newer = Release(Gaussian(noise), Poisson(batch / c), release.count)
    assert Rdp().epsilon([newer], 1 / n) < epsilon


def test_the_older_conversion_is_the_formula() -> None:
    accountant = dp_accounting.rdp.RdpAccountant(PAPER_ORDERS)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)), 900)
    by_hand = min(
        divergence + log(1e5) / (order - 1)
        for order, divergence in zip(accountant.orders, accountant.rdp, strict=True)
    )
    assert ACCOUNTANTS["rdp-paper"]().epsilon([steps(1.1, 0.01, 900)], 1e-5) == pytest.approx(by_hand)


# Closed forms


@pytest.mark.parametrize(("noise", "count"), [(0.5, 1), (1.0, 1), (4.0, 1), (5.0, 10), (30.0, 400)])
def test_gaussians_without_sampling(noise: float, count: int) -> None:
    """Composition of equal Gaussians is one Gaussian of noise / sqrt(count)."""
    release, delta = Release(Gaussian(noise), Everything(), count), 1e-6
    epsilon = Pld().epsilon([release], delta)
    mu = sqrt(count) / noise
    assert delta_of_gaussians(epsilon, mu) <= delta * 1.001
    assert delta_of_gaussians(epsilon - 0.002, mu) > delta
    rho = count / (2 * noise**2)  # zero-concentrated: epsilon <= rho + 2 sqrt(rho log 1/delta)
    bound = rho + 2 * sqrt(rho * log(1 / delta))
    assert epsilon <= Rdp().epsilon([release], delta) <= bound * 1.02


def test_different_gaussians_add_up_as_one() -> None:
    releases = [Release(Gaussian(noise), Everything(), count) for noise, count in ((2.0, 3), (5.0, 7))]
    mu = sqrt(3 / 2**2 + 7 / 5**2)
    one = Pld().epsilon([Release(Gaussian(1 / mu), Everything())], 1e-5)
    assert Pld().epsilon(releases, 1e-5) == pytest.approx(one, abs=1e-3)


# dp-accounting, called directly


def by_hand(accountant: Any, releases: list[Release], delta: float) -> float:
    for release in releases:
        event = dp_accounting.GaussianDpEvent(release.mechanism.noise)
        if isinstance(release.sampling, Poisson):
            event = dp_accounting.PoissonSampledDpEvent(release.sampling.rate, event)
        accountant.compose(event, release.count)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize(
    "releases",
    [
        [steps(1.0, 0.01, 1000)],
        [steps(0.8, 0.002, 300), steps(0.8, 0.002, 700)],
        [steps(1.0, 0.01, 500), Release(Gaussian(8.0), Everything(), 5, purpose="upload")],
        [steps(3.0, 0.2, 40), steps(1.5, 0.01, 10), steps(3.0, 0.2, 2)],
    ],
    ids=["training", "two rounds", "training and uploads", "three kinds"],
)
def test_equals_dp_accounting(releases: list[Release]) -> None:
    pld = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    rdp = dp_accounting.rdp.RdpAccountant()
    assert Pld(1e-3).epsilon(releases, 1e-6) == pytest.approx(by_hand(pld, releases, 1e-6), rel=1e-3)
    assert Rdp().epsilon(releases, 1e-6) == pytest.approx(by_hand(rdp, releases, 1e-6), rel=1e-9)


@pytest.mark.parametrize("name", SOUND)
def test_nothing_released_costs_nothing(name: str) -> None:
    assert ACCOUNTANTS[name]().epsilon([], 1e-6) == 0


@pytest.mark.parametrize("name", SOUND)
def test_a_release_without_noise_costs_everything(name: str) -> None:
    releases = [steps(1.0, 0.1, 10), steps(0.0, 0.1, 1)]
    assert ACCOUNTANTS[name]().epsilon(releases, 1e-6) == inf


def test_rounding_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A divergence that rounding made negative gives dp-accounting ε = 0; here its order is left out."""
    orders, divergence = np.array([2.0, 3.0]), np.array([-1e-17, 0.5])
    assert dp_accounting.rdp.compute_epsilon(orders, divergence, 1e-6)[0] == 0
    monkeypatch.setattr(accountants, "_divergence", lambda *_: (orders, divergence))
    assert Rdp().epsilon([steps(1.0, 0.5, 1)], 1e-6) > 5


# Refusals


@dataclass(frozen=True)
class Laplace(Mechanism):
    def __str__(self) -> str:
        return "Laplace noise"


REFUSED = [
    (Release(Gaussian(1.0), Shuffled(0.1)), "batches are shuffled, but the accountant takes them"),
    (Release(TouchedRows(1.0), Poisson(0.1)), "noise on touched rows alone tells which rows changed"),
    (Release(TouchedRows(1.0, 20.0), Poisson(0.1)), "the clipping norm is read off private gradients"),
    (Release(Laplace(1.0), Poisson(0.1)), "expected Gaussian noise on every row"),
]


@pytest.mark.parametrize("name", ["pld", "rdp"])
@pytest.mark.parametrize(("release", "why"), REFUSED)
def test_refuses_what_it_does_not_know(name: str, release: Release, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} cannot account for .*{why}"):
        ACCOUNTANTS[name]().epsilon([steps(1.0, 0.1, 1), release], 1e-6)


def test_the_papers_accountant_refuses_other_mechanisms() -> None:
    with pytest.raises(ConfigError, match=r"^rdp-paper cannot account for Laplace noise"):
        ACCOUNTANTS["rdp-paper"]().epsilon([REFUSED[-1][0]], 1e-6)


@pytest.mark.parametrize("delta", [0.0, -1e-6, 1.0, float("nan")])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta: expected above 0 and below 1"):
        Pld().epsilon([], delta)


def test_unknown_accountant() -> None:
    with pytest.raises(ConfigError, match="no accountant is named 'pdl'; did you mean 'pld'"):
        ACCOUNTANTS["pdl"]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingPackage, match=r"needs dp-accounting.*pip install 'fedkge\[privacy\]'"):
        Pld().epsilon([steps(1.2345, 0.1, 1)], 1e-6)


def test_importing_loads_neither_torch_nor_the_package() -> None:
    code = "import sys, fedkge.privacy; print(sorted({'torch', 'scipy', 'dp_accounting'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
