"""Whatever a partner says, a peer answers, refuses or hangs up; it never raises, and can go on."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.exchange.rows import Message
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.meeting import Meeting
from small_federations import experiment, small_federation

ODD: tuple[Any, ...] = (None, True, -1, 10**30, 1.5, float("nan"), "", "x" * 300, [], {}, {"a": 1}, [[1]])


def odd_tensor(dice: random.Random, tensor: Tensor) -> Tensor:
    return dice.choice(
        [
            tensor.double(),
            tensor.flatten(),
            tensor[:0],
            tensor[..., :0],
            torch.cat((tensor, tensor)),
            torch.full_like(tensor, 127),
            torch.full(tensor.shape, float("inf")),
            tensor.to(torch.int64),
            torch.zeros(()),
        ]
    )


def changed(dice: random.Random, message: Message) -> Message:
    """The same message with something wrong with it."""
    note, body = dict(message.note), dict(message.body)
    if body and dice.random() < 0.6:
        name = dice.choice(sorted(body))
        if dice.random() < 0.2:
            del body[name]
        else:
            body[name] = odd_tensor(dice, body[name])
    elif isinstance(note.get("note"), dict) and note["note"] and dice.random() < 0.7:
        inner = dict(note["note"])
        inner[dice.choice(sorted(inner))] = dice.choice(ODD)
        note["note"] = inner
    elif note:
        note[dice.choice(sorted(note))] = dice.choice(ODD)
    round = dice.choice([message.round, message.round, 0, 10**6])
    return replace(message, note=note, body=body, round=round)


@pytest.mark.parametrize("translate", ["ppat", "procrustes"])
def test_peers_survive_each_other(tmp_path: Path, translate: str) -> None:
    wrong = sum(troubled(tmp_path / str(seed), random.Random(seed), translate) for seed in range(3))
    assert wrong > 12


def troubled(path: Path, dice: random.Random, translate: str) -> int:
    """Play a meeting in which some messages come in an odd form before they come as they are; how many."""
    method = {"name": "fkge", "teachers": 2, "hidden": 4, "batch": 8, "passes": 1, "first": 1}
    options = {"rounds": 5, "evaluate": {"every": 1, "patience": 1}}
    one = experiment(method={**method, "translate": translate}, **options)
    folder = RunFolder.create(path, one, resume=False)
    run = Meeting(one, Sources.of(one, small_federation(True)), folder, torch.device("cpu"))
    wrong = 0

    def receive(message: Message, hear: Any) -> list[Message]:
        nonlocal wrong
        odd = dice.random() < 0.12
        wrong += odd
        return (hear(changed(dice, message)) if odd else []) + hear(message)

    for peer in run.peers.values():
        peer.receive = partial(receive, hear=peer.receive)  # type: ignore[method-assign]
    run.play()
    assert all(peer.stopped for peer in run.peers.values())
    return wrong
