"""Keys and counters: the same numbers in every process, different ones for every purpose."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge import randomness


def slow_philox(key: int, counter: list[int]) -> list[int]:
    """Philox4x32-10 in Python's unbounded integers, as Salmon et al. write it down."""
    k0, k1 = key % 2**32, key // 2**32
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b // 2**32) ^ c1 ^ k0, b % 2**32, (a // 2**32) ^ c3 ^ k1, a % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4))
def test_philox_in_numpy_equals_philox_in_integers(key: int, counter: list[int]) -> None:
    assert randomness.philox(key, np.array(counter, np.uint32)).tolist() == slow_philox(key, counter)


def test_philox_takes_any_shape() -> None:
    counter = np.arange(2 * 3 * 4, dtype=np.uint32).reshape(2, 3, 4)
    found = randomness.philox(5, counter)
    assert found.shape == (2, 3, 4)
    assert found.dtype == np.uint32
    assert found[1, 2].tolist() == slow_philox(5, counter[1, 2].tolist())


def test_generators_repeat_for_a_purpose() -> None:
    draws = [randomness.generator(3, "split", site).integers(2**60, size=50) for site in ("a", "a", "b")]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()


def test_keys_differ_by_seed_site_and_purpose() -> None:
    purposes = [
        (0,),
        (1,),
        (0, "a"),
        (0, "b"),
        (0, "a", "b"),
        (0, "b", "a"),
        (0, "ab"),
        (0, "a", 1),
        (-1, "a"),
    ]
    keys = [randomness.key(*purpose) for purpose in purposes]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 2**64 for key in keys)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True, max_size=30))
def test_equal_names_have_equal_keys_wherever_they_stand(names: list[str]) -> None:
    keys = randomness.name_keys(names)
    assert keys.dtype == np.uint64
    assert len(set(keys.tolist())) == len(names)
    assert (randomness.name_keys(reversed(names)) == keys[::-1]).all()


def test_name_keys_of_nothing() -> None:
    assert randomness.name_keys([]).shape == (0,)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_keys_are_the_same_in_every_process(hash_seed: str) -> None:
    program = (
        "from fedkge import randomness as r;"
        "print(r.key(0, 'site', 'negatives'), *r.name_keys(['Paris', 'Zürich']));"
        "print(r.generator(0, 'x').integers(10**9))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    expected = [
        randomness.key(0, "site", "negatives"),
        *randomness.name_keys(["Paris", "Zürich"]),
        randomness.generator(0, "x").integers(10**9),
    ]
    assert child.stdout.split() == [str(number) for number in expected]


def test_keys_do_not_change_between_versions() -> None:
    """A change here changes every first row and every batch of every run ever made."""
    assert randomness.key(0, "site", "negatives") == 14969143401195928845
    assert randomness.name_keys(["Paris"]).tolist() == [2634807951866980203]
