"""What votes cost: against closed forms, against dp-accounting, and against the paper's own arithmetic."""

from __future__ import annotations

from math import isfinite, log, sqrt

import pytest

from fedkge.privacy import ACCOUNTANTS, Release
from fedkge.privacy.pate import GaussianVotes, paper_epsilon, votes_release

dp_accounting = pytest.importorskip("dp_accounting")
DELTA = 1e-5


@pytest.mark.parametrize(("scale", "votes"), [(20.0, 29), (40.0, 1000)])
def test_gnmax_is_alpha_over_the_variance(scale: float, votes: int) -> None:
    """Papernot et al. (2018), Proposition 8: (alpha, alpha / sigma^2)-RDP for each vote."""
    orders = [1 + x / 10 for x in range(1, 1000)]
    rdp = [alpha * votes / scale**2 for alpha in orders]
    expected = dp_accounting.rdp.compute_epsilon(orders, rdp, DELTA)[0]
    found = ACCOUNTANTS["rdp"]().epsilon([votes_release("gaussian", scale, votes)], DELTA)
    assert found == pytest.approx(expected, rel=0.01)
    assert ACCOUNTANTS["pld"]().epsilon([votes_release("gaussian", scale, votes)], DELTA) < found


def test_laplace_votes_are_two_laplace_mechanisms() -> None:
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(dp_accounting.LaplaceDpEvent(20.0), 2 * 29)
    found = ACCOUNTANTS["rdp"]().epsilon([votes_release("laplace", 20.0, 29)], DELTA)
    assert found == pytest.approx(accountant.get_epsilon(DELTA))
    one = ACCOUNTANTS["pld"]().epsilon([votes_release("laplace", 0.5, 1)], 1e-12)
    assert one == pytest.approx(2 / 0.5, rel=1e-3)  # purely 2 / b


def test_conversations_and_partners_add_up() -> None:
    rdp = ACCOUNTANTS["rdp"]()
    parts = [votes_release("gaussian", 30.0, n) for n in (100, 50, 7)]
    assert rdp.epsilon(parts, DELTA) == pytest.approx(
        rdp.epsilon([votes_release("gaussian", 30.0, 157)], DELTA)
    )


def test_no_noise_has_no_epsilon() -> None:
    assert ACCOUNTANTS["rdp"]().epsilon([votes_release("laplace", 0.0, 1)], DELTA) == float("inf")


def test_a_release_is_read_again_from_the_ledger() -> None:
    for law in ("gaussian", "laplace"):
        release = votes_release(law, 3.0, 5)
        assert Release.read(release.plain()) == release
    assert isinstance(release.mechanism, object)
    assert votes_release("gaussian", 3.0, 5).mechanism == GaussianVotes(3.0 / sqrt(2))


def test_the_papers_arithmetic() -> None:
    """Its 2.73 is that of 29 votes at a scale of 20, less than one batch."""
    assert paper_epsilon({0: 29}, 20.0, DELTA) == pytest.approx(2.7292, abs=1e-4)
    assert paper_epsilon({0: 123_853}, 20.0, DELTA) == pytest.approx(1250, abs=1)
    assert paper_epsilon({4: 18}, 20.0, DELTA) == pytest.approx(1.79, abs=0.01)
    assert isfinite(paper_epsilon({1000: 5, 0: 1}, 0.05, DELTA)), "many teachers, little noise"
    assert isfinite(paper_epsilon({4: 5}, 0.001, DELTA))
    always = min((29 * 2 * 0.05**2 * m * (m + 1) + log(1 / DELTA)) / m for m in range(1, 100))
    assert paper_epsilon({2: 29}, 20.0, DELTA) <= always * (1 + 1e-9)
