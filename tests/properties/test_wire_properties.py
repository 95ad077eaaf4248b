"""Any message comes back as it was sent; any bytes are a message or a `DataError`."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.rows import Message
from fedkge.exchange.wire import DTYPES, decode, encode, length

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ODD = st.sampled_from([-1, 0, 1, 2, 4, 8, 16, 2**31, 2**63, 2**64, 1.5, True, None, "F32", "U8", "", [], {}])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any bits at all, NaNs with payloads included."""
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    count = math.prod(shape) * dtype.itemsize
    if dtype is torch.bool:
        return torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=dtype).view(
            shape
        )
    bits = torch.tensor(list(draw(st.binary(min_size=count, max_size=count))), dtype=torch.uint8)
    return bits.view(dtype).view(shape)


messages = st.builds(
    Message,
    sender=TEXT,
    recipient=TEXT,
    kind=TEXT,
    round=st.integers(0, 10**18 - 1),
    body=st.dictionaries(TEXT.filter(lambda name: name != "__metadata__"), tensors(), max_size=3),
    note=st.dictionaries(st.text(max_size=3), PLAIN, max_size=3),
    run=TEXT,
    protocol=st.integers(0, 10**18 - 1),
)  # fmt: skip


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())


@given(messages)
def test_comes_back(sent: Message) -> None:
    data = encode(sent)
    read = decode(data)
    assert length(sent) == len(data)
    assert encode(read) == data
    for field in ("protocol", "run", "sender", "recipient", "kind", "round"):
        assert getattr(read, field) == getattr(sent, field)
    assert repr(read.note) == repr(sent.note)  # NaN is not equal to itself
    assert read.body.keys() == sent.body.keys()
    for name, tensor in sent.body.items():
        assert (read.body[name].dtype, read.body[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(read.body[name]) == bits(tensor)


@given(messages)
def test_the_library_agrees(sent: Message) -> None:
    load = pytest.importorskip("safetensors.torch").load
    read = load(encode(sent))
    assert {name: bits(part) for name, part in read.items()} == {n: bits(p) for n, p in sent.body.items()}


def is_refused_or_right(data: bytes) -> None:
    """What is accepted can be sent on, and a second reading gives the same."""
    try:
        read = decode(data)
    except DataError:
        return
    again = encode(read)
    assert encode(decode(again)) == again
    assert sum(part.numel() * part.element_size() for part in read.body.values()) <= len(data)


@given(st.binary(max_size=200))
@example(b"")
@example(struct.pack("<Q", 2) + b"{}")
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        decode(data)


@given(st.binary(max_size=80), st.booleans())
def test_any_header_is_refused(header: bytes, brace: bool) -> None:
    header = b"{" * brace + header
    with pytest.raises(DataError):
        decode(struct.pack("<Q", len(header)) + header)


@given(messages, st.data())
@settings(max_examples=300)
def test_damaged_messages(sent: Message, data: st.DataObject) -> None:
    damaged = bytearray(encode(sent))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        upto = data.draw(st.integers(at, min(len(damaged), at + 4)))
        damaged[at:upto] = data.draw(
            st.binary(max_size=4) | st.sampled_from([b'"', b"{", b"[", b"-", b"9", b",", b":"])
        )
    is_refused_or_right(bytes(damaged))


@given(messages, st.data())
@settings(max_examples=300)
def test_lying_headers(sent: Message, data: st.DataObject) -> None:
    """Valid JSON that says something else: a value anywhere in the header is replaced, removed or added."""
    raw = encode(sent)
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    for _ in range(data.draw(st.integers(1, 2))):
        place: Any = header
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key: Any = data.draw(st.sampled_from(keys) if keys else st.none())
            if key is None or not isinstance(place[key], dict | list) or data.draw(st.booleans()):
                break
            place = place[key]
        value = data.draw(ODD | PLAIN)
        if key is None:
            continue
        if data.draw(st.booleans()):
            place[key] = value
        elif isinstance(place, list):
            place.insert(key, value)
        elif data.draw(st.booleans()):
            del place[key]
        else:
            place[data.draw(TEXT)] = value
    text = json.dumps(header).encode()
    is_refused_or_right(struct.pack("<Q", len(text)) + text + raw[start:])


@given(messages, st.data())
def test_cut_or_lengthened(sent: Message, data: st.DataObject) -> None:
    raw = encode(sent)
    cut = data.draw(st.integers(0, len(raw) - 1))
    for wrong in (raw[:cut], raw + data.draw(st.binary(min_size=1, max_size=9))):
        with pytest.raises(DataError):
            decode(wrong)
