"""What two peers say to each other: hello, who is aligned, and a translation in each direction.

The peer that calls is the host first, then the client. Every `yield` is a hop over the network. Nothing
that comes is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange import psi, psi_openmined
from fedkge.exchange.announce import announced, announcement
from fedkge.exchange.hops import Hops, Parcel
from fedkge.graphs.graph import Axis
from fedkge.methods.ends import Aligned, End, Heard
from fedkge.methods.fkge import FKGE
from fedkge.methods.translating import client, host
from fedkge.randomness import generator


def converse(end: End, calls: bool) -> Hops[Heard]:
    """One end of a conversation; what it has heard, which counts when the other has heard everything too."""
    mine = {"nonce": end.nonce, "widths": _told(end), "agreed": end.method.agreed, "gives": end.gives}
    theirs = yield from _swap(Parcel(note={**mine, "known": end.aligned is not None}), calls)
    widths, nonce = _hello(theirs, end)
    heard = Heard("|".join((end.nonce, nonce) if calls else (nonce, end.nonce)))
    known = end.aligned is not None and bool(theirs.note.get("known"))
    aligned = (
        end.aligned if known and end.aligned is not None else (yield from _align(end, heard.session, calls))
    )
    heard.aligned = aligned
    if not any(len(rows) for rows in aligned.values()):
        return heard
    heard.taken = _sampled(end.method, aligned, heard.session)
    groups = _groups(end, widths, heard.taken)
    if not groups:
        raise DataError("nothing that both have can be translated: the models have no vectors of such rows")
    if end.gives:
        end.release()  # before votes, which may spend what is left
    for first in (calls, not calls):
        if not first and end.gives:
            yield from client(end, heard, groups, widths)
        elif first and theirs.note["gives"]:
            yield from host(end, heard, groups, widths)
        elif first:
            heard.refused = "the partner sends no rows: its budget is spent"
    return heard


def _swap(parcel: Parcel, calls: bool) -> Hops[Parcel]:
    """Both say something; the caller first."""
    if calls:
        yield parcel
        return (yield None)
    theirs = yield None
    yield parcel
    return theirs


def _told(end: End) -> dict[str, int]:
    return {str(axis): width for axis, width in end.widths.items()}


def _hello(parcel: Parcel, end: End) -> tuple[dict[Axis, int], str]:
    """The other's widths, and its nonce."""
    note = parcel.note
    agreed, widths, nonce = note.get("agreed"), note.get("widths"), note.get("nonce")
    if agreed != end.method.agreed:
        raise DataError(f"agreed: {str(agreed)[:200]}, expected {end.method.agreed}")
    if not isinstance(nonce, str) or not re.fullmatch("[0-9A-Za-z]{8,64}", nonce):
        raise DataError("nonce: expected 8 to 64 letters and digits")
    if not isinstance(note.get("gives"), bool):
        raise DataError("gives: expected true or false")
    if not isinstance(widths, dict) or widths.keys() != _told(end).keys():
        raise DataError(f"widths: {str(widths)[:80]}, expected one for each of {', '.join(_told(end))}")
    if not all(type(width) is int and 0 <= width <= 1 << 16 for width in widths.values()):
        raise DataError(f"widths: {widths}, expected whole numbers of at most 65,536")
    if end.method.translate == "none" and widths != _told(end):
        raise DataError(f"widths: {widths}, while {_told(end)} here: rows cannot be taken as they are")
    return {Axis(axis): width for axis, width in widths.items()}, nonce


# Who is aligned


def _align(end: End, session: str, calls: bool) -> Hops[Aligned]:
    """Ids that both have, by telling them, or by private set intersection on normal names."""
    axes = end.method.axes
    if end.method.intersect != "ids":
        meet = psi.intersect if end.method.intersect == "psi" else psi_openmined.intersect
        found: dict[Axis, Tensor] = {}
        for axis in axes:
            rows = end.named(axis)
            own_rows = list(rows.values())
            places = psi.by_normal_name(one.decode(errors="replace") for one in rows)
            salt = f"{session} {axis}".encode()
            common = yield from meet(places, salt, calls, end.method.limit)
            found[axis] = torch.tensor([own_rows[places[name]] for name in common], dtype=torch.int64)
        return found
    own = {axis: end.named(axis) for axis in axes}
    theirs = yield from _swap(Parcel(announcement({axis: sorted(ids) for axis, ids in own.items()})), calls)
    there = announced(theirs.body, axes)
    if any(len(ids) > end.method.limit for ids in there.values()):
        raise DataError(f"more than {end.method.limit:,} ids, which is the limit here")
    return {
        axis: torch.tensor([own[axis][one] for one in there[axis] if one in own[axis]], dtype=torch.int64)
        for axis in axes
    }


def _sampled(method: FKGE, aligned: Aligned, session: str) -> dict[Axis, Tensor]:
    """Some of the aligned entities, the same at both ends; all relations."""
    taken = dict(aligned)
    if Axis.ENTITY in taken and method.sample < 1:
        count = len(taken[Axis.ENTITY])
        keep = generator(0, "sample", session).permutation(count)[: max(1, round(method.sample * count))]
        taken[Axis.ENTITY] = taken[Axis.ENTITY][torch.from_numpy(np.sort(keep))]
    return taken


def _groups(end: End, widths: Mapping[Axis, int], taken: Aligned) -> list[tuple[Axis, ...]]:
    """Axes that one W translates: both where widths are equal at each end, else one each."""
    axes = [axis for axis in end.method.axes if len(taken[axis]) and end.widths[axis] and widths[axis]]
    if len(axes) == 2 and end.one_fits_both(widths):
        return [tuple(axes)]
    return [(axis,) for axis in axes]
