"""Borrowed names, floods, and messages that come again: heeded once, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import encode
from fedkge.nodes.base import REFUSALS
from forgeries import (
    NAN,
    PLAIN,
    noting,
    with_codec,
)
from small_federations import small_federation
from small_nodes import ByHand, answer, events, hub, join, joining, mean, metrics, question, upload

SITES = small_federation()

INT8 = with_codec("int8", delta=True)


def test_bytes_that_are_no_message_are_refused() -> None:
    at = hub()
    join(at)
    before = at.digest()
    whole = encode(upload("a", 1, 1.0))
    for data in (b"", b"x", whole[:-1], whole + b"x", whole[8:], b"\xff" * 99):
        assert at.read(data, "a") == []
    assert [(event["site"], event["kind"]) for event in events(at, "refused")] == [("a", "?")] * 6
    assert at.digest() == before


def test_a_name_that_is_not_the_carriers_is_refused() -> None:
    """Who carries a message is known to the transport: nobody speaks for another."""
    at = hub()
    join(at)
    assert at.read(encode(upload("a", 1, 1.0)), "b") == []
    (event,) = events(at, "refused")
    assert (event["site"], event["why"]) == ("b", "claims to come from 'a'")
    at.read(encode(upload("a", 1, 1.0)), "a")
    at.read(encode(upload("b", 1, 1.0)), "b")
    messages = at.read(encode(upload("c", 1, 1.0)))  # who carries it is not known
    assert {message.kind for message in messages} == {"train"}
    assert events(at, "round")[0]["participants"] == ["a", "b", "c"]


def test_a_flood_is_noted_some_times_only() -> None:
    at = hub()
    join(at)
    for number in range(1000):
        at.receive(upload("a", 7, 1.0))
        at.receive(upload(f"stranger {number}", 1, 1.0))
        at.read(b"%d" % number)
    assert len(events(at, "refused")) <= 3 * REFUSALS
    assert len(at._refusals) <= 3, "nobody's names fill the hub"
    for site in "abc":
        messages = at.receive(upload(site, 1, 1.0))
    assert len(messages) == 3
    assert at.receive(upload("a", 7, 1.0)) == []
    assert events(at, "refused")[-1]["why"] == "answers a round that has not begun", "noted again"


@pytest.mark.parametrize("late", ["refuse", "use"])
def test_a_replayed_upload_is_refused(late: str) -> None:
    at = hub(late=late, quorum=0.6)
    join(at)
    first = {site: encode(upload(site, 1, 1.0)) for site in "abc"}
    for site in "ab":
        at.read(first[site])
    before = at.digest()
    for data in (first["a"], first["b"], first["a"]):
        assert at.read(data) == [], "of a round that is closed"
    assert [event["why"] for event in events(at, "refused")] == ["answers nothing that was asked"] * 3
    at.read(first["c"])  # the first time it is only late
    (event,) = events(at, "late")
    assert event["used"] == (late == "use")
    after = at.digest()
    assert before != after, "it is remembered that it has come"
    assert at.read(first["c"]) == []
    assert len(events(at, "refused")) == 4
    assert at.digest() == after
    at.receive(upload("c", 2, 4.0))
    assert at.receive(upload("c", 2, 400.0)) == [], "twice in an open round"
    messages = at.receive(upload("a", 2, 2.0))
    assert mean(messages[0]) == 3.0
    assert at.read(first["c"]) == []


def test_an_answer_older_than_the_last_is_refused() -> None:
    """A site that has answered round 2 takes back what it owes of round 1."""
    at = hub(late="use", quorum=0.6)
    join(at)
    for site in "ab":
        at.receive(upload(site, 1, 1.0))
    at.receive(upload("c", 2, 1.0))
    assert at.receive(upload("c", 1, 1.0)) == []
    (event,) = events(at, "refused")
    assert event["why"] == "answers nothing that was asked"


def test_metrics_weigh_no_more_than_announced() -> None:
    """Who joins again with more questions would have more say."""
    at = hub(every=1)
    join(at)
    greedy = noting(queries={"a": 10**9})(joining("a"))
    assert [message.kind for message in at.receive(greedy)] == ["refusal"]
    (event,) = events(at, "refused")
    assert "other validation questions, than before" in event["why"]
    for site in "abc":
        at.receive(upload(site, 1, 1.0))
    found = {**metrics("a", 1, 1.0).note["metrics"]["a"], "count": 10**9}
    at.receive(noting(metrics={"a": found})(metrics("a", 1, 1.0)))
    at.receive(metrics("a", 1, 0.6))
    at.receive(metrics("b", 1, 0.2))
    at.receive(metrics("c", 1, 0.1))
    assert events(at, "evaluate")[0]["mrr"] == pytest.approx(0.3)


def test_who_is_refused_may_still_answer_while_others_are_waited_for() -> None:
    at = hub()
    join(at)
    at.receive(Message("a", HUB, "upload", 1, {"entity.values": NAN}))
    at.receive(upload("a", 1, 1.0))
    at.receive(upload("b", 1, 3.0))
    messages = at.receive(upload("c", 1, 5.0))
    assert {mean(message) for message in messages} == {3.0}
    assert events(at, "round")[0]["participants"] == ["a", "b", "c"]


# A question that comes again


@pytest.mark.parametrize("kind", ["train", "measure"])
def test_a_repeated_question_gets_the_stored_answer(tmp_path: Path, kind: str) -> None:
    at = ByHand(tmp_path, SITES, **INT8)
    asked = at.until(question(kind, 2))
    node = at.nodes["a"]
    (first,) = node.receive(asked)
    before, trained = node.digest(), len(at.noted("a", "trained"))
    for again in (asked, replace(asked, note={}), replace(asked, body={}), replace(asked, note={"best": 5})):
        (second,) = node.read(encode(again))
        assert encode(second) == encode(first)
    assert node.digest() == before
    assert len(at.noted("a", "trained")) == trained
    assert [(event["kind"], event["round"]) for event in at.noted("a", "repeated")] == [(kind, 2)] * 4
    assert node.receive(replace(asked, round=1)) == []
    assert "asks for round 1 after round 2" in at.noted("a", "refused")[-1]["why"]
    assert node.digest() == before


def test_a_question_of_an_old_round_is_refused(tmp_path: Path) -> None:
    at = ByHand(tmp_path, SITES, **INT8)
    old = [at.until(question("train", 1)), at.until(question("train", 2)), at.until(question("measure", 2))]
    at.until(answer("upload", 3))
    node = at.nodes["a"]
    before = node.digest()
    for message in old:
        assert node.read(encode(message)) == []
    assert [event["why"] for event in at.noted("a", "refused")] == [
        f"asks for round {n} after round 3, of 4" for n in (1, 2, 2)
    ]
    assert node.digest() == before


def test_after_the_end_nothing_is_asked_any_more(tmp_path: Path) -> None:
    at = ByHand(tmp_path, SITES, rounds=2, **PLAIN)
    asked = at.until(question("train", 2))
    at.play()
    node, before = at.nodes["a"], at.nodes["a"].digest()
    assert node.receive(replace(asked, round=1)) == []
    assert node.receive(replace(asked, kind="measure", round=2, note={"taken": 0})) != [], "it was answered"
    assert node.receive(Message(HUB, "a", "stop", 2, run=asked.run)) == []
    assert node.digest() == before
    assert len(at.noted("a", "refused")) == 1
