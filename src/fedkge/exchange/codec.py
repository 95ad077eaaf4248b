"""How rows are written: exactly, in 16 bits, or in 8 bits with a scale per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.registry import Registry


class Codec(ABC):
    """Turns rows into named tensors and back, on the device where they are, without waiting for it.

    Each row has a code of its own: the codes of two tables, joined, are the code of the joined tables.
    Finite rows stay finite, rows that are not stay so: a diverged site is seen at the other end.
    """

    feedback: bool = False  # what a channel asks; codecs that lose something make it an option

    @abstractmethod
    def encode(self, values: Tensor) -> dict[str, Tensor]:
        """The code of float32 `values` [n, width]."""

    @abstractmethod
    def decode(self, code: Mapping[str, Tensor]) -> Tensor:
        """Float32 [n, width]; a code of other parts, types or shapes is a `DataError`."""


BLOCK = 1 << 19  #: numbers worked on at a time

CODECS: Registry[Codec] = Registry("codec", "fedkge.exchange")


@CODECS.register("float32")
@dataclass(frozen=True)
class Float32(Codec):
    """Rows as they are: four bytes a number, nothing lost, nothing copied."""

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        return {"values": values}

    def decode(self, code: Mapping[str, Tensor]) -> Tensor:
        (values,) = _parts(code, values=(torch.float32, 2))
        return values


@dataclass(frozen=True)
class _Cast(Codec):
    """Two bytes a number; finite numbers beyond the type's range become its largest, not infinite."""

    dtype: ClassVar[torch.dtype]

    feedback: bool = False  #: add what rounding lost to the next message

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        largest = torch.finfo(self.dtype).max

        def within(some: Tensor) -> Tensor:
            return some.clamp(-largest, largest).add_(some, alpha=0)  # 0 · ∞ is NaN: the infinite stay seen

        return {"values": _by_blocks(within, self.dtype, values)}

    def decode(self, code: Mapping[str, Tensor]) -> Tensor:
        (values,) = _parts(code, values=(self.dtype, 2))
        return values.float()


@CODECS.register("float16")
@dataclass(frozen=True)
class Float16(_Cast):
    """11 significant bits, between 6e-8 and 65504; numbers beyond are sent as 65504."""

    dtype = torch.float16


@CODECS.register("bfloat16")
@dataclass(frozen=True)
class BFloat16(_Cast):
    """8 significant bits, float32's range."""

    dtype = torch.bfloat16


@CODECS.register("int8")
@dataclass(frozen=True)
class Int8(Codec):
    """One byte a number and four bytes a row: x ≈ scale · q, scale = max|x| / 127, q rounded to even."""

    feedback: bool = True  #: add what rounding lost to the next message

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        largest = torch.maximum(values.amax(1), -values.amin(1))  # [n]
        # At least the smallest normal number: rows of zeros divide by it, and 127 is never exceeded.
        # By a tensor: torch multiplies by 1/127 when a GPU is to divide by a number, and bytes would differ.
        scale = (largest / torch.full_like(largest, 127)).clamp_min(torch.finfo(torch.float32).tiny)
        quanta = _by_blocks(lambda x, s: x.div(s[:, None]).round_(), torch.int8, values, scale)
        return {"values": quanta, "scale": scale}

    def decode(self, code: Mapping[str, Tensor]) -> Tensor:
        values, scale = _parts(code, values=(torch.int8, 2), scale=(torch.float32, 1))
        return _by_blocks(lambda q, s: q.float().mul_(s[:, None]), torch.float32, values, scale)


def blocks(rows: Tensor) -> list[slice]:
    """All rows, as ranges: a CPU keeps what it computes of a range in its cache, a GPU takes them at once."""
    size = max(1, len(rows) if rows.is_cuda else BLOCK // max(1, rows.shape[1]))
    return [slice(begin, begin + size) for begin in range(0, len(rows), size)]


def _by_blocks(function: Callable[..., Tensor], dtype: torch.dtype, rows: Tensor, *more: Tensor) -> Tensor:
    """`function` of the rows, as `dtype`, block by block."""
    out = torch.empty(rows.shape, dtype=dtype, device=rows.device)
    for block in blocks(rows):
        out[block] = function(rows[block], *(other[block] for other in more))
    return out


def _parts(code: Mapping[str, Tensor], **expected: tuple[torch.dtype, int]) -> list[Tensor]:
    """The parts of a code in this order, each of its type and dimensions, all of as many rows."""
    if code.keys() != expected.keys():
        raise DataError(f"a code of {sorted(code) or 'nothing'}, expected {', '.join(expected)}")
    for name, (dtype, dimensions) in expected.items():
        part = code[name]
        if part.dtype != dtype or part.ndim != dimensions:
            shape = "[rows, width]" if dimensions == 2 else "[rows]"
            raise DataError(f"{name}: {part.dtype} {list(part.shape)}, expected {dtype} {shape}")
        if len(part) != len(code["values"]):
            raise DataError(f"{name}: {len(part)} rows, expected {len(code['values'])}, as many as values")
    return [code[name] for name in expected]
