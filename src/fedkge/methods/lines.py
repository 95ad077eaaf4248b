"""What a handshake deals in: states of a peer, lines to be said, effects to be carried out, conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """What a peer can be."""

    READY = "ready"
    BUSY = "busy"
    SLEEP = "sleep"


@dataclass(frozen=True, slots=True)
class Line:
    """Something to be said to a peer; `hear` lists the kinds."""

    to: str
    kind: str
    talk: str = ""  #: the conversation's id
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that the peer must do now: `begin`, `abort` or `commit` a conversation."""

    kind: str
    talk: str
    partner: str


@dataclass(slots=True)
class Talk:
    """A conversation that a peer is in, or calls for, or is in doubt about."""

    id: str
    partner: str
    mine: bool  #: this end called
    version: int = 0  #: the partner's, when the conversation began
    whole: bool = False  #: this end has heard and said everything
