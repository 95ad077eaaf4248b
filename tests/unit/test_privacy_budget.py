"""Noise for a target, steps for a budget, and options that cannot be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedkge.config import build, options
from fedkge.errors import ConfigError, DataWarning
from fedkge.privacy import ACCOUNTANTS, Budget, BudgetSpent, Ledger, Privacy, Release, Spending
from fedkge.privacy.accountants import Pld, Rdp
from fedkge.privacy.releases import Everything, Gaussian, Poisson, Shuffled, TouchedRows

pytest.importorskip("dp_accounting")
import dp_accounting.pld
import dp_accounting.rdp

STEP = Release(Gaussian(1.5), Poisson(0.02))
COARSE = 2e-3  #: of privacy losses, for speed
BOTH = {
    "pld": (Pld(COARSE), lambda: dp_accounting.pld.PLDAccountant(value_discretization_interval=COARSE)),
    "rdp": (Rdp(), dp_accounting.rdp.RdpAccountant),
}


# Noise for a target


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(("epsilon", "rate", "count"), [(2.0, 0.01, 500), (8.0, 1.0, 3)])
def test_noise_is_what_dp_accounting_finds(name: str, epsilon: float, rate: float, count: int) -> None:
    accountant, own = BOTH[name]
    budget = Budget(epsilon, 1e-6, accountant)

    def plan(noise: float) -> list[Release]:
        return [Release(Gaussian(noise), Poisson(rate), count)]

    noise = budget.noise(plan)
    calibrated = dp_accounting.calibrate_dp_mechanism(
        own,
        lambda noise: dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise)), count
        ),
        epsilon,
        1e-6,
        bracket_interval=dp_accounting.ExplicitBracketInterval(0.8 * noise, 1.2 * noise),
        tol=1e-3,
    )
    assert noise == pytest.approx(calibrated, rel=2e-3, abs=2e-3)
    assert budget.spent(plan(noise)) <= epsilon
    assert budget.spent(plan(noise * 0.99)) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "rate", "count"), [(4.0, 0.1, 1200), (0.5, 0.1, 300), (0.005, 0.1, 1000)]
)
def test_noise_is_found_with_few_fine_questions(
    epsilon: float, rate: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most are asked of a coarse grid; the last is of the fine one, and says that it is enough."""
    asked: list[tuple[float, float]] = []  # (grid, ε)
    ask = Pld._epsilon

    def noted(self: Pld, *arguments: Any) -> float:
        asked.append((self.interval, ask(self, *arguments)))
        return asked[-1][1]

    monkeypatch.setattr(Pld, "_epsilon", noted)
    noise = Budget(epsilon, 1e-6).noise(lambda noise: [Release(Gaussian(noise), Poisson(rate), count)])
    fine = [found for grid, found in asked if grid == Pld().interval]
    assert len(fine) == 1 if epsilon == 4.0 else len(fine) <= 7
    spent = Pld().epsilon([Release(Gaussian(noise), Poisson(rate), count)], 1e-6)
    assert 0.997 * epsilon <= spent <= epsilon


def test_no_noise_reaches_it() -> None:
    """The older conversion has a floor, ln(1/δ) / 62, and what was spent cannot be bought back."""
    floor = Budget(0.2, 1e-6, ACCOUNTANTS["rdp-paper"]())
    with pytest.raises(ConfigError, match=r"no noise reaches 0\.2 at delta 1e-06; it is still 0\.22"):
        floor.noise(lambda noise: [Release(Gaussian(noise), Poisson(0.01), 10)])
    with pytest.raises(ConfigError, match=r"still inf at noise .* or a larger epsilon or delta"):
        Budget(1.0, 1e-30).noise(lambda noise: [Release(Gaussian(noise), Poisson(0.01), 10)])
    spent = Release(Gaussian(1.0), Everything())
    with pytest.raises(ConfigError, match="no noise reaches 1 "):
        Budget(1.0, 1e-6, Rdp()).noise(lambda noise: [spent, Release(Gaussian(noise), Poisson(0.01), 10)])


def test_a_large_target_still_gets_some_noise() -> None:
    noise = Budget(1e6, 1e-6, Rdp()).noise(lambda noise: [Release(Gaussian(noise), Everything())])
    assert noise == pytest.approx(0.2)


# Steps for a budget


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("spent", [[], [Release(Gaussian(1.2), Poisson(0.01), 100)]])
def test_not_one_step_too_many(name: str, spent: list[Release]) -> None:
    budget = Budget(1.0, 1e-5, BOTH[name][0])
    count = budget.allowed(STEP, spent, 10**6)
    assert count > 1
    assert budget.spent([*spent, Release(Gaussian(1.5), Poisson(0.02), count)]) <= 1.0
    assert budget.spent([*spent, Release(Gaussian(1.5), Poisson(0.02), count + 1)]) > 1.0
    assert budget.allowed(STEP, spent, count - 1) == count - 1


def test_nothing_is_left() -> None:
    budget = Budget(0.5, 1e-5, Rdp())
    assert budget.allowed(Release(Gaussian(0.5), Everything()), [], 10) == 0
    assert budget.allowed(STEP, [Release(Gaussian(0.5), Everything())], 10) == 0
    assert budget.allowed(STEP, [], 0) == 0


def test_spending_stops_before_the_budget(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-5, Rdp())
    whole = budget.allowed(STEP, [], 10**6)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    spending, other = Spending(ledger, "a", budget), Spending(ledger, "b", budget)
    epoch = 0
    while (count := spending.left(STEP, whole // 3)) > 0:
        epoch += 1
        entry = spending.spend(Release(STEP.mechanism, STEP.sampling, count), epoch)
        assert len(entry.numbers) == count
    assert ledger.count("a") == whole
    assert budget.spent(ledger.releases("a")) <= 1.0
    before = (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(BudgetSpent, match=r"site 'a': 1 more of .* would pass epsilon 1 .*; 0 are left$"):
        spending.spend(STEP, epoch + 1)
    assert (tmp_path / "ledger.jsonl").read_bytes() == before
    assert other.left(STEP, 10**6) == whole, "a site's budget is its own"


def test_spending_goes_on_after_a_restart(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-5, Rdp())
    whole = budget.allowed(STEP, [], 10**6)
    Spending(Ledger(tmp_path / "l"), "a", budget).spend(Release(STEP.mechanism, STEP.sampling, whole - 5), 1)
    again = Spending(Ledger(tmp_path / "l"), "a", budget)
    assert again.left(STEP, 10**6) == 5
    with pytest.raises(BudgetSpent, match="6 more of"):
        again.spend(Release(STEP.mechanism, STEP.sampling, 6), 2)


def test_spending_on_two_things(tmp_path: Path) -> None:
    """What one kind of release has left depends on all others."""
    budget = Budget(1.0, 1e-5, Rdp())
    spending = Spending(Ledger(tmp_path / "l"), "a", budget)
    before = spending.left(STEP, 10**6)
    spending.spend(Release(Gaussian(6.0), Everything(), purpose="upload"), 1)
    assert spending.left(STEP, 10**6) < before
    assert spending.left(STEP, 10**6) == budget.allowed(STEP, spending.ledger.releases("a"), 10**6)


def test_two_ways_to_one_site(tmp_path: Path) -> None:
    """What one of them records, the other knows."""
    budget = Budget(1.0, 1e-5, Rdp())
    ledger = Ledger(tmp_path / "l")
    first, second = Spending(ledger, "a", budget), Spending(ledger, "a", budget)
    whole = first.left(STEP, 10**6)
    second.spend(Release(STEP.mechanism, STEP.sampling, whole), 1)
    with pytest.raises(BudgetSpent, match="0 are left"):
        first.spend(STEP, 1)


def test_without_a_budget_everything_is_recorded(tmp_path: Path) -> None:
    spending = Spending(Ledger(tmp_path / "l"), "a")
    assert spending.left(STEP, 10**9) == 10**9
    spending.spend(Release(Gaussian(0.0), Everything(), 10**6), 1)
    assert spending.ledger.count("a") == 10**6


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-6), (-1.0, 1e-6), (float("inf"), 1e-6), (1.0, 0.0)])
def test_bad_budgets(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="expected"):
        Budget(epsilon, delta)


# Options


def test_strict_finds_its_noise() -> None:
    privacy = Privacy("strict", epsilon=2.0, delta=1e-6, accountant="rdp")
    assert (privacy.clip, privacy.rules) == (1.0, "strict")
    assert privacy.noisy
    assert privacy.strict
    noise = privacy.multiplier(rate=0.01, steps=1000)
    release = privacy.release(noise, 0.01, 1000)
    assert (type(release.mechanism), type(release.sampling)) == (Gaussian, Poisson)
    assert privacy.budget is not None
    assert 1.98 < privacy.budget.spent([release]) <= 2.0
    assert Privacy("strict", epsilon=2.0, delta=1e-6).accountant == "pld"


def test_noise_that_is_given_is_taken() -> None:
    privacy = Privacy("strict", noise=1.1, delta=1e-6)
    assert privacy.multiplier(0.01, 10) == 1.1
    assert privacy.budget is None


def test_paper_mode() -> None:
    privacy = Privacy("paper", noise=0.7, delta=1e-6)
    assert (privacy.clip, privacy.percentile, privacy.accountant) == (None, 20.0, "rdp-paper")
    release = privacy.release(0.7, 0.01, 5)
    assert release == Release(TouchedRows(0.7, 20.0), Shuffled(0.01), 5)
    assert not privacy.strict
    full = Privacy("fulldp", noise=0.7, delta=1e-6, rules="paper")
    assert full.release(0.7, 0.01, 5) == release
    assert Privacy("fulldp", noise=0.7, delta=1e-6).strict


@pytest.mark.parametrize("mode", ["off", "u-only"])
def test_modes_without_noise(mode: str) -> None:
    privacy = build(Privacy, {"mode": mode}, "privacy")
    assert not privacy.noisy
    assert not privacy.strict
    assert privacy.budget is None
    with pytest.raises(ConfigError, match=f"privacy.epsilon: of no use in mode '{mode}', which"):
        build(Privacy, {"mode": mode, "epsilon": 2}, "privacy")


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "off"},
        {"mode": "strict", "epsilon": 2, "delta": 1e-6},
        {"mode": "paper", "noise": 0.7, "delta": 1e-6, "percentile": 50},
        {"mode": "paper", "noise": 0.7, "delta": 1e-6, "clip": 0.3},
        {"mode": "fulldp", "noise": 0.7, "delta": 1e-6, "rules": "paper"},
    ],
)
def test_a_configuration_is_complete_and_parses_again(given: dict[str, Any]) -> None:
    privacy = build(Privacy, given, "privacy")
    assert build(Privacy, options(privacy), "privacy") == privacy
    assert given.items() <= options(privacy).items()


STRICT = {"mode": "strict", "epsilon": 2, "delta": 1e-6}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "strickt"}, "privacy.mode: expected one of 'off', 'strict'.* did you mean 'strict'"),
        ({"mode": "strict", "delta": 1e-6}, "privacy.epsilon, noise: expected a target epsilon"),
        ({"mode": "strict", "epsilon": 2}, "privacy.delta: expected a number well below"),
        (STRICT | {"delta": 1}, "privacy.delta: expected above 0 and below 1, got 1.0"),
        (STRICT | {"epsilon": 0}, "privacy.epsilon: expected a number above 0, got 0.0"),
        (STRICT | {"epsilon": float("nan")}, "privacy.epsilon: expected a number above 0, got nan"),
        (STRICT | {"clip": 0}, "privacy.clip: expected a number above 0, got 0.0"),
        (STRICT | {"clip": -1.5}, "privacy.clip: expected a number above 0, got -1.5"),
        (STRICT | {"noise": 0}, "privacy.noise: expected a number above 0"),
        (STRICT | {"noise": 1e-300}, "privacy.noise: 1e-300 protects nobody; expected at least 0.01"),
        (STRICT | {"lr": 0}, "privacy.lr: expected a number above 0"),
        (STRICT | {"mode": "paper", "lr": 0.1}, "privacy.lr: by the paper's rules all steps have one"),
        (STRICT | {"percentile": 20}, "privacy.percentile: gradient norms are private"),
        (STRICT | {"mode": "paper", "clip": 1, "percentile": 20}, "privacy.clip, percentile: expected one"),
        (STRICT | {"mode": "paper", "percentile": 0}, "percentile: expected above 0 and at most 100"),
        (STRICT | {"mode": "paper", "accountant": "pld"}, "accountant: pld cannot .*; expected rdp-paper"),
        (STRICT | {"accountant": "pdl"}, "no accountant is named 'pdl'"),
        (STRICT | {"rules": "paper"}, "privacy.rules: 'strict' has its own"),
        (STRICT | {"epsilom": 2}, "privacy.epsilom: no such option; did you mean 'epsilon'"),
    ],
)
def test_options_that_cannot_be_right(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Privacy, given, "privacy")


def test_delta_beside_the_number_of_triples() -> None:
    privacy = Privacy("strict", noise=1.0, delta=1e-3)
    privacy.check_units("a", 99)
    for near in (100, 999):
        with pytest.warns(DataWarning, match=rf"privacy\.delta: δ = 0\.001 is .* of one in the {near} conf"):
            privacy.check_units("a", near)
    with pytest.raises(ConfigError, match=r"privacy\.delta: 0\.001 allows publishing one of the 1,000"):
        privacy.check_units("a", 1000)
    Privacy("paper", noise=1.0, delta=1e-3).check_units("a", 1000)  # which promises nothing
