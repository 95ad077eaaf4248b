"""Pickles that hold arrays of whole numbers in lists and dicts, read without running anything that they name.

`pickle.load` calls whatever a file tells it to. Here `pickletools` lists the operations, running none of
them, and a machine of this module's own carries them out. It knows lists, dicts, tuples, numbers, text,
and what numpy writes for an array, which is then made out of its bytes. Anything else is an error with
its place.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fedkge.errors import DataError
from fedkge.graphs.streams import opened

LARGEST = 1 << 31  #: bytes of a file
DEEPEST = 8  #: lists and dicts in each other
OPERATIONS = 1_000_000  #: of a file: arrays take some twenty each, however long they are
WHOLE = re.compile(r"[<>|=]?[iu][1248]")  #: types of whole numbers
#: What numpy writes: names that are known, by the part of this reader that stands for them.
KNOWN = {
    "numpy ndarray": "array type",
    "numpy dtype": "number type",
    "numpy.core.multiarray _reconstruct": "empty array",
    "numpy._core.multiarray _reconstruct": "empty array",
    "numpy.core.numeric _frombuffer": "array of bytes",
    "numpy._core.numeric _frombuffer": "array of bytes",
    "numpy.core.multiarray scalar": "number",
    "numpy._core.multiarray scalar": "number",
    "_codecs encode": "bytes of text",
    "__builtin__ bytes": "no bytes",
}


def read_pickle(path: Path) -> Any:
    """What the file holds: lists, dicts, tuples, numbers, text, and arrays of whole numbers."""
    with opened(path) as stream:
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise DataError(f"{path}: expected at most {LARGEST:,} bytes, found more")
    machine = _Machine()
    place = 0
    try:
        for count, (operation, argument, at) in enumerate(pickletools.genops(BytesIO(content))):
            place = at or 0
            if count >= OPERATIONS:
                raise _RefusedError(f"expected at most {OPERATIONS:,} operations, found more")
            machine.do(operation.name, argument)
        return machine.result()
    except _RefusedError as error:
        raise DataError(f"{path}: byte {place}: {error}") from None
    except (ValueError, TypeError, LookupError, UnicodeError, OverflowError) as error:
        raise DataError(f"{path}: byte {place}: expected a pickle, found something else ({error})") from None


class _RefusedError(Exception):
    """Something that a pickle of arrays does not have."""


@dataclass
class _Dtype:
    """A type of numbers, as numpy writes it: its size first, then its order of bytes."""

    code: str
    order: str = "|"

    def build(self, state: Any) -> None:
        self.order = _text(state[1])

    def type(self) -> np.dtype[Any]:
        code = f"{self.order}{self.code}"
        if not WHOLE.fullmatch(code):
            raise _RefusedError(f"expected an array of whole numbers, found one of type {code[:40]!r}")
        return np.dtype(code)


@dataclass
class _Array:
    """An array, empty until its bytes are known."""

    found: np.ndarray[Any, Any] | None = None

    def build(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.found = _made(content, dtype, shape, "F" if fortran else "C")


@dataclass(frozen=True)
class _Name:
    """Something of numpy's that the pickle names; `what` it is, as in KNOWN."""

    what: str

    def call(self, given: tuple[Any, ...]) -> Any:
        if self.what == "empty array":
            return _Array()
        if self.what == "number type":
            return _Dtype(_text(given[0]))
        if self.what == "array of bytes":
            content, dtype, shape, order = given
            return _Array(_made(content, dtype, shape, _text(order)))
        if self.what == "number":
            dtype, content = given
            return int(_made(content, dtype, (1,), "C")[0])
        if self.what == "bytes of text" and _text(given[1]) == "latin1":  # how Python 3 writes for Python 2
            return _text(given[0]).encode("latin1")
        if self.what == "no bytes" and not given:
            return b""
        raise _RefusedError(f"expected arrays in lists and dicts, found a call of the {self.what}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _RefusedError("expected text, found something else")
    return value


def _made(content: Any, dtype: Any, shape: Any, order: str) -> np.ndarray[Any, Any]:
    if not (isinstance(content, bytes) and isinstance(dtype, _Dtype) and isinstance(shape, tuple)):
        raise _RefusedError("expected an array of bytes, a type and a shape, found something else")
    kind = dtype.type()
    if len(shape) > 8 or not all(type(n) is int and n >= 0 for n in shape):
        raise _RefusedError("expected an array of at most 8 dimensions, found another shape")
    if prod(shape) * kind.itemsize != len(content):
        raise _RefusedError(f"expected an array of shape {shape}, found {len(content):,} bytes of {kind}")
    if order not in ("C", "F"):
        raise _RefusedError(f"expected an array in order C or F, found {order[:40]!r}")
    return np.frombuffer(content, kind).reshape(shape, order=order)  # type: ignore[call-overload]


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.over = False
        self.encoded = 0  #: bytes made of text

    def result(self) -> Any:
        if not self.over or len(self.stack) != 1:
            raise _RefusedError("expected the end of a pickle, found the end of the file")
        return plain(self.stack[0])

    def do(self, name: str, argument: Any) -> None:
        if name in CONSTANTS:
            self.stack.append(CONSTANTS[name]())
        elif name in LITERALS:
            self.stack.append(bytes(argument) if isinstance(argument, bytearray) else argument)
        elif name in ACTIONS:
            ACTIONS[name](self, argument)
        elif name not in ("PROTO", "FRAME"):
            raise _RefusedError(f"expected arrays in lists and dicts, found the operation {name}")

    def pop(self, count: int) -> list[Any]:
        least = self.marks[-1] if self.marks else 0
        if len(self.stack) - count < least:
            raise _RefusedError("expected something to work on, found an empty stack")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def pop_mark(self) -> list[Any]:
        if not self.marks:
            raise _RefusedError("expected a mark, found none")
        taken = self.stack[self.marks[-1] :]
        del self.stack[self.marks.pop() :]
        return taken

    def named(self, name: str) -> None:
        if name not in KNOWN:
            raise _RefusedError(f"expected arrays in lists and dicts, found {name[:80]!r}, which is not run")
        self.stack.append(_Name(KNOWN[name]))

    def call(self) -> None:
        what, given = self.pop(2)
        if not isinstance(what, _Name) or not isinstance(given, tuple):
            raise _RefusedError("expected an array, found a call of something else")
        made = what.call(given)
        if isinstance(made, bytes):
            self.encoded += len(made)
            if self.encoded > LARGEST:  # the same text again and again
                raise _RefusedError(f"expected at most {LARGEST:,} bytes, found more")
        self.stack.append(made)

    def build(self) -> None:
        (state,) = self.pop(1)
        top = self.stack[-1] if self.stack else None
        if not isinstance(top, _Array | _Dtype) or not isinstance(state, tuple):
            raise _RefusedError("expected the content of an array, found that of something else")
        top.build(state)

    def extend(self, items: list[Any]) -> None:
        if not self.stack or not isinstance(self.stack[-1], list):
            raise _RefusedError("expected a list to add to, found something else")
        self.stack[-1].extend(items)

    def new_dict(self, items: list[Any]) -> None:
        self.stack.append({})
        self.update(items)

    def update(self, items: list[Any]) -> None:
        if not self.stack or not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise _RefusedError("expected a dict to add to, found something else")
        if not all(isinstance(key, str | int) for key in items[::2]):
            raise _RefusedError("expected text or numbers as keys, found something else")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def keep(self, at: int) -> None:
        self.memo[at] = self.stack[-1]

    def stop(self) -> None:
        self.over = True


CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"),
        *("BINBYTES", "BINBYTES8", "SHORT_BINBYTES", "BYTEARRAY8"),
    }
)
ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "LIST": lambda m, _: m.stack.append(m.pop_mark()),
    "DICT": lambda m, _: m.new_dict(m.pop_mark()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_mark())),
    "TUPLE1": lambda m, _: m.stack.append(tuple(m.pop(1))),
    "TUPLE2": lambda m, _: m.stack.append(tuple(m.pop(2))),
    "TUPLE3": lambda m, _: m.stack.append(tuple(m.pop(3))),
    "APPEND": lambda m, _: m.extend(m.pop(1)),
    "APPENDS": lambda m, _: m.extend(m.pop_mark()),
    "SETITEM": lambda m, _: m.update(m.pop(2)),
    "SETITEMS": lambda m, _: m.update(m.pop_mark()),
    "PUT": lambda m, at: m.keep(int(at)),
    "BINPUT": lambda m, at: m.keep(at),
    "LONG_BINPUT": lambda m, at: m.keep(at),
    "MEMOIZE": lambda m, _: m.keep(len(m.memo)),
    "GET": lambda m, at: m.stack.append(m.memo[int(at)]),
    "BINGET": lambda m, at: m.stack.append(m.memo[at]),
    "LONG_BINGET": lambda m, at: m.stack.append(m.memo[at]),
    "GLOBAL": lambda m, name: m.named(name),
    "STACK_GLOBAL": lambda m, _: m.named(" ".join(map(_text, m.pop(2)))),
    "REDUCE": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.build(),
    "STOP": lambda m, _: m.stop(),
}


def plain(value: Any) -> Any:
    """With arrays in place of what stood for them; a list or dict that holds itself is an error."""
    return _plain(value, {}, 0)


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    """`done` has what was looked at, so that no part is looked at twice, however often it is referred to."""
    if depth > DEEPEST:
        raise _RefusedError(
            f"expected arrays in lists and dicts, found these nested more than {DEEPEST} deep"
        )
    if id(value) in done:
        return done[id(value)]
    found = value
    if isinstance(value, _Array):
        if value.found is None:
            raise _RefusedError("expected the content of an array, found none")
        found = value.found
    elif isinstance(value, list | tuple):
        found = [_plain(one, done, depth + 1) for one in value]
    elif isinstance(value, dict):
        found = {key: _plain(one, done, depth + 1) for key, one in value.items()}
    elif isinstance(value, _Name | _Dtype):
        raise _RefusedError("expected arrays in lists and dicts, found a name of numpy's")
    done[id(value)] = found
    return found
