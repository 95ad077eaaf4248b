"""How messages are forged: other tensors, notes and addresses than those that were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedkge.exchange.rows import PROTOCOL, Message

Body: TypeAlias = dict[str, Tensor]
Forge: TypeAlias = Callable[[Message], Message]
NAN = torch.full((3, 8), torch.nan)
HUGE = 10**400
PLAIN: dict[str, Any] = {"method": {"name": "fedep"}}
FEWER: dict[str, Any] = {"method": {"name": "feds", "s": 8}}
CHANGES: dict[str, Any] = {"method": {"name": "fedternary"}}


def beside(name: str, tensor: Tensor) -> Callable[[Body], Body]:
    return lambda body: {**body, name: tensor}


def without(name: str) -> Callable[[Body], Body]:
    return lambda body: {other: tensor for other, tensor in body.items() if other != name}


def instead(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Body], Body]:
    return lambda body: {**body, name: change(body[name])}


def filled(number: float) -> Callable[[Tensor], Tensor]:
    return lambda tensor: torch.full_like(tensor, number)


def one(number: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(number, dtype=dtype)


def with_codec(name: str, **options: Any) -> dict[str, Any]:
    return {**PLAIN, "codec": {"name": name, **options}}


def noting(**changes: Any) -> Forge:
    """Other notes beside those that are there; none: without."""

    def forge(message: Message) -> Message:
        note = {name: value for name, value in {**message.note, **changes}.items() if value is not None}
        return replace(message, note=note)

    return forge


def about(**changes: Any) -> Forge:
    return lambda message: replace(message, **changes)


def carrying(change: Callable[[Body], Body]) -> Forge:
    return lambda message: replace(message, body=change(dict(message.body)))


def answers(messages: Iterable[Message]) -> list[Message]:
    """Those that say more than why something is refused."""
    return [message for message in messages if message.kind != "refusal"]


ADDRESSES: dict[str, tuple[Forge, str]] = {
    "a stranger": (about(sender="mallory"), "comes from a stranger"),
    "nobody": (about(sender=""), "comes from a stranger"),
    "for somebody else": (about(recipient="b"), "is for 'b'"),
    "for nobody": (about(recipient=""), "is for ''"),
    "for a long name": (about(recipient="x" * 5000), "is for 'xxx"),
    "another run": (about(run="another"), "belongs to another run"),
    "another version": (about(protocol=PROTOCOL + 1), "speaks protocol 2, expected 1"),
    "of old": (about(protocol=0), "speaks protocol 0"),
    "unknown kind": (about(kind="gossip"), "unknown kind 'gossip'"),
    "no kind": (about(kind=""), "unknown kind ''"),
    "a long kind": (about(kind="k" * 5000), "unknown kind 'kkk"),
    "far off": (about(round=10**17), "round"),
}

BYTES = torch.tensor([65, 66, 67], dtype=torch.uint8)
