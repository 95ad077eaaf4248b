"""Nodes that join late, come back, announce more, or announce pseudonyms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.errors import ConfigError, DataError
from fedkge.exchange.announce import identify, in_common
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import decode, encode
from fedkge.graphs.graph import Axis
from fedkge.nodes.base import Setting
from fedkge.nodes.hearing import AGAIN
from fedkge.nodes.hub import HubNode
from fedkge.nodes.identity import Identity
from fedkge.nodes.learner import Learner
from fedkge.nodes.site import SiteNode
from fedkge.nodes.stack import Stack
from fedkge.runs.aligning import secret_of
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Align
from small_federations import differ, experiment, federated, played, rows, small_federation

CPU = torch.device("cpu")
SITES = small_federation()
E = Axis.ENTITY


class Mail:
    """A hub and sites that live by themselves, each in its folder; bytes are carried between them."""

    def __init__(self, home: Path, often: bool = True, **options: Any) -> None:
        self.home, self.often = home, often
        self.terms = experiment(**options)
        self.sources = Sources.of(self.terms, SITES)
        self.members = self.sources.members(self.terms)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[Message] = []
        self.hub = self.new_hub()
        self.sites: dict[str, SiteNode] = {}

    def setting(self, name: str) -> Setting:
        return Setting(
            "run", self.home / name, self.often, tell=lambda node, event: self.events.append((node, event))
        )

    def new_hub(self) -> HubNode:
        pseudonyms = self.terms.align.secret is not None
        hub = HubNode(self.terms, self.members, self.setting(HUB), pseudonyms=pseudonyms)
        hub.resume()
        return hub

    def new_site(self, name: str, withheld: Sequence[int] = ()) -> SiteNode:
        identity = replace(self.sources.identity(self.terms, self.members[name]), withheld={E: set(withheld)})
        stack = Stack(self.terms, {name: self.members[name]}, {name: identity.ids}, CPU)
        site = SiteNode(name, self.terms, Learner(stack, name), identity, self.setting(name))
        site.resume()
        self.sites[name] = site
        return site

    def carry(
        self, mail: Sequence[Message], until: Callable[[Message], bool] = lambda message: False
    ) -> list[Message]:
        """Deliver until nothing is left, or up to messages that are held back, which are returned."""
        waiting, held = list(mail), []
        while waiting:
            message = waiting.pop(0)
            if until(message):
                held.append(message)
                continue
            self.sent.append(message)
            node = self.hub if message.recipient == HUB else self.sites.get(message.recipient)
            waiting += [] if node is None else node.read(encode(message))
        return held

    def join(self, *names: str) -> list[Message]:
        return [message for name in names for message in self.new_site(name).open()]

    def noted(self, kind: str) -> list[dict[str, Any]]:
        return [event for _, event in self.events if event["event"] == kind]

    def rows(self) -> dict[str, torch.Tensor]:
        return {f"{n} {a}": s.site.tables.table(a).clone() for n, s in self.sites.items() for a in Axis}


def in_round(number: int, site: str | None = None) -> Callable[[Message], bool]:
    return lambda m: m.kind == "train" and m.round >= number and site in (None, m.recipient)


def assert_same(first: Mail, second: Mail) -> None:
    one, two = first.rows(), second.rows()
    assert one.keys() == two.keys()
    for name, table in one.items():
        assert torch.equal(table, two[name]), name


@pytest.mark.parametrize("method", ["fedep", "fedlu", "pfedeg", "single"])
def test_nodes_by_themselves_end_as_a_simulation_does(tmp_path: Path, method: str) -> None:
    alone = Mail(tmp_path / "alone", method={"name": method})
    alone.carry(alone.join("a", "b", "c"))
    stacked = played(tmp_path / "stacked", SITES, method={"name": method})
    for name, table in alone.rows().items():
        assert torch.equal(table, rows(stacked)[f"now {name}"]), name
    assert alone.hub.phase == "done"


def test_the_hub_finds_who_shares_what_from_ids_alone(tmp_path: Path) -> None:
    mail = Mail(tmp_path, method={"name": "fedep"})
    mail.carry(mail.join("a", "b", "c"), in_round(1))
    for name, graph in SITES.items():
        others = {e for other, its in SITES.items() if other != name for e in its.entities}
        shared = [graph.entities[i] for i in mail.sites[name].site.shared[E].local.tolist()]
        assert shared == sorted(set(graph.entities) & others)
    assert mail.hub.hub.totals == {name: {E: len(graph.entities)} for name, graph in SITES.items()}


def test_what_is_withheld_is_never_named_or_sent(tmp_path: Path) -> None:
    hidden = SITES["a"].entities.id("e12")
    mail = Mail(tmp_path, method={"name": "fedep"})
    said = mail.new_site("a", [hidden]).open() + mail.join("b", "c")
    mail.carry(said)
    assert hidden not in mail.sites["a"].site.shared[E].local.tolist()
    from_a = b"".join(
        bytes(m.body["entity.ids"].numpy()) for m in mail.sent if m.kind == "join" and m.sender == "a"
    )
    assert b"e12" not in from_a
    assert SITES["b"].entities.id("e12") in mail.sites["b"].site.shared[E].local.tolist(), (
        "b and c still share it"
    )


def test_a_site_that_was_gone_goes_on_from_its_own_folder(tmp_path: Path) -> None:
    whole, broken = (
        Mail(tmp_path / name, method={"name": "fedec"}, rounds=6) for name in ("whole", "broken")
    )
    whole.carry(whole.join("a", "b", "c"))
    lost = broken.carry(broken.join("a", "b", "c"), in_round(4, "b"))
    assert [(m.recipient, m.round) for m in lost] == [("b", 4)], "the others have answered and wait"
    again = broken.join("b")  # a new process, which joins again; the question that got lost is asked again
    broken.carry(again)
    assert_same(whole, broken)
    assert len(broken.noted("trained")) == len(whole.noted("trained")), "nobody trained a round twice"


@pytest.mark.parametrize(
    "codec", [{"name": "float32"}, {"name": "ternary", "delta": True}], ids=["rows", "changes"]
)
def test_a_hub_that_was_gone_asks_again_and_nobody_trains_twice(
    tmp_path: Path, codec: dict[str, Any]
) -> None:
    options = {"method": {"name": "fedep"}, "rounds": 6, "codec": codec}
    whole, broken = (Mail(tmp_path / name, **options) for name in ("whole", "broken"))
    whole.carry(whole.join("a", "b", "c"))
    broken.carry(
        broken.join("a", "b", "c"), lambda m: m.kind == "upload" and m.round == 4 and m.sender == "c"
    )
    broken.hub = broken.new_hub()  # it has forgotten what a and b sent in round 4
    broken.carry([m for site in broken.sites.values() for m in site.open()])
    assert_same(whole, broken)
    assert {event["round"] for event in broken.noted("repeated")} == {4}
    assert len(broken.noted("trained")) == len(whole.noted("trained"))


def test_everyone_gone_at_once_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole, broken = (
        Mail(tmp_path / name, method={"name": "fedlu"}, rounds=5) for name in ("whole", "broken")
    )
    whole.carry(whole.join("a", "b", "c"))
    broken.carry(broken.join("a", "b", "c"), in_round(3))
    after = Mail(tmp_path / "broken", method={"name": "fedlu"}, rounds=5)
    after.carry(after.join("a", "b", "c"))
    assert_same(whole, after)


@pytest.mark.parametrize(
    "options", [{}, {"codec": {"name": "int8", "delta": True}}, {"select": {"name": "topk"}}], ids=repr
)
@pytest.mark.parametrize("method", ["fedep", "pfedeg", "fedlu", "svdplus"])
def test_a_site_that_joins_later_takes_part_from_the_next_round_on(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    if method == "svdplus" and "codec" in options:
        pytest.skip("svdplus has a codec of its own")
    mail = Mail(tmp_path, method={"name": method}, rounds=8, participation={"open": True}, **options)
    mail.carry(mail.join("a", "b"))
    held = mail.carry(mail.hub.expire(0), in_round(3))
    before = {name: len(site.site.shared[E].local) for name, site in mail.sites.items()}
    held += mail.carry(mail.join("c"), in_round(3))
    mail.carry(held)
    took = {event["round"]: event["participants"] for event in mail.noted("round")}
    assert took[3] == ["a", "b"]
    assert took[4] == took[8] == ["a", "b", "c"]
    assert mail.hub.phase == "done"
    assert not mail.noted("refused")
    a, c = mail.sites["a"], mail.sites["c"]
    assert len(c.site.shared[E].local) == 14, "all that c has are at a or b"
    assert len(a.site.shared[E].local) == before["a"], "what a shares with c it shared with b before"
    common = {
        n: {SITES[n].entities[i] for i in s.site.shared[E].local.tolist()} for n, s in mail.sites.items()
    }
    assert common["c"] <= common["a"] | common["b"]


def test_joining_later_is_refused_unless_the_terms_allow_it(tmp_path: Path) -> None:
    mail = Mail(tmp_path, method={"name": "fedep"}, rounds=4)
    held = mail.carry(mail.join("a", "b", "c"), in_round(2))
    mail.carry(mail.sites["a"].announce(replace(mail.sites["a"].identity, withheld={E: {0}})))
    assert "announces other rows" in mail.noted("refused")[0]["why"]
    mail.carry(held)
    assert mail.hub.phase == "done", "the run goes on"


def test_rows_can_be_announced_later(tmp_path: Path) -> None:
    """e12 of b is withheld at first; then it is announced, and its row begins to travel."""
    hidden = SITES["b"].entities.id("e12")
    mail = Mail(tmp_path, method={"name": "fedep"}, rounds=8, participation={"open": True})
    said = mail.new_site("b", [hidden]).open() + mail.join("a", "c")
    held = mail.carry(said, in_round(3))
    b = mail.sites["b"]
    assert hidden not in b.site.shared[E].local.tolist()
    held += mail.carry(b.announce(replace(b.identity, withheld={})), in_round(3))
    mail.carry(held)
    assert hidden in b.site.shared[E].local.tolist()
    assert mail.hub.phase == "done"
    assert not mail.noted("refused")
    together = played(tmp_path / "plain", SITES, method={"name": "fedep"}, rounds=8)
    assert len(b.site.shared[E].local) == len(together.sites["b"].site.shared[E].local)


@pytest.mark.parametrize("method", ["fedep", "fede", "pfedeg"])
def test_announcing_the_same_rows_again_changes_nothing(tmp_path: Path, method: str) -> None:
    """A withheld row that nobody else has makes a new version of the same shared rows."""
    lonely = SITES["a"].entities.id("e3")
    options: dict[str, Any] = {"method": {"name": method, **({"absent": "last"} if method == "fede" else {})}}
    options |= {"rounds": 6, "codec": {"name": "int8", "delta": True}, "select": {"name": "topk", "s": 2}}
    plain = Mail(tmp_path / "plain", **options, participation={"open": True})
    plain.carry(plain.new_site("a", [lonely]).open() + plain.join("b", "c"))
    again = Mail(tmp_path / "again", **options, participation={"open": True})
    held = again.carry(again.new_site("a", [lonely]).open() + again.join("b", "c"), in_round(3))
    a = again.sites["a"]
    held += again.carry(a.announce(replace(a.identity, withheld={})), in_round(3))
    again.carry(held)
    assert_same(plain, again)


@pytest.mark.parametrize(
    "method", [{"name": "pfedeg"}, {"name": "fede", "absent": "last"}, {"name": "fedep"}], ids=str
)
def test_rows_can_be_withdrawn_after_an_upload(tmp_path: Path, method: dict[str, Any]) -> None:
    """a has uploaded row e12 when it withdraws it: the round is closed without that row."""
    mail = Mail(tmp_path, method=method, rounds=5, participation={"open": True})
    uploads = mail.carry(mail.join("a", "b", "c"), lambda m: m.kind == "upload" and m.round == 2)
    first, rest = uploads[:1], uploads[1:]
    assert first[0].sender == "a"
    mail.carry(first)
    a, hidden = mail.sites["a"], SITES["a"].entities.id("e12")
    mail.carry(a.announce(replace(a.identity, withheld={E: {hidden}})))
    mail.carry(rest)
    assert mail.hub.phase == "done"
    assert hidden not in a.site.shared[E].local.tolist()


def test_an_announcement_that_was_taken_back_is_not_taken_in(tmp_path: Path) -> None:
    mail = Mail(tmp_path, method={"name": "fedep"}, rounds=4, participation={"open": True})
    held = mail.carry(mail.join("a", "b", "c"), in_round(2))
    before = mail.sites["a"]
    mail.carry(before.announce(replace(before.identity, withheld={E: {SITES["a"].entities.id("e12")}})))
    mail.carry(mail.join("a"))  # from its folder, which has the announcement before; it is asked again
    mail.carry([message for message in held if message.recipient != "a"])
    assert mail.hub.phase == "done"
    assert not mail.noted("refused")


def test_a_hub_that_was_gone_in_the_last_round_has_it_measured(tmp_path: Path) -> None:
    """Sites say that their budget allows no more rounds: the round that they have trained still counts."""
    mail = Mail(tmp_path, method={"name": "fedep"}, rounds=2, evaluate={"every": 2, "patience": 0})
    joins = [replace(m, note={**m.note, "allows": 2}) for m in mail.join("a", "b", "c")]
    uploads = mail.carry(joins, lambda m: m.kind == "upload" and m.round == 2)
    assert len(uploads) == 3
    mail.hub = mail.new_hub()
    joins = [m for site in mail.sites.values() for m in site.open()]
    mail.carry([replace(m, note={**m.note, "allows": 0}) for m in joins])
    assert mail.hub.phase == "done"
    assert mail.noted("evaluate"), "nothing stops without a validation"
    assert all(site.kept for site in mail.sites.values())


@pytest.mark.parametrize(
    "codec", [{"name": "float32"}, {"name": "int8", "delta": True}], ids=["rows", "changes"]
)
@pytest.mark.parametrize("method", ["fede", "fedep", "fedlu"])
def test_a_round_that_a_hub_closes_otherwise_after_a_restart_is_measured_again(
    tmp_path: Path, method: str, codec: dict[str, Any]
) -> None:
    """At first the hub closes round 2 with a and b; it is gone, and then closes it with b and c."""
    options = {"method": {"name": method}, "rounds": 5, "codec": codec, "evaluate": {"every": 1}}
    options |= {"participation": {"quorum": 0.6}, "select": {"name": "topk", "p": 0.5}}
    whole, broken = (Mail(tmp_path / name, **options) for name in ("whole", "broken"))

    def uploads(mail: Mail, said: Sequence[Message]) -> dict[str, Message]:
        held = mail.carry(said, lambda m: m.kind == "upload" and m.round == 2)
        return {message.sender: message for message in held}

    first = uploads(whole, whole.join("a", "b", "c"))
    whole.carry([first[name] for name in "bca"])
    first = uploads(broken, broken.join("a", "b", "c"))
    lost = broken.carry([first[name] for name in "ab"], lambda m: m.kind == "metrics")
    assert len(lost) == 3, "everyone has measured what a and b made"
    broken.hub = broken.new_hub()
    again = uploads(broken, [m for site in broken.sites.values() for m in site.open()])
    broken.carry([again[name] for name in "bca"])
    measured = [m.body for m in broken.sent if m.kind == "measure" and m.round == 2 and m.recipient == "a"]
    assert len(measured) == 2
    assert_same(whole, broken)
    assert len(broken.noted("trained")) == len(whole.noted("trained")), "nobody trained a round twice"
    metrics = [[m.note for m in mail.sent if m.kind == "metrics" and m.round > 2] for mail in (whole, broken)]
    assert metrics[0] == metrics[1]


def test_a_hub_cannot_have_a_round_measured_as_often_as_it_likes(tmp_path: Path) -> None:
    """Rows of its choice, measured on validation triples again and again, would tell it what these are."""
    mail = Mail(tmp_path, method={"name": "fede"}, rounds=4, evaluate={"every": 1})
    (asked,) = mail.carry(mail.join("a", "b", "c"), lambda m: m.kind == "measure" and m.recipient == "a")
    site = mail.sites["a"]
    answers = []
    for i in range(20):
        body = {name: t + i if name.endswith("values") else t for name, t in asked.body.items()}
        answers += site.read(encode(replace(asked, body=body)))
    assert len(answers) == 1 + AGAIN
    assert "has had round 1 measured 9 times" in mail.noted("refused")[0]["why"]
    assert len({m.note["metrics"]["a"]["mr"] for m in answers}) > 1, "other rows, other metrics"
    assert len(mail.noted("trained")) == 3


def lost(kind: str, round: int, site: str) -> Callable[[Message], bool]:
    return lambda m: (m.kind, m.round, m.recipient) == (kind, round, site)


def test_what_is_best_is_said_until_it_is_heard(tmp_path: Path) -> None:
    """The question that says it first gets lost, and the round is closed without its answer."""
    options: dict[str, Any] = {"method": {"name": "fedep"}, "rounds": 4, "evaluate": {"every": 2}}
    mail = Mail(tmp_path, **options, participation={"quorum": 0.6}, trainer={"lr": 0.5})
    (question,) = mail.carry(mail.join("a", "b", "c"), lost("train", 3, "b"))
    assert question.note["best"] == {"": 2}
    later = [m.note.get("best") for m in mail.sent if m.recipient == "b" and m.round == 4]
    assert {"": 2} in later
    assert mail.hub.phase == "done"
    assert {name: site.kept for name, site in mail.sites.items()} == {name: {"": 2} for name in "abc"}


def test_what_was_said_before_is_no_news(tmp_path: Path) -> None:
    """The site has heard it, and its answer gets lost: it hears it again, after it has trained."""
    options: dict[str, Any] = {"method": {"name": "fedep"}, "rounds": 4, "evaluate": {"every": 2}}
    options |= {"codec": {"name": "int8", "delta": True}, "select": {"name": "topk"}}
    mail = Mail(tmp_path, **options, participation={"quorum": 0.6}, trainer={"lr": 0.5})
    upload = mail.carry(mail.join("a", "b", "c"), lambda m: (m.kind, m.sender, m.round) == ("upload", "b", 3))
    assert len(upload) == 1
    assert mail.hub.phase == "done"
    assert not mail.noted("refused")
    said = [m.note.get("best") for m in mail.sent if m.recipient == "b" and m.kind == "train"]
    assert said[2:] == [{"": 2}] * 2
    assert len({str(site.kept) for site in mail.sites.values()}) == 1


def test_rows_that_were_never_measured_are_sent_with_the_next_question(tmp_path: Path) -> None:
    """`fede` has the hub's rows measured. b never gets them: it must not be told that it holds them."""
    mail = Mail(tmp_path, method={"name": "fede"}, rounds=3, evaluate={"every": 1})
    (question,) = mail.carry(mail.join("a", "b", "c"), lost("measure", 1, "b"))
    assert question.body
    held = mail.carry(mail.hub.expire(1), in_round(2))
    asked = {m.recipient: m for m in held}
    assert asked["a"].note["held"]
    assert not asked["a"].body
    assert "held" not in asked["b"].note
    assert asked["b"].body
    mail.carry(held)
    assert mail.hub.phase == "done"


def test_a_stop_that_got_lost_is_said_again_by_a_hub_that_was_gone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"method": {"name": "single"}, "rounds": 12, "trainer": {"lr": 0.5}}
    mail = Mail(tmp_path, **options, evaluate={"every": 1, "patience": 1})
    stops = mail.carry(mail.join("a", "b", "c"), lambda m: m.kind == "stop" or in_round(12)(m))
    first = next(m for m in stops if m.kind == "stop")
    name = first.recipient
    assert not mail.sites[name].stopped
    mail.hub = mail.new_hub()
    mail.carry([m for site in mail.sites.values() for m in site.open()])
    assert mail.sites[name].stopped
    assert mail.hub.phase == "done"
    assert all(site.stopped for site in mail.sites.values())


def longest_rows(question: Message) -> Message:
    """The same question with the largest rows that a site takes."""
    body = {n: torch.full_like(t, 9e8) if n.endswith("values") else t for n, t in question.body.items()}
    return replace(question, body=body)


@pytest.mark.parametrize(
    "codec", [{"name": "float32"}, {"name": "ternary", "delta": True}], ids=["rows", "changes"]
)
def test_rows_that_make_training_diverge_cost_the_round_and_nothing_else(
    tmp_path: Path, codec: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"method": {"name": "fedep"}, "rounds": 6, "codec": codec}
    options |= {
        "model": {"name": "distmult", "dim": 8},
        "trainer": {"optimizer": "sgd", "lr": 1.0, "epochs": 3},
    }
    mail = Mail(tmp_path, **options)
    held = mail.carry(mail.join("a", "b", "c"), in_round(3))
    site, question = mail.sites["a"], next(m for m in held if m.recipient == "a")
    before = {axis: site.site.tables.table(axis).clone() for axis in Axis}
    if codec["name"] == "float32":
        question = longest_rows(question)
    else:  # changes cannot be that long: the rows that they start from are
        site.channel.base.values[E].fill_(9e8)
    assert site.read(encode(question)) == []
    (event,) = mail.noted("diverged")
    assert (event["round"], event["kind"]) == (3, "train")
    for axis, table in before.items():
        assert torch.equal(site.site.tables.table(axis), table), "the tables are those of before"
    count = len(mail.noted("trained"))
    assert site.read(encode(question)) == [], "asked again, it does not train again"
    assert len(mail.noted("trained")) == count
    mail.carry([m for m in held if m.recipient != "a"])
    mail.carry(mail.hub.expire(3))
    took = {event["round"]: event["participants"] for event in mail.noted("round")}
    assert took[3] == ["b", "c"]
    assert took[4] == took[6] == ["a", "b", "c"], "with rows that it can compute with, it takes part again"
    assert mail.hub.phase == "done"
    assert site.stopped


def test_a_simulation_whose_training_diverges_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="training diverged; lower the learning rate"):
        played(
            tmp_path,
            SITES,
            method={"name": "fedep"},
            model={"name": "distmult", "dim": 8},
            trainer={"optimizer": "sgd", "lr": 1e30},
        )


# Pseudonyms


def test_sites_with_one_secret_agree_and_names_stay_at_home(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"shared by the sites alone")
    mail = Mail(tmp_path / "run", method={"name": "fedep"}, align={"secret": str(secret)})
    mail.carry(mail.join("a", "b", "c"))
    assert mail.hub.phase == "done"
    plain = Mail(tmp_path / "plain", method={"name": "fedep"})
    plain.carry(plain.join("a", "b", "c"))
    for name, site in mail.sites.items():
        assert set(site.site.shared[E].local.tolist()) == set(plain.sites[name].site.shared[E].local.tolist())
    wire = b"".join(encode(message) for message in mail.sent)
    names = {name for graph in SITES.values() for name in graph.entities if len(name) > 2}
    assert not any(f'"{name}"'.encode() in wire for name in names)
    joins = [m for m in mail.sent if m.kind == "join"]
    assert all(len(m.body["entity.ids"]) == 32 * len(m.body["entity.ends"]) for m in joins)
    first = played(tmp_path / "one", SITES, method={"name": "fedep"}, align={"secret": str(secret)})
    assert differ(first, played(tmp_path / "two", SITES, method={"name": "fedep"})), "rows begin elsewhere"
    for name, table in mail.rows().items():
        assert torch.equal(table, rows(first)[f"now {name}"]), name


def test_pseudonyms_need_the_secret() -> None:
    names = ["aspirin", "ibuprofen"]
    ours, theirs = (identify(names, E, secret) for secret in (b"0" * 16, b"1" * 16))
    assert in_common([ours, theirs]) == {}
    assert in_common([ours, identify(names[:1], E, b"0" * 16)]) == {ours[0]: 2}
    assert identify(names, E, b"0" * 16) != identify(names, Axis.RELATION, b"0" * 16)


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"hush")
    with pytest.raises(ConfigError, match="expected at least 16"):
        secret_of(Align(secret=tmp_path / "secret"))


def test_the_simulator_speaks_the_same_messages(tmp_path: Path) -> None:
    """Stacked training is an optimisation behind the same messages: all are equal, byte by byte."""
    heard: list[Message] = []
    one = federated(tmp_path / "one", SITES, method={"name": "fede"}, tap=heard.append)
    one.play()
    mail = Mail(tmp_path / "two", method={"name": "fede"})
    mail.carry(mail.join("a", "b", "c"))

    def told(messages: Sequence[Message]) -> list[bytes]:
        return sorted(encode(replace(message, run="")) for message in messages)

    assert told(heard) == told(mail.sent)
    assert [decode(encode(message)).kind for message in heard][:3] == ["join"] * 3
    assert isinstance(one.sites["a"].identity, Identity)
