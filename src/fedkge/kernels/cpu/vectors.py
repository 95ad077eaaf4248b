"""Vector code that is written out: numba functions made of LLVM's vectors, which it lowers to any processor.

LLVM's own vectorisation does not keep a tile of sums in registers. What is written here rounds as written, so
that compiled and cached code agree to the bit, in functions that are compiled without fast-math: numba lays a
function's flags on every instruction in it, on these too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

I32, I64 = ir.IntType(32), ir.IntType(64)


def _bytes() -> int:
    """The width of the vectors that numba compiles for, at most 64: users may name another processor."""
    asked = config.CPU_FEATURES
    features = (get_host_cpu_features() if asked is None else asked).split(",")
    return next((size for name, size in (("+avx512f", 64), ("+avx2", 32)) if name in features), 16)


BYTES = _bytes()


class Vectors:
    """Writes code on vectors of float32 or float64 at addresses."""

    def __init__(self, builder: Any, double: bool) -> None:
        self.b = builder
        self.scalar = ir.DoubleType() if double else ir.FloatType()
        self.item = 8 if double else 4
        self.lanes = BYTES // self.item
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.bits = ir.VectorType(I64 if double else I32, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * self.item}"
        self.least = 2.2250738585072014e-308 if double else 1.1754943508222875e-38  # normal number
        self.most = 1.7976931348623157e308 if double else 3.4028234663852886e38

    def load(self, address: Any, offset: Any = 0) -> Any:
        return self.b.load(self._at(address, offset), align=self.item)

    def store(self, value: Any, address: Any, offset: Any = 0) -> None:
        self.b.store(value, self._at(address, offset), align=self.item)

    def _at(self, address: Any, offset: Any) -> Any:
        offset = I64(offset) if isinstance(offset, int) else offset
        return self.b.inttoptr(self.b.add(address, offset), self.vector.as_pointer())

    def store_some(self, vectors: Sequence[Any], first: int, count: int, address: Any) -> None:
        """Numbers `first` to `first + count - 1` of vectors one after another, to an address."""
        at_once = min(count, self.lanes)
        kind = ir.VectorType(self.scalar, at_once)
        for k in range(first, first + count, at_once):
            whole = vectors[k // self.lanes]
            part = self.shuffle(whole, whole, [k % self.lanes + lane for lane in range(at_once)])
            place = self.b.add(address, I64((k - first) * self.item))
            self.b.store(part, self.b.inttoptr(place, kind.as_pointer()), align=self.item)

    def repeated(self, address: Any) -> Any:
        """The number at an address, in every lane."""
        number = self.b.load(self.b.inttoptr(address, self.scalar.as_pointer()), align=self.item)
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.b.insert_element(undefined, number, I32(0))
        return self.shuffle(one, undefined, [0] * self.lanes)

    def constant(self, value: float) -> Any:
        return ir.Constant(self.vector, [ir.Constant(self.scalar, value)] * self.lanes)

    def shuffle(self, left: Any, right: Any, lanes: Sequence[int]) -> Any:
        return self.b.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))

    def _call(self, name: str, *arguments: Any) -> Any:
        kind = ir.FunctionType(self.vector, [self.vector] * len(arguments))
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.{name}.{self.suffix}")
        return self.b.call(function, list(arguments))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self._call("fma", a, b, c)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger one in each lane; `b` where one is not a number."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def square(self, x: Any, y: Any) -> Any:
        """x^2 + y^2 + the least normal number, so that one over its root is finite."""
        return self.fma(y, y, self.fma(x, x, self.constant(self.least)))

    def add_root(self, square: Any, total: Any) -> Any:
        """`total` plus twice the root, to the last bits of the type."""
        if self.suffix != "v16f32":
            return self.fma(self._call("sqrt", square), self.constant(2.0), total)
        root, rest = self._newton(square)[1:]
        return self.fma(root, rest, total)

    def inverse(self, square: Any) -> Any:
        """Twice one over the root, to the last bits of the type."""
        if self.suffix != "v16f32":
            return self.b.fdiv(self.constant(2.0), self._call("sqrt", square))
        first, _, rest = self._newton(square)
        return self.b.fmul(first, rest)

    def _newton(self, square: Any) -> tuple[Any, Any, Any]:
        """14 bits of one over the root, of the root, and a factor that makes 27 bits of twice either.

        Twice, because this spares a multiplication.
        """
        first = self._estimate("rsqrt14", square)
        root = self.b.fmul(square, first)
        return first, root, self.fma(self.b.fneg(root), first, self.constant(3.0))

    def _estimate(self, name: str, value: Any) -> Any:
        kind = ir.FunctionType(self.vector, [self.vector, self.vector, ir.IntType(16)])
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.x86.avx512.{name}.ps.512")
        return self.b.call(function, [value, self.constant(0.0), ir.IntType(16)(-1)])

    def double_root(self, square: Any) -> Any:
        """Twice the root of a positive number that is neither tiny nor infinite, to the last bits."""
        if self.suffix != "v16f32":
            return self.b.fmul(self._call("sqrt", square), self.constant(2.0))
        root, rest = self._newton(square)[1:]
        return self.b.fmul(root, rest)

    def quotient(self, above: Any, below: Any) -> Any:
        """`above` by `below`, to the last bits of the type."""
        if self.suffix != "v16f32":
            return self.b.fdiv(above, below)
        first = self._estimate("rcp14", below)
        rest = self.fma(self.b.fneg(below), first, self.constant(2.0))
        return self.b.fmul(above, self.b.fmul(first, rest))

    def signed(self, sign: Any, value: Any) -> Any:
        """`value`, negated where `sign` is negative."""
        mask = -(2**63) if self.item == 8 else -(2**31)
        masks = ir.Constant(self.bits, [ir.Constant(self.bits.element, mask)] * self.lanes)
        flipped = self.b.and_(self.b.bitcast(sign, self.bits), masks)
        return self.b.bitcast(self.b.xor(flipped, self.b.bitcast(value, self.bits)), self.vector)

    def sums(self, vectors: Sequence[Any]) -> list[Any]:
        """The sum of each vector, as vectors of sums; there are a multiple of the lanes."""
        found = []
        for start in range(0, len(vectors), self.lanes):
            level = list(vectors[start : start + self.lanes])
            while len(level) > 1:
                even, odd = (list(range(first, 2 * self.lanes, 2)) for first in (0, 1))
                pairs = zip(level[::2], level[1::2], strict=True)
                level = [self.b.fadd(self.shuffle(x, y, even), self.shuffle(x, y, odd)) for x, y in pairs]
            found += level
        return found

    def sum(self, vector: Any) -> Any:
        """The sum of one vector in every lane, in the order of `sums`."""
        even, odd = (list(range(first, 2 * self.lanes, 2)) for first in (0, 1))
        for _ in range(self.lanes.bit_length() - 1):
            pair = (self.shuffle(vector, vector, lanes) for lanes in (even, odd))
            vector = self.b.fadd(*pair)
        return vector

    def loop(self, count: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]) -> Any:
        """`for i in range(count): carried = body(i, carried)`, in registers; at least once."""
        before = self.b.block
        head, after = self.b.append_basic_block("head"), self.b.append_basic_block("after")
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.phi(I64)
        i.add_incoming(I64(0), before)
        values = []
        for one in carried:
            value = self.b.phi(one.type)
            value.add_incoming(one, before)
            values.append(value)
        found = body(i, list(values))
        following, end = self.b.add(i, I64(1)), self.b.block
        i.add_incoming(following, end)
        for value, one in zip(values, found, strict=True):
            value.add_incoming(one, end)
        self.b.cbranch(self.b.icmp_signed("<", following, count), head, after)
        self.b.position_at_end(after)
        return found

    def loop_if_any(
        self, count: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """`loop`, or nothing where `count` is 0."""
        before = self.b.block
        some, after = self.b.append_basic_block("some"), self.b.append_basic_block("either")
        self.b.cbranch(self.b.icmp_signed(">", count, I64(0)), some, after)
        self.b.position_at_end(some)
        found, end = self.loop(count, carried, body), self.b.block
        self.b.branch(after)
        self.b.position_at_end(after)
        values = []
        for first, last in zip(carried, found, strict=True):
            value = self.b.phi(first.type)
            value.add_incoming(first, before)
            value.add_incoming(last, end)
            values.append(value)
        return values


def vectorised(count: int, write: Callable[..., None]) -> Any:
    """A numba function of a number, which tells the type, and a tuple of `count` addresses and sizes."""

    @intrinsic
    def function(typing_context, like, arguments):
        signature = types.void(like, types.UniTuple(types.int64, count))

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            parts = cgutils.unpack_tuple(builder, values[1], count)
            write(Vectors(builder, like == types.float64), *parts)
            return context.get_dummy_value()

        return signature, generate

    return function
