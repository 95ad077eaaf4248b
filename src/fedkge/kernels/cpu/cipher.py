"""ChaCha20 (RFC 8439) on the CPU, as many blocks at once as a vector has lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from fedkge.kernels.cipher import GROUP
from fedkge.kernels.cpu.compile import written
from fedkge.kernels.cpu.vectors import BYTES, I32, I64, Vectors, vectorised
from fedkge.randomness import DOUBLE_ROUNDS, QUARTERS, SIGMA, TURNS

LANES = BYTES // 4  #: blocks of a vector


def _blocks(v: Vectors, key: Any, counters: Any, out: Any, count: Any) -> None:
    """out [16, count] = the words of blocks under key [8] at counters [4, count]; a multiple of LANES."""
    b, kind = v.b, v.bits
    turn = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(kind, [kind] * 3), f"llvm.fshl.v{v.lanes}i32"
    )
    line = b.mul(count, I64(4))

    def at(address: Any, number: int, offset: Any) -> Any:
        place = b.add(b.add(address, b.mul(line, I64(number))), offset)
        return b.inttoptr(place, kind.as_pointer())

    def all_lanes(word: Any) -> Any:
        undefined = ir.Constant(kind, ir.Undefined)
        return v.shuffle(b.insert_element(undefined, word, I32(0)), undefined, [0] * v.lanes)

    def constant(value: int) -> Any:
        return ir.Constant(kind, [I32(value)] * v.lanes)

    words = [
        all_lanes(b.load(b.inttoptr(b.add(key, I64(4 * i)), I32.as_pointer()), align=4)) for i in range(8)
    ]

    def double_round(_: Any, x: list[Any]) -> list[Any]:
        for a, e, c, d in QUARTERS:
            for (to, by, mixed), bits in zip(((a, e, d), (c, d, e)) * 2, TURNS, strict=True):
                x[to] = b.add(x[to], x[by])
                mix = b.xor(x[mixed], x[to])
                x[mixed] = b.call(turn, [mix, mix, constant(bits)])
        return x

    def some(i: Any, _: list[Any]) -> list[Any]:
        offset = b.mul(i, I64(BYTES))
        given = [b.load(at(counters, n, offset), align=4) for n in range(4)]
        first = [*map(constant, SIGMA), *words, *given]
        for n, x in enumerate(v.loop(I64(DOUBLE_ROUNDS), first, double_round)):
            b.store(b.add(x, first[n]), at(out, n, offset), align=4)
        return []

    v.loop(b.sdiv(count, I64(v.lanes)), [], some)


_vectorised = vectorised(4, _blocks)


@written()
def blocks(key, counters, out):
    """`out` [16 n] = the first words of all blocks under key [8] at counters [4, n], then the second, ..."""
    where = (key.ctypes.data, counters.ctypes.data, out.ctypes.data, np.int64(counters.shape[1]))
    _vectorised(np.float32(0), where)


@written()
def keystream(key, stream, out):  # [8], 1, [n]
    """The flat stream of `kernels.cipher`, on one thread: samples are drawn while other threads work."""
    n = out.shape[0]
    counters, words = np.zeros((4, 16), np.uint32), np.empty(GROUP, np.uint32)
    for group in range((n + GROUP - 1) // GROUP):
        for k in range(16):
            counters[0, k], counters[3, k] = 16 * group + k, stream
        blocks(key, counters, words)
        own = out[group * GROUP : min(n, (group + 1) * GROUP)]
        own[:] = words[: own.shape[0]]
