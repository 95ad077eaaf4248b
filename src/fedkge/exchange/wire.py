"""A message as bytes: the safetensors format, with the address in its metadata; read as hostile input.

    8 bytes, little-endian: length of the header | header: JSON, padded with spaces | tensors, little-endian

The header's `__metadata__` has `protocol`, `run`, `sender`, `recipient`, `kind`, `round` and `note` (JSON),
all as strings.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from reprlib import repr as brief
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.rows import Message

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}  #: what a tensor may consist of
HEADER_LIMIT = 1 << 20  #: bytes; parsed JSON takes about thirty times its text
DIMENSIONS_LIMIT = 8
SIZE_LIMIT = 1 << 48  #: product of a shape, zeros left out, so that strides of empty tensors fit too

_METADATA = "__metadata__"
_FIELDS = {"protocol", "run", "sender", "recipient", "kind", "round", "note"}
_PREFIX = 8  # bytes that hold the header's length
_CODES = {dtype: code for code, dtype in DTYPES.items()}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # as wide, and known to numpy


def encode(message: Message) -> bytes:
    """What would be sent; any safetensors reader opens it. Tensors may live on any device."""
    header = _header(message)
    tensors = (_bytes(message.body[name]) for name in _order(message.body))
    return b"".join([len(header).to_bytes(_PREFIX, "little"), header, *tensors])


def length(message: Message) -> int:
    """`len(encode(message))`, from shapes alone: nothing is copied and no device is waited for."""
    return _PREFIX + len(_header(message)) + sum(map(_size, message.body.values()))


def decode(data: bytes) -> Message:
    """The message in `data`, whose tensors own their memory.

    Whatever the bytes are, the outcome is a message or a `DataError`, in memory proportional to
    `len(data)`: nothing is allocated before its size was compared with what is there.
    """
    size = int.from_bytes(data[:_PREFIX], "little")
    if len(data) < _PREFIX or size > len(data) - _PREFIX:
        raise DataError(f"message: {len(data)} bytes, expected a header of {size} and 8 bytes before it")
    if size > HEADER_LIMIT:
        raise DataError(f"message: a header of {size} bytes, expected at most {HEADER_LIMIT}")
    start = _PREFIX + size
    try:
        text = data[_PREFIX:start].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"message: header is not UTF-8 at byte {error.start}") from None
    header = _parse(text, "header")
    address = _address(header.pop(_METADATA, None))
    spans = [_span(name, described) for name, described in header.items()]
    _check_layout(spans, len(data) - start)
    return Message(body={span.name: _tensor(span, data, start) for span in spans}, **address)


def _order(body: Mapping[str, Tensor]) -> list[str]:
    """Wide elements first, so that every tensor starts at a multiple of its element."""
    return sorted(body, key=lambda name: (-body[name].element_size(), name))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().reshape(-1).contiguous()
    bits: np.ndarray[Any, Any] = flat.view(_BITS[flat.element_size()]).numpy()
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False).data


def _header(message: Message) -> bytes:
    if not 0 <= message.round < 10**18:
        raise ValueError(f"round {message.round}, expected 0 or more")
    described: dict[str, Any] = {
        _METADATA: {
            "protocol": str(message.protocol),
            "run": message.run,
            "sender": message.sender,
            "recipient": message.recipient,
            "kind": message.kind,
            "round": str(message.round),
            "note": json.dumps(dict(message.note), ensure_ascii=False, separators=(",", ":")),
        }
    }
    end = 0
    for name in _order(message.body):
        tensor = message.body[name]
        if tensor.dtype not in _CODES or tensor.ndim > DIMENSIONS_LIMIT or name == _METADATA:
            raise ValueError(f"{name}: a tensor {list(tensor.shape)} of {tensor.dtype} cannot be sent")
        begin, end = end, end + _size(tensor)
        described[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    header = json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # as the safetensors library pads
    if len(header) > HEADER_LIMIT:
        raise ValueError(
            f"a header of {len(header)} bytes, at most {HEADER_LIMIT} are read: shorten the note"
        )
    return header


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a tensor lies in the data."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def _parse(text: str, what: str) -> dict[str, Any]:
    if not text.startswith("{"):
        raise DataError(f"message: {what} starts with {text[:1]!r}, expected a JSON object")
    try:
        parsed: dict[str, Any] = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, a key twice, an endless integer
        raise DataError(f"message: {what} is no JSON: {error}") from None
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _address(metadata: Any) -> dict[str, Any]:
    """Every field of the message but its body."""
    if not isinstance(metadata, dict) or metadata.keys() != _FIELDS:
        found = sorted(metadata) if isinstance(metadata, dict) else metadata
        raise DataError(f"message: metadata {brief(found)}, expected {', '.join(sorted(_FIELDS))}")
    for name, value in metadata.items():
        if not isinstance(value, str) or not _is_unicode(value):
            raise DataError(f"message: {name} is {brief(value)}, expected a string")
    for name in ("protocol", "round"):
        if not re.fullmatch("0|[1-9][0-9]{0,17}", metadata[name]):
            raise DataError(f"message: {name} is {brief(metadata[name])}, expected a decimal number")
    numbers = {name: int(metadata[name]) for name in ("protocol", "round")}
    return metadata | numbers | {"note": _parse(metadata["note"], "note")}


def _is_unicode(text: str) -> bool:
    """JSON can spell half a surrogate pair, which no UTF-8 can hold."""
    return re.search("[\ud800-\udfff]", text) is None


def _span(name: str, described: Any) -> _Span:
    where = f"message: tensor {brief(name)}"
    if not _is_unicode(name):
        raise DataError(f"{where}: expected a name in Unicode")
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise DataError(f"{where}: {brief(described)}, expected dtype, shape and data_offsets")
    code, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise DataError(f"{where}: dtype {brief(code)}, expected one of {', '.join(DTYPES)}")
    if not _is_sizes(shape) or len(shape) > DIMENSIONS_LIMIT or _product(shape) > SIZE_LIMIT:
        raise DataError(f"{where}: shape {brief(shape)}, expected at most {DIMENSIONS_LIMIT} sizes")
    if not _is_sizes(offsets) or len(offsets) != 2:
        raise DataError(f"{where}: data_offsets {brief(offsets)}, expected where it begins and ends")
    begin, end = offsets
    expected = math.prod(shape) * DTYPES[code].itemsize
    if end - begin != expected:
        raise DataError(f"{where}: bytes {begin} to {end}, expected {expected} bytes for {code} {shape}")
    return _Span(name, DTYPES[code], tuple(shape), begin, end)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and 0 <= size <= SIZE_LIMIT for size in value)


def _product(shape: list[int]) -> int:
    return math.prod(max(size, 1) for size in shape)


def _check_layout(spans: list[_Span], available: int) -> None:
    """Tensors follow each other without gap or overlap, and fill the data."""
    placed = sorted((span.begin, span.end) for span in spans)
    for (_, before), (begin, _) in pairwise([(0, 0), *placed, (available, available)]):
        if begin != before:
            raise DataError(
                f"message: {available} bytes of tensors, of which one ends at {before} and the next begins "
                f"at {begin}; expected neither gap nor overlap nor a rest"
            )


def _tensor(span: _Span, data: bytes, start: int) -> Tensor:
    width = span.dtype.itemsize
    read = np.frombuffer(data, f"<i{width}" if width > 1 else "u1", math.prod(span.shape), start + span.begin)
    if span.dtype is torch.bool and read.size and read.max() > 1:
        raise DataError(f"message: tensor {brief(span.name)}: a byte {read.max()}, expected 0 or 1 in BOOL")
    tensor = torch.empty(span.shape, dtype=span.dtype)
    tensor.view(-1).view(_BITS[width]).numpy()[:] = read
    return tensor
