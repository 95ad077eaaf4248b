"""What peers say beside tensors, read as hostile input; and what was heard, as a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any

from torch import Tensor

from fedkge.errors import DataError
from fedkge.exchange.rows import Message, under
from fedkge.graphs.graph import Axis
from fedkge.methods.ends import Heard
from fedkge.methods.lending import Loan
from fedkge.nodes.notes import MOST


def checked_line(message: Message) -> tuple[str, Mapping[str, Any]]:
    """A line of the handshake: its conversation, and its note."""
    note = dict(message.note)
    talk = note.pop("talk", None)
    if message.body or not _is_id(talk):
        raise DataError(f"talk: {brief(talk)}, expected the id of a conversation, and no tensors")
    expected = {
        "status": {"life", "stamp", "version", "idle", "left", "over", "met"},
        "call": {"version"},
        "accept": {"version"},
        "refuse": {"why"},
    }.get(message.kind, set())
    if note.keys() != expected:
        raise DataError(f"a note of {brief(sorted(note))}, expected {sorted(expected)}")
    for name in {"life", "stamp", "version"} & expected:
        if type(note[name]) is not int or not 0 <= note[name] <= MOST:
            raise DataError(f"{name}: {brief(note[name])}, expected a whole number")
    if message.kind == "status":
        met = note["met"]
        if not isinstance(met, dict) or not all(type(v) is int and 0 <= v <= MOST for v in met.values()):
            raise DataError(f"met: {brief(met)}, expected a version for each partner")
        if not all(isinstance(note[name], bool) for name in ("idle", "left", "over")):
            raise DataError("idle, left, over: expected true or false")
    elif "/" not in talk:
        raise DataError(f"talk: {brief(talk)}, expected as in 'film/3'")
    elif talk.split("/")[0] not in _callers(message):
        raise DataError(f"talk: {brief(talk)}, expected an id that begins with the caller's name")
    return talk, note


def _callers(message: Message) -> tuple[str, ...]:
    """Who can have called for a conversation in which this is said; nobody speaks in that of two others."""
    if message.kind in ("call", "prepared", "ask"):
        return (message.sender,)
    if message.kind in ("accept", "refuse", "commit"):
        return (message.recipient,)
    return message.sender, message.recipient


def _is_id(talk: object) -> bool:
    """Whether it can be said again, in an answer."""
    return isinstance(talk, str) and len(talk) <= 200 and talk.isprintable()


def checked_parcel(message: Message) -> tuple[str, Mapping[str, Any]]:
    """A hop of a conversation: which one, and its note."""
    note = message.note
    if note.keys() != {"talk", "note"} or not _is_id(note["talk"]) or not isinstance(note["note"], dict):
        raise DataError(f"a note of {brief(sorted(note))}, expected a conversation and what is said")
    return note["talk"], note["note"]


def packed(heard: Heard) -> dict[str, Tensor]:
    """What must outlive a restart of what was heard."""
    found = {
        f"{part}.{a}": t for part in ("aligned", "taken", "rows") for a, t in getattr(heard, part).items()
    }
    if (loan := heard.loan) is not None:
        found |= {"loan.entities": loan.entities, "loan.relations": loan.relations, "loan.edges": loan.edges}
    return found


def unpacked(session: str, tensors: Mapping[str, Tensor]) -> Heard:
    """What `packed` wrote."""
    aligned, taken, rows = (
        {Axis(a): t for a, t in under(part, tensors).items()} for part in ("aligned", "taken", "rows")
    )
    loan = under("loan", tensors)
    lent = Loan(len(taken[Axis.ENTITY]), loan["entities"], loan["relations"], loan["edges"]) if loan else None
    return Heard(session, aligned, taken, rows, lent)
