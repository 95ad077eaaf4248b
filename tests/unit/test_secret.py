"""Noise in float64 from a site's secret: of the right law, never the same numbers twice."""

from __future__ import annotations

from math import erf, exp

import numpy as np
import pytest

from fedkge.training.secret import Secret

SECRET = Secret(b"n" * 32)
COUNT = 100_000


def largest_gap(numbers: np.ndarray, law: object) -> float:
    """Between the distribution of numbers and a law, as Kolmogorov and Smirnov measure it."""
    ordered = np.sort(numbers)
    expected = np.array([law(x) for x in ordered])
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(steps[1:] - expected).max(), np.abs(steps[:-1] - expected).max()))


def laplace(x: float) -> float:
    return exp(x) / 2 if x < 0 else 1 - exp(-x) / 2


@pytest.mark.parametrize(
    ("name", "law"), [("normal", lambda x: (1 + erf(x / 2**0.5)) / 2), ("laplace", laplace)]
)
def test_noise_has_its_law(name: str, law: object) -> None:
    drawn = getattr(SECRET.noise(3, "votes"), name)(1.0, 2.0, (2, COUNT // 2))
    assert drawn.shape == (2, COUNT // 2)
    gap = largest_gap((drawn.flatten() - 1) / 2, law)
    assert gap < 2.0 / COUNT**0.5  # exceeded once in 1,500 keys
    assert largest_gap((drawn.flatten() - 1) / 2.1, law) > 2.0 / COUNT**0.5, "it would be noticed"


def test_no_number_is_drawn_twice() -> None:
    noise = SECRET.noise(3, "votes")
    drawn = [noise.normal(0.0, 1.0, (50,)) for _ in range(3)]
    drawn += [SECRET.noise(*of).normal(0.0, 1.0, (50,)) for of in ((4, "votes"), (3, "rows"))]
    assert len(np.unique(np.concatenate(drawn))) == 250
    assert np.array_equal(SECRET.noise(3, "votes").normal(0.0, 1.0, (50,)), drawn[0]), "by number and purpose"


def test_keys_of_several_steps_are_those_of_each() -> None:
    purposes = [("negatives",), ("noise", "entity")]
    keys = SECRET.cipher_keys(range(5, 8), purposes)
    for place, number in enumerate(range(5, 8)):
        for own, purpose in zip(keys[place], purposes, strict=True):
            assert own.tolist() == SECRET.cipher_key(number, *purpose).tolist()
