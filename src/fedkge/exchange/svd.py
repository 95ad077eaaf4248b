"""Low-rank rows (FedE-SVD, a rival in FedS, 2024): a row, folded into a matrix, keeps its largest factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as brief

import torch
from torch import Tensor

from fedkge.errors import ConfigError, DataError
from fedkge.exchange.codec import CODECS, Codec
from fedkge.training.factored import decomposed, folded


@CODECS.register("svd")
@dataclass(frozen=True)
class Svd(Codec):
    """A row of w numbers as a (w / columns) x columns matrix, of which `rank` singular triplets travel.

    With 256 numbers, 8 columns and rank 5 these are 205 numbers. The paper codes changes, both ways, and
    carries nothing over. Rows whose width is no multiple of `columns` are filled up with zeros.
    """

    rank: int = 5  #: singular values that are sent
    columns: int = 8  #: columns of the matrix that a row is folded into
    feedback: bool = False  #: adds the error of a row to its next message
    delta: bool = True  #: encodes the change against the last row that both ends hold

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= self.columns:
            raise ConfigError(
                f"rank, columns: expected 1 <= rank <= columns, got {self.rank}, {self.columns}"
            )

    def numbers(self, width: int) -> int:
        lines = -(-width // self.columns)
        kept = min(self.rank, lines)
        return kept * (lines + 1 + self.columns)

    def encode(self, values: Tensor) -> dict[str, Tensor]:
        finite = torch.isfinite(values).all(1, keepdim=True)
        u, s, v = decomposed(folded(torch.where(finite, values, 0), self.columns))
        s = torch.where(finite, s, torch.nan)  # a diverged row stays seen
        kept = min(self.rank, s.shape[1])
        parts = (u[..., :kept], s[:, :kept], v[:, :kept])
        return dict(zip(("values", "singular", "right"), (p.contiguous() for p in parts), strict=True))

    def decode(self, code: Mapping[str, Tensor], width: int | None = None) -> Tensor:
        if code.keys() != {"values", "singular", "right"}:
            raise DataError(f"a code of {brief(sorted(code))}, expected values, singular, right")
        u, s, v = (code[name] for name in ("values", "singular", "right"))
        shapes = (u.ndim, s.ndim, v.ndim) == (3, 2, 3)
        if not shapes or {u.dtype, s.dtype, v.dtype} != {torch.float32}:
            raise DataError("factors of other types or dimensions, expected float32 of 3, 2 and 3 dimensions")
        n = len(s)
        lines = u.shape[1] if width is None else -(-width // self.columns)
        kept = min(self.rank, lines)
        if (u.shape, s.shape, v.shape) != ((n, lines, kept), (n, kept), (n, kept, self.columns)):
            found = [list(part.shape) for part in (u, s, v)]
            expected = f"{kept} of each of {n} matrices of {lines} lines and {self.columns} columns"
            raise DataError(f"factors {found}, expected {expected}")
        return ((u * s[:, None]) @ v).flatten(1)[:, :width]
