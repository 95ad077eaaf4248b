"""When to stop: both rules against a look at the whole past, for any sequence of values."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge.errors import ConfigError
from fedkge.training import Stopping
from fedkge.training.stopping import OWN

VALUES = st.lists(st.integers(0, 4).map(lambda x: x / 4), max_size=12)  # few values, so that many tie


def out_of_patience(past: list[float], patience: int) -> bool:
    """The last `patience` values are no better than the best before them."""
    before, since = past[:-patience], past[-patience:]
    return len(since) == patience and bool(before) and max(since) <= max(before)


def falling(past: list[float], drops: int) -> bool:
    """Each of the last `drops` values is below the one before it."""
    last = list(pairwise(past))[-drops:]
    return len(last) == drops and all(value < before for before, value in last)


@given(VALUES, st.integers(1, 4), st.sampled_from(["patience", "drops"]))
def test_rules(values: list[float], patience: int, rule: str) -> None:
    stopping, enough = Stopping(patience, rule), {"patience": out_of_patience, "drops": falling}[rule]
    for at, value in enumerate(values):
        past = values[: at + 1]
        assert (OWN in stopping.check(at, value)) == (value > max(values[:at], default=-1))
        assert stopping.best == max(past)
        assert stopping.best_at == past.index(max(past))
        assert stopping.done == enough(past, patience)


@given(VALUES, st.sampled_from(["patience", "drops"]))
def test_zero_never_stops(values: list[float], rule: str) -> None:
    stopping = Stopping(0, rule)
    for at, value in enumerate(values):
        stopping.check(at, value)
        assert not stopping.done


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12), st.integers(1, 4))
def test_patience_lasts_while_anything_watched_improves(values: list[tuple[int, int]], patience: int) -> None:
    stopping = Stopping(patience)
    for at, (value, other) in enumerate(values):
        better = stopping.check(at, value, {"other": other})
        pasts = ([v for v, _ in values[: at + 1]], [o for _, o in values[: at + 1]])
        for name, past in zip((OWN, "other"), pasts, strict=True):
            assert (name in better) == (past[-1] > max(past[:-1], default=-1))
        assert stopping.beside_at["other"] == pasts[1].index(max(pasts[1]))
        assert stopping.done == all(out_of_patience(past, patience) for past in pasts)


def test_a_tie_is_no_improvement() -> None:
    stopping = Stopping(patience=2)
    found = [stopping.check(at, 0.5) for at in range(3)]
    assert found == [{OWN}, set(), set()]
    assert stopping.done
    assert stopping.best_at == 0


def test_a_tie_is_no_drop() -> None:
    stopping = Stopping(patience=1, rule="drops")
    stopping.check(0, 0.5)
    stopping.check(1, 0.5)
    assert not stopping.done
    stopping.check(2, 0.4)
    assert stopping.done


def test_negative_patience() -> None:
    with pytest.raises(ConfigError, match=r"^patience: expected at least 0, got -1$"):
        Stopping(-1)


def test_a_fall_is_no_bad_check_while_something_else_gains() -> None:
    stopping = Stopping(patience=2, rule="drops")
    for at, (value, other, gained) in enumerate([(0.5, 0.1, False), (0.4, 0.2, False), (0.3, 0.1, True)]):
        stopping.check(at, value, {"other": other}, gained)
    assert stopping.bad == 0
    stopping.check(3, 0.2, {"other": 0.1})
    stopping.check(4, 0.1, {"other": 0.1})
    assert stopping.done


def test_what_there_was_is_replaced_only_by_what_is_surely_better() -> None:
    stopping = Stopping(patience=0)
    values = [0.30, 0.31, 0.29, 0.36, 0.34, 0.37]
    better = [stopping.check(at, value, sure=0.05) for at, value in enumerate(values)]
    assert [bool(one) for one in better] == [True, False, False, True, False, True]
    assert (stopping.best_at, stopping.best) == (5, 0.37)
    from_nothing = Stopping(patience=0)
    assert [bool(from_nothing.check(at, v, sure=0.05)) for at, v in ((5, 0.1), (10, 0.11))] == [True, True]
    unasked = Stopping(patience=0)
    assert [bool(unasked.check(at, math.nan, sure=0.05)) for at in (0, 5)] == [True, False]
