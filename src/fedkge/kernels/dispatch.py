"""Choose the kernels for a device, and the indexed similarity as a differentiable function."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedkge.errors import ConfigError, MissingPackage
from fedkge.kernels.base import (
    Adam,
    Composed,
    Contribution,
    Dealt,
    Deck,
    Draw,
    Laid,
    Pace,
    Room,
    Shared,
    Similarity,
    Until,
)

MODULES = {
    "reference": "fedkge.kernels.reference",
    "cpu": "fedkge.kernels.cpu.backend",
    "cuda": "fedkge.kernels.gpu.backend",
}
ASKED = "FEDKGE_KERNELS"  #: the variable that chooses
NEEDS = {"cpu": "numba", "cuda": "triton"}


class Backend(Protocol):
    """The functions of `kernels.reference`, which says what each one means."""

    def forward(self, kind: Similarity, query: Tensor, table: Tensor, index: Tensor) -> Tensor: ...
    def all_scores(self, kind: Similarity, query: Tensor, table: Tensor) -> Tensor: ...
    def backward_query(
        self, kind: Similarity, query: Tensor, table: Tensor, index: Tensor, scores: Tensor, d_scores: Tensor
    ) -> Tensor: ...
    def touched(self, table: Tensor, part: Contribution) -> tuple[Tensor, Tensor]: ...
    def accumulate_(self, gradient: Tensor, table: Tensor, part: Contribution) -> None: ...
    def cubes(self, table: Tensor, ids: Tensor) -> Tensor: ...
    def cube_gradients(self, table: Tensor, ids: Tensor, slopes: Tensor) -> Tensor: ...
    def lengths(self, rows: Tensor) -> Tensor: ...
    def squares(self, rows: Tensor, lengths: Tensor, order: Tensor, starts: Tensor) -> Tensor: ...
    def clip_factors(
        self, squares: Tensor, losses: Tensor, clip: Tensor, there: Tensor, expected: float
    ) -> tuple[Tensor, Tensor]: ...
    def contrast(self, scores: Tensor, temperature: float) -> tuple[Tensor, Tensor]: ...
    def contrast_rows(
        self,
        kind: Similarity,
        query: Tensor,
        table: Tensor,
        index: Tensor,
        margin: float,
        temperature: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    def left_out(self, negatives: Tensor, starts: Tensor, draw: Draw) -> Tensor: ...
    def shared_scores(
        self, kind: Similarity, query: Tensor, table: Tensor, shared: Shared
    ) -> tuple[Tensor, Laid]: ...
    def shared_gradients(
        self,
        kind: Similarity,
        query: Tensor,
        table: Tensor,
        shared: Shared,
        laid: Laid,
        scores: Tensor,
        d_scores: Tensor,
        each: Tensor,
    ) -> tuple[Tensor, Tensor]: ...
    def contrast_composed(
        self,
        kind: Similarity,
        entities: Tensor,
        made: Composed,
        shared: Shared,
        margin: float,
        temperature: float,
    ) -> tuple[Tensor, Laid]: ...
    def heap_composed_(
        self,
        kind: Similarity,
        entities: Tensor,
        made: Composed,
        shared: Shared,
        laid: Laid,
        each: Tensor,
        rooms: tuple[Room, Room],
    ) -> None: ...
    def turn(self, phases: Tensor, scale: float, out: Tensor | None = None) -> Tensor: ...
    def compose(self, entities: Tensor, made: Composed) -> Tensor: ...
    def decompose(
        self, entities: Tensor, made: Composed, d_query: Tensor, width: int
    ) -> tuple[Tensor, Tensor]: ...
    def contrast_shared(
        self,
        kind: Similarity,
        query: Tensor,
        table: Tensor,
        shared: Shared,
        margin: float,
        temperature: float,
    ) -> tuple[Tensor, Tensor, Tensor, Laid]: ...
    def distil(self, first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]: ...
    def uniform(self, key: int, keys: Tensor, width: int, dtype: torch.dtype) -> Tensor: ...
    def keystream(self, key: Tensor, count: int, stream: int = 0) -> Tensor: ...
    def add_noise_(self, sums: Tensor, key: Tensor, scale: Tensor) -> None: ...
    def order_keys(self, keys: Tensor, site: Tensor, local: Tensor, visit: int, epoch: Tensor) -> Tensor: ...
    def deal(
        self,
        deck: Deck,
        order: Tensor,
        triples: Tensor,
        answers: tuple[Tensor, Tensor],
        clock: Tensor,
        visits: int,
        size: tuple[int, int],
    ) -> Dealt: ...
    def negatives_(self, index: Tensor, draw: Draw, clock: Tensor) -> None: ...
    def moments(self, table: Tensor, kept: Tensor) -> Tensor: ...
    def rates(self, pace: Pace, adam: Adam, dtype: torch.dtype) -> Tensor: ...
    def all_rates(self, adam: Adam, like: Tensor) -> Tensor | None: ...
    def adam_(
        self, table: Tensor, gradient: Tensor, m: Tensor, v: Tensor, pace: Pace, adam: Adam
    ) -> None: ...
    def adam_touched_(
        self, table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam
    ) -> None: ...
    def adam_whole_(
        self, table: Tensor, part: Contribution, m: Tensor, v: Tensor, pace: Pace, adam: Adam
    ) -> None: ...
    def catch_up_(
        self,
        table: Tensor,
        m: Tensor,
        v: Tensor,
        pace: Pace,
        adam: Adam,
        ids: Sequence[Tensor] | None = None,
        promised: bool = False,
    ) -> None: ...
    def foresee(
        self,
        table: Tensor,
        m: Tensor,
        v: Tensor,
        pace: Pace,
        adam: Adam,
        read: Sequence[Sequence[Tensor]],
        active: Sequence[Tensor],
        rooms: tuple[Tensor, Tensor],
    ) -> list[Until]: ...  # not on a GPU
    def adagrad_(self, table: Tensor, gradient: Tensor, squares: Tensor, pace: Pace, rate: float) -> None: ...
    def sgd_(self, table: Tensor, gradient: Tensor, pace: Pace, rate: float) -> None: ...
    def quantise(self, values: Tensor, scale: Tensor, most: int, per_byte: int) -> Tensor: ...
    def restored(self, packed: Tensor, scale: Tensor, most: int, per_byte: int, width: int) -> Tensor: ...


def backend(device: torch.device) -> Backend:
    """The kernels for `device`; FEDKGE_KERNELS=reference asks for plain torch everywhere."""
    if ASKED not in os.environ:  # `get` would raise inside: every step comes here some ten times
        return _load(device.type)
    asked = os.environ[ASKED]
    if asked not in ("auto", "reference"):
        raise ConfigError(f"FEDKGE_KERNELS: expected auto or reference, got {asked!r}")
    return _load("reference" if asked == "reference" else device.type)


@cache
def _load(name: str) -> Backend:
    if name not in MODULES:
        raise ConfigError(f"no kernels for device {name!r}; expected one of cpu, cuda")
    try:
        return cast(Backend, importlib.import_module(MODULES[name]))
    except ModuleNotFoundError as error:
        if error.name != NEEDS.get(name):
            raise
        remedy = " (or set FEDKGE_KERNELS=reference for plain torch, many times slower)"
        raise MissingPackage(NEEDS[name], f"training on {name}{remedy}", "all") from None


def similarity(
    kind: Similarity, query: Tensor, table: Tensor, index: Tensor, *, sparse: bool = False
) -> Tensor:
    """scores[b, n] = similarity(query[b], table[index[b, n]]), differentiable in `query` and `table`.

    With `sparse`, the table's gradient is a sparse tensor of the touched rows alone.
    """
    matrices = query.ndim == table.ndim == index.ndim == 2
    if not matrices or query.shape[1] != table.shape[1] or len(query) != len(index):
        raise ValueError(f"query {list(query.shape)}, table {list(table.shape)}, index {list(index.shape)}")
    if kind is Similarity.MODULUS and table.shape[1] % 2:
        raise ValueError(f"rows of complex numbers have an even width, not {table.shape[1]}")
    if index.device.type == "cpu" and index.numel():  # elsewhere, looking would wait for the device
        low, high = index.aminmax()
        if low < 0 or high >= len(table):
            raise IndexError(f"index from {low} to {high}, but the table has {len(table)} rows")
    return cast(Tensor, _Similarity.apply(query, table, index, kind, sparse))  # type: ignore[no-untyped-call]


class _Similarity(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, table: Tensor, index: Tensor, kind: Similarity, sparse: bool
    ) -> Tensor:
        scores = backend(table.device).forward(kind, query.detach(), table.detach(), index)
        ctx.save_for_backward(query, table, index, scores)
        ctx.kind, ctx.sparse = kind, sparse
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor | None, ...]:
        query, table, index, scores = (tensor.detach() for tensor in ctx.saved_tensors)
        kernels = backend(table.device)
        d_query = d_table = None
        if ctx.needs_input_grad[0]:
            d_query = kernels.backward_query(ctx.kind, query, table, index, scores, d_scores)
        if ctx.needs_input_grad[1]:
            none = index.new_empty(0)
            part = Contribution(
                ctx.kind, query, index, scores, d_scores, none, query.new_empty(0, query.shape[1])
            )
            if ctx.sparse:
                rows, values = kernels.touched(table, part)
                d_table = torch.sparse_coo_tensor(
                    rows[None], values, table.shape, is_coalesced=True, check_invariants=False
                )
            else:
                d_table = torch.zeros_like(table)
                kernels.accumulate_(d_table, table, part)
        return d_query, d_table, None, None, None


def contrast(scores: Tensor, temperature: float) -> Tensor:
    """The losses [b] of `reference.contrast`, differentiable in the scores."""
    return cast(Tensor, _Contrast.apply(scores, temperature))  # type: ignore[no-untyped-call]


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, temperature: float) -> Tensor:
        losses, gradient = backend(scores.device).contrast(scores.detach(), temperature)
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_losses: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return d_losses[:, None] * gradient, None


def distil(first: Tensor, second: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """KL(q || p) [b], which moves `first` alone, and KL(p || q) [b], which moves `second` alone.

    p and q are the softmaxes of the scores [b, n] of the two: each learns from the other, and no teacher is
    moved (`reference.distil`).
    """
    if first.shape != second.shape:
        raise ValueError(f"scores {list(first.shape)} and {list(second.shape)} of unlike candidates")
    return cast(tuple[Tensor, Tensor], _Distil.apply(first, second, temperature))  # type: ignore[no-untyped-call]


class _Distil(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        kernels = backend(first.device)
        to_first, to_second, gradient = kernels.distil(first.detach(), second.detach(), temperature)
        ctx.save_for_backward(gradient)
        return to_first, to_second

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_to_first: Tensor, d_to_second: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return d_to_first[:, None] * gradient, -d_to_second[:, None] * gradient, None
