"""What peers did over a network, done again in one process: by their journals, in the order of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from fedkge.errors import DataError
from fedkge.exchange.hops import introduced
from fedkge.methods.conversation import converse
from fedkge.methods.ends import End
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL
from fedkge.nodes.peer import PeerNode
from fedkge.runs.peering import PeerFile, peer_of


def replay(files: Mapping[str, PeerFile], device: torch.device) -> dict[str, PeerNode]:
    """Peers as they were at the end. Training, conversations and adoptions follow each journal's order."""
    events = {name: list(read_journal(file.folder / JOURNAL)) for name, file in files.items()}
    sessions = {
        event["talk"]: event["session"].split("|")
        for own in events.values()
        for event in own
        if event["event"] == "conversation"
    }
    acts = {name: [e for e in own if e["event"] == "update" and e["by"]] for name, own in events.items()}
    peers = {
        name: peer_of(file, device, nonce=partial(_nonce, sessions, name), lasting=False)
        for name, file in files.items()
    }
    while any(acts.values()):
        if not _step(peers, acts):
            raise DataError("the journals do not fit together: a conversation is in one of two only")
    return peers


def _nonce(sessions: Mapping[str, list[str]], name: str, talk: str) -> str:
    return sessions[talk][talk.split("/")[0] != name]


def _step(peers: Mapping[str, PeerNode], acts: Mapping[str, list[dict[str, Any]]]) -> bool:
    """Do whatever some peer has next; false if everybody waits for somebody else."""
    for name, left in acts.items():
        if not left:
            continue
        own, by, talk = peers[name].own, left[0]["by"], left[0]["talk"]
        if not talk:
            left.pop(0)
            if by in ("first", "alone"):
                own.alone(peers[name].method.first if by == "first" else None)
            return True
        other = acts.get(by, [])
        if other and other[0]["talk"] == talk:
            left.pop(0)
            other.pop(0)
            _talk(talk, peers[name], peers[by])
            return True
    return False


def _talk(talk: str, first: PeerNode, second: PeerNode) -> None:
    calls = talk.split("/")[0] == first.id
    heard = introduced(converse(_end(first, talk), calls), converse(_end(second, talk), not calls))
    for peer, own in zip((first, second), heard, strict=True):
        peer.own.after(own)


def _end(peer: PeerNode, talk: str) -> End:
    return End(
        peer.method,
        peer.own.best,
        peer.learner.member.graph,
        peer.identity.ids,
        peer.keys,
        peer.nonce(talk),
        withheld=peer.identity.withheld,
    )
