"""Whichever rows are sent, those arrive, and no others."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedkge.exchange.codec import Float32
from fedkge.exchange.direction import Receiver, Sender, pack, unpack
from fedkge.exchange.rows import Rows
from fedkge.graphs.graph import Axis

IDS = torch.tensor([3, 4, 9, 11, 12, 20, 21, 22, 30, 31, 40])


@given(st.sets(st.sampled_from(IDS.tolist())))
def test_exactly_the_rows_sent_arrive(chosen: set[int]) -> None:
    sender = Sender(Float32(), {Axis.ENTITY: IDS})
    receiver = Receiver(Float32(), {Axis.ENTITY: IDS}, {Axis.ENTITY: 2})
    rows = Rows(IDS, torch.randn(len(IDS), 2)).take(torch.tensor(sorted(chosen), dtype=torch.int64))
    body = sender.encode({Axis.ENTITY: rows})
    assert ("entity.where" in body) == (0 < len(chosen) < len(IDS))
    received = receiver.decode(body)
    assert received.keys() == ({Axis.ENTITY} if chosen else set())
    if chosen:
        assert torch.equal(received[Axis.ENTITY].ids, rows.ids)
        assert torch.equal(received[Axis.ENTITY].values, rows.values)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_bits_as_numpy_packs_them(mask: list[bool]) -> None:
    at = torch.tensor(mask).nonzero().view(-1)
    packed = pack(at, len(mask))
    assert packed.dtype == torch.uint8
    assert np.array_equal(packed.numpy(), np.packbits(mask, bitorder="little"))
    assert torch.equal(unpack(packed, len(mask), Axis.ENTITY), at)
