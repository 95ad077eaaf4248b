"""What sites that unlearn tell each other through the hub before round 1, and what is refused of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedkge.runtimes.unlearning as module
from fedkge.exchange.direction import WHERE, unpack
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import encode, length
from fedkge.graphs.graph import Axis
from fedkge.methods.unlearn import Unlearn
from fedkge.nodes.displaced import Displaced
from fedkge.nodes.site import SiteNode
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure, Request
from fedkge.runtimes.unlearning import unlearn
from forgeries import BYTES, NAN, beside, carrying
from small_federations import small_federation
from small_nodes import ByHand, events, hub, joining, question
from unlearning import some, trained


def heard(
    old: Holdings, out: Path, monkeypatch: pytest.MonkeyPatch, sites: str = "a", device: Any = "cpu"
) -> list[Message]:
    """Every message of an unlearning."""
    messages: list[Message] = []
    monkeypatch.setattr(module, "run", partial(module.run, tap=messages.append))
    requests = [Request(site, some(old, site)) for site in sites]
    unlearn(old, out, Erasure.of(old.sources.named, requests), Unlearn(rounds=1, epochs=3), device)
    return messages


def of_kind(messages: list[Message], kind: str) -> dict[str, Message]:
    return {m.sender if m.recipient == HUB else m.recipient: m for m in messages if m.kind == kind}


def test_displacements_and_owners_are_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = trained(tmp_path / "old", method={"name": "fedlu"})
    messages = heard(old, tmp_path / "new", monkeypatch)
    joins, shared = of_kind(messages, "join"), of_kind(messages, "shared")
    assert {site for site, one in joins.items() if "entity.moved" in one.body} == {"a"}
    assert {site for site, one in shared.items() if "entity.owners" in one.body} == {"a"}
    others = set(shared) - {"a"}
    assert {site for site, one in shared.items() if "entity.moved" in one.body} == others
    moved = by_id(joins["a"], joins["a"].body["entity.moved"])
    assert any(row.any() for row in moved.values())
    for site in others:
        told = by_id(joins[site], shared[site].body["entity.moved"], shared[site])
        zero = torch.zeros_like(next(iter(moved.values())))
        assert all(torch.equal(row, moved.get(one, zero)) for one, row in told.items())
    counts = by_id(joins["a"], shared["a"].body["entity.owners"], shared["a"])
    ids = [set(announced(one)) for one in joins.values()]
    assert {one: int(count) for one, count in counts.items()} == {
        one: sum(one in own for own in ids) for one in counts
    }
    sent = Holdings.open(tmp_path / "new").summary["traffic"]
    assert sent["up_bytes"] == sum(length(m) for m in messages if m.recipient == HUB)
    assert sent["down_bytes"] == sum(length(m) for m in messages if m.recipient != HUB)


def test_what_several_sites_moved_is_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = trained(tmp_path / "old", method={"name": "fedlu"})
    messages = heard(old, tmp_path / "new", monkeypatch, "ab")
    joins, shared = of_kind(messages, "join"), of_kind(messages, "shared")
    moved = {site: by_id(joins[site], joins[site].body["entity.moved"]) for site in "ab"}
    (third,) = set(shared) - {"a", "b"}
    for one, row in by_id(joins[third], shared[third].body["entity.moved"], shared[third]).items():
        parts = [of[one] for of in moved.values() if one in of]
        assert torch.allclose(row, torch.stack(parts).sum(0) if parts else torch.zeros_like(row))


def test_devices_tell_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    old = trained(tmp_path / "old", method={"name": "fedlu"})
    there = of_kind(heard(old, tmp_path / "there", monkeypatch, device=device), "shared")
    here = of_kind(heard(old, tmp_path / "here", monkeypatch), "shared")
    for site, message in here.items():
        assert message.body.keys() == there[site].body.keys()
        for name, content in message.body.items():
            assert torch.allclose(content, there[site].body[name].cpu(), atol=1e-4), (site, name)


def test_one_table_hears_of_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all tables travel, the mean brings the displacement."""
    old = trained(tmp_path / "old", method={"name": "fedep"})
    shared = of_kind(heard(old, tmp_path / "new", monkeypatch), "shared")
    assert {name for one in shared.values() for name in one.body} == {f"entity.{WHERE}", "entity.owners"}


def announced(join: Message) -> list[bytes]:
    whole, stops = join.body["entity.ids"].numpy().tobytes(), join.body["entity.ends"].tolist()
    return [whole[a:b] for a, b in zip([0, *stops], stops, strict=False)]


def by_id(join: Message, rows: Tensor, shared: Message | None = None) -> dict[bytes, Tensor]:
    ids = announced(join)
    if shared is not None:
        at = unpack(shared.body[f"entity.{WHERE}"], len(ids), Axis.ENTITY).tolist()
        ids = [ids[i] for i in at]
    return dict(zip(ids, rows, strict=True))


@pytest.mark.parametrize(
    ("unlearns", "moved", "why"),
    [
        (False, torch.zeros(2, 2), "another method?"),
        (True, torch.zeros(3, 2), "expected [2, 2] float32"),
        (True, torch.zeros(2, 1), "expected [2, 2] float32"),
        (True, torch.zeros(2, 2).double(), "expected [2, 2] float32"),
        (True, torch.full((2, 2), 1e30), "within 1e+09"),
        (True, torch.full((2, 2), float("nan")), "within 1e+09"),
    ],
)
def test_a_forged_displacement_is_refused(unlearns: bool, moved: Tensor, why: str) -> None:
    at = hub()
    at.unlearns = unlearns
    before = at.digest()
    at.read(encode(carrying(beside("entity.moved", moved))(joining("a"))))
    (event,) = events(at, "refused")
    assert why in event["why"]
    assert at.digest() == before


@pytest.mark.parametrize(
    ("unlearns", "name", "content", "why"),
    [
        (False, "entity.moved", NAN, "expected a bit per row"),
        (False, "entity.owners", BYTES, "expected a bit per row"),
        (True, "entity.moved", NAN, "rows that were moved"),
        (True, "relation.moved", NAN, "expected none"),
        (True, "entity.owners", BYTES, "expected one number for each shared row"),
    ],
)
def test_a_site_refuses_what_it_cannot_follow(
    tmp_path: Path, unlearns: bool, name: str, content: Tensor, why: str
) -> None:
    at = ByHand(tmp_path, small_federation(), method={"name": "fedlu"})
    message, node = at.until(question("shared", 0)), at.nodes["a"]
    assert isinstance(node, SiteNode)
    if unlearns:
        node.displaced = Displaced(node.terms, 0.5)
    node.flush()
    before = node.digest()
    node.read(encode(carrying(beside(name, content))(message)))
    (event,) = at.noted("a", "refused")
    assert why in event["why"]
    assert node.digest() == before
