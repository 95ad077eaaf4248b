"""Questions as nobody writes them: a site refuses each with an event, and neither trains nor changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import encode
from forgeries import (
    ADDRESSES,
    BYTES,
    FEWER,
    HUGE,
    NAN,
    PLAIN,
    Forge,
    about,
    answers,
    beside,
    carrying,
    filled,
    instead,
    noting,
    one,
    with_codec,
    without,
)
from small_federations import small_federation
from small_nodes import ByHand, question

SITES = small_federation()

INT8: dict[str, Any] = with_codec("int8", delta=True)
STATES: dict[str, tuple[dict[str, Any], Callable[[Message], bool]]] = {
    "new": (PLAIN, question("shared", 0)),
    "first": (PLAIN, question("train", 1)),
    "plain": (PLAIN, question("train", 2)),
    "fewer": (FEWER, question("train", 2)),
    "int8": (with_codec("int8"), question("train", 2)),
    "changes": (INT8, question("train", 3)),
    "dials": ({"method": {"name": "fedlu", "when": "plateau"}}, question("train", 2)),
    "measured": ({"method": {"name": "fede"}}, question("measure", 2)),
    "stopped": ({**PLAIN, "rounds": 2}, question("stop", 2)),
}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ByHand]:
    """Federations in which site a has a message to come; what is refused leaves them as they are."""
    known: dict[str, tuple[ByHand, str]] = {}

    def found(name: str) -> ByHand:
        if name not in known or known[name][0].nodes["a"].digest() != known[name][1]:
            options, wanted = STATES[name]
            at = ByHand(tmp_path_factory.mktemp(name), SITES, **options)
            at.until(wanted)
            known[name] = at, at.nodes["a"].digest()
        at, _ = known[name]
        at.nodes["a"].flush()
        at.events["a"].clear()
        return at

    return found


AT_SITE: dict[str, tuple[Forge, str]] = {
    **ADDRESSES,
    "another site": (about(sender="b"), "comes from a stranger"),
    "itself": (about(sender="a"), "comes from a stranger"),
    "a kind of a site's": (about(kind="upload"), "unknown kind 'upload'"),
}

QUESTIONS: dict[str, tuple[Forge, str]] = {
    **AT_SITE,
    "of no round": (about(round=0), "asks for round 0"),
    "of a round too many": (about(round=5), "asks for round 5 after round 1, of 4"),
    "best of a number": (noting(best=5), "best: 5"),
    "best in words": (noting(best=""), "best: ''"),
    "best of what is not": (noting(best={"nope": 1}), "best: {'nope': 1}"),
    "best of a list": (noting(best=[""]), "best: ['']"),
    "best truly": (noting(best={"": True}), "best.: True"),
    "best below zero": (noting(best={"": -1}), "best.: -1"),
    "hugely best": (noting(best={"": HUGE}), "best.: 1000"),
    "best of nothing": (noting(best={"": 1}), "best: round 1, and its tables are gone"),
    "taken in words": (noting(taken="x"), "taken: 'x'"),
    "far below zero": (noting(taken=-HUGE), "taken: -1000"),
    "half taken": (noting(taken=0.5), "taken: 0.5"),
    "truly taken": (noting(taken=True), "taken: True"),
    "hugely taken": (noting(taken=HUGE), "taken: 1000"),
    "held once": (noting(held=1), "held: 1"),
    "not held": (noting(held=False), "held: False"),
    "held in words": (noting(held="true"), "held: 'true'"),
    "held of nothing": (
        lambda message: noting(held=True)(about(body={})(message)),
        "still holds, and none came",
    ),
    "held, and rows": (noting(held=True), "still holds, and none came since round 1"),
    "a list of dials": (noting(dials=[]), "dials: []"),
    "dials in words": (noting(dials="loud"), "dials: 'loud'"),
    "a dial": (noting(dials={"to_local": 1.0}), "dials: {'to_local': 1.0}, expected none"),
    "something beside": (noting(rounds=9), "a note of ['rounds', 'taken']"),
    "rows of another kind": (carrying(beside("relation.values", NAN)), "no rows of that kind"),
    "a name": (carrying(beside("entity", NAN)), "a code of"),
    "no name": (carrying(beside("", NAN)), "no rows of that kind"),
    "too long": (carrying(instead("entity.values", filled(1e38))), "a number of 1e+38"),
    "NaN": (carrying(instead("entity.values", filled(torch.nan))), "infinite or NaN"),
    "one infinite": (
        carrying(instead("entity.values", lambda t: t.index_fill(0, torch.tensor(3), -torch.inf))),
        "infinite or NaN",
    ),
    "too wide": (carrying(instead("entity.values", lambda t: t.repeat(1, 2))), "expected [10, 8]"),
    "too many": (carrying(instead("entity.values", lambda t: t.repeat(2, 1))), "expected [10, 8]"),
    "too exact": (carrying(instead("entity.values", Tensor.double)), "expected torch.float32"),
    "no numbers": (carrying(instead("entity.values", lambda t: t[:, :0])), "expected [10, 8]"),
    "no rows": (carrying(instead("entity.values", lambda t: t[:0])), "expected [10, 8]"),
    "bits too many": (carrying(beside("entity.where", torch.full((9,), 255).byte())), "a bit for each"),
    "bits beyond": (carrying(beside("entity.where", torch.tensor([255, 4]).byte())), "row 10 is set"),
    "no bits": (carrying(beside("entity.where", torch.zeros(2).byte())), "at least one row"),
    "broken bits": (carrying(beside("entity.where", torch.ones(2))), "a bit for each"),
    "counts of none": (carrying(beside("entity.support", torch.zeros(10).byte())), "numbers of sites"),
    "counts below zero": (carrying(beside("entity.support", -torch.ones(10).int())), "numbers of sites"),
    "broken counts": (carrying(beside("entity.support", torch.ones(10))), "numbers of sites"),
    "counts too long": (carrying(beside("entity.support", torch.ones(10).long())), "numbers of sites"),
    "too few counts": (carrying(beside("entity.support", torch.ones(9).byte())), "numbers of sites"),
}
OTHERS: dict[str, tuple[str, Forge, str]] = {
    "asked before it is ready": ("new", about(kind="train", round=1), "before it has said"),
    "measured before it is ready": ("new", about(kind="measure", round=0), "before it has said"),
    "ended before it is ready": ("new", lambda m: replace(m, kind="stop", body={}, note={}), "before it has"),
    **{f"shared: {name}": ("new", *of) for name, of in AT_SITE.items()},
    "another announcement": ("new", noting(version=1), "announcement 0"),
    "no announcement": ("new", noting(version=None), "version: None"),
    "an announcement in words": ("new", noting(version="0"), "version: '0'"),
    "a false announcement": ("new", noting(version=False), "version: False"),
    "more about it": ("new", noting(taken=1), "a note of ['fedkge', 'taken', 'version']"),
    "another release": ("new", noting(fedkge="9.9.9"), "runs fedkge '9.9.9', here is"),
    "no release": ("new", noting(fedkge=None), "runs fedkge None, here is"),
    "counts of names": ("new", noting(by_two={"entity": 1}), "a note of ['by_two', 'fedkge', 'version']"),
    "no shared rows": ("new", carrying(lambda body: {}), "a bit per row"),
    "shared relations": ("new", carrying(beside("relation.where", BYTES)), "a bit per row"),
    "too many shared": ("new", carrying(instead("entity.where", lambda t: t.repeat(2))), "for each of 20"),
    "too few shared": ("new", carrying(instead("entity.where", lambda t: t[1:])), "for each of 20 rows"),
    "a table of shared": ("new", carrying(instead("entity.where", lambda t: t[None])), "for each of 20"),
    "broken bits of shared": ("new", carrying(instead("entity.where", Tensor.float)), "for each of 20"),
    "shared beyond": ("new", carrying(instead("entity.where", filled(255))), "row 23 is set"),
    "trained in round 0": ("first", about(round=0), "asks for round 0"),
    "zero width": ("int8", carrying(instead("entity.values", lambda t: t[:, :0])), "without numbers"),
    "a byte that nobody writes": ("int8", carrying(instead("entity.values", filled(-128))), "NaN"),
    "scales below zero": ("int8", carrying(instead("entity.scale", torch.neg)), "NaN"),
    "scales too large": ("int8", carrying(instead("entity.scale", filled(1e38))), "infinite or NaN"),
    "scales too many": ("int8", carrying(instead("entity.scale", lambda t: t.repeat(2))), "as many as"),
    "no serial": ("changes", carrying(without("base.serial")), "number of a message"),
    "a serial in a row": ("changes", carrying(instead("base.serial", lambda t: t[None])), "number of a"),
    "a long serial": ("changes", carrying(instead("base.serial", Tensor.long)), "number of a message"),
    "an unknown serial": ("changes", carrying(beside("base.serial", one(77))), "rows of message 77"),
    "a serial below zero": ("changes", carrying(beside("base.serial", one(-1))), "rows of message -1"),
    "the last serial": ("changes", carrying(beside("base.serial", one(2**31 - 1))), "rows of message 214"),
    "a first serial": ("changes", carrying(beside("base.serial", one(0))), "never told"),
    "counts of the wrong rows": ("fewer", carrying(instead("entity.support", lambda t: t[1:])), "numbers of"),
    "bits of other rows": ("fewer", carrying(instead("entity.where", torch.bitwise_not)), "entity"),
    "no dials": ("dials", noting(dials=None), "dials: {}, expected ['to_global', 'to_local']"),
    "too few dials": ("dials", noting(dials={"to_local": 1.0}), "expected ['to_global', 'to_local']"),
    **{
        f"a dial of {brief}": ("dials", noting(dials={"to_global": 0.0, "to_local": value}), "dials.to_local")
        for brief, value in {
            "NaN": float("nan"),
            "infinity": float("inf"),
            "a float beyond float32": 1e300,
            "a number nobody trains with": -1e38,
            "a huge number": HUGE,
            "truth": True,
            "words": "1",
            "a list": [1.0],
        }.items()
    },
    "best of another view": ("measured", noting(best=["global"]), "best: ['global']"),
    "a dial when measured": ("measured", noting(dials={"to_local": 1.0}), "expected none"),
    "shared too late": ("measured", about(kind="shared", round=5), "is of round 5, after round 2, of 4"),
    "shared long ago": ("measured", about(kind="shared", round=0), "is of round 0, after round 2"),
    "ends with rows": ("stopped", carrying(beside("entity.values", torch.ones(10, 8))), "ends with rows"),
    "ends with what is held": ("stopped", noting(held=True), "ends with rows"),
    "ends with dials": ("stopped", noting(dials={"to_local": 1.0}), "expected none"),
    "ends with the best number": ("stopped", noting(best=5), "best: 5"),
    "ends long ago": ("stopped", about(round=0), "is of round 0, after round 2"),
    "ends too late": ("stopped", about(round=3), "is of round 3, after round 2, of 2"),
    **{f"stop: {name}": ("stopped", *of) for name, of in AT_SITE.items()},
}
TO_SITES = {**{name: ("plain", *of) for name, of in QUESTIONS.items()}, **OTHERS}


@pytest.mark.parametrize(("name", "forge", "why"), TO_SITES.values(), ids=TO_SITES.keys())
def test_a_site_refuses_and_neither_trains_nor_changes(
    state: Callable[[str], ByHand], name: str, forge: Forge, why: str
) -> None:
    at = state(name)
    node, before = at.nodes["a"], at.nodes["a"].digest()
    told = node.read(encode(forge(at.mail[0])))
    (event,) = at.events["a"]
    assert event["event"] == ("declines" if told else "refused")
    assert [m.note["why"] for m in told] == [event["why"]] * bool(told)
    assert answers(told) == []
    assert why in event["why"]
    assert len(event["why"]) < 500
    assert node.digest() == before


@pytest.mark.parametrize("name", STATES)
def test_what_was_forged_above_would_be_heeded_as_it_was_sent(tmp_path: Path, name: str) -> None:
    options, wanted = STATES[name]
    at = ByHand(tmp_path, SITES, **options)
    before = (message := at.until(wanted)) and at.nodes["a"].digest()
    at.nodes["a"].read(encode(message))
    assert at.nodes["a"].digest() != before
    assert not at.noted("a", "refused")


@pytest.mark.parametrize("name", ["plain", "changes", "dials"])
def test_refused_messages_leave_no_trace_in_a_run(tmp_path: Path, name: str) -> None:
    """The same tables at the end, whatever came between."""
    plain, disturbed = (ByHand(tmp_path / kind, SITES, **STATES[name][0]) for kind in ("plain", "disturbed"))
    plain.play()
    sent: list[Message] = []
    while disturbed.mail:
        message = disturbed.mail[0]
        forgeries = [about(run="x"), about(round=message.round + 9), about(sender="x"), about(kind="x")]
        if message.recipient != HUB:  # a hub that refuses the last answer of a round closes it
            forgeries += [noting(odd=1), carrying(beside("x", NAN))]
        for forge in forgeries:
            disturbed.nodes[message.recipient].read(encode(forge(message)))
        for old in sent[-30:]:
            if old.round < message.round - 1 and old.kind != "join":  # who joins again is answered
                disturbed.nodes[old.recipient].read(encode(old))
        sent.append(disturbed.deliver())
    for site, node in plain.run.sites.items():
        assert node.digest() == disturbed.run.sites[site].digest()
        assert len(disturbed.noted(site, "refused")) > 20
    assert plain.run.hub.digest() == disturbed.run.hub.digest()


PRIVATE = {
    "method": {"name": "fedep"},
    "privacy": {"mode": "strict", "noise": 1.0, "delta": 1e-3, "accountant": "rdp"},
    "marks": {"share": 0.5},
}


def confidential() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        site: replace(graph, confidential=random.random(len(graph.train)) < 0.5)
        for site, graph in small_federation().items()
    }


def test_a_repeated_question_spends_no_privacy(tmp_path: Path) -> None:
    at = ByHand(tmp_path, confidential(), **PRIVATE)
    asked = at.until(question("train", 2))
    node = at.run.sites["a"]
    assert node.learner.protection is not None
    ledger = node.learner.protection.spending.ledger
    earlier = ledger.count("a")
    assert earlier
    forged: Mapping[str, Forge] = {
        name: of for name, (of, _) in QUESTIONS.items() if name != "held, and rows"
    }
    for forge in forged.values():
        assert answers(node.read(encode(forge(asked)))) == []
    assert ledger.count("a") == earlier, "nothing that is refused costs anything"
    (first,) = node.receive(asked)
    spent = ledger.count("a")
    assert spent > earlier
    content = ledger.path.read_bytes()
    for _ in range(3):
        (again,) = node.read(encode(asked))
        assert encode(again) == encode(first)
    assert ledger.count("a") == spent
    assert ledger.path.read_bytes() == content
