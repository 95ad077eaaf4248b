"""How rows are written: exactly, in 16 bits, or in 8, 4 or 1.6 bits with a scale per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from reprlib import repr as brief
from typing import ClassVar

import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.kernels import backend
from fedkge.registry import Registry


class Codec(ABC):
    """Turns rows into named tensors and back, on the device where they are, without waiting for it.

    Each row has a code of its own: the codes of two tables, joined, are the code of the joined tables.
    Finite rows stay finite, rows that are not stay so: a diverged site is seen at the other end.
    """

    feedback: bool = False  # what a channel asks; codecs that lose something make it an option
    delta: bool = False  # whether changes are coded instead of rows; the same

    @abstractmethod
    def encode(self, values: Tensor) -> dict[str, Tensor]:
        """The code of float32 `values` [n, width]."""

    @abstractmethod
    def decode(self, code: Mapping[str, Tensor], width: int | None = None) -> Tensor:
        """Float32 [n, width]; a code of other parts, types or shapes is a `DataError`.

        Codes that pack several numbers into a byte need the width; without it, their last byte is full.
        """

    def numbers(self, width: int) -> int:
        """How many numbers a row of this width is, as the papers count."""
        return width


BLOCK = 1 << 19  #: numbers worked on at a time


CODECS: Registry[Codec] = Registry("codec", "fedkge.exchange")


@CODECS.register("float32")
@dataclass(frozen=True)
class Float32(Codec):
    """Rows as they are: four bytes a number, nothing lost, nothing copied."""

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        return {"values": values}

    def decode(self, code: Mapping[str, Tensor], width: int | None = None) -> Tensor:
        (values,) = _parts(code, values=(torch.float32, 2))
        return values


@dataclass(frozen=True)
class _Cast(Codec):
    """Two bytes a number; finite numbers beyond the type's range become its largest, not infinite."""

    dtype: ClassVar[torch.dtype]

    feedback: bool = False  #: adds the rounding error of a row to its next message
    delta: bool = False  #: encodes the change against the last row that both ends hold

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        largest = torch.finfo(self.dtype).max

        def within(some: Tensor) -> Tensor:
            return some.clamp(-largest, largest).add_(some, alpha=0)  # 0 · ∞ is NaN: the infinite stay seen

        return {"values": _by_blocks(within, self.dtype, values)}

    def decode(self, code: Mapping[str, Tensor], width: int | None = None) -> Tensor:
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


@dataclass(frozen=True)
class _Quanta(Codec):
    """Whole numbers of at most `most` times a scale per row, several to a byte."""

    most: ClassVar[int]
    per_byte: ClassVar[int]  #: as many as fit: (2 most + 1)^per_byte <= 256

    feedback: bool = True  #: adds the rounding error of a row to its next message
    delta: bool = False  #: encodes the change against the last row that both ends hold

    def scale(self, values: Tensor) -> Tensor:
        """[n]; the largest number of a row is `most` of them."""
        largest = torch.maximum(values.amax(1), -values.amin(1))
        # By a tensor: torch multiplies by 1/127 when a GPU is to divide by a number, and bytes would differ.
        return largest / torch.full_like(largest, self.most)

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        # At least the smallest normal number: rows of zeros divide by it.
        scale = self.scale(values).clamp_min(torch.finfo(torch.float32).tiny)
        return {"values": self._whole(values, scale), "scale": scale}

    def _whole(self, values: Tensor, scale: Tensor) -> Tensor:
        if self.per_byte > 1:
            return backend(values.device).quantise(values, scale, self.most, self.per_byte)

        def quanta(x: Tensor, s: Tensor) -> Tensor:
            return x.div(s[:, None]).round_().clamp_(-self.most, self.most)

        return _by_blocks(quanta, torch.int8, values, scale)

    def decode(self, code: Mapping[str, Tensor], width: int | None = None) -> Tensor:
        packed = self.per_byte > 1
        values, scale = _parts(
            code, values=(torch.uint8 if packed else torch.int8, 2), scale=(torch.float32, 1)
        )
        if not values.shape[1]:
            raise DataError("values: rows without numbers, expected some")
        scale = scale.masked_fill(scale <= 0, torch.nan)  # what nobody writes is NaN, which a channel refuses
        if not packed:
            return _by_blocks(self._numbers, torch.float32, values, scale)
        width = values.shape[1] * self.per_byte if width is None else width
        if values.shape[1] != -(-width // self.per_byte):
            raise DataError(f"values: {values.shape[1]} bytes a row, expected {-(-width // self.per_byte)}")
        return backend(values.device).restored(values, scale, self.most, self.per_byte, width)

    def _numbers(self, quanta: Tensor, scale: Tensor) -> Tensor:
        return quanta.float().mul_(scale.masked_fill(quanta.amin(1) < -self.most, torch.nan)[:, None])


@CODECS.register("int8")
@dataclass(frozen=True)
class Int8(_Quanta):
    """One byte a number and four bytes a row: x ≈ scale · q, scale = max|x| / 127, q rounded to even."""

    most = 127
    per_byte = 1


@CODECS.register("int4")
@dataclass(frozen=True)
class Int4(_Quanta):
    """Half a byte a number and four bytes a row: x ≈ scale · q, scale = max|x| / 7; best with `delta`."""

    most = 7
    per_byte = 2


@CODECS.register("ternary")
@dataclass(frozen=True)
class Ternary(_Quanta):
    """A fifth of a byte a number and four bytes a row: x ≈ -scale, 0 or scale; best with `delta`.

    The scale is 1.224 times the root mean square, which is best for normally distributed numbers.
    """

    most = 1
    per_byte = 5

    def scale(self, values: Tensor) -> Tensor:
        largest = super().scale(values).clamp_min(torch.finfo(torch.float32).tiny)  # its square may overflow
        scale = 1.224 * largest * values.div(largest[:, None]).square_().mean(1).sqrt()
        return scale.clamp_max(torch.finfo(torch.float32).max)


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
        raise DataError(f"a code of {brief(sorted(code))}, expected {', '.join(expected)}")
    for name, (dtype, dimensions) in expected.items():
        part = code[name]
        if part.dtype != dtype or part.ndim != dimensions:
            shape = "[rows, width]" if dimensions == 2 else "[rows]"
            raise DataError(f"{name}: {part.dtype} {list(part.shape)}, expected {dtype} {shape}")
        if len(part) != len(code["values"]):
            raise DataError(f"{name}: {len(part)} rows, expected {len(code['values'])}, as many as values")
    return [code[name] for name in expected]
