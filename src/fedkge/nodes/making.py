"""A peer's making, the same for every runtime: the checks, its own model and seed, and its training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from fedkge.errors import ConfigError, DataWarning
from fedkge.methods import Member
from fedkge.methods.ends import Keys
from fedkge.methods.fkge import FKGE
from fedkge.nodes.base import Setting
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import Learner
from fedkge.nodes.peer import PeerNode
from fedkge.nodes.stack import Stack
from fedkge.nodes.terms import Participation, Terms
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
    if getattr(terms, "accept", None):
        raise ConfigError("accept: limits what a hub may ask a site for; peers have none; expected it unset")
    if terms.participation != Participation():
        raise ConfigError("participation: says who answers a hub; peers have none; expected it unset")
    if terms.evaluate.rule != "patience":
        raise ConfigError(f"evaluate.rule: {terms.evaluate.rule!r}, expected 'patience' with fkge")
    if terms.method.first >= terms.rounds:
        said = f"method.first: {terms.method.first} of {terms.rounds} rounds are alone: nobody will meet"
        warnings.warn(said, DataWarning, stacklevel=2)
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
    if unknown := method.own_models.keys() - set(others):
        raise ConfigError(
            f"method.models: {sorted(unknown)[0]!r} is no site; expected some of {', '.join(sorted(others))}"
        )
    own = replace(terms, model=method.own_models.get(name, terms.model), seed=seed)
    stack = Stack(own, {name: member}, {name: identity.ids}, device, captured)
    told = nonce or (lambda talk: f"{keys.own.key(0, 'nonce', name, talk):016x}")
    return PeerNode(name, own, Learner(stack, name), identity, others, keys, told, setting)
