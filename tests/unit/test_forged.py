"""Answers and announcements as nobody writes them: the hub refuses each with an event and goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.exchange.announce import LONGEST_ID, announcement
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import encode, length
from fedkge.graphs.graph import Axis
from fedkge.nodes.journal import read_journal
from fedkge.nodes.learner import Fitted
from forgeries import (
    ADDRESSES,
    BYTES,
    CHANGES,
    FEWER,
    HUGE,
    NAN,
    PLAIN,
    Body,
    Forge,
    about,
    beside,
    carrying,
    filled,
    instead,
    noting,
    one,
    with_codec,
    without,
)
from small_federations import federated, small_federation
from small_nodes import IDS, events, hub, join, joining, mean, metrics, upload

SITES = small_federation()


def fewer(body: Body) -> Body:
    """One row instead of all: whoever averaged it as if it were all would mislead everyone."""
    where = torch.zeros(-(-len(body["entity.values"]) // 8), dtype=torch.uint8)
    where[0] = 1
    return {"entity.where": where, "entity.values": body["entity.values"][:1]}


def more(body: Body) -> Body:
    """All rows in a round in which some are sent."""
    return {"entity.values": torch.zeros(14, 8)}


def every_factor(body: Body) -> Body:
    n = len(body["entity.singular"])
    shapes = {"values": (n, 1, 8), "singular": (n, 8), "right": (n, 8, 8)}
    return {**body, **{f"entity.{part}": torch.zeros(shape) for part, shape in shapes.items()}}


# Uploads, in whole runs

FORGED: dict[str, tuple[dict[str, Any], Callable[[Body], Body], str]] = {
    "rows of another kind": (PLAIN, beside("relation.values", NAN), "no rows of that kind"),
    "bits of another kind": (FEWER, beside("relation.where", NAN), "no rows of that kind"),
    "of no kind": (PLAIN, beside("foo.values", NAN), "no rows of that kind"),
    "no dimension": (PLAIN, instead("entity.values", lambda t: t[0, 0]), "expected torch.float32"),
    "no numbers": (PLAIN, instead("entity.values", lambda t: t[:, :0]), "expected [14, 8]"),
    "no quanta": (with_codec("int8"), instead("entity.values", lambda t: t[:, :0]), "without numbers"),
    "no bytes": (with_codec("int4"), instead("entity.values", lambda t: t[:, :0]), "without numbers"),
    "counts": (PLAIN, beside("entity.support", torch.ones(14, dtype=torch.uint8)), "a code of"),
    "new of another kind": (CHANGES, beside("relation.new.values", NAN), "no rows of that kind"),
    "new of no kind": (CHANGES, beside("foo.new.bar", NAN), "no rows of that kind"),
    "beside the serial": (CHANGES, beside("base.junk", NAN), "no rows of that kind"),
    "twice": (CHANGES, beside("entity.new.values", torch.ones(14, 8).half()), "a code of"),
    "no serial": (CHANGES, without("base.serial"), "number of a message"),
    "serials": (CHANGES, beside("base.serial", one(0).expand(3)), "number of a message"),
    "a serial in a row": (CHANGES, instead("base.serial", lambda t: t[None]), "number of a message"),
    "a serial of 8 bytes": (CHANGES, instead("base.serial", Tensor.long), "number of a message"),
    "a broken serial": (CHANGES, instead("base.serial", Tensor.float), "number of a message"),
    "unknown serial": (CHANGES, beside("base.serial", one(99)), "rows of message 99"),
    "negative serial": (CHANGES, beside("base.serial", one(-6)), "rows of message -6"),
    "last serial": (CHANGES, beside("base.serial", one(2**31 - 1)), "rows of message 2147483647"),
    "ternary byte": (CHANGES, instead("entity.values", filled(243)), "NaN"),
    "negative scale": (CHANGES, instead("entity.scale", torch.neg), "NaN"),
    "int4 byte": (with_codec("int4"), instead("entity.values", filled(225)), "NaN"),
    "int8 byte": (with_codec("int8"), instead("entity.values", filled(-128)), "NaN"),
    "more factors": ({"method": {"name": "svdplus", "rank": 5}}, every_factor, "factors"),
    "too long": (PLAIN, instead("entity.values", filled(3.3e38)), "a number of 3.3e"),
    "too long a change": (
        with_codec("int8", delta=True),
        instead("entity.scale", filled(2.6e36)),
        "a number of 3.3e",
    ),
    "nothing": (PLAIN, lambda body: {}, "0 of 14, expected 14 in round 3"),
    "nothing of some": (FEWER, lambda body: {}, "0 of 14, expected 6 in round 3"),
    "some of all": (PLAIN, fewer, "1 of 14, expected 14 in round 3"),
    "all of some": (FEWER, more, "14 of 14, expected 6 in round 3"),
}


@pytest.mark.parametrize(("options", "forge", "why"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_upload_is_refused_and_the_run_goes_on(
    tmp_path: Path, options: dict[str, Any], forge: Callable[[Body], Body], why: str
) -> None:
    run = federated(tmp_path, SITES, rounds=5, **options)
    finish, weighed = run.sites["c"].finish, []

    def forged(round: int, trained: Fitted) -> Message:
        message = finish(round, trained)
        if round == 3:
            message = replace(message, body=forge(dict(message.body)))
            weighed.append(length(message))
        return message

    run.sites["c"].finish = forged  # type: ignore[method-assign]
    run.play()
    assert run.hub.store is not None
    noted = list(read_journal(run.hub.store.journal.path))
    rounds = {event["round"]: event for event in noted if event["event"] == "round"}
    took_part = {n: "c" in event["participants"] for n, event in rounds.items()}
    assert took_part == {1: True, 2: True, 3: False, 4: True, 5: True}
    assert why in rounds[3]["refused"]["c"]
    journal = [event for event in read_journal(run.record.journal.path) if event["event"] == "traffic"]
    sent = {event["round"]: event["sites"] for event in journal}
    assert sent[3]["c"]["up_bytes"] == weighed[0], "it was sent"
    for name, stack in run.stack_of.items():
        assert float(stack.sites[name].tables.entities.abs().max()) < 10


# Everything else that a hub may be sent


AT_HUB: dict[str, tuple[Forge, str]] = {
    **ADDRESSES,
    "the hub": (about(sender=HUB), "comes from a stranger"),
    "a kind of the hub's": (about(kind="train"), "unknown kind 'train'"),
}


def announcing(ids: Tensor, ends: Tensor) -> Forge:
    return carrying(lambda body: {"entity.ids": ids, "entity.ends": ends})


def listed(*ids: bytes) -> Forge:
    return carrying(lambda body: announcement({Axis.ENTITY: ids}))


def ends(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


JOINING: dict[str, tuple[Forge, str]] = {
    "no version": (noting(version=None), "version"),
    "version below zero": (noting(version=-1), "version: -1"),
    "true version": (noting(version=True), "version: True"),
    "version in words": (noting(version="0"), "version: '0'"),
    "huge version": (noting(version=HUGE), "version: 1000"),
    "no questions": (noting(queries=None), "queries: None"),
    "questions of nobody": (noting(queries={}), "queries: {}"),
    "listed questions": (noting(queries=["a"]), "queries: ['a']"),
    "another's questions": (noting(queries={"b": 10}), "queries: {'b': 10}"),
    "two sites' questions": (noting(queries={"a": 10, "b": 10}), "queries: "),
    "questions below zero": (noting(queries={"a": -1}), "queries.a: -1"),
    "half a question": (noting(queries={"a": 0.5}), "queries.a: 0.5"),
    "true questions": (noting(queries={"a": True}), "queries.a: True"),
    "huge questions": (noting(queries={"a": HUGE}), "queries.a: 1000"),
    "more than a float can count": (noting(queries={"a": 2**53 + 1}), "queries.a"),
    "a budget below zero": (noting(allows=-1), "allows: -1"),
    "a budget in words": (noting(allows="all"), "allows: 'all'"),
    "an endless budget": (noting(allows=float("inf")), "allows: inf"),
    "another release": (noting(fedkge="0.0.9"), "runs fedkge '0.0.9', here is"),
    "a release before all": (noting(fedkge=None), "runs fedkge None, here is"),
    "a release in numbers": (noting(fedkge=1), "runs fedkge 1, here is"),
    "a fingerprint": (noting(fingerprint="0" * 16), "announces pseudonyms, expected names"),
    "something beside": (
        noting(totals={"entity": 2}),
        "a note of ['fedkge', 'queries', 'totals', 'version']",
    ),
    "no rows": (carrying(lambda body: {}), "announces []"),
    "other rows": (
        carrying(lambda body: announcement({Axis.RELATION: IDS})),
        "announces ['relation.ends', 'relation.ids'], expected",
    ),
    "more rows": (carrying(beside("relation.ids", BYTES)), "another method?"),
    "no ends": (carrying(without("entity.ends")), "another method?"),
    "broken bytes": (announcing(BYTES.float(), ends(3)), "expected bytes"),
    "a table of bytes": (announcing(BYTES[None], ends(3)), "expected bytes"),
    "short ends": (announcing(BYTES, ends(3).int()), "expected bytes"),
    "broken ends": (announcing(BYTES, ends(3).double()), "expected bytes"),
    "a table of ends": (announcing(BYTES, ends(3)[None]), "expected bytes"),
    "an end without a row": (announcing(BYTES, ends(3)[0]), "expected bytes"),
    "bytes without an end": (announcing(BYTES, ends()), "expected bytes"),
    "bytes after the end": (announcing(BYTES, ends(1, 2)), "expected bytes"),
    "an end beyond": (announcing(BYTES, ends(1, 4)), "expected bytes"),
    "an end far beyond": (announcing(BYTES, ends(2**63 - 1, 3)), "expected 1 to 4096 bytes"),
    "an end far before": (announcing(BYTES, ends(-(2**63), 3)), "expected 1 to 4096 bytes"),
    "an end below zero": (announcing(BYTES, ends(-1, 3)), "expected 1 to 4096 bytes"),
    "ends that go back": (announcing(BYTES, ends(2, 1, 3)), "expected 1 to 4096 bytes"),
    "an id of nothing": (announcing(BYTES, ends(0, 3)), "expected 1 to 4096 bytes"),
    "too long an id": (listed(b"x" * (LONGEST_ID + 1)), "expected 1 to 4096 bytes"),
    "not in order": (listed(b"b", b"a"), "in increasing order"),
    "twice the same": (listed(b"a", b"a"), "expected each once"),
}


@pytest.mark.parametrize(
    ("forge", "why"), [*AT_HUB.values(), *JOINING.values()], ids=[*AT_HUB, *(f"join: {n}" for n in JOINING)]
)
def test_a_forged_announcement_is_refused(forge: Forge, why: str) -> None:
    at = hub()
    at.receive(joining("b"))
    before = at.digest()
    forged = forge(joining("a"))
    told = at.read(encode(forged))
    (event,) = events(at, "refused")
    known = (forged.sender, forged.recipient, forged.run, forged.kind) == ("a", HUB, "", "join")
    assert [(m.recipient, m.kind, m.note) for m in told] == [("a", "refusal", {"why": event["why"]})] * known
    assert why in event["why"]
    assert len(event["why"]) < 500
    assert at.digest() == before
    assert {message.kind for message in join(at).values()} == {"train"}, "who joins as it should is heard"


UPLOADS: dict[str, tuple[Forge, str]] = {
    **AT_HUB,
    "of the round before": (about(round=0), "answers nothing that was asked"),
    "of the round to come": (about(round=2), "has not begun"),
    "as metrics": (about(kind="metrics"), "measures nothing that was asked"),
    "a budget below zero": (noting(allows=-1), "allows: -1"),
    "a budget in words": (noting(allows="none"), "allows: 'none'"),
    "a broken budget": (noting(allows=1.5), "allows: 1.5"),
    "a huge budget": (noting(allows=HUGE), "allows: 1000"),
    "metrics beside": (noting(metrics={}), "a note of ['metrics']"),
    "many names": (carrying(lambda body: {"x" * 9999: BYTES}), "no rows of that kind"),
    "many parts": (carrying(lambda body: {f"entity.{i}": BYTES for i in range(9999)}), "a code of"),
    "no rows": (carrying(lambda body: {}), "0 of 2, expected 2"),
    "too wide": (carrying(instead("entity.values", lambda t: t.repeat(1, 2))), "[2, 4], expected [2, 2]"),
    "too many": (carrying(instead("entity.values", lambda t: t.repeat(2, 1))), "[4, 2], expected [2, 2]"),
    "flat": (carrying(instead("entity.values", Tensor.flatten)), "expected torch.float32"),
    "NaN": (carrying(instead("entity.values", filled(torch.nan))), "infinite or NaN"),
    "too long": (carrying(instead("entity.values", filled(-1e38))), "a number of 1e+38"),
}


@pytest.mark.parametrize(("forge", "why"), UPLOADS.values(), ids=UPLOADS.keys())
def test_a_forged_answer_is_refused_and_changes_nothing(forge: Forge, why: str) -> None:
    at = hub()
    join(at)
    before = at.digest()
    assert at.read(encode(forge(upload("a", 1, 1.0)))) == []
    (event,) = events(at, "refused")
    assert why in event["why"]
    assert len(event["why"]) < 500
    assert at.digest() == before
    at.receive(upload("a", 1, 1.0))
    at.receive(upload("b", 1, 3.0))
    messages = at.receive(upload("c", 1, 5.0))
    assert [mean(message) for message in messages] == [3.0] * 3, "who answers as it should is heard"
    assert {message.note["taken"] for message in messages} == {1}


def measuring(**changes: Any) -> Forge:
    """Other metrics of site a; none: without."""

    def forge(message: Message) -> Message:
        found = {**message.note["metrics"]["a"], **changes}
        return noting(metrics={"a": {k: v for k, v in found.items() if v is not None}})(message)

    return forge


METRICS: dict[str, tuple[Forge, str]] = {
    **AT_HUB,
    "far off": (about(round=10**17), "measures nothing that was asked"),
    "of the round before": (about(round=0), "measures nothing that was asked"),
    "of the round to come": (about(round=2), "measures nothing that was asked"),
    "none": (noting(metrics=None), "metrics: None"),
    "of nobody": (noting(metrics={}), "metrics: {}, expected those of a"),
    "of another": (lambda m: noting(metrics={"b": m.note["metrics"]["a"]})(m), "expected those of a"),
    "of two": (lambda m: noting(metrics=dict.fromkeys("ab", m.note["metrics"]["a"]))(m), "those of a"),
    "listed": (noting(metrics=["a"]), "metrics: ['a']"),
    "a number": (noting(metrics={"a": 0.5}), "expected a count of 10"),
    "NaN": (measuring(mrr=float("nan")), "mrr: nan, expected a finite number"),
    "infinite": (measuring(mr=float("inf")), "mr: inf, expected a finite number"),
    "huge": (measuring(mrr=HUGE), "mrr: 1000"),
    "huge rank": (measuring(mr=HUGE), "mr: 1000"),
    "too good": (measuring(mrr=2), "mrr: 2, expected a number from 0 to 1"),
    "a little too good": (measuring(mrr=1.0000001), "mrr: 1, expected a number from 0 to 1"),
    "below zero": (measuring(mrr=-0.1), "mrr: -0.1"),
    "too good a rank": (measuring(mr=0.5), "mr: 0.5, expected at least 1"),
    "too many hits": (measuring(**{"hits@10": 1.5}), "hits@10: 1.5"),
    "true": (measuring(mrr=True), "mrr: True"),
    "in words": (measuring(mrr="0.9"), "mrr: '0.9'"),
    "one is missing": (measuring(mrr=None), "expected mrr, mr"),
    "one more": (measuring(auc=1.0), "expected mrr, mr"),
    "no count": (measuring(count=None), "expected a count of 10, as announced"),
    "a larger count": (measuring(count=11), "expected a count of 10, as announced"),
    "a smaller count": (measuring(count=9), "expected a count of 10, as announced"),
    "a huge count": (measuring(count=HUGE), "expected a count of 10, as announced"),
    "a count below zero": (measuring(count=-10), "expected a count of 10, as announced"),
    "a broken count": (measuring(count=10.0), "expected a count of 10, as announced"),
    "only a count": (noting(metrics={"a": {"count": 10}}), "expected mrr, mr"),
    "views": (noting(views={"global": {}}), "views: "),
    "listed views": (noting(views=[]), "views: []"),
    "something beside": (noting(allows=3), "a note of ['allows', 'metrics']"),
    "rows": (carrying(beside("entity.values", torch.ones(2, 2))), "metrics with rows"),
}


@pytest.mark.parametrize(("forge", "why"), METRICS.values(), ids=METRICS.keys())
def test_forged_metrics_are_refused_and_weigh_nothing(forge: Forge, why: str) -> None:
    at = hub(every=1)
    join(at)
    for site in "abc":
        at.receive(upload(site, 1, 1.0))
    before = at.digest()
    assert at.read(encode(forge(metrics("a", 1, 0.5)))) == []
    (event,) = events(at, "refused")
    assert why in event["why"]
    assert len(event["why"]) < 500
    assert at.digest() == before
    at.receive(metrics("b", 1, 0.2))
    messages = at.receive(metrics("c", 1, 0.4)) or at.expire(1)  # who is not for the hub is waited for
    assert {message.kind for message in messages} == {"train"}
    assert events(at, "evaluate")[0]["mrr"] == pytest.approx(0.3)
