"""What is drawn, in plain torch: Philox's bits, first rows, orders and negatives.

Part of `kernels.reference`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedkge.kernels.base import Dealt, Deck, Draw
from fedkge.kernels.cipher import chacha20
from fedkge.randomness import MULTIPLIERS, ROUNDS, WEYL

LOW = 0xFFFFFFFF


def philox(key: Tensor, counter: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Philox4x32-10 in int64 arithmetic; `key` is a uint64 held in an int64, everything broadcasts."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter)
    k0, k1 = key & LOW, (key >> 32) & LOW
    for _ in range(ROUNDS):
        (high_a, low_a), (high_b, low_b) = _multiply(c0, MULTIPLIERS[0]), _multiply(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def _multiply(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a 32-bit product, without overflowing int64."""
    low, high = x * (factor & 0xFFFF), x * (factor >> 16)
    total = low + ((high & 0xFFFF) << 16)
    return (total >> 32) + (high >> 16), total & LOW


def uniform(key: int, keys: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1) `[n, width]`, made of 24 bits each; row i depends on keys[i] alone."""
    block = torch.arange((width + 3) // 4, device=keys.device)
    rows = keys[:, None]
    counter = (block, torch.zeros_like(block), rows & LOW, (rows >> 32) & LOW)
    bits = torch.stack(philox(_signed(key, keys), counter), -1).flatten(-2)[:, :width]
    return (bits >> 8).to(dtype) * 2.0**-24


def _signed(key: int, like: Tensor) -> Tensor:
    """A 64-bit key as an int64 on the device of `like`."""
    return torch.tensor(key - (1 << 64) if key >> 63 else key, device=like.device)


def order_keys(keys: Tensor, site: Tensor, local: Tensor, visit: int, epoch: Tensor) -> Tensor:
    """Numbers whose order shuffles each site's items: the site in the high bits, 48 random bits below."""
    zero = torch.zeros_like(local)
    b0, b1, _, _ = philox(keys[site], (local, zero, zero + visit, zero + epoch))
    return (site << 48) | ((b1 & 0xFFFF) << 32) | b0


def deal(
    deck: Deck,
    order: Tensor,
    triples: Tensor,
    answers: tuple[Tensor, Tensor],
    clock: Tensor,
    visits: int,
    size: tuple[int, int],
) -> Dealt:
    """The batch of number clock[0] // visits: so many triples and chunks of them (`size`).

    order [slots] has the number of each slot's triple; triple i's known answers are from answers[0][i] to
    answers[1][i].
    """
    number = clock[:1] // visits
    slots = deck.starts[number] + torch.arange(size[0], device=clock.device)
    heads = deck.heads[deck.first_heads[number] + torch.arange(size[1], device=clock.device)]
    triple, (lo, hi) = order[slots], answers
    h, r, t = triples[triple].unbind(-1)
    starts = torch.cat((heads - deck.starts[number], torch.full_like(number, size[0])))
    return Dealt(
        triple,
        h,
        r,
        t,
        lo[triple],
        hi[triple],
        deck.site[slots],
        deck.position[slots],
        deck.share[slots],
        starts,
        deck.site[heads],
        deck.position[heads],
    )


def negatives_(index: Tensor, draw: Draw, clock: Tensor) -> None:
    """Fill index[:, 1:] with negatives, drawn at the counter `clock` [2], by Philox or by ChaCha20."""
    n = index.shape[1] - 1
    each = 16 if draw.keys.ndim == 2 else 4
    block, position = torch.arange(-(-n // each), device=index.device), draw.position[:, None]
    keys = draw.keys[draw.site][:, None]
    if draw.keys.ndim == 2:
        words = chacha20(keys, (block, position, clock[0], clock[1]))
    else:
        words = philox(keys, (block, position, clock[0], clock[1]))
    bits = torch.stack(words, -1).flatten(-2)[:, :n]
    answers, size = draw.hi - draw.lo, draw.size[draw.site]
    free = torch.where(answers < size, answers, 0)  # nothing but answers: filtering is impossible
    u = bits * (size - free)[:, None] >> 32
    for i, (lo, count) in enumerate(zip(draw.lo.tolist(), free.tolist(), strict=True)):
        u[i] += torch.searchsorted(draw.known[lo : lo + count], u[i].clone(), right=True)
    index[:, 1:] = draw.first[draw.site][:, None] + u
