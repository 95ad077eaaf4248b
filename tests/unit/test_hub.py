"""The hub with scripted sites: quorums, late and lost answers, bad uploads, stopping."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedkge import __version__
from fedkge.errors import ConfigError
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.select import TopK
from fedkge.graphs.graph import Axis
from fedkge.methods.base import Method
from fedkge.methods.fede import FedE
from fedkge.methods.fedep import FedEP
from fedkge.methods.single import Single
from fedkge.nodes.hub import VOID
from fedkge.nodes.terms import Participation
from fedkge.nodes.validation import TOGETHER
from small_nodes import IDS, SITES, Heard, events, hub, join, joining, mean, metrics, upload


def test_it_begins_when_everyone_has_joined_and_sends_no_rows_then() -> None:
    at = hub()
    assert at.receive(joining("a")) == []
    assert at.receive(joining("b")) == []
    messages = at.receive(joining("c"))
    assert [(m.recipient, m.kind, m.body["entity.where"].tolist(), m.note) for m in messages[:3]] == [
        (site, "shared", [0b11], {"fedkge": __version__, "version": 0}) for site in SITES
    ]
    assert [(m.recipient, m.kind, m.round, dict(m.body)) for m in messages[3:]] == [
        (site, "train", 1, {}) for site in SITES
    ]


def test_who_shares_what_is_said_with_a_bit_per_announced_row() -> None:
    at = hub()
    at.receive(joining("a", (b"p", b"q", b"r")))
    at.receive(joining("b", (b"q",)))
    shared = {m.recipient: m for m in at.receive(joining("c", (b"o", b"r"))) if m.kind == "shared"}
    assert {site: m.body["entity.where"].tolist() for site, m in shared.items()} == {
        "a": [0b110],
        "b": [0b1],
        "c": [0b10],
    }


def test_a_round_waits_for_all_and_answers_each_with_the_mean() -> None:
    at = hub()
    join(at)
    assert at.receive(upload("a", 1, 1.0)) == at.receive(upload("c", 1, 2.0)) == []
    messages = at.receive(upload("b", 1, 6.0))
    assert [(m.recipient, m.kind, m.round, mean(m)) for m in messages] == [
        (site, "train", 2, 3.0) for site in SITES
    ]
    assert all(message.note == {"taken": 1} for message in messages)


@pytest.mark.parametrize("late", ["refuse", "use"])
def test_the_round_closes_at_the_quorum_and_a_late_answer_is_never_mixed_into_it(late: str) -> None:
    at = hub(quorum=0.6, late=late)
    join(at)
    at.receive(upload("a", 1, 1.0))
    messages = at.receive(upload("b", 1, 3.0))  # two of three are the quorum
    assert {m.recipient: mean(m) for m in messages} == dict.fromkeys(SITES, 2.0)
    assert events(at, "round")[0]["participants"] == ["a", "b"]
    assert events(at, "round")[0]["late"] == ["c"]
    assert at.receive(upload("c", 1, 100.0)) == []
    (event,) = events(at, "late")
    assert (event["site"], event["round"], event["used"]) == ("c", 1, late == "use")
    at.receive(upload("a", 2, 1.0))
    messages = {m.recipient: m for m in at.receive(upload("b", 2, 3.0))}
    assert mean(messages["a"]) == (pytest.approx(104 / 3) if late == "use" else 2.0)
    assert messages["c"].note["taken"] == (1 if late == "use" else -1)


def test_a_newer_answer_replaces_a_late_one_that_waits() -> None:
    at = hub(quorum=0.6, late="use")
    join(at)
    at.receive(upload("a", 1, 1.0))
    at.receive(upload("b", 1, 1.0))
    at.receive(upload("c", 1, 100.0))
    at.receive(upload("c", 2, 4.0))
    messages = at.receive(upload("a", 2, 2.0))
    assert mean(messages[0]) == 3.0


def test_time_is_up_without_a_quorum_and_nothing_is_mixed() -> None:
    at = hub()
    join(at)
    at.receive(upload("a", 1, 5.0))
    messages = at.expire(1)
    assert [(m.recipient, m.round, dict(m.body)) for m in messages] == [(site, 2, {}) for site in SITES]
    assert events(at, "round")[0]["void"]
    assert {m.recipient: m.note for m in messages} == {"a": {"taken": -1}, "b": {}, "c": {}}
    assert at.expire(1) == [], "of a round that is over"


def test_it_gives_up_when_the_quorum_is_never_reached() -> None:
    at = hub(rounds=100)
    join(at)
    for _ in range(VOID - 1):
        assert {message.kind for message in at.expire(at._round)} == {"train"}
    assert at.expire(at._round) == [], "sites are not stopped: a resumed run asks them again"
    (event,) = events(at, "failed")
    assert "0 of 3 sites answered, 3 were needed" in event["why"]
    assert event["why"].endswith("in a row; lower participation.quorum")
    assert (at.phase, at.failed, at.expire(at._round)) == ("failed", event["why"], [])
    assert at.receive(upload("a", at._round, 1.0)) == []


def test_it_says_why_when_it_gives_up_on_refused_answers() -> None:
    at = hub(rounds=100)
    join(at)
    nonsense = [Message(s, HUB, "upload", n, BAD["nan"]) for n in range(1, VOID + 1) for s in SITES]
    for message in nonsense:
        out = at.receive(message)
    assert out == []
    (event,) = events(at, "failed")
    assert "a was refused: entity rows: numbers that are infinite or NaN" in event["why"]


BAD = {
    "nan": {"entity.values": torch.full((2, 2), float("nan"))},
    "infinite": {"entity.values": torch.tensor([[1.0, float("inf")], [1.0, 1.0]])},
    "width": {"entity.values": torch.ones(2, 3)},
    "rows": {"entity.values": torch.ones(3, 2)},
    "axis": {"relation.values": torch.ones(2, 2)},
    "dtype": {"entity.values": torch.ones(2, 2, dtype=torch.float64)},
    "never aligned": {
        "entity.where": torch.tensor([4], dtype=torch.uint8),
        "entity.values": torch.ones(1, 2),
    },
    "more bits": {"entity.where": torch.ones(2, dtype=torch.uint8), "entity.values": torch.ones(1, 2)},
    "ids": {"entity.ids": torch.tensor([0, 9]), "entity.values": torch.ones(2, 2)},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_a_bad_upload_is_refused_and_the_others_go_on(body: dict[str, torch.Tensor]) -> None:
    at = hub()
    join(at)
    at.receive(upload("a", 1, 1.0))
    at.receive(Message("b", HUB, "upload", 1, body))
    messages = {m.recipient: m for m in at.receive(upload("c", 1, 3.0))}
    assert mean(messages["b"]) == 2.0
    assert messages["b"].note == {"taken": -1}
    (event,) = events(at, "refused")
    assert event["site"] == "b"
    assert events(at, "round")[0]["refused"] == {"b": event["why"]}


def test_only_bad_uploads_make_a_void_round() -> None:
    at = hub()
    join(at)
    for site in SITES:
        messages = at.receive(Message(site, HUB, "upload", 1, BAD["nan"]))
    assert [m.round for m in messages] == [2, 2, 2]
    assert events(at, "round")[0]["void"]


def test_who_was_not_asked_or_answers_twice_is_refused() -> None:
    at = hub(fraction=0.67, quorum=1.0)
    join(at)
    (other,) = set(SITES) - set(at._asked)
    first, second = at._asked
    at.receive(upload(first, 1, 1.0))
    at.receive(upload(other, 1, 50.0))
    at.receive(upload(first, 1, 70.0))
    at.receive(upload(second, 1, 3.0))
    assert float(at.hub.by_id[Axis.ENTITY]["mean"][0, 0]) == 2.0
    assert [event["site"] for event in events(at, "refused")] == [other, first]


def test_strangers_and_unknown_kinds_are_refused() -> None:
    at = hub()
    assert at.receive(joining("mallory")) == []
    assert at.receive(Message("a", HUB, "gossip", 0)) == []
    assert [event["why"] for event in events(at, "refused")] == [
        "comes from a stranger",
        "has the unknown kind 'gossip'",
    ]
    assert {message.kind for message in join(at).values()} == {"train"}


def validate(at: Heard, mrr: dict[str, float]) -> dict[str, Message]:
    """A round of uploads and one of metrics, from the sites that are still asked."""
    number = at._round
    for site in list(at._asked):
        at.receive(upload(site, number, 1.0) if at.method.shares else Message(site, HUB, "upload", number))
    messages = [message for site in mrr for message in at.receive(metrics(site, number, mrr[site]))]
    return {message.recipient: message for message in messages}


def test_sites_together_stop_by_the_mean_and_learn_which_round_was_best() -> None:
    at = hub(every=1)
    join(at)
    first = validate(at, {"a": 0.1, "b": 0.2, "c": 0.3})
    assert all(message.note.get("best") for message in first.values())
    second = validate(at, {"a": 0.3, "b": 0.0, "c": 0.1})  # better for a, worse on the whole
    assert not any(message.note.get("best") for message in second.values())
    third = validate(at, {"a": 0.0, "b": 0.0, "c": 0.1})
    assert {message.kind for message in third.values()} == {"stop"}
    assert at.phase == "done"
    assert (at.validation.stopping[TOGETHER].best_at, at.validation.stopping[TOGETHER].last_at) == (1, 3)
    assert next(event["mrr"] for event in events(at, "evaluate")) == pytest.approx(0.2)


def test_sites_together_may_keep_each_its_own_best_round() -> None:
    at = hub(every=1, keep="each")
    join(at)
    validate(at, {"a": 0.1, "b": 0.2, "c": 0.3})
    second = validate(at, {"a": 0.3, "b": 0.0, "c": 0.1})  # better for a, worse on the whole
    assert [site for site, message in second.items() if message.note.get("best")] == ["a"]
    third = validate(at, {"a": 0.0, "b": 0.21, "c": 0.1})
    assert {message.kind for message in third.values()} == {"train"}, "somebody has gained"
    assert [site for site, message in third.items() if message.note.get("best")] == ["b"]
    validate(at, {"a": 0.2, "b": 0.2, "c": 0.1})
    fifth = validate(at, {"a": 0.0, "b": 0.0, "c": 0.0})
    assert {message.kind for message in fifth.values()} == {"stop"}, "twice in a row nobody has"
    assert {site: one.best_at for site, one in at.validation.keeping.items()} == {"a": 2, "b": 3, "c": 1}


@pytest.mark.parametrize("rule", ["patience", "drops"])
def test_who_went_away_is_not_waited_for_where_each_keeps_its_own(rule: str) -> None:
    at = hub(every=1, keep="each", rule=rule)
    join(at)
    validate(at, {"a": 0.1, "b": 0.2, "c": 0.3})
    for mrr in (0.1, 0.05):
        assert validate(at, {"a": mrr, "b": mrr}) == {}
        last = at.expire(at._round)
    assert {message.kind for message in last} == {"stop"}
    assert at.validation.keeping["c"].best_at == 1


def test_sites_that_were_not_asked_do_not_end_it_where_each_keeps_its_own() -> None:
    at = hub(every=1, keep="each")
    join(at)
    mrr = dict.fromkeys(SITES, 0.1)
    for turn in range(9):
        mrr[SITES[turn % 3]] += 0.1  # the others measure what they measured before
        assert {message.kind for message in validate(at, mrr).values()} == {"train"}


def test_sites_alone_stop_each_by_its_own() -> None:
    at = hub(Single(), every=1)
    join(at, None)
    validate(at, {"a": 0.5, "b": 0.1, "c": 0.1})
    validate(at, {"a": 0.4, "b": 0.2, "c": 0.2})
    third = validate(at, {"a": 0.3, "b": 0.3, "c": 0.3})
    assert {site: message.kind for site, message in third.items()} == {
        "a": "stop",
        "b": "train",
        "c": "train",
    }
    assert at._asked == ["b", "c"]
    fourth = validate(at, {"b": 0.4, "c": 0.1})
    assert set(fourth) == {"b", "c"}
    assert events(at, "evaluate")[-1]["sites"].keys() == {"b", "c"}


def test_fede_has_its_answer_measured_and_does_not_send_it_twice() -> None:
    at = hub(FedE(), every=1)
    join(at)
    at.receive(upload("a", 1, 1.0))
    at.receive(upload("b", 1, 2.0))
    measure = at.receive(upload("c", 1, 3.0))
    assert [(m.kind, mean(m)) for m in measure] == [("measure", 2.0)] * 3
    messages = [m for site in SITES for m in at.receive(metrics(site, 1, 0.1))]
    assert [(m.kind, dict(m.body)) for m in messages] == [("train", {})] * 3


def test_who_missed_the_end_and_joins_again_is_told_again() -> None:
    at = hub(rounds=1, every=1)
    join(at)
    last = validate(at, {"a": 0.1, "b": 0.2, "c": 0.3})
    assert {message.kind for message in last.values()} == {"stop"}
    shared, stop = at.receive(joining("b"))
    assert (shared.kind, stop) == ("shared", last["b"])
    assert stop.note["best"] == {"": 1}


def test_the_sites_asked_are_a_seeded_fraction_and_everyones_turn_comes() -> None:
    some = Participation(fraction=0.4)
    sites = [f"site {i}" for i in range(10)]
    rounds = [some.asked(sites, 0, number) for number in range(1, 40)]
    assert all(len(asked) == len(set(asked)) == 4 for asked in rounds)
    assert rounds == [some.asked(list(reversed(sites)), 0, number) for number in range(1, 40)]
    assert {site for asked in rounds for site in asked} == set(sites)
    assert some.asked(sites, 1, 1) != some.asked(sites, 0, 1) or some.asked(sites, 1, 2) != rounds[1]
    assert Participation(fraction=0.01).asked(sites, 0, 1)


@pytest.mark.parametrize(
    "options",
    [{"fraction": 0.0}, {"fraction": 1.1}, {"quorum": 0.0}, {"quorum": float("nan")}, {"dropout": 1.0}],
)
def test_shares_outside_their_range_are_errors(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Participation(**options)


def test_ids_may_be_any_bytes_in_order() -> None:
    """Rows travel without ids: a hub has room for what was announced, whatever it is called."""
    at = hub()
    ids = {"a": [b"\0", b"e7"], "b": [b"e7", b"\xff" * 9], "c": [b"\0", b"\xff" * 9]}
    for site in SITES:
        messages = at.receive(joining(site, ids[site]))
    assert [message.kind for message in messages] == ["shared"] * 3 + ["train"] * 3
    for site, value in (("a", 1.0), ("b", 2.0), ("c", 6.0)):
        messages = at.receive(upload(site, 1, value))
    told = {message.recipient: message.body["entity.values"][:, 0].tolist() for message in messages}
    assert told == {"a": [3.5, 1.5], "b": [1.5, 4.0], "c": [3.5, 4.0]}


def test_who_speaks_too_early_or_joins_with_other_rows_is_refused() -> None:
    at = hub()
    assert at.receive(upload("a", 1, 1.0)) == []
    assert at.receive(metrics("a", 1, 0.5)) == []
    join(at)
    assert [message.kind for message in at.receive(joining("a", [b"5"]))] == ["refusal"]
    assert [event["why"] for event in events(at, "refused")] == [
        "speaks before everyone has joined",
        "measures nothing that was asked",
        "announces other rows, or other validation questions, than before, and participation.open is false",
    ]
    for site in SITES:
        messages = at.receive(upload(site, 1, 1.0))
    assert len(messages) == 3


def test_who_joins_again_is_told_the_same_and_asked_the_same() -> None:
    at = hub()
    asked = join(at)
    shared, question = at.receive(joining("b"))
    assert (shared.recipient, shared.kind, shared.body["entity.where"].tolist()) == ("b", "shared", [0b11])
    assert question is asked["b"]
    at.receive(upload("b", 1, 1.0))
    assert [message.kind for message in at.receive(joining("b"))] == ["shared"], "it has answered"


@pytest.mark.parametrize("note", [{}, {"metrics": {}}, {"metrics": {"a": {"mrr": 1.0}}}, {"metrics": [1]}])
def test_metrics_that_are_none_are_passed_over(note: dict[str, Any]) -> None:
    at = hub(every=1)
    join(at)
    for site in SITES:
        at.receive(upload(site, 1, 1.0))
    assert at.receive(Message("a", HUB, "metrics", 1, note=note)) == []
    assert [event["site"] for event in events(at, "refused")] == ["a"]
    at.receive(metrics("b", 1, 0.2))
    messages = at.receive(metrics("c", 1, 0.4))
    assert {message.kind for message in messages} == {"train"}
    assert events(at, "evaluate")[0]["mrr"] == pytest.approx(0.3)
    assert {message.recipient for message in messages if message.note.get("best")} == {"b", "c"}


def test_a_site_may_be_called_all() -> None:
    at = hub(Single(), every=1, sites=("all", "b"))
    join(at, None)
    validate(at, {"all": 0.5, "b": 0.1})
    validate(at, {"all": 0.4, "b": 0.9})
    third = validate(at, {"all": 0.3, "b": 1.0})
    assert {site: message.kind for site, message in third.items()} == {"all": "stop", "b": "train"}


@pytest.mark.parametrize("method", [Single(), FedE()])
def test_tables_that_were_trained_are_validated_before_the_first_round(method: Method) -> None:
    ids = IDS if method.shares else None
    at = hub(method, first=True)
    asked = join(at, ids)
    assert [(m.recipient, m.kind, m.round, dict(m.body)) for m in asked.values()] == [
        (site, "measure", 0, {}) for site in SITES
    ]
    messages = [message for site in SITES for message in at.receive(metrics(site, 0, 0.5))]
    assert [(m.recipient, m.kind, m.round, dict(m.note)) for m in messages] == [
        (site, "train", 1, {"best": {"": 0}}) for site in SITES
    ]
    assert {stopping.best_at for stopping in at.validation.stopping.values()} == {0}
    (event,) = events(at, "evaluate")
    assert (event["round"], event["mrr"]) == (0, 0.5)
    again = hub(method, first=True)
    again.load_state(*at.state())
    asked = join(again, ids)
    assert [(m.kind, m.round, dict(m.note)) for m in asked.values()] == [("train", 1, {"best": {"": 0}})] * 3


def sparse(site: str, round: int, where: int, value: float) -> Message:
    """One of the two rows."""
    body = {
        "entity.where": torch.tensor([where], dtype=torch.uint8),
        "entity.values": torch.full((1, 2), value),
    }
    return Message(site, HUB, "upload", round, body)


def few(method: Method | None = None, every: int = 100, **participation: Any) -> Heard:
    """A hub whose sites send half of their rows, and all of them in every third round from the second on."""
    at = hub(method, every=every, select=TopK(p=0.5, s=2), **participation)
    join(at)
    return at


def test_whether_a_round_synchronises_does_not_depend_on_what_arrives() -> None:
    at = few(quorum=0.6, late="use")
    at.receive(sparse("a", 1, 1, 1.0))
    messages = at.receive(sparse("b", 1, 1, 3.0))
    assert all("entity.support" in message.body for message in messages)
    at.receive(sparse("c", 1, 2, 7.0))  # late: it counts in the second round
    at.receive(upload("a", 2, 1.0))
    messages = at.receive(upload("b", 2, 3.0))
    assert {m.recipient: m.body["entity.values"][:, 0].tolist() for m in messages} == {
        site: [2.0, pytest.approx(11 / 3)] for site in SITES
    }
    assert not any("entity.support" in message.body for message in messages), "all rows travel"
    at.receive(upload("c", 2, 5.0))  # late, of all rows, in a round of some
    at.receive(sparse("a", 3, 1, 1.0))
    messages = at.receive(sparse("b", 3, 1, 3.0))
    assert all("entity.support" in message.body for message in messages)


def test_a_round_of_some_rows_is_one_where_sites_have_one_row_only() -> None:
    """Half of one row is one: all that such a site has, and still no round in which everyone sends all."""
    at = hub(fraction=0.34, select=TopK(p=0.5))
    ids = {"a": [b"0"], "b": IDS, "c": IDS}
    for site in SITES:
        *_, asked = at.receive(joining(site, ids[site])) or [None]
    while asked.recipient != "a":
        (asked,) = at.receive(sparse(asked.recipient, at._round, 2, 1.0))
    body = {"entity.values": torch.full((1, 2), 4.0)}
    (message,) = at.receive(Message("a", HUB, "upload", at._round, body))
    assert message.recipient != "a", "choose another seed"
    assert message.body["entity.where"].tolist() == [1], "not the row of rounds ago"
    assert message.body["entity.support"].tolist() == [1]


@pytest.mark.parametrize("method", [FedEP(), FedE()])
def test_after_a_void_round_nobody_merges_the_same_rows_again(method: Method) -> None:
    at = few(method, every=1)
    at.receive(sparse("a", 1, 1, 1.0))
    at.receive(sparse("b", 1, 1, 2.0))
    asked = at.receive(sparse("c", 1, 1, 3.0))
    told = [len(message.body) for message in asked]
    asked = [m for site in SITES for m in at.receive(metrics(site, 1, 0.1))]
    told = [a + len(m.body) for a, m in zip(told, asked, strict=True)]
    assert all(told), "once"
    measured = at.expire(2)
    assert events(at, "round")[1]["void"]
    assert [(m.kind, dict(m.body)) for m in measured] == [("measure", {})] * 3
    asked = [m for site in SITES for m in at.receive(metrics(site, 2, 0.1))]
    assert [(m.kind, m.round, dict(m.body)) for m in asked] == [("train", 3, {})] * 3


def test_a_late_answer_about_rows_as_they_were_before_is_refused() -> None:
    """Bits of 3 rows look like bits of 4: who joined meanwhile has changed which rows they mean."""
    at = hub(sites=("a", "b", "c", "d"), select=TopK(p=0.5), quorum=0.6, late="use", open=True)
    for site in SITES:
        at.receive(joining(site, (b"0", b"1", b"3") if site != "c" else (b"0", b"1", b"2", b"3")))
    assert {message.kind for message in at.expire(0)} == {"shared", "train"}, "without d"

    def of_two(site: str, where: int) -> Message:
        bits = torch.tensor([where], dtype=torch.uint8)
        return Message(site, HUB, "upload", 1, {"entity.where": bits, "entity.values": torch.ones(2, 2)})

    assert at.receive(joining("d", (b"2",))) == []
    at.receive(of_two("a", 0b011))
    told = at.receive(of_two("b", 0b011))
    shared = {m.recipient: m.body["entity.where"].tolist() for m in told if m.kind == "shared"}
    assert shared == {"c": [0b1111], "d": [0b1]}, "c shares one row more"
    assert at.receive(of_two("c", 0b110)) == []
    (event,) = events(at, "refused")
    assert (event["site"], event["why"]) == ("c", "answers nothing that was asked")
    assert not events(at, "late")


def test_an_upload_of_a_round_to_come_is_refused() -> None:
    at = hub(late="use", quorum=0.6)
    join(at)
    assert at.receive(upload("a", 7, 100.0)) == []
    assert [event["why"] for event in events(at, "refused")] == ["answers a round that has not begun"]
    at.receive(upload("a", 1, 1.0))
    messages = at.receive(upload("b", 1, 3.0))
    assert mean(messages[0]) == 2.0


def test_a_site_is_told_whether_it_holds_its_answer() -> None:
    """An answer that came to be measured is not adopted rounds later, when the hub has nothing to say."""
    at = few(FedE(), every=1, fraction=0.67)
    first, second = at._asked
    (other,) = set(SITES) - set(at._asked)
    at.receive(sparse(first, 1, 1, 1.0))
    measure = {m.recipient: m for m in at.receive(sparse(second, 1, 1, 2.0))}
    assert all(message.body and "held" not in message.note for message in measure.values())
    asked = [m for site in SITES for m in at.receive(metrics(site, 1, 0.1))]
    assert all(message.note["held"] and not message.body for message in asked)
    assert other in at.questions.holds or other in at._asked
