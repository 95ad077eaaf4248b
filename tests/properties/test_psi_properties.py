"""Private set intersection is set intersection, and what travels says nothing else but sizes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedkge.errors import DataError
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
