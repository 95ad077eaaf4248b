"""The one hot operation, three ways: plain torch, numba on the CPU, Triton on the GPU."""

from fedkge.kernels.base import (
    Adam,
    Candidates,
    Composed,
    Composition,
    Contribution,
    Dealt,
    Deck,
    Draw,
    Laid,
    Pace,
    Room,
    Shared,
    Similarity,
    Tie,
    Until,
)
from fedkge.kernels.beside import beside
from fedkge.kernels.dispatch import Backend, backend, contrast, distil, similarity

__all__ = [
    "Adam",
    "Backend",
    "Candidates",
    "Composed",
    "Composition",
    "Contribution",
    "Dealt",
    "Deck",
    "Draw",
    "Laid",
    "Pace",
    "Room",
    "Shared",
    "Similarity",
    "Tie",
    "Until",
    "backend",
    "beside",
    "contrast",
    "distil",
    "similarity",
]
