"""Nodes are saved every so often, and saving never takes more than a twentieth of a run."""

from __future__ import annotations

import time

import pytest

from fedkge.runtimes.rhythm import Rhythm


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def saved(rhythm: Rhythm, clock: Clock, seconds: float) -> None:
    with rhythm.saving():
        clock.now += seconds


def test_the_first_save_is_due_after_the_time_that_was_asked_for(clock: Clock) -> None:
    rhythm = Rhythm(30.0)
    clock.now += 29.9
    assert not rhythm.due
    clock.now += 0.2
    assert rhythm.due


@pytest.mark.parametrize(("seconds", "pause"), [(0.1, 30.0), (1.5, 30.0), (3.0, 60.0), (60.0, 1200.0)])
def test_after_a_long_save_the_next_one_waits_in_proportion(
    clock: Clock, seconds: float, pause: float
) -> None:
    rhythm = Rhythm(30.0)
    saved(rhythm, clock, seconds)
    clock.now += pause - 0.01
    assert not rhythm.due
    clock.now += 0.02
    assert rhythm.due


def test_a_quick_save_ends_the_long_wait(clock: Clock) -> None:
    rhythm = Rhythm(30.0)
    saved(rhythm, clock, 60.0)
    saved(rhythm, clock, 0.1)
    clock.now += 30.1
    assert rhythm.due


def test_saves_after_every_round_stay_so_however_long_they_take(clock: Clock) -> None:
    rhythm = Rhythm(0.0)
    assert rhythm.due
    saved(rhythm, clock, 60.0)
    assert rhythm.due


def test_a_save_that_fails_leaves_the_next_one_due(clock: Clock) -> None:
    rhythm = Rhythm(30.0)
    clock.now += 31
    with pytest.raises(OSError, match="full"), rhythm.saving():
        raise OSError("full")
    assert rhythm.due


@pytest.mark.parametrize("seconds", [0.5, 2.0, 20.0])
def test_saving_takes_at_most_a_twentieth(clock: Clock, seconds: float) -> None:
    rhythm, spent, began = Rhythm(30.0), 0.0, clock.now
    for _ in range(10_000):
        clock.now += 1.0  # a round
        if rhythm.due:
            saved(rhythm, clock, seconds)
            spent += seconds
    assert 0 < spent <= (clock.now - began) / 20
