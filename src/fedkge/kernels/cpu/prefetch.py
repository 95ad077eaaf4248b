"""Ask for a row of a table before it is needed: candidates lie anywhere, which no hardware foresees."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fedkge.kernels.cpu.compile import inline

LINE = 64  #: bytes of a cache line
AHEAD = 8  #: rows between asking and using


@intrinsic
def _prefetch(typing_context, address):
    """Bring the line at `address` into the second-level cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        call = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(call, [builder.inttoptr(arguments[0], pointer), i32(0), i32(2), i32(1)])
        return context.get_dummy_value()

    return types.void(types.intp), generate


@inline()
def ask(table, row):
    """Start to fetch a row that will be read soon."""
    start, size = table.ctypes.data + row * table.strides[0], table.shape[1] * table.itemsize
    for offset in range(0, size, LINE):
        _prefetch(start + offset)


@inline()
def ask_number(array, place):
    """Start to fetch a number of a vector that will be read soon."""
    _prefetch(array.ctypes.data + place * array.strides[0])
