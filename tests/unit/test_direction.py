"""Rows between two nodes: which rows come, what coding lost comes later, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange import codec as codecs
from fedkge.exchange.codec import CODECS, BFloat16, Codec, Float16, Float32, Int8
from fedkge.exchange.direction import Receiver, Sender, pack
from fedkge.exchange.rows import HUB, Message, Rows, Update
from fedkge.exchange.tally import Tally
from fedkge.exchange.wire import decode, encode, length
from fedkge.graphs.graph import Axis

IDS = torch.tensor([3, 4, 9, 11, 12, 20, 21, 22, 30, 31, 40])
RELATIONS = torch.tensor([0, 5])
ANNOUNCED = {Axis.ENTITY: IDS, Axis.RELATION: RELATIONS}
WIDTHS = {Axis.ENTITY: 4, Axis.RELATION: 3}
COARSE = {"int4": 0.3, "ternary": 1.3}  #: how far numbers of about 1 may come back


def values(n: int = len(IDS), width: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def entities(*ids: int, seed: int = 0) -> dict[Axis, Rows]:
    """Rows of these ids, or of all."""
    every = Rows(IDS, values(seed=seed))
    return {Axis.ENTITY: every.take(torch.tensor(ids)) if ids else every}


def ends(codec: Codec) -> tuple[Sender, Receiver]:
    return Sender(codec, ANNOUNCED), Receiver(codec, ANNOUNCED, WIDTHS)


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", list(CODECS))
def test_both_axes_over_the_wire(name: str) -> None:
    sender, receiver = ends(CODECS[name]())
    update = {**entities(4, 12, 40), Axis.RELATION: Rows(RELATIONS, values(2, 3))}
    body = decode(encode(Message("a", HUB, "upload", 1, sender.encode(update)))).body
    received = receiver.decode(body)
    assert received.keys() == update.keys()
    for axis, rows in update.items():
        assert torch.equal(received[axis].ids, rows.ids)
        torch.testing.assert_close(received[axis].values, rows.values, rtol=0.01, atol=COARSE.get(name, 0.03))
    assert body["entity.where"].tolist() == [0b00010010, 0b00000100]
    assert "relation.where" not in body


def test_all_float32_rows_are_not_copied() -> None:
    sender, receiver = ends(Float32())
    update = {Axis.ENTITY: Rows(IDS.clone(), values())}  # equal ids are as good as the same
    body = sender.encode(update)
    received = receiver.decode(body)[Axis.ENTITY]
    assert list(body) == ["entity.values"]
    assert received.values.data_ptr() == update[Axis.ENTITY].values.data_ptr()
    assert received.ids is IDS


def test_gradients_stay_home() -> None:
    sender, _ = ends(Float32())
    assert not sender.encode({Axis.ENTITY: Rows(IDS, values().requires_grad_())})[
        "entity.values"
    ].requires_grad


@pytest.mark.parametrize(
    "wrong",
    [
        {Axis.ENTITY: Rows(torch.tensor([3, 5]), values(2))},  # between announced ids
        {Axis.ENTITY: Rows(torch.tensor([3, 41]), values(2))},  # above
        {Axis.ENTITY: Rows(torch.tensor([-1, 3]), values(2))},  # below
        {Axis.ENTITY: Rows(torch.tensor([9, 4]), values(2))},  # not in order
        {Axis.ENTITY: Rows(torch.tensor([4, 4]), values(2))},  # twice
        {Axis.ENTITY: Rows(torch.cat([IDS, torch.tensor([50])]), values(12))},
        {Axis.ENTITY: Rows(IDS, values().double())},
    ],
)
def test_what_cannot_be_sent(wrong: dict[Axis, Rows]) -> None:
    with pytest.raises(ValueError, match=r"announced|float32"):
        ends(Float32())[0].encode(wrong)


def test_nothing_was_announced() -> None:
    for announced in ({}, {Axis.ENTITY: IDS[:0]}):
        with pytest.raises(ValueError, match="announced"):
            Sender(Float32(), announced).encode(entities())


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [[1, 2]], [1.0, 2.0]])
def test_announced_ids_increase(ids: Any) -> None:
    announced = {Axis.ENTITY: torch.tensor(ids)}
    with pytest.raises(DataError, match=r"entity ids: .* strictly increasing"):
        Receiver(Float32(), announced, WIDTHS)
    with pytest.raises(DataError, match=r"entity ids: .* strictly increasing"):
        Sender(Float32(), announced)


def changed(body: dict[str, Tensor], **changes: Tensor | None) -> dict[str, Tensor]:
    """The body with other parts, or without those that are None."""
    merged = body | {f"entity.{part}": tensor for part, tensor in changes.items()}
    return {name: tensor for name, tensor in merged.items() if tensor is not None}


def with_number(tensor: Tensor, number: float) -> Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[2] = number
    return tensor


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"extra": torch.zeros(3)}, "entity rows: a code of .*extra.*, expected values, scale"),
        ({"values": None}, "entity rows: a code of .*expected values, scale"),
        ({"scale": None}, "entity rows: a code of .*expected values, scale"),
        ({"values": torch.zeros(3, 4)}, "entity rows: values: torch.float32.*expected torch.int8"),
        ({"values": torch.zeros(3, 5, dtype=torch.int8)}, r"entity rows: \[3, 5\], expected \[3, 4\]"),
        (
            {"values": torch.zeros(2, 4, dtype=torch.int8), "scale": torch.ones(2)},
            r"\[2, 4\], expected \[3, 4\]",
        ),
        ({"where": None}, r"\[3, 4\], expected \[11, 4\]"),
        ({"where": torch.tensor([255, 7], dtype=torch.uint8)}, r"\[3, 4\], expected \[11, 4\]"),
        ({"where": torch.tensor([7], dtype=torch.uint8)}, r"entity.where: .*expected torch.uint8 \[2\]"),
        ({"where": torch.tensor([7, 0, 0], dtype=torch.uint8)}, r"expected torch.uint8 \[2\]"),
        ({"where": torch.tensor([[7, 0]], dtype=torch.uint8)}, r"expected torch.uint8 \[2\]"),
        ({"where": torch.tensor([7, 0])}, r"expected torch.uint8 \[2\]"),
        ({"where": torch.tensor([3, 8], dtype=torch.uint8)}, "row 11 is set, expected only rows below 11"),
        ({"scale": torch.tensor([1.0, 1.0, torch.nan])}, "entity rows: .*infinite or NaN, expected finite"),
        ({"scale": torch.tensor([1.0, torch.inf, 1.0])}, "infinite or NaN"),
        ({"scale": torch.tensor([3e38, 1.0, 1.0])}, "infinite or NaN"),
        (
            {
                "where": torch.zeros(2, dtype=torch.uint8),
                "values": torch.zeros(0, 4, dtype=torch.int8),
                "scale": torch.zeros(0),
            },
            "at least one row",
        ),
    ],
)
def test_refused(changes: dict[str, Tensor | None], reason: str) -> None:
    sender, receiver = ends(Int8())
    body = sender.encode(entities(4, 12, 40))
    assert len(receiver.decode(body)[Axis.ENTITY]) == 3
    with pytest.raises(DataError, match=reason):
        receiver.decode(changed(body, **changes))


@pytest.mark.parametrize("name", ["site.values", "entity", "values", "", ".", "Entity.values"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"expected entity.values, relation.values|a code of"):
        ends(Float32())[1].decode({name: values()})


@pytest.mark.parametrize("name", list(CODECS))
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_diverged_site_is_refused(name: str, bad: float) -> None:
    sender, receiver = ends(CODECS[name]())
    body = sender.encode({Axis.ENTITY: Rows(IDS, with_number(values(), bad))})
    with pytest.raises(DataError, match="infinite or NaN"):
        receiver.decode(body)
    sender.settle(False)  # and nothing of it is remembered
    received = receiver.decode(sender.encode(entities()))[Axis.ENTITY].values
    torch.testing.assert_close(received, values(), rtol=0.01, atol=COARSE.get(name, 0.03))


LOSSY = [Int8(), Int8(feedback=False), Float16(feedback=True), BFloat16(feedback=True)]


@pytest.mark.parametrize("codec", LOSSY, ids=str)
def test_what_was_lost_comes_later(codec: Codec) -> None:
    """The sum of T messages of a constant is T times the constant, up to one message's rounding."""
    sender, receiver = ends(codec)
    sent, total, turns = entities(), torch.zeros(len(IDS), 4, dtype=torch.float64), 50
    step = (codec.decode(codec.encode(values())) - values()).abs().max()
    for _ in range(turns):
        total += receiver.decode(sender.encode(sent))[Axis.ENTITY].values
        sender.settle(True)
    off = (total - turns * values().double()).abs().max()
    assert (off <= 3 * step) == codec.feedback


def test_a_refused_message_neither_loses_nor_counts_twice() -> None:
    sender, receiver = ends(Int8())
    arrived, total = (
        torch.zeros(len(IDS), 4, dtype=torch.float64),
        torch.zeros(len(IDS), 4, dtype=torch.float64),
    )
    for turn in range(40):
        update = entities(seed=turn)
        body = sender.encode(update)
        sender.settle(accepted := turn % 3 != 1)
        if accepted:
            arrived += receiver.decode(body)[Axis.ENTITY].values
            total += update[Axis.ENTITY].values
    owed = sender.memory()["entity.residual"]
    torch.testing.assert_close(arrived + owed, total, rtol=0, atol=1e-4)
    assert 0 < float(owed.abs().max()) < 0.03


def test_each_row_has_its_own_residual() -> None:
    sender, _ = ends(Int8())
    sender.encode(entities())
    sender.settle(True)
    before = sender.memory()["entity.residual"]
    sender.encode(entities(4, 40, seed=1))
    assert torch.equal(sender.memory()["entity.residual"], before)  # not settled yet
    sender.settle(True)
    after = sender.memory()["entity.residual"]
    touched = (after != before).any(1)
    assert IDS[touched].tolist() == [4, 40]


def test_a_first_message_of_some_rows() -> None:
    sender, receiver = ends(Int8())
    update = entities(9)
    body = sender.encode(update)
    assert "entity.residual" not in sender.memory()
    sender.settle(True)
    residual = sender.memory()["entity.residual"]
    lost = update[Axis.ENTITY].values - receiver.decode(body)[Axis.ENTITY].values
    assert torch.equal(residual[IDS == 9], lost)
    assert not residual[IDS != 9].any()


@pytest.mark.parametrize("codec", LOSSY, ids=str)
def test_sending_again_is_equal(codec: Codec) -> None:
    sender, _ = ends(codec)
    sender.encode(entities())
    sender.settle(True)
    saved = sender.memory()
    first = sender.encode(entities(seed=1))
    assert same(sender.encode(entities(seed=1)), first)
    sender.settle(True)
    assert same(sender.encode(entities(seed=1)), first) != codec.feedback  # settled: another residual
    restarted, _ = ends(codec)
    restarted.load(saved)
    assert same(restarted.encode(entities(seed=1)), first)


@pytest.mark.parametrize("ids", [(), (4, 12)])
@pytest.mark.parametrize("accepted", [True, False])
def test_a_restart_between_sending_and_settling(ids: tuple[int, ...], accepted: bool) -> None:
    sender, _ = ends(Int8())
    sender.encode(entities())
    sender.settle(True)
    sent = sender.encode(entities(*ids, seed=1))
    saved = sender.memory()
    restarted, again = ends(Int8())[0], ends(Int8())[0]
    for other in (restarted, again):
        other.load(saved)
        assert same(other.memory(), saved)
    for either in (sender, restarted):
        either.settle(accepted)
    assert same(restarted.memory(), sender.memory())
    assert same(again.encode(entities(*ids, seed=1)), sent)


def test_only_the_last_message_is_settled() -> None:
    sender, _ = ends(Int8())
    sender.encode(entities())
    sender.encode({Axis.RELATION: Rows(RELATIONS, values(2, 3))})
    sender.settle(True)
    assert list(sender.memory()) == ["relation.residual"]


def test_settling_twice_is_settling_once() -> None:
    sender, _ = ends(Int8())
    sender.settle(True)
    assert sender.memory() == {}
    sender.encode(entities())
    sender.settle(True)
    saved = sender.memory()
    sender.settle(True)
    sender.settle(False)
    assert same(sender.memory(), saved)


def test_memory_is_a_copy() -> None:
    sender, _ = ends(Int8())
    sender.encode(entities())
    sender.settle(True)
    saved, expected = sender.memory(), sender.memory()
    sender.load(saved)
    sender.encode(entities(4, seed=1))
    sender.settle(True)
    assert same(saved, expected)


def test_memory_of_another_channel() -> None:
    for residual in (values(3), values().double(), values().view(-1)):
        with pytest.raises(DataError, match=r"entity.residual: .*expected torch.float32 \[11, width\]"):
            ends(Int8())[0].load({"entity.residual": residual})
    for wrong in ({"entity.pending": values(3)}, {"entity.pending": values(2), "entity.at": torch.arange(3)}):
        with pytest.raises(DataError, match=r"entity.pending: .*expected torch.float32 \[\d+, width\]"):
            ends(Int8())[0].load(wrong)
    with pytest.raises(DataError, match=r"entity.at: .*expected torch.int64 \[rows\]"):
        ends(Int8())[0].load({"entity.pending": values(3), "entity.at": torch.ones(3)})
    with pytest.raises(DataError, match="expected none"):
        ends(Float32())[0].load({"entity.residual": values()})
    with pytest.raises(DataError, match=r"site\.residual"):
        ends(Int8())[0].load({"site.residual": values()})
    sender, _ = ends(Int8())
    sender.load({"entity.residual": values(width=1)})
    with pytest.raises(DataError, match="1 wide, expected 4"):
        sender.encode(entities())


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = []
    for block in (codecs.BLOCK, 3 * 4, 1):
        monkeypatch.setattr(codecs, "BLOCK", block)
        sender, _ = ends(Int8())
        sender.encode(entities())
        sender.settle(True)
        bodies.append(sender.encode(entities(3, 4, 11, 20, 21, 31, 40, seed=1)))
    assert same(bodies[0], bodies[1])
    assert same(bodies[0], bodies[2])


def counted(update: Update) -> int:
    """The values that a site's upload counts for."""
    tally = Tally(Float32(), WIDTHS)
    bits = {f"{axis}.where": pack(torch.arange(len(ids)), len(ids)) for axis, ids in ANNOUNCED.items()}
    tally.count(Message(HUB, "a", "shared", 0, bits))
    tally.count(Message("a", HUB, "upload", 1, Sender(Float32(), ANNOUNCED).encode(update)))
    return int(tally.summary()["up_values"])


def test_values_as_the_papers_count() -> None:
    assert counted(entities()) == 11 * 4
    assert counted(entities(4, 12)) == 2 * 4 + 11
    assert counted({**entities(4), Axis.RELATION: Rows(RELATIONS, values(2, 3))}) == 4 + 11 + 6
    assert counted({Axis.ENTITY: Rows(IDS[:0], values(0))}) == 0


def test_on_a_device(device: torch.device) -> None:
    """The same bytes wherever rows live; ids may stay on the CPU."""
    for codec in (Float32(), Int8(), Float16(feedback=True)):
        here, receiver = ends(codec)
        there = Sender(codec, ANNOUNCED)
        for update in (entities(), entities(4, 12, seed=1)):
            away = {axis: Rows(rows.ids.to(device), rows.values.to(device)) for axis, rows in update.items()}
            body = there.encode(away)
            expected = here.encode(update)
            assert same({name: part.cpu() for name, part in body.items()}, expected)
            assert body["entity.values"].device.type == device.type
            received = receiver.decode(body)[Axis.ENTITY]
            assert torch.equal(received.values.cpu(), receiver.decode(expected)[Axis.ENTITY].values)
            here.settle(True)
            there.settle(True)
        assert same({name: part.cpu() for name, part in there.memory().items()}, here.memory())


@pytest.mark.gpu
def test_all_rows_leave_without_waiting_for_the_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    for codec in (Float32(), Int8(), Float16()):
        sender, _ = ends(codec)
        update = {Axis.ENTITY: Rows(IDS, values().cuda())}
        sender.encode(update)
        sender.settle(True)
        torch.cuda.set_sync_debug_mode("error")
        try:
            sender.encode(update)
            sender.settle(True)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_the_document_has_these_bytes() -> None:
    """docs/exchange.md: 1,000 rows of 256 numbers, all of them and every other one."""
    text = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text()
    shown = {
        row[0]: row[1:] for row in re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    }
    ids = torch.arange(1000)
    rows = Rows(ids, torch.zeros(1000, 256))
    for name in CODECS:
        sender = Sender(CODECS[name](), {Axis.ENTITY: ids})
        bodies = [sender.encode({Axis.ENTITY: rows}), sender.encode({Axis.ENTITY: rows[ids[::2]]})]
        measured = [length(Message("site", HUB, "upload", 1, body)) for body in bodies]
        assert shown[name] == tuple(f"{count:,}" for count in measured)
    assert shown.keys() == set(CODECS)
