"""Messages as bytes: as the safetensors library reads and writes them, and every way to be wrong refused."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.rows import HUB, PROTOCOL, Message
from fedkge.exchange.wire import DTYPES, HEADER_LIMIT, SIZE_LIMIT, decode, encode, length

METADATA = {
    "protocol": f"{PROTOCOL}",
    "run": "r1",
    "sender": "a",
    "recipient": HUB,
    "kind": "upload",
    "round": "3",
    "note": "{}",
}


def body() -> dict[str, Tensor]:
    """Every type, in shapes from a scalar to an empty one."""
    shapes: list[tuple[int, ...]] = [(), (0,), (3,), (2, 5), (0, 4), (1, 2, 3)]
    random = torch.Generator().manual_seed(0)
    some = {}
    for index, dtype in enumerate(DTYPES.values()):
        shape = shapes[index % len(shapes)]
        some[f"{dtype}"] = torch.randint(0, 2, shape, generator=random).to(dtype)
    some["entity.values"] = torch.randn(3, 4, generator=random)
    return some


def message(**changes: Any) -> Message:
    given: dict[str, Any] = {"sender": "a", "recipient": HUB, "kind": "upload", "round": 3, "run": "r1"}
    return Message(**(given | changes))


def raw(tensors: Any, data: bytes = b"", metadata: Any = METADATA) -> bytes:
    """The bytes of a header as given, right or wrong."""
    header = json.dumps({"__metadata__": metadata, **tensors}).encode()
    return struct.pack("<Q", len(header)) + header + data


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}}


def assert_same(left: Message, right: Message) -> None:
    assert left.body.keys() == right.body.keys()
    for name, part in left.body.items():
        assert part.dtype == right.body[name].dtype
        assert torch.equal(part, right.body[name])
    for field in ("protocol", "run", "sender", "recipient", "kind", "round", "note"):
        assert getattr(left, field) == getattr(right, field)


def test_round_trip() -> None:
    note = {
        "metrics": {"mrr": 0.25, "count": 7},
        "flags": [True, None],
        "name": "Ärzte\n\U0001f30d",
    }
    sent = message(sender='Kraków "1"', run="Łódź 2", protocol=7, body=body(), note=note, round=10**17)
    data = encode(sent)
    assert_same(decode(data), sent)
    assert length(sent) == len(data)


def test_a_diverged_loss_travels() -> None:
    loss = decode(encode(message(note={"loss": float("nan")}))).note["loss"]
    assert loss != loss


def test_the_library_reads_what_is_written() -> None:
    load = pytest.importorskip("safetensors.torch").load
    sent = message(body=body(), note={"loss": 0.5, "name": "Łódź"})
    data = encode(sent)
    read = load(data)
    assert read.keys() == sent.body.keys()
    assert all(torch.equal(read[name], part) for name, part in sent.body.items())
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"]["sender"] == "a"
    assert json.loads(header["__metadata__"]["note"]) == sent.note
    assert int.from_bytes(data[:8], "little") % 8 == 0


def test_what_the_library_writes_is_read() -> None:
    save = pytest.importorskip("safetensors.torch").save
    sent = message(body=body(), note={"loss": 0.5})
    note = json.dumps(sent.note, separators=(",", ":"))
    data = save(sent.body, metadata={**METADATA, "note": note})
    assert_same(decode(data), sent)
    assert len(data) == length(sent)


def test_tensors_are_aligned() -> None:
    data = encode(message(body=body()))
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name, part in body().items():
        assert (start + header[name]["data_offsets"][0]) % part.element_size() == 0


def test_any_strides_and_gradients() -> None:
    table = torch.arange(24.0).view(4, 6)
    odd = {
        "columns": table[:, ::2],
        "turned": table.T,
        "same": torch.tensor(2.0).expand(3, 2),
        "leaf": table.clone().requires_grad_(),
        "every other": torch.arange(6)[::2],
    }
    sent = message(body=odd)
    read = decode(encode(sent))
    assert length(sent) == len(encode(sent))
    for name, part in odd.items():
        assert torch.equal(read.body[name], part)


def test_tensors_own_their_memory() -> None:
    data = encode(message(body={"a": torch.zeros(4), "b": torch.zeros(4, dtype=torch.uint8)}))
    before, first, second = bytes(data), decode(data), decode(data)
    for part in first.body.values():
        part += 1
    assert data == before
    assert not any(part.any() for part in second.body.values())


def test_length_needs_no_numbers() -> None:
    """Meta tensors have a shape and no data at all."""
    full = {"entity.values": torch.zeros(1000, 256)}
    nothing = {"entity.values": torch.zeros(1000, 256, device="meta")}
    assert length(message(body=nothing)) == len(encode(message(body=full)))


@pytest.mark.gpu
def test_length_never_waits_for_the_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    sent = message(body={"x": torch.arange(10.0, device="cuda")})
    torch.cuda.set_sync_debug_mode("error")
    try:
        count = length(sent)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert count == len(encode(sent))
    assert torch.equal(decode(encode(sent)).body["x"], torch.arange(10.0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": {"x": torch.zeros(2, dtype=torch.complex64)}},
        {"body": {"x": torch.zeros([1] * 9)}},
        {"body": {"__metadata__": torch.zeros(2)}},
        {"round": -1},
        {"note": {"long": "x" * HEADER_LIMIT}},
    ],
)
def test_what_cannot_be_sent(wrong: dict[str, Any]) -> None:
    for write in (encode, length):
        with pytest.raises(ValueError, match=r"sent|round|shorten"):
            write(message(**wrong))


def small(begin: int, end: int) -> dict[str, Any]:
    """A tensor of bytes between two offsets."""
    return {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}


def about(**changes: Any) -> bytes:
    """A message with other metadata."""
    return raw({}, metadata={**METADATA, **changes})


def headed(header: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header


NUMBERS = "", "-1", "1.0", "٣", "01", "9" * 19
CODES = "F31", "f32", "", 32, None, ["F32"]
SHAPES = 2, "2", None, [2.0], [True], [-2], [[2]], [-1, -2]
OFFSETS = 8, [8], [0, 8, 8], [0, "8"], [-8, 0], [0, 8.0]
WRONG = [
    (b"", "0 bytes"),
    (bytes(7), "7 bytes"),
    (bytes(8), "starts with ''"),
    (struct.pack("<Q", 3) + b"{}", "10 bytes"),
    (struct.pack("<Q", 2**64 - 1) + b"{}", "expected a header of"),
    (headed(b" " * (HEADER_LIMIT + 1)), "at most"),
    (headed(b"[]"), "expected a JSON object"),
    (headed(b" {}"), "expected a JSON object"),
    (headed(b"{]}"), "no JSON"),
    (headed(b'{"\xff'), "UTF-8"),
    (headed(b"{}"), "metadata None"),
    (headed(b'{"a":0,"a":0}'), "twice"),
    (headed(b'{"a":' + b"[" * 60_000), "no JSON"),
    (headed(b'{"a":' + b"9" * 9_000 + b"}"), "no JSON"),
    (raw({}, metadata=[]), "metadata"),
    (raw({}, metadata={name: METADATA[name] for name in METADATA if name != "kind"}), "expected kind"),
    (about(more=""), "more"),
    *((about(**{name: 3}), f"{name} is 3, expected a string") for name in METADATA),
    (about(sender="\ud800"), "sender"),
    *((about(**{name: number}), "decimal") for name in ("round", "protocol") for number in NUMBERS),
    (about(note="[]"), "note starts with"),
    (about(note="{"), "note is no JSON"),
    (about(note='{"a":' * 50_000), "note is no JSON"),
    (raw({"x": 3}), "expected dtype, shape and data_offsets"),
    (raw(tensor(more=1), bytes(8)), "expected dtype, shape and data_offsets"),
    (raw({"\ud800": tensor()["x"]}, bytes(8)), "Unicode"),
    *((raw(tensor(code), bytes(8)), "dtype") for code in CODES),
    *((raw(tensor("F32", shape), bytes(8)), "shape") for shape in SHAPES),
    (raw(tensor("F32", [1] * 9, [0, 4]), bytes(4)), "shape"),
    (raw(tensor("F32", [0, SIZE_LIMIT + 1], [0, 0])), "shape"),
    (raw(tensor("F32", [0, 2**40, 2**40], [0, 0])), "shape"),
    (raw(tensor("F32", [2**62, 2**62, 4], [0, 0])), "shape"),
    (raw(tensor("F32", [2**40], [0, 2**42]), bytes(8)), "8 bytes of tensors"),
    *((raw(tensor(offsets=offsets), bytes(8)), "data_offsets") for offsets in OFFSETS),
    (raw(tensor(offsets=[8, 0]), bytes(8)), "expected 8 bytes"),
    (raw(tensor(offsets=[0, 4]), bytes(4)), "expected 8 bytes"),
    (raw(tensor("F32", [3]), bytes(8)), "expected 12 bytes"),
    (raw(tensor(), bytes(7)), "neither gap"),
    (raw(tensor(), bytes(9)), "neither gap"),
    (raw({}, b"x"), "neither gap"),
    (raw(tensor(offsets=[1, 9]), bytes(9)), "neither gap"),
    (raw(tensor() | {"y": small(4, 8)}, bytes(8)), "neither gap"),
    (raw(tensor() | {"y": small(9, 13)}, bytes(13)), "neither gap"),
    (raw(tensor() | {"y": small(8, 12), "z": small(8, 12)}, bytes(12)), "neither gap"),
    (raw(tensor() | {"y": small(8, 12), "z": small(4, 4)}, bytes(12)), "neither gap"),
    (raw(tensor("BOOL", [8]), bytes(7) + b"\2"), "a byte 2"),
]


def test_the_messages_below_are_wrong_for_one_reason() -> None:
    assert decode(raw(tensor(), bytes(8))).body["x"].tolist() == [0, 0]
    assert decode(raw({})).body == {}
    assert decode(raw(tensor() | {"y": small(8, 12), "z": small(8, 8)}, bytes(12))).body["y"].shape == (4,)
    assert decode(raw(tensor("F32", [0, 5], [0, 0]))).body["x"].shape == (0, 5)


@pytest.mark.parametrize(("data", "reason"), WRONG, ids=range(len(WRONG)))
def test_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as error:
        decode(data)
    assert str(error.value).startswith("message: ")
    assert len(str(error.value)) < 400  # however much was sent


def test_needs_torch_and_numpy_alone() -> None:
    """The whole path from rows to bytes and back, with every other package hidden."""
    program = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"safetensors", "numba", "pyarrow", "typer", "rich", "plotly", "sklearn"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
import torch
from fedkge.exchange.direction import Receiver, Sender
from fedkge.exchange.codec import Int8
from fedkge.exchange.rows import Message, Rows
from fedkge.exchange.wire import decode, encode
from fedkge.graphs.graph import Axis
ids = torch.arange(3)
sender, receiver = Sender(Int8(), {Axis.ENTITY: ids}), Receiver(Int8(), {Axis.ENTITY: ids}, {Axis.ENTITY: 2})
body = sender.encode({Axis.ENTITY: Rows(ids, torch.ones(3, 2))})
read = receiver.decode(decode(encode(Message("a", "hub", "upload", 1, body))).body)
assert read[Axis.ENTITY].values.allclose(torch.ones(3, 2))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
