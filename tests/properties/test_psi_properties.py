"""Private set intersection is set intersection, and what travels says nothing else but sizes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.errors import DataError
from fedkge.exchange import psi_openmined
from fedkge.exchange.hops import Hops, Parcel, introduced
from fedkge.exchange.psi import Blinder, intersect, normalised

pytest.importorskip("cryptography")
names = st.sets(st.text(min_size=1, max_size=6), max_size=12)


@settings(max_examples=25, deadline=None)
@given(names, names)
def test_it_is_the_intersection(a: set[str], b: set[str]) -> None:
    found = introduced(intersect(a, b"salt", True), intersect(b, b"salt", False))
    assert found[0] == found[1] == sorted(a & b)


def test_names_are_compared_as_people_read_them() -> None:
    assert normalised("  Köln\t am Rhein ") == normalised("KÖLN am rhein")
    assert normalised("ﬁlm") == "film"


class Recorded:
    def __init__(self) -> None:
        self.parcels: list[Parcel] = []

    def __call__(self, hops: Hops[list[str]]) -> Hops[list[str]]:
        got = None
        while True:
            try:
                found = hops.send(got)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value
            if found is not None:
                self.parcels.append(found)
            got = yield found


def points(parcels: list[Parcel]) -> list[bytes]:
    return [bytes(row.tolist()) for parcel in parcels for t in parcel.body.values() for row in t]


def test_the_transcript_has_no_name_and_no_number_twice_but_for_common_ones() -> None:
    a, b = {f"a{i}" for i in range(6)} | {"x", "y"}, {f"b{i}" for i in range(3)} | {"x", "y"}
    first, second = Recorded(), Recorded()
    introduced(first(intersect(a, b"s", True)), second(intersect(b, b"s", False)))
    sizes = [{k: len(t) for k, t in p.body.items()} for p in (*first.parcels, *second.parcels)]
    assert sizes == [{"once": 8}, {"twice": 5}, {"once": 5, "twice": 8}]
    every = points(first.parcels) + points(second.parcels)
    assert len(every) - len(set(every)) == 2  # a b H(x) of common names, once from each end
    hashes = {Blinder(b"s")._onto_curve(name).public_numbers().x.to_bytes(32, "big") for name in a | b}
    assert not hashes & set(every)
    again = Recorded()
    introduced(again(intersect(a, b"s", True)), intersect(b, b"s", False))
    assert not set(points(again.parcels)) & set(every), "two meetings cannot be linked"


def test_what_a_peer_cannot_have_meant_is_refused() -> None:
    def send(parcel: Parcel, calls: bool = False) -> None:
        hops = intersect({"x"}, b"s", calls, limit=3)
        while next(hops) is not None:
            pass
        hops.send(parcel)

    good = torch.frombuffer(bytearray(Blinder(b"s").hashed(["q"])), dtype=torch.uint8).reshape(1, 32)
    for bad, why in (
        (Parcel(), "expected coordinates"),
        (Parcel({"once": good.float()}), "expected coordinates"),
        (Parcel({"once": good.repeat(2, 1)}), "twice"),
        (Parcel({"once": torch.full((1, 32), 255, dtype=torch.uint8)}), "no point"),
        (Parcel({"once": good.repeat(4, 1)}), "4 points, expected at most 3"),
    ):
        with pytest.raises(DataError, match=why):
            send(bad)
    with pytest.raises(DataError, match="points, expected 1"):
        send(Parcel({"once": good, "twice": good[:0]}), calls=True)
    with pytest.raises(DataError, match="of one's own"):
        next(intersect({"a", "b"}, b"s", True, limit=1))


# OpenMined's library


@pytest.fixture
def openmined() -> None:
    pytest.importorskip("private_set_intersection", reason="openmined-psi is not installed")


@pytest.mark.usefixtures("openmined")
def test_openmined_finds_the_same_and_two_meetings_cannot_be_linked() -> None:
    a = {f"airport {i}" for i in range(6)} | {"x", "y", "Ω"}
    b = {f"border {i}" for i in range(3)} | {"x", "Ω"}
    seen: list[set[bytes]] = []
    for names in ((a, b), (a, set()), (set(), b), (a, a)):
        first, second = Recorded(), Recorded()
        found = introduced(
            first(psi_openmined.intersect(names[0], b"s", True)),
            second(psi_openmined.intersect(names[1], b"s", False)),
        )
        assert (
            found[0]
            == found[1]
            == sorted(names[0] & names[1])
            == introduced(intersect(names[0], b"s", True), intersect(names[1], b"s", False))[0]
        )
        sent = [bytes(t.tolist()) for p in (*first.parcels, *second.parcels) for t in p.body.values()]
        assert len(sent) == 6
        assert not any(name.encode() in one for one in sent for name in names[0] | names[1] if len(name) > 7)
        seen.append({one for one in sent if len(one) > 100})
    assert not seen[0] & seen[3]


@pytest.mark.usefixtures("openmined")
def test_openmined_refuses_what_is_no_message_too_much_or_twice() -> None:
    import private_set_intersection.python as library

    def send(parcel: Parcel, calls: bool = False) -> None:
        hops = psi_openmined.intersect({"x"}, b"s", calls, limit=3)
        while next(hops) is not None:
            pass
        hops.send(parcel)

    packed = psi_openmined._packed
    client = library.client.CreateWithNewKey(True)
    twice = client.CreateRequest(["a"])
    twice.encrypted_elements.append(twice.encrypted_elements[0])
    blind = library.client.CreateWithNewKey(False).CreateRequest(["a"])
    junk = client.CreateRequest(["a"])
    junk.encrypted_elements[0] = b"\x02" + b"\xff" * 32
    many = client.CreateRequest(["a", "b", "c", "d"])
    for bad, why in (
        (Parcel(), "expected bytes"),
        (Parcel({"request": torch.zeros(2, 2, dtype=torch.uint8)}), "expected bytes"),
        (Parcel({"request": torch.full((30,), 255, dtype=torch.uint8)}), "set intersection"),
        (Parcel({"request": torch.zeros(1000, dtype=torch.uint8)}), "1,000 bytes"),
        (Parcel({"request": packed(twice)}), "twice"),
        (Parcel({"request": packed(blind)}), "size alone"),
        (Parcel({"request": packed(junk)}), "set intersection"),
        (Parcel({"request": packed(many)}), "4 points|bytes for at most"),
    ):
        with pytest.raises(DataError, match=why):
            send(bad)
    server = library.server.CreateWithNewKey(True)
    good, empty = client.CreateRequest(["a"]), library.Response()
    setup = server.CreateSetupMessage(1e-9, 1, ["x"], library.DataStructure.RAW)
    bloom = server.CreateSetupMessage(1e-9, 1, ["x"], library.DataStructure.BLOOM_FILTER)
    for kind, why in ((setup, "0 points, expected 1"), (bloom, "does not list")):
        hops = psi_openmined.intersect({"x"}, b"s", True)
        assert next(hops) is not None
        assert next(hops) is None
        reply = {"request": packed(good), "setup": packed(kind), "response": packed(empty)}
        assert hops.send(Parcel(reply)) is not None
        with pytest.raises(DataError, match=why):
            next(hops)
