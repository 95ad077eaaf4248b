"""The one hot operation, three ways: plain torch, numba on the CPU, Triton on the GPU."""

from fedkge.kernels.base import Adam, Contribution, Debt, Draw, Pace, Similarity, Tie
from fedkge.kernels.dispatch import Backend, backend, contrast, distil, similarity

__all__ = [
    "Adam",
    "Backend",
    "Contribution",
    "Debt",
    "Draw",
    "Pace",
    "Similarity",
    "Tie",
    "backend",
    "contrast",
    "distil",
    "similarity",
]
