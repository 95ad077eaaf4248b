"""docs/epsilon.md: ε against dp-accounting and a closed form; the page is what its file makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import erfc, exp, isqrt, log, sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("dp_accounting")
import dp_accounting.pld
import dp_accounting.rdp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TRIPLES = {"FB15k": 483_142, "YAGO3-10": 1_079_040}
TENSORFLOW_PRIVACY = [1 + i / 10 for i in range(1, 100)] + [float(order) for order in range(12, 64)]


def phi(x: float) -> float:
    """The normal distribution's; accurate far from 0, where 1 + erf is not."""
    return erfc(-x / sqrt(2)) / 2


@pytest.fixture(scope="module")
def epsilon(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("epsilon")


@pytest.fixture(scope="module")
def written(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("epsilon_page")


@pytest.fixture(scope="module")
def kept() -> Any:
    return json.loads((DOCS / "epsilon.json").read_text())


def test_the_page_and_its_pictures_are_what_the_file_makes(
    epsilon: ModuleType, written: ModuleType, kept: Any
) -> None:
    assert written.page(kept) == (DOCS / "epsilon.md").read_text()
    assert written.pictures(kept) == {path.name: path.read_text() for path in DOCS.glob("epsilon-*.svg")}
    assert epsilon.written(kept) == (DOCS / "epsilon.json").read_text()
    assert [(row["data"], row["method"], row["noise"]) for row in kept] == list(epsilon.settings())


def composed(accountant: Any, noise: float, rate: float, count: int) -> Any:
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    return accountant.compose(event, count)


@pytest.mark.parametrize("epoch", [1, 50, 99])
@pytest.mark.parametrize("number", range(10))
def test_rdp_by_dp_accounting(kept: Any, number: int, epoch: int) -> None:
    """The setting is worked out here anew; both conversions, the older one by its formula."""
    row = kept[number]
    n = TRIPLES[row["data"]]
    confidential, batch = n // 2 if row["method"] == "DPKGE" else n, isqrt(n)
    count = epoch * (confidential // batch)
    step = (row["noise"], batch / confidential, count)
    old = composed(dp_accounting.rdp.RdpAccountant(TENSORFLOW_PRIVACY), *step)
    by_hand = min(
        divergence + log(n) / (order - 1) for order, divergence in zip(old.orders, old.rdp, strict=True)
    )
    assert dict(row["rdp-paper"])[epoch] == pytest.approx(by_hand, rel=1e-9)
    new = composed(dp_accounting.rdp.RdpAccountant(), *step)
    assert dict(row["rdp"])[epoch] == pytest.approx(new.get_epsilon(1 / n), rel=1e-9)


def test_pld_by_dp_accounting(kept: Any) -> None:
    """On a coarser grid, which is another upper bound of the same: near, and not below."""
    row = next(row for row in kept if (row["data"], row["method"], row["noise"]) == ("FB15k", "DPKGE", 1.0))
    for key, noise in (("pld", 1.0), ("apart", 0.5)):
        pld = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
        coarse = composed(pld, noise, row["rate"], 99 * row["steps"]).get_epsilon(row["delta"])
        own = dict(row[key])[99] if key == "pld" else row[key]
        assert own <= coarse <= 1.02 * own


def test_without_sampling_it_is_the_gaussian_mechanism(kept: Any) -> None:
    """Balle and Wang (2018) for 99 sums in a row: exact."""
    for row in kept:
        bound, mu = row["unsampled"], sqrt(99) / row["noise"]

        def delta(epsilon: float, mu: float = mu) -> float:
            return phi(-epsilon / mu + mu / 2) - exp(epsilon) * phi(-epsilon / mu - mu / 2)

        assert delta(bound) <= row["delta"] * 1.001
        assert delta(0.99 * bound) > row["delta"]


def test_bounds_are_in_order(kept: Any) -> None:
    """More epochs cost more; what assumes less costs more."""
    for row in kept:
        for name in ("rdp-paper", "rdp", "pld"):
            values = [epsilon for _, epsilon in row[name]]
            assert values == sorted(values)
        last = [dict(row[name])[99] for name in ("pld", "rdp", "rdp-paper")]
        assert last == sorted(last)
        assert last[0] < row["apart"]
        assert last[0] < row["unsampled"]


def test_what_is_printed_is_found(written: ModuleType, kept: Any) -> None:
    """To 0.01: the paper cuts digits off."""
    assert written.off(kept) < 0.01


def test_claims_follow_from_the_numbers(written: ModuleType, kept: Any) -> None:
    assert [claim.holds for claim in written.claims(kept)] == [False, True, True, True, False]
    level = [
        {**row, "rdp-paper": [[epoch, epoch * 5 / row["noise"] / 100] for epoch, _ in row["rdp-paper"]]}
        for row in kept
    ]
    assert [claim.holds for claim in written.claims(level)] == [True, True, False, True, True]
