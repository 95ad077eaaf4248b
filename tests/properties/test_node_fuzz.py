"""Whatever comes, no node raises; what it refuses leaves no trace, and what it heeds it may heed."""

from __future__ import annotations

import time
from collections import Counter
from copy import deepcopy
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge import __version__
from fedkge.errors import DataError
from fedkge.exchange.codec import Float32
from fedkge.exchange.rows import HUB, PROTOCOL, Message
from fedkge.exchange.wire import decode, encode
from fedkge.graphs.graph import Graph
from fedkge.nodes.base import Node
from fedkge.nodes.hub import HubNode
from fedkge.nodes.site import SiteNode
from forgeries import answers
from mutants import mutant
from small_federations import small_graph
from small_nodes import ByHand

pytestmark = pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")

AnyNode: TypeAlias = HubNode | SiteNode
SILENT = "silent"  #: its answer is always the last: until then a hub that refuses others closes no round
DELTA = {"name": "int8", "delta": True}
COMMON = {
    "rounds": 3,
    "model": {"dim": 4},
    "trainer": {"epochs": 1, "batch_size": 32, "negatives": 2},
    "evaluate": {"every": 2, "patience": 0},
}
PRIVATE = {"mode": "strict", "noise": 1.0, "epsilon": 1000.0, "delta": 1e-3, "accountant": "rdp"}
FEDERATIONS: dict[str, dict[str, Any]] = {
    "fedep": {"method": {"name": "fedep"}},
    "fede, some changes": {
        "method": {"name": "fede"},
        "codec": DELTA,
        "select": {"name": "topk", "p": 0.5, "s": 2},
    },
    "fedlu": {"method": {"name": "fedlu", "when": "plateau"}, "codec": {"name": "float16", "feedback": True}},
    "fedternary, late": {
        "method": {"name": "fedternary"},
        "participation": {"late": "use", "quorum": 0.5},
        "aggregate": {"name": "median"},
    },
    "pfedeg": {
        "method": {"name": "pfedeg"},
        "codec": {"name": "svd", "rank": 1, "columns": 2},
        "select": {"name": "moved", "p": 0.7},
    },
    "fedec, both": {
        "method": {"name": "fedec", "share": "both", "ensemble": 0.5},
        "codec": {"name": "bfloat16", "delta": True},
        "participation": {"open": True},
        "aggregate": {"name": "trimmed"},
    },
    "private": {"method": {"name": "fedep"}, "codec": {"name": "int4"}, "privacy": PRIVATE},
    "single": {"method": {"name": "single"}},
    "pseudonyms": {"method": {"name": "fedep"}, "participation": {"open": True}},
}


def federation(private: bool) -> dict[str, Graph]:
    """Four sites that have some entities and their relations in common."""
    spans = {"a": (0, 9), "b": (4, 14), "c": (6, 16), SILENT: (2, 11)}
    graphs = {}
    for number, (site, (start, end)) in enumerate(spans.items()):
        names = [f"e{i}" for i in range(start, end)]
        graph = small_graph(number, names, ["r0", "r1"], 40, held_out=3)
        marks = np.random.default_rng(number).random(len(graph.train)) < 0.5 if private else None
        graphs[site] = Graph(
            graph.entities, graph.relations, graph.train, graph.valid, graph.test, confidential=marks
        )
    return graphs


def nodes(folder: Path, name: str) -> ByHand:
    align = {}
    if name == "pseudonyms":
        align = {"secret": str(folder.with_suffix(".secret"))}
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.with_suffix(".secret").write_bytes(bytes(16))
    at = ByHand(folder, federation(name == "private"), align=align, **COMMON, **FEDERATIONS[name])
    for node in at.nodes.values():
        node.store = None  # nothing is written
    return at


def copied(node: AnyNode) -> AnyNode:
    """A node of its own; a ledger stays one: what was spent is spent."""
    kept: list[Any] = [node.terms, node.setting]
    if isinstance(node, SiteNode):
        stack = node.learner.stack
        kept += [node.identity, node.learner.member, stack.members, stack.known, stack.opened]
        kept += [node.learner.protection.spending] if node.learner.protection is not None else []
    return deepcopy(node, {id(one): one for one in kept})


class Fuzz:
    """A federation that is sent spoilt messages between its own, and goes on as if there were none."""

    def __init__(self, folder: Path, name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.at, self.random = name, nodes(folder, name), Random(f"{name} {seed}")
        self.exact = isinstance(self.at.run.experiment.coding, Float32)
        self.sent: list[Message] = []
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()  # of messages that were heeded
        self.refusals: list[str] = []
        unheeded = Node._unheeded

        def counted(node: Node, event: str, message: Message, why: str) -> None:
            self.refusals.append(why)
            unheeded(node, event, message, why)

        monkeypatch.setattr(Node, "_unheeded", counted)

    def play(self, count: int, messages: int, chance: float) -> None:
        """To the end, with so many mutants; at each of so many messages with this chance."""
        each = max(1, round(count / (messages * chance)))
        while self.at.mail:
            last = len(self.at.mail) == 1 and self.at.mail[0].kind == "stop"
            if last or self.random.random() < chance:
                left = count - self.outcomes.total()
                self.disturb(left if last else min(left, each))
            self.sent.append(self.at.deliver())

    def disturb(self, count: int) -> None:
        message = self.at.mail[0]
        for name in sorted({message.recipient, HUB}):
            share = count if message.recipient == HUB else count // 2 + (count % 2) * (name == HUB)
            self._attack(name, [m for m in self.at.mail if m.recipient == name], share)

    def _attack(self, name: str, pending: list[Message], count: int) -> None:
        node = self.at.nodes[name]
        whole, digest = copied(node), node.digest()
        for _ in range(count):
            data = self._mutant(node, pending)
            self.refusals.clear()
            try:
                out = node.read(data)
            except BaseException as error:
                error.add_note(f"{self.name}: to {name}: {data!r}")
                raise
            if self.refusals:
                assert node.digest() == digest, f"{self.name}: a refusal changed {name}: {data!r}"
                assert (len(self.refusals), answers(out)) == (1, [])
                assert not self.refusals[0].startswith("cannot be read"), f"it is not said why: {data!r}"
                self.outcomes["refused"] += 1
            elif out and isinstance(node, SiteNode) and node.digest() == digest:
                assert is_answered(node, decode(data)), f"{self.name}: no repeated question: {data!r}"
                self.outcomes["answered again"] += 1
            else:
                self._heeded(whole, node, decode(data), out)
                node, whole = whole, copied(whole)
                digest = node.digest()  # a ledger that goes on has another seal
        self.at.nodes[name] = node

    def _mutant(self, node: AnyNode, pending: list[Message]) -> bytes:
        """One that is not the last answer that a hub waits for."""
        while True:
            own = pending if pending and self.random.random() < 0.7 else self.sent or list(self.at.mail)
            data = mutant(self.random, self.random.choice(own[-40:]), self.sent)
            if not (isinstance(node, HubNode) and answers_last(node, data)):
                return data

    def _heeded(self, before: AnyNode, node: AnyNode, message: Message, out: list[Message]) -> None:
        self.outcomes["heeded"] += 1
        self.kinds[message.kind] += 1
        assert (message.protocol, message.run, message.recipient) == (PROTOCOL, node.setting.run, node.id)
        for name, tensor in message.body.items():
            assert finite(tensor), message
            if self.exact and name.endswith(".values"):
                assert tensor.abs().max() <= 1e9, message
        if isinstance(before, SiteNode):
            site_may_heed(before, message)
            assert all(finite(tensor) for tensor in node.state()[0].values()), message
        else:
            hub_may_heed(before, message)
            if self.random.random() < 0.2:
                out = [*out, *self._completed(node)]
        assert all(finite(tensor) for one in out for tensor in one.body.values()), message
        assert all(decode(encode(one)).kind == one.kind for one in out)

    def _completed(self, hub: AnyNode) -> list[Message]:
        """What the hub says when everyone else has answered as they should."""
        out = [one for message in self.at.mail if message.recipient == HUB for one in hub.receive(message)]
        return out or hub.expire(hub._round)  # type: ignore[union-attr]


def answers_last(hub: HubNode, data: bytes) -> bool:
    """A hub that refuses the last answer that it waits for closes the round, as it should."""
    if SILENT.encode() not in data:
        return False
    try:
        message = decode(data)
    except DataError:
        return False
    kinds = ("upload", "metrics", "refusal")
    return (message.sender, message.round) == (SILENT, hub._round) and message.kind in kinds


def finite(tensor: Tensor) -> bool:
    return not tensor.dtype.is_floating_point or bool(torch.isfinite(tensor).all())


def is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def hub_may_heed(hub: AnyNode, message: Message) -> None:
    """The rules in other words: who may say what, and when."""
    assert isinstance(hub, HubNode)
    assert message.sender in hub.sites
    if message.kind == "join":
        assert message.round == 0
        assert all(map(is_whole, message.note["queries"].values()))
        assert message.note.keys() <= {"fedkge", "version", "queries", "allows", "fingerprint"}
        assert message.note["fedkge"] == __version__
        assert (message.note.get("fingerprint") is not None) == hub.pseudonyms
    elif message.kind == "refusal":
        assert message.note.keys() == {"why"}
        assert message.round <= hub._round
    elif message.kind == "upload":
        assert message.round in hub.owed[message.sender]
        assert message.note.keys() <= {"allows"}
    else:
        assert (message.kind, message.round, hub.phase) == ("metrics", hub._round, "measure")
        assert not message.body
        announced = hub.roster.joined[message.sender].queries
        for found in (message.note["metrics"], *message.note.get("views", {}).values()):
            assert found.keys() == announced.keys()
            for site, of in found.items():
                assert (type(of["count"]), of["count"]) == (int, announced[site])
                values = {name: value for name, value in of.items() if name != "count"}
                assert all(isfinite(value) and value >= 0 for value in values.values())
                assert all(value <= 1 for name, value in values.items() if name != "mr")


def site_may_heed(site: SiteNode, message: Message) -> None:
    assert message.sender == HUB
    note = message.note
    if message.kind == "refusal":
        assert note.keys() == {"why"}
        return
    assert message.round <= site.terms.rounds
    if message.kind == "shared":
        pseudonyms = site.identity.fingerprint is not None
        assert note.keys() == {"fedkge", "version", *(["by_two"] if pseudonyms else [])}
        return
    assert site.ready
    assert note.keys() <= {"taken", "best", "held", "dials"}
    assert note.get("taken") is None or (type(note["taken"]) is int and abs(note["taken"]) <= 1 << 53)
    assert note.get("held") in (None, True)
    for view, round in (note.get("best") or {}).items():
        assert site.kept.get(view) == round or round == site.measured == site.asked
    assert not note.get("held") or 0 <= site.measured == site.asked
    if message.kind == "stop":
        assert not message.body
        return
    assert message.kind in ("train", "measure")
    assert not site.stopped
    measured = message.kind == "measure" and site.measured < message.round
    assert message.round > site.asked or (measured and message.round == site.asked)
    assert message.kind == "measure" or message.round > 0
    axes = {str(axis) for axis in site.method.shares} | {"base"}
    assert all(name.partition(".")[0] in axes for name in message.body)
    dials = note.get("dials") or {}
    assert dials.keys() == (site.site.dials.keys() if message.kind == "train" else set())
    assert all(abs(value) <= 1e9 for value in dials.values())


def is_answered(site: SiteNode, message: Message) -> bool:
    stored = site.answers.get(message.kind)
    return stored is not None and stored.round == message.round and message.sender == HUB


def fuzzed(
    folder: Path, name: str, count: int, monkeypatch: pytest.MonkeyPatch, seed: int = 0, chance: float = 1.0
) -> Fuzz:
    plain, messages = nodes(folder / "plain", name), 0
    while plain.mail:
        plain.deliver()
        messages += 1
    with monkeypatch.context() as patch:
        fuzz = Fuzz(folder / "fuzz", name, seed, patch)
        fuzz.play(count, messages, chance)
    assert fuzz.outcomes.total() == count
    if name != "private":  # whose noise is new in every run
        for node in plain.nodes.values():
            assert node.digest() == fuzz.at.nodes[node.id].digest(), node.id
    return fuzz


@pytest.mark.parametrize("name", FEDERATIONS)
def test_mutants_crash_nobody_and_refused_ones_leave_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fuzz = fuzzed(tmp_path, name, 400, monkeypatch, chance=0.4)
    assert fuzz.outcomes["refused"] > 200
    assert fuzz.outcomes["heeded"] > 4


@pytest.mark.slow
def test_of_200000_mutants_none_crashes_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began, outcomes, kinds = time.monotonic(), Counter[str](), Counter[str]()
    for number, name in enumerate(FEDERATIONS):
        fuzz = fuzzed(tmp_path / f"{number}", name, 200_000 // len(FEDERATIONS), monkeypatch, seed=1)
        outcomes, kinds = outcomes + fuzz.outcomes, kinds + fuzz.kinds
    with capsys.disabled():
        print(f"\n{dict(outcomes)}, heeded: {dict(kinds)}, in {time.monotonic() - began:.0f} s")
    assert outcomes.total() == 200_000 // len(FEDERATIONS) * len(FEDERATIONS)
    assert outcomes["refused"] > 100_000
