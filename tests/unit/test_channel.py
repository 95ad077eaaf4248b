"""Changes instead of rows: both ends hold the same rows, whatever gets lost on the way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.channel import Channel, DeltaChannel, channel, serial
from fedkge.exchange.codec import BFloat16, Codec, Int4, Int8, Ternary
from fedkge.exchange.rows import Rows, Update
from fedkge.graphs.graph import Axis

E = Axis.ENTITY
IDS = torch.tensor([2, 3, 5, 8, 13])
WIDTHS = {E: 16}


def ends(codec: Codec) -> tuple[Channel, Channel]:
    """The hub's and the site's."""
    hub, site = (channel(codec, {E: IDS}, WIDTHS, hub=is_hub) for is_hub in (True, False))
    return hub, site


def rows(seed: int, scale: float = 1.0, at: list[int] | None = None) -> Update:
    generator = torch.Generator().manual_seed(seed)
    values = scale * torch.randn(len(IDS), 16, generator=generator)
    where = torch.arange(len(IDS)) if at is None else torch.tensor(at)
    return {E: Rows(IDS[where], values[where])}


def got(update: Update) -> Tensor:
    return update[E].values


def half(values: Tensor) -> Tensor:
    return values.half().float()


def test_a_channel_without_delta_codes_rows() -> None:
    assert type(channel(Int8(), {E: IDS}, WIDTHS, hub=True)) is Channel
    assert type(channel(Int8(delta=True), {E: IDS}, WIDTHS, hub=True)) is DeltaChannel


def test_rows_that_both_ends_do_not_hold_travel_whole() -> None:
    hub, site = ends(Ternary(delta=True))
    assert torch.equal(got(hub.decode(site.encode(rows(0), 1), 1)), half(got(rows(0))))
    body = hub.encode(rows(1, at=[0, 2]), 2)
    assert "entity.values" not in body
    assert torch.equal(got(site.decode(body, 2)), half(got(rows(1, at=[0, 2]))))
    body = site.encode(rows(2), 2)
    assert len(body["entity.values"]) == 2
    assert len(body["entity.new.values"]) == 3
    received = hub.decode(body, 2)[E]
    assert torch.equal(received.ids, IDS)
    assert torch.equal(received.values[[1, 3, 4]], half(got(rows(2))[[1, 3, 4]]))


@pytest.mark.parametrize("codec", [Int8(delta=True), Int4(delta=True), BFloat16(delta=True)], ids=repr)
def test_changes_are_finer_than_rows(codec: Codec) -> None:
    """A thousandth of a row's size is coded as finely as a row is."""
    hub, site = ends(codec)
    hub.decode(site.encode(rows(0, 100.0), 1), 1)
    site.decode(hub.encode(rows(0, 100.0), 2), 2)
    near = {E: Rows(IDS, got(rows(0, 100.0)) + got(rows(1, 0.1)))}
    hub.decode(site.encode(near, 2), 2)
    site.settle(True)
    site.decode(hub.encode(near, 3), 3)  # now the difference is what float16 lost, and less
    hub.decode(site.encode(near, 3), 3)
    site.decode(hub.encode(near, 4), 4)
    lost = (got(hub.decode(site.encode(near, 4), 4)) - got(near)).abs().max()
    plain = channel(type(codec)(), {E: IDS}, WIDTHS, hub=False)
    other = channel(type(codec)(), {E: IDS}, WIDTHS, hub=True)
    as_rows = (got(other.decode(plain.encode(near, 1), 1)) - got(near)).abs().max()
    assert lost < as_rows / 50


def test_what_the_hub_tells_again_and_again_arrives() -> None:
    hub, site = ends(Ternary(delta=True))
    site.decode(hub.encode(rows(0), 1), 1)
    hub.decode(site.encode(rows(0), 1), 1)
    errors = []
    for number in range(2, 40):
        told = site.decode(hub.encode(rows(1), number), number)
        errors.append(float((got(told) - got(rows(1))).abs().max()))
        hub.decode(site.encode(rows(2), number), number)
    assert errors[-1] < 1e-3 * errors[0]


@pytest.mark.parametrize("seed", range(8))
def test_lost_messages_do_no_harm(seed: int) -> None:
    """Any message of either direction may get lost; whatever arrives is near what was meant."""
    chance = torch.Generator().manual_seed(seed)
    hub, site = ends(Int8(delta=True, feedback=False))
    for number in range(1, 60):
        down_lost, up_lost = (torch.rand(2, generator=chance) < 0.3).tolist()
        some = [i for i in range(len(IDS)) if torch.rand((), generator=chance) < 0.7]
        down, up = rows(number, at=some or [0]), rows(-number)
        body = hub.encode(down, number)
        if down_lost:
            continue  # a site that was not asked does not answer
        torch.testing.assert_close(got(site.decode(body, number)), got(down), rtol=0, atol=0.1)
        body = site.encode(up, number)
        if not up_lost:
            torch.testing.assert_close(got(hub.decode(body, number)), got(up), rtol=0, atol=0.1)
        held = {h.serial for h in (site.base, site.other)}  # type: ignore[attr-defined]
        assert hub.base.serial in held  # type: ignore[attr-defined]


def test_a_restarted_end_goes_on() -> None:
    hub, site = ends(Int4(delta=True))
    for number in range(1, 4):
        site.decode(hub.encode(rows(number), number), number)
        hub.decode(site.encode(rows(-number), number), number)
        site.settle(True)
    again = ends(Int4(delta=True))
    for old, new in zip((hub, site), again, strict=True):
        new.load({name: tensor.clone() for name, tensor in old.memory().items()})
    bodies = [one.encode(rows(9), 4) for one in (hub, again[0])]
    assert bodies[0].keys() == bodies[1].keys()
    assert all(torch.equal(bodies[0][name], bodies[1][name]) for name in bodies[0])
    assert torch.equal(got(site.decode(bodies[0], 4)), got(again[1].decode(bodies[1], 4)))
    up = [one.encode(rows(10), 4) for one in (site, again[1])]
    assert all(torch.equal(up[0][name], up[1][name]) for name in up[0])


def bad_bodies() -> list[tuple[str, Mapping[str, Tensor]]]:
    hub, site = ends(Int8(delta=True))
    hub.decode(site.encode(rows(0), 1), 1)
    site.decode(hub.encode(rows(0), 2), 2)
    good = site.encode(rows(1), 2)
    return [
        ("number of a message", {k: t for k, t in good.items() if k != "base.serial"}),
        ("rows of message 77", {**good, "base.serial": torch.tensor(77, dtype=torch.int32)}),
        ("never told", {**good, "base.serial": torch.tensor(0, dtype=torch.int32)}),
        ("infinite or NaN", {**good, "entity.scale": torch.full((5,), torch.nan)}),
    ]


@pytest.mark.parametrize(("match", "body"), bad_bodies(), ids=[match for match, _ in bad_bodies()])
def test_changes_that_make_no_sense_are_refused(match: str, body: Mapping[str, Tensor]) -> None:
    hub, site = ends(Int8(delta=True))
    hub.decode(site.encode(rows(0), 1), 1)
    site.decode(hub.encode(rows(0), 2), 2)
    with pytest.raises(DataError, match=match):
        hub.decode(body, 2)
    assert torch.isfinite(got(hub.decode(site.encode(rows(1), 2), 2))).all()


@pytest.mark.parametrize("codec", [Int8(delta=True), Ternary(delta=True), Int8()], ids=repr)
def test_reading_changes_nothing(codec: Codec) -> None:
    """Neither what is refused, nor what nobody accepts afterwards."""
    hub, site = ends(codec)

    def read(end: Channel, body: Mapping[str, Tensor]) -> None:
        before = {name: tensor.clone() for name, tensor in end.memory().items()}
        end.read(body)
        for part in ("values", "scale"):
            with pytest.raises(DataError, match="entity rows"):
                end.read({**body, f"entity.{part}": body[f"entity.{part}"][1:]})
        after = end.memory()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)

    site.decode(hub.encode(rows(0), 2), 2)
    body = site.encode(rows(1), 2)
    read(hub, body)
    hub.decode(body, 2)
    body = hub.encode(rows(2), 4)
    read(site, body)
    site.decode(body, 4)
    if codec.delta:
        assert site.base.serial == 4  # type: ignore[attr-defined]
        assert hub.base.serial == 2  # type: ignore[attr-defined]


def test_a_change_is_checked_after_it_was_added() -> None:
    """Finite changes of finite rows may still be too long together."""
    hub, site = ends(Int8(delta=True))
    for number in (0, 1):  # the first time they travel as float16, which ends at 65504
        site.decode(hub.encode({E: Rows(IDS, torch.full((5, 16), 0.9e9))}, number), number)
        hub.answered(number)
    body = site.encode({E: Rows(IDS, torch.full((5, 16), 1.7e9))}, 1)
    assert float(body["entity.scale"].max()) * 127 < 1e9, "the change itself is short enough"
    with pytest.raises(DataError, match=r"a number of 1\.7e\+09, expected numbers within 1e\+09"):
        hub.decode(body, 1)
    long = {**body, "entity.scale": torch.full((5,), 2.67e36)}
    with pytest.raises(DataError, match=r"infinite or NaN|within"):
        hub.decode(long, 1)


def test_messages_of_one_round_are_told_apart() -> None:
    """A hub says something twice in a round: to train with, and to be measured."""
    hub, site = ends(Int8(delta=True, feedback=False))
    for number in range(1, 6):
        site.decode(hub.encode(rows(number), serial("train", number)), serial("train", number))
        up = site.encode(rows(-number), serial("train", number))
        torch.testing.assert_close(got(hub.decode(up, 0)), got(rows(-number)), rtol=0, atol=0.05)
        site.decode(hub.encode(rows(50 + number), serial("measure", number)), serial("measure", number))
        up = site.encode(rows(-number), serial("train", number + 1))
        torch.testing.assert_close(got(hub.decode(up, 0)), got(rows(-number)), rtol=0, atol=0.05)


def test_what_was_measured_need_not_be_told_again() -> None:
    hub, site = ends(Int8(delta=True))
    asked = serial("measure", 1)
    site.decode(hub.encode(rows(0), asked), asked)
    assert "entity.new.values" in hub.encode(rows(0), asked), "nobody has said that it arrived"
    hub.answered(serial("train", 1))
    assert "entity.new.values" in hub.encode(rows(0), asked), "that was another message"
    hub.answered(asked)
    assert "entity.new.values" not in hub.encode(rows(1), serial("train", 2))


@pytest.mark.parametrize("late", [False, True])
def test_answers_to_the_message_before_are_read_where_late_ones_are_used(late: bool) -> None:
    hub = channel(Int8(delta=True), {E: IDS}, WIDTHS, hub=True, late=late)
    site = channel(Int8(delta=True), {E: IDS}, WIDTHS, hub=False)
    site.decode(hub.encode(rows(0), 2), 2)
    up = site.encode(rows(1), 2)
    body = hub.encode(rows(2), 4)
    again = channel(Int8(delta=True), {E: IDS}, WIDTHS, hub=True, late=late)
    again.load({name: tensor.clone() for name, tensor in hub.memory().items()})
    again.encode(rows(2), 4)  # as after a restart: the question is asked again
    for one in (hub, again):
        if late:
            torch.testing.assert_close(got(one.decode(up, 2)), got(rows(1)), rtol=0, atol=0.05)
        else:
            with pytest.raises(DataError, match="rows of message 2, expected 0 or 4"):
                one.decode(up, 2)
    site.decode(body, 4)
    up = site.encode(rows(3), 4)
    for one in (hub, again):
        torch.testing.assert_close(got(one.decode(up, 4)), got(rows(3)), rtol=0, atol=0.05)


def test_rows_have_one_place_in_a_message() -> None:
    """One bit vector for changes and whole rows; which is which follows from what both ends hold."""
    hub, site = ends(Int8(delta=True))
    site.decode(hub.encode(rows(0, at=[0, 2]), 2), 2)
    body = site.encode(rows(1, at=[0, 1, 2, 4]), 2)
    assert body["entity.where"].tolist() == [0b10111]
    assert (len(body["entity.values"]), len(body["entity.new.values"])) == (2, 2)
    assert sorted(body) == [
        "base.serial",
        "entity.new.values",
        "entity.scale",
        "entity.values",
        "entity.where",
    ]
    found = hub.decode(body, 2)[E]
    assert found.ids.tolist() == [2, 3, 5, 13]
    torch.testing.assert_close(found.values, got(rows(1, at=[0, 1, 2, 4])), rtol=0, atol=0.05)
    for wrong in ({"entity.where": torch.tensor([0b11011], dtype=torch.uint8)}, {"entity.new.where": IDS}):
        with pytest.raises(DataError, match=r"entity rows: .*expected"):
            hub.decode({**body, **wrong}, 2)
