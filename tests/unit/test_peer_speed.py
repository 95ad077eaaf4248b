"""How long PPAT and set intersection take at the sizes that the project promises."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from fedkge.exchange.psi import Blinder
from fedkge.methods.ppat import ClientHalf, Game, HostHalf, Votes
from fedkge.training.loop import one_thread


def one_pass(rows: int, width: int = 100) -> float:
    """Seconds for a pass of both peers in one process, with the default networks."""
    random, game = np.random.default_rng(0), Game()
    x, y = (torch.from_numpy(random.normal(0, 0.1, (rows, width)).astype(np.float32)) for _ in range(2))
    host = HostHalf(game, y, torch.arange(rows) % 4, Votes("gaussian", 1.0), (random, random))
    client = ClientHalf(game, width, width, random)
    began = time.process_time()
    with one_thread():
        for part in x.split(game.batch):
            client.learn(part, host.answer(client.generate(part)))
    return time.process_time() - began


@pytest.mark.slow
def test_a_pass_over_100_000_rows_takes_less_than_20_seconds_and_grows_linearly() -> None:
    one_pass(1000)
    tenth, whole = one_pass(10_000), one_pass(100_000)
    print(f"10,000 rows: {tenth:.1f} s; 100,000: {whole:.1f} s")
    assert whole < 20
    assert 7 < whole / tenth < 14


@pytest.mark.slow
def test_100_000_names_take_each_party_less_than_60_seconds_on_one_core() -> None:
    pytest.importorskip("cryptography")
    first, second = Blinder(b"salt"), Blinder(b"salt")
    theirs = second.hashed([f"other {i}" for i in range(100_000)])
    began = time.process_time()
    first.hashed([f"own {i}" for i in range(100_000)])
    first.again(theirs)
    spent = time.process_time() - began
    print(f"100,000 x 100,000 names: {spent:.1f} s")
    assert spent < 60
