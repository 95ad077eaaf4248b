"""Tensors as the arrays that compiled kernels take."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedkge.kernels.base import Contribution
from fedkge.kernels.cpu import grouping, laying

KINDS = {torch.float32: np.float32, torch.float64: np.float64}


def matrix(tensor: Tensor) -> NDArray[np.float32]:
    """A matrix whose rows are contiguous."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    array: NDArray[np.float32] = (tensor if tensor.is_contiguous() else tensor.contiguous()).numpy()
    return array


def room(like: Tensor, *shape: int) -> Tensor:
    """A matrix for one step, not written.

    Torch may lay large tensors on pages of 2 MB each, which leaves gaps between those of every step.
    """
    return torch.from_numpy(laying.aligned(shape, KINDS[like.dtype]))


def words_of(keys: Tensor) -> NDArray[np.uint32]:
    """Keys of ChaCha20 [..., 4] as 32-bit words [..., 8]."""
    words: NDArray[np.uint32] = keys.contiguous().numpy().view(np.uint32)
    return words


def grouped(table: Tensor, part: Contribution) -> tuple[NDArray[np.int64], ...]:
    """Distinct rows, where their positions start, and the positions, as `grouping.group` gives them."""
    index, ids, rows = matrix(part.index), matrix(part.ids), table.shape[0]
    if max(rows, index.size + ids.size) >= 1 << 31:
        raise ValueError(f"{rows} rows, {index.size} candidates: expected fewer than 2^31")
    groups: tuple[NDArray[np.int64], ...] = grouping.group(index, ids, rows)
    return groups


def slopes_of(part: Contribution) -> NDArray[np.float32]:
    """What the last ids are cubed with; none where rows are not cubed."""
    return matrix(part.scores.new_empty(0) if part.cubed is None else part.cubed)


def factors_of(table: Tensor, part: Contribution) -> tuple[object, ...]:
    ahead = part.values[:0] if part.ahead is None else part.ahead
    arrays = map(matrix, (part.scores, part.d_scores, ahead, part.values))
    return int(part.kind), matrix(part.query), table.detach().numpy(), part.index.shape[1], *arrays
