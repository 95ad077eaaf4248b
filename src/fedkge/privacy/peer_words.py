"""What peers reveal to each other, in words: whose rows are protected from whom, and what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedkge.privacy.accountants import ACCOUNTANTS
from fedkge.privacy.costs import Cost
from fedkge.privacy.words import number


def peer_words(method: Mapping[str, Any], costs: Sequence[Cost], paper: Mapping[str, float]) -> list[str]:
    """For a run of `fkge` with these options. `paper` is what the paper's arithmetic says, by site."""
    said = [_headline(cost, method) for cost in costs]
    said += _votes(method) + _rows(method) + _crossing(method)
    names = "and all its names, or their pseudonyms under a common secret"
    if method.get("intersect", "ids") != "ids":
        names = "how many names a peer has, and which of them both ends have"
    said.append(
        "Told without noise, and in no ε: whether an update was kept (a peer that improves says so to all), "
        f"when a conversation ends, {names}."
    )
    if paper:
        told = ", ".join(f"{site} {number(epsilon)}" for site, epsilon in paper.items())
        said.append(
            f"The paper's arithmetic (Eqs. 8 to 10, each vote counted) gives ε = {told}. It depends on the "
            "votes, which are private: it is no guarantee. The ε above does not depend on them."
        )
    return said


def _headline(cost: Cost, method: Mapping[str, Any]) -> str:
    votes, rows = method.get("translate", "ppat") == "ppat", bool(method.get("noise"))
    covers = " and ".join(name for name, found in (("votes", votes), ("rows", rows)) if found)
    return (
        f"{cost.site}: ε = {number(cost.epsilon)} at δ = {cost.delta:g} for {covers} (unit: one row of its "
        f"table; neighbours: replace one; accountant: {ACCOUNTANTS[cost.accountant]().about}; guarantee: "
        f"{cost.guarantee})"
    )


def _votes(method: Mapping[str, Any]) -> list[str]:
    if method.get("translate", "ppat") != "ppat":
        return [
            "Host's rows: nothing about them is sent, other than in translated rows when it is the client."
        ]
    if not method.get("scale"):
        return [
            "Host's rows: not protected. Votes have no noise (method.scale is 0), so that gradients may "
            "reveal them to the partner."
        ]
    return [
        "Host's rows, against the partners that it answers as a host, together: each row is in the part of "
        "one teacher, the student learns from noisy votes only, and gradients are computed from the student "
        "only. All votes of all passes, conversations and partners add up. Assuming that parts of teachers "
        "do not depend on rows, and that noise is drawn from a secret."
    ]


def _rows(method: Mapping[str, Any]) -> list[str]:
    if method.get("noise"):
        return [
            "Client's rows, against the partner: rows are cut to method.clip and get Gaussian noise once per "
            "conversation, before anything is computed from them. All that is sent follows from these."
        ]
    return [
        "Client's rows: not protected. WX is a linear image of X. Whoever knows or guesses as many pairs of "
        "x and Wx as there are dimensions solves for W, and then for every other row. A peer is host and "
        "client in turn: votes with noise hide a row that it then sends as a client."
    ]


def _crossing(method: Mapping[str, Any]) -> list[str]:
    translate = method.get("translate", "ppat")
    sent = ["generated rows and the gradients by them, in batches"] if translate == "ppat" else []
    sent.append(
        "the rows themselves, as they are"
        if translate == "none"
        else "G(X), the translated rows of all that is aligned"
    )
    if method.get("virtual"):
        whom = "neighbours that the partner does not have"
        if method.get("edges") == "all":
            whom = "neighbours, and edges between entities that both have: training triples in the open"
        sent.append(
            f"G(N(X)): translated rows of up to {method['virtual']} {whom}, and the edges that join them"
        )
    if method.get("choose") == "csls":
        sent.append("which pass the host found best, without noise")
    return [f"What crosses: {'; '.join(sent)}. Confidential triples are never lent."]
