"""The hub with scripted sites: quorums, late and lost answers, bad uploads, stopping."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedkge.errors import ConfigError, DataError, FedkgeError
from fedkge.exchange.codec import Float32
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.select import Full, TopK
from fedkge.graphs.graph import Axis
from fedkge.methods.base import Method
from fedkge.methods.fede import FedE
from fedkge.methods.fedep import FedEP
from fedkge.methods.single import Single
from fedkge.parties import HubParty, Participation, Plan
from fedkge.parties.hub import VOID
from fedkge.parties.validation import TOGETHER
from fedkge.training import Stopping

SITES = ("a", "b", "c")
IDS = torch.tensor([0, 1])


def hub(
    method: Method | None = None,
    rounds: int = 20,
    every: int = 100,
    each: bool = False,
    **participation: Any,
) -> HubParty:
    plan = Plan(rounds, every, Stopping(patience=2), each=each)
    widths = {Axis.ENTITY: 2, Axis.RELATION: 2}
    return HubParty(method or FedEP(), SITES, Float32(), Full(), widths, Participation(**participation), plan)


def join(at: HubParty) -> dict[str, Message]:
    body = {"entity.ids": IDS}
    messages = [message for site in SITES for message in at.receive(Message(site, HUB, "join", 0, body))]
    return {message.recipient: message for message in messages}


def upload(site: str, round: int, value: float) -> Message:
    return Message(site, HUB, "upload", round, {"entity.values": torch.full((2, 2), value)})


def metrics(site: str, round: int, mrr: float) -> Message:
    found = {"mrr": mrr, "mr": 1.0, **{f"hits@{k}": 0.0 for k in (1, 3, 5, 10)}, "count": 10}
    return Message(site, HUB, "metrics", round, note={"metrics": {site: found}})


def mean(message: Message) -> float:
    return float(message.body["entity.values"][0, 0])


def events(at: HubParty, kind: str) -> list[dict[str, Any]]:
    return [event for event in at.events if event["event"] == kind]


def test_it_begins_when_everyone_has_joined_and_sends_no_rows_then() -> None:
    at = hub()
    assert at.receive(Message("a", HUB, "join", 0, {"entity.ids": IDS})) == []
    assert at.receive(Message("b", HUB, "join", 0, {"entity.ids": IDS})) == []
    messages = at.receive(Message("c", HUB, "join", 0, {"entity.ids": IDS}))
    assert [(e.recipient, e.kind, e.round, dict(e.body)) for e in messages] == [
        (site, "train", 1, {}) for site in SITES
    ]


def test_a_round_waits_for_all_and_answers_each_with_the_mean() -> None:
    at = hub()
    join(at)
    assert at.receive(upload("a", 1, 1.0)) == at.receive(upload("c", 1, 2.0)) == []
    messages = at.receive(upload("b", 1, 6.0))
    assert [(e.recipient, e.kind, e.round, mean(e)) for e in messages] == [
        (site, "train", 2, 3.0) for site in SITES
    ]
    assert all(message.note == {"taken": 1} for message in messages)


@pytest.mark.parametrize("late", ["refuse", "use"])
def test_the_round_closes_at_the_quorum_and_a_late_answer_is_never_mixed_into_it(late: str) -> None:
    at = hub(quorum=0.6, late=late)
    join(at)
    at.receive(upload("a", 1, 1.0))
    messages = at.receive(upload("b", 1, 3.0))  # two of three are the quorum
    assert {e.recipient: mean(e) for e in messages} == dict.fromkeys(SITES, 2.0)
    assert events(at, "round")[0]["participants"] == ["a", "b"]
    assert events(at, "round")[0]["late"] == ["c"]
    assert at.receive(upload("c", 1, 100.0)) == []
    (event,) = events(at, "late")
    assert (event["site"], event["round"], event["used"]) == ("c", 1, late == "use")
    at.receive(upload("a", 2, 1.0))
    messages = {e.recipient: e for e in at.receive(upload("b", 2, 3.0))}
    assert mean(messages["a"]) == (pytest.approx(104 / 3) if late == "use" else 2.0)
    assert messages["c"].note["taken"] == (1 if late == "use" else 0)


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
    assert [(e.recipient, e.round, dict(e.body)) for e in messages] == [(site, 2, {}) for site in SITES]
    assert events(at, "round")[0]["void"]
    assert {e.recipient: e.note for e in messages} == {"a": {"taken": 0}, "b": {}, "c": {}}
    assert at.expire(1) == [], "of a round that is over"


def test_it_gives_up_when_the_quorum_is_never_reached() -> None:
    at = hub(rounds=100)
    join(at)
    for _ in range(VOID - 1):
        assert at.expire(at.round)
    with pytest.raises(FedkgeError, match="0 of 3 sites answered, 3 were needed") as raised:
        at.expire(at.round)
    assert str(raised.value).endswith("in a row; lower participation.quorum")


def test_it_says_why_when_it_gives_up_on_refused_answers() -> None:
    at = hub(rounds=100)
    join(at)
    nonsense = [Message(s, HUB, "upload", n, BAD["nan"]) for n in range(1, VOID + 1) for s in SITES]
    for message in nonsense[:-1]:
        at.receive(message)
    with pytest.raises(FedkgeError, match="a was refused: entity rows: numbers that are infinite or NaN"):
        at.receive(nonsense[-1])


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
    messages = {e.recipient: e for e in at.receive(upload("c", 1, 3.0))}
    assert mean(messages["b"]) == 2.0
    assert messages["b"].note == {"taken": 0}
    (event,) = events(at, "refused")
    assert event["site"] == "b"
    assert events(at, "round")[0]["refused"] == {"b": event["why"]}


def test_only_bad_uploads_make_a_void_round() -> None:
    at = hub()
    join(at)
    for site in SITES:
        messages = at.receive(Message(site, HUB, "upload", 1, BAD["nan"]))
    assert [e.round for e in messages] == [2, 2, 2]
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
    assert float(at.hub.memory["mean.entity"][0, 0]) == 2.0
    assert [event["site"] for event in events(at, "refused")] == [other, first]


def test_strangers_and_unknown_kinds_are_errors() -> None:
    at = hub()
    with pytest.raises(FedkgeError, match="no site of this federation"):
        at.receive(Message("mallory", HUB, "join", 0))
    with pytest.raises(FedkgeError, match="unknown kind 'gossip'"):
        at.receive(Message("a", HUB, "gossip", 0))


def validate(at: HubParty, mrr: dict[str, float]) -> dict[str, Message]:
    """A round of uploads and one of metrics, from the sites that are still asked."""
    number = at.round
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
    at = hub(every=1, each=True)
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
    at = hub(every=1, each=True)
    at.validation.stopping[TOGETHER].rule = rule
    join(at)
    validate(at, {"a": 0.1, "b": 0.2, "c": 0.3})
    for mrr in (0.1, 0.05):
        assert validate(at, {"a": mrr, "b": mrr}) == {}
        last = at.expire(at.round)
    assert {message.kind for message in last} == {"stop"}
    assert at.validation.keeping["c"].best_at == 1


def test_sites_that_were_not_asked_do_not_end_it_where_each_keeps_its_own() -> None:
    at = hub(every=1, each=True)
    join(at)
    mrr = dict.fromkeys(SITES, 0.1)
    for turn in range(9):
        mrr[SITES[turn % 3]] += 0.1  # the others measure what they measured before
        assert {message.kind for message in validate(at, mrr).values()} == {"train"}


def test_sites_alone_stop_each_by_its_own() -> None:
    at = hub(Single(), every=1)
    for site in SITES:
        at.receive(Message(site, HUB, "join", 0))
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
    assert [(e.kind, mean(e)) for e in measure] == [("measure", 2.0)] * 3
    messages = [e for site in SITES for e in at.receive(metrics(site, 1, 0.1))]
    assert [(e.kind, dict(e.body)) for e in messages] == [("train", {})] * 3


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


def test_ids_may_be_any_numbers_in_order() -> None:
    """Rows travel without ids: a hub has room for what was announced, whatever it is called."""
    at = hub()
    ids = {"a": [-7, 3], "b": [3, 10**12], "c": [-7, 10**12]}
    for site in SITES:
        messages = at.receive(Message(site, HUB, "join", 0, {"entity.ids": torch.tensor(ids[site])}))
    assert len(messages) == 3
    for site, value in (("a", 1.0), ("b", 2.0), ("c", 6.0)):
        messages = at.receive(upload(site, 1, value))
    told = {message.recipient: message.body["entity.values"][:, 0].tolist() for message in messages}
    assert told == {"a": [3.5, 1.5], "b": [1.5, 4.0], "c": [3.5, 4.0]}


@pytest.mark.parametrize("ids", [torch.tensor([1, 1]), torch.tensor([2, 1]), torch.ones(2), torch.ones(1, 2)])
def test_ids_that_are_none_cannot_join(ids: torch.Tensor) -> None:
    with pytest.raises(DataError, match=r"expected torch\.int64"):
        hub().receive(Message("a", HUB, "join", 0, {"entity.ids": ids}))


def test_joining_with_something_else_is_another_method() -> None:
    with pytest.raises(DataError, match="a joins with"):
        hub().receive(Message("a", HUB, "join", 0, {"relation.ids": IDS}))


def test_who_speaks_too_early_or_joins_too_late_is_refused() -> None:
    at = hub()
    assert at.receive(upload("a", 1, 1.0)) == []
    assert at.receive(metrics("a", 1, 0.5)) == []
    join(at)
    assert at.receive(Message("a", HUB, "join", 0, {"entity.ids": torch.tensor([5])})) == []
    assert [event["why"] for event in events(at, "refused")] == [
        "speaks before everyone has joined",
        "speaks before everyone has joined",
        "joins a federation that has begun",
    ]
    for site in SITES:
        messages = at.receive(upload(site, 1, 1.0))
    assert len(messages) == 3


@pytest.mark.parametrize("note", [{}, {"metrics": {}}, {"metrics": {"a": {"mrr": 1.0}}}, {"metrics": [1]}])
def test_metrics_that_are_none_are_passed_over(note: dict[str, Any]) -> None:
    at = hub(every=1)
    join(at)
    for site in SITES:
        at.receive(upload(site, 1, 1.0))
    assert at.receive(Message("a", HUB, "metrics", 1, note=note)) == []
    at.receive(metrics("b", 1, 0.2))
    messages = at.receive(metrics("c", 1, 0.4))
    assert {message.kind for message in messages} == {"train"}
    assert events(at, "evaluate")[0]["mrr"] == pytest.approx(0.3)
    assert {message.recipient for message in messages if message.note.get("best")} == {"b", "c"}


def test_a_site_may_be_called_all() -> None:
    plan = Plan(20, 1, Stopping(patience=1))
    widths = {Axis.ENTITY: 2, Axis.RELATION: 2}
    at = HubParty(Single(), ("all", "b"), Float32(), Full(), widths, Participation(), plan)
    for site in ("all", "b"):
        at.receive(Message(site, HUB, "join", 0))
    validate(at, {"all": 0.5, "b": 0.1})
    second = validate(at, {"all": 0.4, "b": 0.9})
    assert {site: message.kind for site, message in second.items()} == {"all": "stop", "b": "train"}


@pytest.mark.parametrize("method", [Single(), FedE()])
def test_tables_that_were_trained_are_validated_before_the_first_round(method: Method) -> None:
    at = hub(method)
    at.plan = Plan(20, 100, Stopping(patience=2), first=True)
    body = {"entity.ids": IDS} if method.shares else {}
    messages = [out for site in SITES for out in at.receive(Message(site, HUB, "join", 0, body))]
    assert [(e.recipient, e.kind, e.round, dict(e.body)) for e in messages] == [
        (site, "measure", 0, {}) for site in SITES
    ]
    messages = [message for site in SITES for message in at.receive(metrics(site, 0, 0.5))]
    assert [(e.recipient, e.kind, e.round, dict(e.note)) for e in messages] == [
        (site, "train", 1, {"best": [""]}) for site in SITES
    ]
    assert {stopping.best_at for stopping in at.validation.stopping.values()} == {0}
    (event,) = events(at, "evaluate")
    assert (event["round"], event["mrr"]) == (0, 0.5)
    again = hub(method)
    again.plan = at.plan
    again.load_state(*at.state())
    messages = [out for site in SITES for out in again.receive(Message(site, HUB, "join", 0, body))]
    assert [(e.kind, e.round, dict(e.note)) for e in messages] == [("train", 1, {"best": [""]})] * 3


def sparse(site: str, round: int, where: int, value: float) -> Message:
    """One of the two rows."""
    body = {
        "entity.where": torch.tensor([where], dtype=torch.uint8),
        "entity.values": torch.full((1, 2), value),
    }
    return Message(site, HUB, "upload", round, body)


def few(method: Method | None = None, every: int = 100, **participation: Any) -> HubParty:
    """A hub whose sites send half of their rows, and all of them in every third round from the second on."""
    at = hub(method, every=every, **participation)
    at.selection = TopK(p=0.5, s=2)
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
    assert {e.recipient: e.body["entity.values"][:, 0].tolist() for e in messages} == {
        site: [2.0, pytest.approx(11 / 3)] for site in SITES
    }
    assert not any("entity.support" in message.body for message in messages), "all rows travel"
    at.receive(upload("c", 2, 5.0))  # late, of all rows, in a round of some
    at.receive(sparse("a", 3, 1, 1.0))
    messages = at.receive(sparse("b", 3, 1, 3.0))
    assert all("entity.support" in message.body for message in messages)


def test_a_round_of_some_rows_is_one_where_sites_have_one_row_only() -> None:
    """Half of one row is one: all that such a site has, and still no round in which everyone sends all."""
    at = hub(fraction=0.34)
    at.selection = TopK(p=0.5)
    ids = {"a": [0], "b": [0, 1], "c": [0, 1]}
    for site in SITES:
        messages = at.receive(Message(site, HUB, "join", 0, {"entity.ids": torch.tensor(ids[site])}))
    while messages[0].recipient != "a":
        messages = at.receive(sparse(messages[0].recipient, at.round, 2, 1.0))
    (message,) = at.receive(Message("a", HUB, "upload", at.round, {"entity.values": torch.full((1, 2), 4.0)}))
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
    asked = [e for site in SITES for e in at.receive(metrics(site, 1, 0.1))]
    told = [a + len(e.body) for a, e in zip(told, asked, strict=True)]
    assert all(told), "once"
    measured = at.expire(2)
    assert events(at, "round")[1]["void"]
    assert [(e.kind, dict(e.body)) for e in measured] == [("measure", {})] * 3
    asked = [e for site in SITES for e in at.receive(metrics(site, 2, 0.1))]
    assert [(e.kind, e.round, dict(e.body)) for e in asked] == [("train", 3, {})] * 3


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
    measure = {e.recipient: e for e in at.receive(sparse(second, 1, 1, 2.0))}
    assert all(message.body and "held" not in message.note for message in measure.values())
    asked = [e for site in SITES for e in at.receive(metrics(site, 1, 0.1))]
    assert all(message.note["held"] and not message.body for message in asked)
    assert other in at.holds or other in at._asked
