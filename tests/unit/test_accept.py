"""A site's own policy: what exceeds it is declined, with the reason at both ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError, FedkgeError
from fedkge.exchange.direction import pack
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import encode
from fedkge.graphs.graph import Axis
from fedkge.nodes.accept import Accept, read_accept
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import JOURNAL
from fedkge.runs.data import Sources
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.processes import Processes
from forgeries import Forge, about, carrying, noting
from small_federations import experiment, federated, played, rows, small_federation
from small_nodes import ByHand, answer, events, hub, join, question, upload

SITES = small_federation()
E = Axis.ENTITY
FEDEP: dict[str, Any] = {"method": {"name": "fedep"}}
STRICT: dict[str, Any] = {"mode": "strict", "epsilon": 2.0, "delta": 1e-5}

# What exceeds a policy: the policy, what the hub asks for, and why that is refused; none: it is not
POLICIES: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "nothing": ({}, {}, None),
    "a method": ({"methods": ["fedep", "feds"]}, FEDEP, None),
    "another method": ({"methods": ["feds"]}, FEDEP, "method is 'fedep', the site accepts feds"),
    "no method": ({"methods": []}, FEDEP, "method is 'fedep', the site accepts none"),
    "a model": ({"models": ["rotate"]}, {}, "model is 'transe', the site accepts rotate"),
    "as wide": ({"entity_width": 8}, FEDEP, None),
    "too wide": ({"entity_width": 7}, FEDEP, "numbers of an entity row: 8, the site accepts at most 7"),
    "wide, and stays at home": ({"entity_width": 0}, {"method": {"name": "single"}}, None),
    "relations": ({"relation_width": 0}, {"method": {"name": "fedr"}}, "numbers of a relation row: 8"),
    "no relations": ({"relation_width": 0}, FEDEP, None),
    "as many rounds": ({"rounds": 4}, {}, None),
    "too many rounds": ({"rounds": 3}, {}, "rounds: 4, the site accepts at most 3"),
    "too many epochs": ({"epochs": 1}, {}, "trainer.epochs: 2, the site accepts at most 1"),
    "a mode": ({"privacy": ["strict"]}, {}, "privacy.mode is 'off', the site accepts strict"),
    "a budget": ({"epsilon": 2.0, "delta": 1e-5}, {"privacy": STRICT}, None),
    "too large a budget": ({"epsilon": 1.9}, {"privacy": STRICT}, "privacy.epsilon is 2, the site accepts"),
    "too large a delta": ({"delta": 1e-6}, {"privacy": STRICT}, "privacy.delta is 1e-05, the site accepts"),
    "no end to a budget": (
        {"epsilon": 9.0},
        {"privacy": {"mode": "strict", "noise": 1.0, "delta": 1e-5}},
        "privacy.epsilon is without a limit",
    ),
    "no guarantee": ({"epsilon": 9.0}, {"privacy": {**STRICT, "mode": "paper"}}, "'paper' has no proven"),
    "no protection": ({"epsilon": 9.0}, {}, "'off' has no proven guarantee"),
    "a unit": ({"units": ["entity"]}, {"privacy": STRICT}, "privacy.unit is 'triple', the site accepts"),
    "nothing confidential": ({"epsilon": 0.1}, {"privacy": {"mode": "u-only"}}, None),
}  # fmt: skip


def policy(**options: Any) -> Accept:
    return experiment(accept={"a": options}).accept["a"]


@pytest.mark.parametrize(("limits", "asked", "why"), POLICIES.values(), ids=POLICIES.keys())
def test_what_exceeds_a_policy_is_refused(
    limits: dict[str, Any], asked: dict[str, Any], why: str | None
) -> None:
    found = policy(**limits).refuses(experiment(**asked))
    assert found is None if why is None else why in str(found)


def test_all_reasons_are_told_at_once() -> None:
    found = policy(methods=["feds"], rounds=1, epochs=1).refuses(experiment(**FEDEP))
    assert str(found).count("the site accepts") == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"methods": ["fedepp"]}, "accept.a.methods: .*fedepp.*did you mean 'fedep'"),
        ({"models": ["transx"]}, "accept.a.models: "),
        ({"rounds": -1}, "accept.a.rounds: expected a number of at least 0"),
        ({"epsilon": float("nan")}, "accept.a.epsilon: expected"),
        ({"share": 1.5}, "accept.a.share: expected a number from 0 to 1"),
        ({"round": 1}, "accept.a.round: no such option; did you mean 'rounds'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_an_error(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        policy(**options)


def test_a_policy_of_nobody_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"accept\.clinic: no such site"):
        federated(tmp_path, SITES, accept={"clinic": {}})


def test_a_policy_is_read_from_a_file_and_written_back(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('name = "a"\n[accept]\nmethods = ["fedep"]\nshare = 0.5\n')
    assert read_accept(tmp_path / "site.toml") == Accept(methods=("fedep",), share=0.5)
    one = experiment(accept={"a": {"methods": ["fedep"], "rounds": 7}})
    assert Experiment.parse(one.config()).accept == one.accept
    folder = RunFolder.create(tmp_path / "run", one, False)
    assert folder.experiment().accept == one.accept


# Before the first round


def test_a_site_that_declines_announces_nothing_and_the_run_says_why(tmp_path: Path) -> None:
    sent: list[Message] = []
    run = federated(tmp_path, SITES, tap=sent.append, **FEDEP, accept={"b": {"rounds": 3}})
    why = "rounds: 4, the site accepts at most 3"
    with pytest.raises(FedkgeError, match=f"b did not join: b declines: {why}"):
        run.play()
    assert [(m.kind, dict(m.body)) for m in sent if m.sender == "b"] == [("refusal", {})]
    assert not any(m.kind in ("shared", "train") for m in sent)
    for node, kind in ((run.hub, "declined"), (run.sites["b"], "declines")):
        node.flush()
        assert node.store is not None
        (event,) = (event for event in read_journal(node.store.journal.path) if event["event"] == kind)
        assert event["why"] == why


def test_others_go_on_without_it_where_sites_may_join_later(tmp_path: Path) -> None:
    options: dict[str, Any] = {**FEDEP, "participation": {"open": True}}
    run = played(tmp_path / "one", SITES, **options, accept={"b": {"methods": ["feds"]}})
    assert run.hub.phase == "done"
    two = played(tmp_path / "two", {site: SITES[site] for site in "ac"}, **options)
    one, other = rows(run), rows(two)
    assert all(torch.equal(one[name], table) for name, table in other.items())


def test_a_policy_that_is_kept_changes_nothing(tmp_path: Path) -> None:
    kept = {"methods": ["fedep"], "rounds": 4, "entity_width": 8, "relation_width": 0, "epochs": 2}
    one = played(tmp_path / "one", SITES, **FEDEP, accept=dict.fromkeys("abc", kept))
    two = played(tmp_path / "two", SITES, **FEDEP)
    a, b = rows(one), rows(two)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_names_are_not_announced_where_pseudonyms_are_wanted(tmp_path: Path) -> None:
    with pytest.raises(FedkgeError, match="a declines: rows would be announced by name"):
        federated(tmp_path / "one", SITES, **FEDEP, accept={"a": {"pseudonyms": True}}).play()
    (tmp_path / "secret").write_bytes(bytes(16))
    align = {"secret": str(tmp_path / "secret")}
    played(tmp_path / "two", SITES, **FEDEP, align=align, accept={"a": {"pseudonyms": True}})


# In the run


def test_no_more_is_shared_than_accepted(tmp_path: Path) -> None:
    """a shares 10 of 20 entities. A hub that says that all are shared is declined, and passed over."""
    at = ByHand(tmp_path, SITES, **FEDEP, accept={"a": {"share": 0.5}})
    told, node = at.until(question("shared", 0)), at.run.sites["a"]
    forged = carrying(lambda body: {"entity.where": pack(torch.arange(20), 20)})(told)
    (no,) = node.read(encode(forged))
    assert no.kind == "refusal"
    assert "20 of 20 entities are to be shared, the site accepts a share of 0.5" in no.note["why"]
    assert not node.ready
    (no,) = node.receive(Message(HUB, "a", "train", 1, run=node.setting.run))
    assert (no.kind, no.round) == ("refusal", 1)
    assert not node.site.shared[E].local.numel()
    at.play()
    assert at.run.hub.phase == "done", "told as it is, it takes part"
    assert {event["round"] for event in at.noted("a", "trained")} == {1, 2, 3, 4}


def test_a_site_that_shares_too_much_is_left_out_of_every_round(tmp_path: Path) -> None:
    at = ByHand(tmp_path, SITES, **FEDEP, accept={"a": {"share": 0.49}})
    at.play()
    assert at.run.hub.phase == "done"
    assert not at.noted("a", "trained")
    closed = at.noted(HUB, "round")
    assert [event["participants"] for event in closed] == [["b", "c"]] * 4
    assert "declines: 10 of 20 entities" in closed[0]["refused"]["a"]
    assert {event["site"] for event in at.noted(HUB, "declined")} == {"a"}


@pytest.mark.parametrize("kind", ["train", "measure"])
def test_a_hub_that_goes_on_past_the_agreed_rounds_is_declined(tmp_path: Path, kind: str) -> None:
    at = ByHand(tmp_path, SITES, **FEDEP, accept={"a": {"rounds": 4}})
    at.until(answer("upload", 4))
    node, before = at.run.sites["a"], at.run.sites["a"].digest()
    (no,) = node.receive(Message(HUB, "a", kind, 5, run=node.setting.run))
    assert (no.recipient, no.kind, no.round) == (HUB, "refusal", 5)
    assert "asks for round 5" in no.note["why"]
    assert node.digest() == before


REFUSALS: dict[str, tuple[Forge, str]] = {
    "for nothing": (noting(why=None), "refuses for None"),
    "for an empty reason": (noting(why=""), "refuses for ''"),
    "for a number": (noting(why=7), "refuses for 7"),
    "with rows": (carrying(lambda body: {"entity.values": torch.ones(2, 2)}), "and no rows"),
    "with a note": (noting(allows=3), "a note of ['allows', 'why']"),
    "of a round to come": (about(round=2), "a round that has not begun"),
    "of a stranger": (about(sender="mallory"), "comes from a stranger"),
}


@pytest.mark.parametrize(("forge", "why"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_forged_refusal_is_refused(forge: Forge, why: str) -> None:
    at = hub()
    join(at)
    before = at.digest()
    refusal = Message("a", HUB, "refusal", 1, note={"why": "no more rounds"})
    assert at.read(encode(forge(refusal))) == []
    (event,) = events(at, "refused")
    assert why in event["why"]
    assert at.digest() == before
    at.receive(upload("b", 1, 1.0))
    at.receive(upload("c", 1, 1.0))
    assert {m.kind for m in at.receive(refusal)} == {"train"}, "a true one closes the round without the site"
    assert events(at, "round")[0]["refused"] == {"a": "declines: no more rounds"}


def test_what_is_shown_of_a_refusal_is_short_and_printable() -> None:
    at = hub()
    join(at)
    at.receive(Message("a", HUB, "refusal", 1, note={"why": "\x1b[31m" + "x" * 9999}))
    (event,) = events(at, "declined")
    assert event["why"].isprintable()
    assert len(event["why"]) == 400


def test_refusals_are_not_answered(tmp_path: Path) -> None:
    at = ByHand(tmp_path, SITES, **FEDEP)
    for name, node in at.nodes.items():
        sender = "a" if name == HUB else HUB
        assert (
            node.receive(Message(sender, name, "refusal", 0, note={"why": "no"}, run=node.setting.run)) == []
        )
    assert at.run.sites["b"].turned_down == "no"


# As processes


def test_processes_decline_as_a_simulation_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = experiment(**FEDEP, runtime={"name": "processes"}, accept={"b": {"entity_width": 4}})
    folder = RunFolder.create(tmp_path, one, False)
    nodes = Processes(one, Sources.of(one, SITES), folder, torch.device("cpu"))
    with pytest.raises(
        FedkgeError, match="b declines: numbers of an entity row: 8, the site accepts at most 4"
    ):
        nodes.play()
    assert "b declines round 0" in capfd.readouterr().err
    events = list(read_journal(tmp_path / "sites" / "b" / JOURNAL))
    assert [event["event"] for event in events] == ["declines"]


def test_small_numbers_decide(tmp_path: Path) -> None:
    """The share is compared without rounding."""
    assert Accept(share=0.3).refuses_rows(3, 10) is None
    assert Accept(share=0.3).refuses_rows(4, 10) is not None
    assert Accept(share=0.0).refuses_rows(0, 10) is None
    assert Accept(share=0.0).refuses_rows(1, 10) is not None
    assert all(Accept(share=k / 10).refuses_rows(k, 10) is None for k in range(11))
    assert replace(Accept(), share=1.0).refuses_rows(np.int64(7), 7) is None
