"""Messages spoilt at random: their bytes, headers, tensors, notes and addresses, and old ones sent again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from fedkge.exchange.rows import HUB, PROTOCOL, Message
from fedkge.exchange.wire import DTYPES, encode

INF, NAN = float("inf"), float("nan")
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 5, 10**400, -(10**30), 2**31, 2**53, 2**63, 0.5, 1.5, 1e9, -1e38, 1e300,
    NAN, INF, "", "x", "0", "1", "a", HUB, "é\n\0", "y" * 300, [], [""], ["", ""], [1], [[]], [None], {},
    {"": 1}, {"a": 10}, {"a": {"count": 1}}, {"to_local": 1.0, "to_global": 1e39}, {"count": -1},
    {"x": [{"y": {}}]},
]  # fmt: skip
NAMES = ("a", "b", "c", "d", HUB, "", "mallory", "?", "A", "x" * 200)
KINDS = ("join", "shared", "train", "upload", "measure", "metrics", "stop", "refusal", "", "Train", "gossip")
ROUNDS = (0, 1, 2, 3, 4, 5, 99, 2**31, 10**17)
CODE = ("values", "scale", "where", "support", "new.values", "singular", "right")
PARTS = (*CODE, "ids", "ends", "serial", "", "x.y")
KEYS = (
    "taken", "best", "held", "dials", "version", "queries", "allows", "metrics", "views", "fedkge",
    "fingerprint", "by_two", "why", "x", "",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 127, -128, 255, 2**31 - 1, 1e9, 1.0001e9, -1e38, 3.3e38, INF, -INF, NAN, 1e-45)


def mutant(random: Random, message: Message, others: Sequence[Message]) -> bytes:
    """A message that is spoilt in one way or more; `others` are what was sent before, by anyone."""
    for _ in range(random.choice((1, 1, 1, 2))):
        message = random.choices(MESSAGES, WEIGHTS)[0](random, message, others)
    data = encode(message)
    while random.random() < 0.2:
        data = random.choice(BYTES)(random, data)
    return data


# Messages that could be written


def _address(random: Random, message: Message, others: Sequence[Message]) -> Message:
    what = random.choice(("sender", "recipient", "kind", "round", "run", "protocol"))
    values: dict[str, Sequence[Any]] = {
        "sender": NAMES,
        "recipient": NAMES,
        "kind": KINDS,
        "round": ROUNDS,
        "run": ("", "x", message.run.upper(), f"{message.run} "),
        "protocol": (0, PROTOCOL + 1, 10**17),
    }
    return replace(message, **{what: random.choice(values[what])})


def _tensor(random: Random, message: Message, others: Sequence[Message]) -> Message:
    body = dict(message.body)
    if body and random.random() < 0.85:
        name = random.choice(sorted(body))
        body[name] = random.choice(TENSORS)(random, body[name])
    else:
        name = f"{random.choice(('entity', 'relation', 'base', 'x'))}.{random.choice(PARTS)}"
        body[name] = _made(random, random.choice(((), (0,), (1,), (3,), (2, 4), (14, 4), (1, 0))))
    return replace(message, body=body)


def _names(random: Random, message: Message, others: Sequence[Message]) -> Message:
    """A tensor more, less, or under another name."""
    body = dict(message.body)
    if body:
        tensor = body.pop(random.choice(sorted(body)))
        if random.random() < 0.6:
            axis, part = random.choice(("entity", "relation", "base", "")), random.choice(PARTS)
            body[f"{axis}.{part}"] = tensor
    return replace(message, body=body)


def _note(random: Random, message: Message, others: Sequence[Message]) -> Message:
    note: Any = json.loads(json.dumps(dict(message.note)))
    how = random.random()
    if how < 0.15:
        note = {random.choice(KEYS): _json(random) for _ in range(random.randrange(4))}
    elif how < 0.5 or not note:
        note[random.choice(KEYS)] = _json(random)
    else:
        place, key = note, random.choice(sorted(note))
        while isinstance(place[key], dict) and place[key] and random.random() < 0.75:
            place = place[key]
            key = random.choice(sorted(place))
        if random.random() < 0.25:
            del place[key]
        else:
            place[key] = _near(random, place[key]) if random.random() < 0.3 else _json(random)
    return replace(message, note=note)


def _again(random: Random, message: Message, others: Sequence[Message]) -> Message:
    """An old message, as it was."""
    return random.choice(others) if others else message


def _body_of_another(random: Random, message: Message, others: Sequence[Message]) -> Message:
    other = random.choice(others) if others else message
    if random.random() < 0.3:
        return replace(message, body=other.body, note=other.note)
    return replace(message, body=other.body) if random.random() < 0.7 else replace(message, note=other.note)


MESSAGES: tuple[Callable[[Random, Message, Sequence[Message]], Message], ...] = (
    _address, _tensor, _names, _note, _again, _body_of_another,
)  # fmt: skip
WEIGHTS = (3, 6, 2, 5, 1, 2)


def _near(random: Random, value: Any) -> Any:
    """A number a little beside another; anything else in a list."""
    if type(value) not in (int, float) or abs(value) > 1e300:
        return [value]
    return random.choice((value + 1, value - 1, -value, 2 * value, float(value), str(value)))


def _json(random: Random) -> Any:
    how = random.random()
    if how < 0.7:
        return random.choice(ODD)
    if how < 0.8:
        return random.uniform(-2, 2)
    if how < 0.9:
        return [_json(random) for _ in range(random.randrange(3))]
    return {
        random.choice((*KEYS, "a", "b", "mrr", "count")): _json(random) for _ in range(random.randrange(3))
    }


# Tensors


def _made(random: Random, shape: Sequence[int]) -> Tensor:
    dtype = random.choice(list(DTYPES.values()))
    return _filled(torch.empty(tuple(shape), dtype=dtype), random.choice(NUMBERS))


def _filled(tensor: Tensor, number: float) -> Tensor:
    if tensor.dtype.is_floating_point:
        return torch.full(tensor.shape, number, dtype=torch.float64).to(tensor.dtype)
    whole = 0 if number != number or abs(number) == INF else int(number)
    return torch.full(tensor.shape, whole & 0x7F if abs(whole) >= 2**62 else whole).to(tensor.dtype)


def _of_another_type(random: Random, tensor: Tensor) -> Tensor:
    return tensor.to(random.choice(list(DTYPES.values())))


def _of_another_shape(random: Random, tensor: Tensor) -> Tensor:
    flat = tensor.flatten()
    found: list[Callable[[], Tensor]] = [
        lambda: flat,
        lambda: tensor[None],
        lambda: tensor.new_empty(0),
        lambda: tensor.unsqueeze(-1),
        lambda: flat[:1].clone(),
        lambda: torch.cat((flat, flat)),
    ]
    if tensor.ndim:
        found += [
            lambda: tensor[1:],
            lambda: tensor[:-1],
            lambda: tensor[:0],
            lambda: torch.cat((tensor, tensor)),
        ]
        found += [lambda: tensor.narrow(-1, 0, 0), lambda: tensor.repeat_interleave(2, -1)]
        found += [lambda: tensor.T.contiguous() if tensor.ndim == 2 else tensor.flip(0)]
        found += [lambda: tensor[0]] if len(tensor) else []
    return random.choice(found)()


def _full(random: Random, tensor: Tensor) -> Tensor:
    return _filled(tensor, random.choice(NUMBERS))


def _one_number(random: Random, tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    flat = tensor.view(-1)
    if len(flat):
        flat[random.randrange(len(flat))] = _filled(flat[:1], random.choice(NUMBERS))[0]
    return tensor


TENSORS: tuple[Callable[[Random, Tensor], Tensor], ...] = (
    _of_another_type, _of_another_shape, _of_another_shape, _full, _one_number,
)  # fmt: skip


# Bytes that nobody writes


def _flipped(random: Random, data: bytes) -> bytes:
    spoilt = bytearray(data)
    start = 8 + int.from_bytes(data[:8], "little")
    for _ in range(random.choice((1, 1, 2, 8)) if data else 0):
        end = min(start, len(spoilt)) if random.random() < 0.7 else len(spoilt)  # headers say more
        spoilt[random.randrange(max(1, end))] ^= 1 << random.randrange(8)
    return bytes(spoilt)


def _cut(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return random.choice(
        (data[:at], data[at:], data[:at] + data[at + 1 :], data + bytes(random.randrange(9)))
    )


def _noise(random: Random, data: bytes) -> bytes:
    at, size = random.randrange(len(data) + 1), random.randrange(1, 9)
    return data[:at] + random.randbytes(size) + data[at + random.choice((0, size)) :]


def _header(random: Random, data: bytes) -> bytes:
    """Something else in the header, which is still JSON."""
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:start])
        place, key = header, random.choice(sorted(header))
        while isinstance(place[key], dict) and random.random() < 0.9:
            place = place[key]
            key = random.choice(sorted(place))
    except (ValueError, TypeError, IndexError, RecursionError):
        return data
    how = random.random()
    if how < 0.15:
        del place[key]
    elif how < 0.25:
        place[random.choice(KEYS)] = random.choice(ODD)
    elif how < 0.4:
        place[key] = random.choice((list(DTYPES), [1, 2], [-1, 4], [2**40, 2**40], [0, 8], "F32", "I8", {}))
    else:
        value = _json(random)
        place[key] = json.dumps(value) if random.random() < 0.5 else value
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[start:]


BYTES = (_flipped, _flipped, _cut, _noise, _header, _header, _header)
