"""The four similarities of rows, in plain torch: part of `kernels.reference`."""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels.base import Similarity


def compare(kind: Similarity, query: Tensor, rows: Tensor) -> Tensor:
    """The similarity of rows `[..., w]` that broadcast against each other."""
    if kind is Similarity.DOT:
        return (query * rows).sum(-1)
    difference = query - rows
    if kind is Similarity.L1:
        return -difference.abs().sum(-1)
    if kind is Similarity.L2:
        return -torch.linalg.vector_norm(difference, dim=-1)
    pairs = torch.stack(difference.chunk(2, -1), -1)
    return -torch.linalg.vector_norm(pairs, dim=-1).sum(-1)
