"""Properties of accounting: more steps, higher rates and less noise cost more; a ledger only grows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.privacy import ACCOUNTANTS, Accountant, Ledger, Release, read_ledger
from fedkge.privacy.accountants import Pld, Rdp
from fedkge.privacy.costs import merged
from fedkge.privacy.releases import Everything, Gaussian, Poisson, Shuffled, TouchedRows

pytest.importorskip("dp_accounting")

noises = st.floats(0.6, 20.0)
rates = st.floats(0.001, 1.0)
counts = st.integers(1, 2000)
accountants = st.sampled_from([Pld(5e-3), Rdp(), ACCOUNTANTS["rdp-paper"]()])
more = st.floats(1.0, 4.0)
ROUNDING = 5e-3  #: of a grid of losses: what numerics may add to any ε


def cost(accountant: Accountant, noise: float, rate: float, count: int) -> float:
    return accountant.epsilon([Release(Gaussian(noise), Poisson(rate), count)], 1e-5)


@settings(max_examples=25)
@given(accountants, noises, rates, st.integers(1, 300), more)
def test_monotone(accountant: Accountant, noise: float, rate: float, count: int, factor: float) -> None:
    base = cost(accountant, noise, rate, count)
    slack = base * 1e-6 + ROUNDING
    assert base >= 0
    assert cost(accountant, noise * factor, rate, count) <= base + slack
    assert cost(accountant, noise, rate, int(count * factor)) >= base - slack
    assert cost(accountant, noise, min(1.0, rate * factor), count) >= base - slack


@settings(max_examples=15)
@given(noises, rates, counts)
def test_the_older_conversion_is_never_smaller(noise: float, rate: float, count: int) -> None:
    assert cost(Rdp(), noise, rate, count) <= cost(ACCOUNTANTS["rdp-paper"](), noise, rate, count) + 1e-9


releases = st.builds(
    Release,
    st.one_of(st.builds(Gaussian, noises), st.builds(TouchedRows, noises, st.none() | st.floats(1.0, 100.0))),
    st.one_of(st.builds(Poisson, rates), st.builds(Shuffled, rates), st.builds(Everything)),
    counts,
    st.sampled_from(["training", "upload"]),
)
spent = st.lists(st.tuples(st.sampled_from(["a", "b", "ü\n"]), st.integers(0, 9), releases), max_size=12)


@settings(max_examples=40)
@given(spent, st.randoms())
def test_a_ledger_only_grows(lines: list[tuple[str, int, Release]], chance: object) -> None:
    """Reopened and torn anywhere, it holds what was recorded, and numbers per site without gap or repeat."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        ledger = Ledger(path)
        heads = [ledger.head]
        for site, epoch, release in lines:
            ledger.record(site, epoch, release)
            heads.append(ledger.head)
            if chance.random() < 0.3:  # type: ignore[attr-defined]
                with path.open("ab") as file:
                    file.write(b'{"site": "a"'[: chance.randint(1, 12)])  # type: ignore[attr-defined]
                ledger = Ledger(path)
        found = read_ledger(path)
        assert [(entry.site, entry.epoch, entry.release) for entry in found] == lines
        for site in ("a", "b", "ü\n"):
            numbers = [n for entry in found if entry.site == site for n in entry.numbers]
            assert numbers == list(range(ledger.count(site)))
        for head in heads:
            ledger.check(head, 0)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 3.0]), st.sampled_from([0.01, 0.2]), counts), min_size=1, max_size=8
    )
)
def test_order_and_grouping_do_not_matter(steps: list[tuple[float, float, int]]) -> None:
    made = [Release(Gaussian(noise), Poisson(rate), count) for noise, rate, count in steps]
    whole = Rdp().epsilon(made, 1e-5)
    assert Rdp().epsilon(reversed(made), 1e-5) == pytest.approx(whole)
    assert Rdp().epsilon(merged(made), 1e-5) == pytest.approx(whole)
    assert len(merged(made)) == len({(noise, rate) for noise, rate, _ in steps})
    assert Rdp().epsilon(made[:-1], 1e-5) <= whole + 1e-9
