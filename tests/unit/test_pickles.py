"""Pickles of arrays are read. Nothing that a pickle names is run: hostile ones are refused."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedkge.errors import DataError
from fedkge.graphs import pickles
from fedkge.graphs.pickles import read_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
numbers = st.sampled_from([np.int64, np.int32, np.uint8, np.dtype(">i4")])
content = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.binary(max_size=5)
    | arrays(numbers, array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def same(found: Any, right: Any) -> bool:
    if isinstance(right, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == right.dtype and np.array_equal(found, right)
    if isinstance(right, list):
        return len(found) == len(right) and all(map(same, found, right))
    if isinstance(right, dict):
        return found.keys() == right.keys() and all(same(found[key], one) for key, one in right.items())
    return bool(found == right)


def depth(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inside), default=0)


@given(content.filter(lambda value: depth(value) < 9), st.sampled_from(PROTOCOLS))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, value: Any, protocol: int
) -> None:
    """As `pickle.load` would."""
    path = tmp_path_factory.mktemp("p") / "a.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    assert same(read_pickle(path), value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_in_any_order(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "a.pkl"
    array = np.arange(6).reshape(2, 3)
    path.write_bytes(pickle.dumps([array, array.T, np.asfortranarray(array), array, np.int64(3)], protocol))
    found = read_pickle(path)
    assert all(map(np.array_equal, found, [array, array.T, array, array, 3]))


class Call:
    """Pickled as a call of something."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.what = function, given

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def hostile() -> dict[str, bytes]:
    proto = b"\x80\x04"
    shared = b"]\x94" + b"".join(b"]\x94(" + b"h%c" % n * 99 + b"e" for n in range(20)) + b"."
    return {
        "system": pickle.dumps(Call(os.system, "touch hit")),
        "eval": pickle.dumps(Call(eval, "open('hit', 'w')"), 0),
        "getattr": pickle.dumps(Call(getattr, "x", "__class__")),
        "import": b"cos\nsystem\n(S'touch hit'\ntR.",
        "instance": b"(S'touch hit'\nios\nsystem\n.",
        "object": pickle.dumps(OrderedDict(a=1)),
        "numpy's loader": pickle.dumps(Call(np.load, "x")),
        "numpy's fromfile": b"cnumpy\nfromfile\n(S'x'\ntR.",
        "an array of objects": pickle.dumps(np.array([Call(os.system, "touch hit")], object)),
        "an array of floats": pickle.dumps(np.zeros(2)),
        "a record": pickle.dumps(np.zeros(2, [("a", np.int64)])),
        "an array without its bytes": pickle.dumps(
            Call(np.zeros(1).__reduce__()[0], np.ndarray, (2**50,), b"b"), 2
        ) + b"",
        "a number": pickle.dumps(Call(np.dtype, "O8")),
        "a persistent id": b"Pabc\n.",
        "an extension": proto + b"\x82\x01.",
        "a duplicate": proto + b"]2.",
        "no mark": proto + b"e.",
        "nothing on the stack": proto + b"a.",
        "an unknown place of the memo": proto + b"h\x07.",
        "a far place of the memo": proto + b"]r\xff\xff\xff\x7f0.",
        "itself": proto + b"]\x94h\x00a.",
        "much shared": proto + shared,
        "two things": proto + b"]].",
        "no end": proto + b"]",
        "cut": pickle.dumps(np.arange(9))[:-20],
        "no pickle": b"hello",
        "nothing": b"",
        "more bytes than there are": proto + b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fab.",
        "a long number": b"I" + b"9" * 10_000 + b"\n.",
        "a call of bytes": proto + b"]]R.",
        "keys that no dict has": proto + b"}]]s.",
    }  # fmt: skip


@pytest.mark.parametrize("name", hostile())
def test_hostile_pickles_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, recwarn: Any
) -> None:
    """Nothing runs, nothing is left, and the error names file and byte."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.pkl"
    path.write_bytes(hostile()[name])
    with pytest.raises(DataError, match=r"bad\.pkl: byte \d+: expected "):
        read_pickle(path)
    assert [one.name for one in tmp_path.iterdir()] == ["bad.pkl"]


def test_an_array_that_claims_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    good = pickle.dumps(np.arange(9), 2)
    path.write_bytes(good.replace(b"K\x09\x85", b"K\x08\x85"))
    with pytest.raises(
        DataError, match=r"byte \d+: expected an array of shape \(8,\), found 72 bytes of int64"
    ):
        read_pickle(path)


def test_there_is_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps([[] for _ in range(100)]))
    monkeypatch.setattr(pickles, "OPERATIONS", 50)
    with pytest.raises(DataError, match="expected at most 50 operations, found more"):
        read_pickle(path)
    monkeypatch.setattr(pickles, "LARGEST", 50)
    with pytest.raises(DataError, match="expected at most 50 bytes, found more"):
        read_pickle(path)


@given(st.data())
def test_mutants_never_do_anything_else(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Any bytes are read or refused."""
    good = bytearray(
        pickle.dumps([{"a": np.arange(5), "b": [1, "x"]}], data.draw(st.sampled_from(PROTOCOLS)))
    )
    for _ in range(data.draw(st.integers(1, 6))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("p") / "a.pkl"
    path.write_bytes(good)
    try:
        read_pickle(path)
    except DataError as error:
        assert "byte" in str(error)  # noqa: PT017
