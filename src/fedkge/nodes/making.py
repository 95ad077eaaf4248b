"""A peer's making, the same for every runtime: the checks, its own model and seed, and its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from fedkge.errors import ConfigError
from fedkge.methods import Member
from fedkge.methods.ends import Keys
from fedkge.methods.fkge import FKGE
from fedkge.nodes.base import Setting
from fedkge.nodes.identity import Identity
from fedkge.nodes.peer import PeerNode
from fedkge.nodes.stack import Stack
from fedkge.nodes.terms import Terms
from fedkge.randomness import key


def check_terms(terms: Terms) -> FKGE:
    """What peers cannot do is said before they begin."""
    if not isinstance(terms.method, FKGE):
        raise ConfigError("method.name: only fkge works without a hub; expected fkge")
    if terms.privacy.noisy:
        raise ConfigError(
            f"privacy.mode: {terms.privacy.mode!r} protects triples in training with a hub; peers protect "
            "rows by method.scale, method.clip and method.noise; expected off or u-only"
        )
    if getattr(terms, "start", None) is not None:
        raise ConfigError("start: peers begin with tables of their own; expected start unset")
    return terms.method


def peer_node(
    name: str,
    terms: Terms,
    member: Member,
    identity: Identity,
    others: Sequence[str],
    keys: Keys,
    setting: Setting,
    device: torch.device,
    captured: bool = True,
    nonce: Callable[[str], str] | None = None,
) -> PeerNode:
    """A peer with a model, and unless told otherwise first rows, of its own."""
    method = check_terms(terms)
    seed = key(terms.seed, name, "apart") % (1 << 62) if method.apart else terms.seed
    own = replace(terms, model=method.model_of(name, terms.model), seed=seed)
    stack = Stack(own, {name: member}, {name: identity.ids}, device, captured)
    told = nonce or (lambda talk: f"{keys.own.key(0, 'nonce', name, talk):016x}")
    return PeerNode(name, own, stack.learner(name), identity, others, keys, told, setting)
