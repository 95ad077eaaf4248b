"""Peers in one process: conversations that count at both ends, going back, lending, budgets, bad input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.exchange.hops import introduced
from fedkge.exchange.rows import Message
from fedkge.exchange.wire import length
from fedkge.graphs.graph import Axis, Federation
from fedkge.methods.conversation import converse
from fedkge.methods.fkge import FKGE
from fedkge.methods.handshake import Handshake
from fedkge.methods.lending import lent
from fedkge.nodes.journal import read_journal
from fedkge.nodes.ledgers import run_entries
from fedkge.nodes.peer import PeerNode
from fedkge.privacy import Account, costs
from fedkge.privacy.peer_words import peer_words
from fedkge.reports.folders.load import load_runs
from fedkge.reports.pages.between_section import peer_rows
from fedkge.reports.pages.privacy import spent
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.meeting import Meeting
from fedkge.runtimes.progress import Progress
from fedkge.runtimes.replay import _end
from fedkge.runtimes.run import run
from fedkge.runtimes.simulate import Simulated, Simulation
from small_federations import experiment, small_federation, small_graph

SMALL: dict[str, Any] = {"name": "fkge", "teachers": 2, "hidden": 8, "batch": 4, "passes": 2, "first": 2}
SITES = small_federation(relations_in_common=True)


def meeting(
    path: Path,
    sites: Federation = SITES,
    tap: Callable[[Message], None] | None = None,
    save_every: float = 0.0,
    **changes: Any,
) -> Meeting:
    method = {**SMALL, **changes.pop("method", {})}
    options = {"rounds": 10, "evaluate": {"every": 2, "patience": 1}, **changes}
    one = experiment(method=method, **options)
    folder = RunFolder.create(path, one, resume=(path / "config.toml").exists())
    how = Simulation(save_every=save_every)
    return Meeting(one, Sources.of(one, sites), folder, torch.device("cpu"), how, tap=tap)


def met(path: Path, sites: Federation = SITES, **changes: Any) -> Meeting:
    found = meeting(path, sites, **changes)
    found.play()
    return found


def events(run: Meeting, kind: str) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            e
            for e in read_journal(run.folder.home(name, run.members[name]) / "journal.jsonl")
            if e["event"] == kind
        ]
        for name in run.peers
    }


def rows(run: Meeting) -> dict[str, torch.Tensor]:
    return {f"{n} {a}": p.own.best.table(a) for n, p in run.peers.items() for a in Axis}


def test_all_find_the_end_and_what_counts_counts_twice(tmp_path: Path) -> None:
    run = met(tmp_path)
    talks = Counter(e["talk"] for own in events(run, "update").values() for e in own if e["talk"])
    assert talks
    assert set(talks.values()) == {2}
    for name, own in events(run, "update").items():
        best = [e["best"] for e in own]
        assert best == sorted(best), f"{name}: a gain is never given back"
        assert run.peers[name].own.score == max(e["score"] for e in own)
        assert run.peers[name].own.rounds <= 10


def test_the_same_seed_gives_the_same_tables_and_another_others(tmp_path: Path) -> None:
    first, again, other = (
        rows(met(tmp_path / name, seed=seed)) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    "options",
    [
        {"translate": "procrustes"},
        {"translate": "random", "adoption": "average"},
        {"translate": "none", "apart": False},
        {"choose": "csls", "orthogonal": 0.01, "parts": True},
        {"virtual": 0, "share": "entities", "sample": 0.6, "balanced": False},
        {"virtual": 0, "share": "relations", "teachers": 1},
        {"adoption": "better", "virtual": 1},
        {"edges": "all", "judge": "accuracy", "saturating": False, "tolerance": 0.5},
        {"clip": 1.0, "noise": 0.1, "scale": 1.0, "law": "laplace"},
        {"models": ["b: rotate, dim = 6", "c: transh, dim = 10"]},
    ],
    ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()),
)
def test_every_variant_comes_to_an_end(tmp_path: Path, options: dict[str, Any]) -> None:
    run = met(tmp_path, method=options)
    assert sum(peer.talks for peer in run.peers.values()) >= 2
    for name, table in rows(run).items():
        assert torch.isfinite(table).all(), name


def test_no_conversation_without_something_in_common(tmp_path: Path) -> None:
    sites = {**{k: SITES[k] for k in "ab"}, "z": small_graph(9, [f"z{i}" for i in range(9)], ["zr"], 40, 4)}
    run = met(tmp_path, sites)
    assert {e["partner"] for e in events(run, "nothing in common")["z"]} == {"a", "b"}
    assert not any(e["talk"] for e in events(run, "update")["z"])
    assert run.peers["z"].stopped


# Going back


def strangers() -> Federation:
    return {n: small_graph(i, [f"{n}{k}" for k in range(12)], [f"{n}r"], 60, 6) for i, n in enumerate("yz")}


@pytest.mark.parametrize("patience", [0, 1])
def test_peers_with_nothing_in_common_train_exactly_as_single_does(tmp_path: Path, patience: int) -> None:
    """Neither talking in vain nor a measurement that is no gain changes how a peer trains."""
    terms: dict[str, Any] = {"rounds": 12, "evaluate": {"every": 2, "patience": patience, "keep": "each"}}
    peers = met(tmp_path / "peers", strangers(), method={"apart": False, "first": 2}, **terms)
    one = experiment(method={"name": "single"}, **terms)
    folder = RunFolder.create(tmp_path / "single", one, resume=False)
    alone = Simulated(one, Sources.of(one, strangers()), folder, torch.device("cpu"))
    alone.play()
    kept = {name: stack.bests[name] for stack in alone.stacks for name in stack.names}
    scores = {name: [e["score"] for e in own] for name, own in events(peers, "update").items()}
    assert any(own != sorted(own) for own in scores.values()), "some measurement was no gain"
    for name, peer in peers.peers.items():
        for axis in Axis:
            assert torch.equal(peer.own.best.table(axis), kept[name].table(axis)), name


def test_a_conversation_that_is_no_gain_leaves_tables_and_moments_as_they_were(tmp_path: Path) -> None:
    run = meeting(tmp_path)
    ends = {name: run.peers[name] for name in "ab"}
    for peer in ends.values():
        peer.work()  # the first rounds
    talk = [converse(_end(peer, "0123456789abcdef"), peer.id == "a") for peer in ends.values()]
    heard = dict(zip("ab", introduced(*talk), strict=True))
    for name, peer in ends.items():
        peer.own.alone()
        before = {key: tensor.clone() for key, tensor in peer.learner.state().items()}
        assert any(key.startswith("training.") for key in before)
        score, now, peer.own.score = peer.own.score, peer.own.now, 1.0  # nothing is a gain
        assert not peer.own.after(heard[name])["gained"]
        assert peer.own.now == now
        for key, tensor in peer.learner.state().items():
            assert torch.equal(tensor, before[key]), key
        peer.own.score = score = -1.0  # everything is
        assert peer.own.after(heard[name])["gained"]
        assert any(not torch.equal(tensor, before[key]) for key, tensor in peer.learner.state().items())
        assert peer.own.now == peer.own.score > score


# Lending


def test_what_is_lent_reaches_no_later_host(tmp_path: Path) -> None:
    """Rows travel as they are here, so that one that is passed on would be seen again."""
    sent: list[Message] = []
    run = meeting(
        tmp_path, tap=sent.append, method={"translate": "none", "virtual": 5, "adoption": "average"}
    )
    run.play()
    names = {n: (len(m.graph.entities), len(m.graph.relations)) for n, m in run.members.items()}
    for name, peer in run.peers.items():
        assert (len(peer.own.tables.entities), len(peer.own.tables.relations)) == names[name]
        assert peer.learner.member.graph is run.members[name].graph
    lent_by: dict[str, set[bytes]] = {name: set() for name in run.peers}
    loans = [m for m in sent if "lent.entities" in m.body]
    for message in loans:
        vectors = {row.numpy().tobytes() for row in message.body["lent.entities"]}
        others = [seen for name, seen in lent_by.items() if name != message.sender]
        assert not any(vectors & seen for seen in others)
        lent_by[message.sender] |= vectors
    assert sum(map(len, lent_by.values())) > 20


def test_lent_edges_are_open_training_triples_and_not_too_many() -> None:
    graph = SITES["b"]
    marks = np.zeros(len(graph.train), np.bool_)
    marks[::2] = True
    graph = replace(graph, confidential=marks)
    aligned = torch.arange(0, 12)
    for edges, most in (("outside", 2), ("all", 3)):
        method = FKGE(virtual=most, edges=edges)  # type: ignore[arg-type]
        loan = lent(graph, aligned, aligned, method, np.random.default_rng(0))
        open_ = {tuple(t) for t in graph.train[~marks].tolist()}
        own = torch.cat((aligned, loan.entities))
        told = [(int(own[h]), int(loan.relations[r]), int(own[t])) for h, r, t in loan.edges.tolist()]
        assert told
        assert set(told) <= open_
        assert len(told) <= most * len(aligned)
        assert all(h < 12 or t < 12 for h, _, t in told)
        assert any(h < 12 and t < 12 for h, _, t in told) == (edges == "all")


# Privacy


def test_votes_are_in_the_ledger_before_they_are_given_and_a_budget_ends_them(tmp_path: Path) -> None:
    run = met(tmp_path, method={"scale": 5.0, "budget": 40})
    entries = run_entries(tmp_path)
    for name in run.peers:
        votes = sum(e.release.count for e in entries if e.site == name and e.release.purpose == "votes")
        assert 0 < votes <= 40
        told = sum(e["votes"] for e in events(run, "conversation")[name])
        assert told <= votes
    assert any("budget" in e["refused"] for own in events(run, "conversation").values() for e in own)


def test_votes_and_rows_are_in_the_accounts_of_their_sites_whose_limits_end_them(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    own: dict[str, Any] = {"account": {"folder": str(tmp_path / "accounts")}}
    method = {"clip": 0.5, "noise": 2.0, "scale": 30.0}
    for turn in ("first", "second"):
        run = met(tmp_path / turn, method=method, **own)
    for name in run.peers:
        account = Account(tmp_path / "accounts" / name)
        made = [e for turn in ("first", "second") for e in run_entries(tmp_path / turn) if e.site == name]
        assert len(account.runs("row")) == 2
        assert account.ledger.total == sum(e.release.count for e in made)
        (cost,) = account.costs(name, 1e-5)
        assert cost.guarantee == "formal"
        account.set_limit(1.01 * cost.epsilon, 1e-5)
    run = met(tmp_path / "third", method={**method, "scale": 1.0, "noise": 0.0, "clip": None}, **own)
    refused = [e["refused"] for own in events(run, "conversation").values() for e in own]
    assert any("budget" in why for why in refused)
    assert not run_entries(tmp_path / "third")


def test_noise_on_rows_is_one_release_per_conversation(tmp_path: Path) -> None:
    run = met(tmp_path, method={"clip": 0.5, "noise": 2.0, "scale": 1.0})
    for name in run.peers:
        count = sum(
            e.release.count for e in run_entries(tmp_path) if e.site == name and e.release.purpose == "rows"
        )
        assert count == len(events(run, "conversation")[name])


def test_rows_with_noise_end_with_the_budget_and_the_rest_goes_on(tmp_path: Path) -> None:
    """One conversation costs about 2.6 here: a second one does not fit, whoever was host first."""
    pytest.importorskip("dp_accounting")
    run = met(tmp_path, method={"clip": 0.5, "noise": 2.0, "scale": 500.0, "epsilon": 3.0})
    found = {cost.site: cost for cost in costs(run_entries(tmp_path), 1e-5, "rdp")}
    assert found.keys() == run.peers.keys()
    assert all(2 < cost.epsilon <= 3 and cost.guarantee == "formal" for cost in found.values())
    refused = [e["refused"] for own in events(run, "conversation").values() for e in own]
    assert any("sends no rows" in why for why in refused)
    assert not any(events(run, "aborted").values())


def test_a_limit_on_all_runs_ends_rows_with_noise_and_not_the_peer(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    own: dict[str, Any] = {"account": {"folder": str(tmp_path / "accounts")}}
    method = {"clip": 0.5, "noise": 2.0, "scale": 500.0}
    first = met(tmp_path / "first", method=method, **own)
    for name in first.peers:
        account = Account(tmp_path / "accounts" / name)
        (cost,) = account.costs(name, 1e-5)
        account.set_limit(1.001 * cost.epsilon, 1e-5)
    second = met(tmp_path / "second", method=method, **own)
    assert all(peer.stopped for peer in second.peers.values())
    assert not run_entries(tmp_path / "second")


@pytest.mark.parametrize(
    ("options", "guarantee"),
    [({"choose": "csls", "scale": 50.0}, "none"), ({"scale": 0.0}, "none"), ({"scale": 50.0}, "formal")],
)
def test_a_guarantee_is_formal_only_if_nothing_leaves_without_noise(
    tmp_path: Path, options: dict[str, Any], guarantee: str
) -> None:
    pytest.importorskip("dp_accounting")
    met(tmp_path, method={"clip": 0.5, "noise": 2.0, **options})
    for cost in costs(run_entries(tmp_path), 1e-5, "pld"):
        assert cost.guarantee == guarantee or cost.epsilon == inf
        assert (cost.epsilon == inf) == (options["scale"] == 0)


def test_the_two_ends_of_a_conversation_draw_noise_of_their_own(tmp_path: Path) -> None:
    run = meeting(tmp_path)
    drawn = [
        peer.keys.noise.noise(0, "votes", "session").normal(0.0, 1.0, (9,)) for peer in run.peers.values()
    ]
    assert len({one.tobytes() for one in drawn}) == len(run.peers)


def test_only_generated_rows_and_gradients_cross_during_ppat(tmp_path: Path) -> None:
    sent: list[Message] = []
    run = meeting(tmp_path, tap=sent.append)
    run.play()
    bodies = {frozenset(m.body) for m in sent if m.kind == "say"}
    whole = frozenset({"rows", "lent.entities", "lent.relations", "lent.edges"})
    ids = frozenset(f"{axis}.{part}" for axis in Axis for part in ("ids", "ends"))
    assert bodies == {frozenset(), frozenset({"rows"}), frozenset({"gradient"}), whole, ids}
    own = {row.numpy().tobytes() for p in run.peers.values() for row in p.own.best.entities}
    assert not own & {row.numpy().tobytes() for m in sent if "rows" in m.body for row in m.body["rows"]}


def test_a_batch_is_at_most_31_kilobytes() -> None:
    """The paper: 0.845 megabit; here 32 rows of dimension 100 and their gradient, as they are on the wire."""
    note = {"talk": "government/12", "note": {"more": True}}
    messages = [
        Message(
            "government", "languages", "say", 1000, {name: torch.zeros(32, 100)}, note, "0123456789abcdef"
        )
        for name in ("rows", "gradient")
    ]
    assert sum(map(length, messages)) <= 31_000


# Bad input


def told(peer: PeerNode, message: Message) -> str:
    """Why it was refused, if it was."""
    heard: list[dict[str, Any]] = []
    peer.setting = replace(peer.setting, tell=lambda node, event: heard.append(event))
    peer.receive(message)
    return next((e["why"] for e in heard if e["event"] == "refused"), "")


def test_what_does_not_fit_is_refused_and_said(tmp_path: Path) -> None:
    run = meeting(tmp_path)
    peer = run.peers["a"]
    call = Message("b", "a", "call", 0, {}, {"talk": "b/1", "version": 1}, peer.setting.run)
    before = peer.digest()
    for bad, why in (
        (replace(call, protocol=99), "protocol 99"),
        (replace(call, sender="x"), "stranger"),
        (replace(call, kind="shout"), "unknown kind"),
        (replace(call, run="other"), "another run"),
        (replace(call, note={"talk": "c/1", "version": 1}), "begins with the caller's name"),
        (replace(call, note={"talk": "b/1", "version": -1}), "whole number"),
        (replace(call, note={"talk": 7, "version": 1}), "id of a conversation"),
        (replace(call, note={"talk": "b/\x1b[2J", "version": 1}), "id of a conversation"),
        *(
            (replace(call, kind=kind, note={"talk": talk}), "begins with the caller's name")
            for kind, talk in (("prepared", "c/1"), ("ask", "a/1"), ("commit", "b/1"), ("bye", "c/1"))
        ),
        (replace(call, kind="say", note={"talk": "x" * 300, "note": {}}), "a conversation and what is said"),
        (replace(call, kind="status", note={"talk": "", "stamp": 1}), "a note of"),
    ):
        assert why in told(peer, bad)
    assert peer.digest() == before


@pytest.mark.parametrize("kind", ["ask", "prepared"])
@pytest.mark.parametrize("whole", [True, False])
def test_nobody_disturbs_a_conversation_of_two_others(kind: str, whole: bool) -> None:
    """The state machine itself copes: no line of a third peer, or of the wrong end, ends it or breaks it."""
    peers = {name: Handshake(name, "abc") for name in "abc"}
    for one in peers.values():
        for line in one.trained(True, content=True):
            peers[line.to].hear(one.me, line.kind, line.talk, line.note)
    a, b = peers["a"], peers["b"]
    (call,) = a.act()
    (accept,), _ = b.hear("a", call.kind, call.talk, call.note)
    a.hear("b", accept.kind, accept.talk, accept.note)
    if whole:
        a.said_all()
        b.said_all()
    for end, other in ((b, "c"), (a, "b"), (a, "c")):
        lines, effects = end.hear(other, kind, call.talk, {})
        assert ([line.kind for line in lines], effects) == (["bye"], [])
        assert end.talk is not None
    b.hear("c", "ask", "a/2", {})
    assert "a/2" not in b.over, "a call that is still to come is not over"


def test_a_host_that_asks_for_more_passes_than_agreed_is_hung_up_on(tmp_path: Path) -> None:
    run = meeting(tmp_path)
    ends = {name: run.peers[name] for name in "ab"}
    for peer in ends.values():
        peer.work()
    long = replace(ends["a"].method, passes=3)
    with pytest.raises(DataError, match="agreed"):
        introduced(
            converse(replace(_end(ends["a"], "0" * 8), method=long), True),
            converse(_end(ends["b"], "1" * 8), False),
        )

    class Greedy(FKGE):
        agreed = ends["b"].method.agreed  # type: ignore[assignment]

    greedy = Greedy(**{name: getattr(long, name) for name in (field.name for field in fields(long))})
    with pytest.raises(DataError, match="more than 2 passes"):
        introduced(
            converse(replace(_end(ends["a"], "0" * 8), method=greedy), True),
            converse(_end(ends["b"], "1" * 8), False),
        )


class Liar:
    """Changes what one peer says in its conversations, from the given hop on."""

    def __init__(self, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
        self.change = change

    def __call__(self, message: Message) -> Message:
        if message.sender == "b" and message.kind == "say" and "rows" in message.body:
            return replace(message, body=self.change(dict(message.body)))
        return message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda body: {**body, "rows": body["rows"] * float("nan")}, "finite"),
        (lambda body: {**body, "rows": body["rows"][:, :-1].contiguous()}, "numbers, expected 8"),
        (lambda body: {**body, "rows": body["rows"].double()}, "float32"),
        (lambda body: {**body, "rows": torch.zeros(100_000, 8)}, "rows of float32"),
    ],
    ids=["nan", "narrow", "double", "much"],
)
def test_a_peer_that_lies_is_hung_up_on_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, why: str
) -> None:
    run, liar = meeting(tmp_path), Liar(change)
    for name, peer in run.peers.items():
        hear = peer.receive
        monkeypatch.setattr(peer, "receive", lambda message, hear=hear: hear(liar(message)))
        assert name
    run.play()
    refused = [e["why"] for own in events(run, "refused").values() for e in own]
    assert refused
    assert all(why in one for one in refused)
    talks = {e["talk"] for e in events(run, "update")["a"] if e["by"] == "c"}
    assert talks, "a and c have met all the same"
    assert not any(e["by"] == "b" and e["talk"] for e in events(run, "update")["a"])


@pytest.mark.parametrize("width", [0, 7, 20_000])
def test_rows_for_procrustes_are_as_wide_as_was_said(tmp_path: Path, width: int) -> None:
    """The host turns them itself, in time and memory that grow with their width."""
    run = meeting(tmp_path, method={"translate": "procrustes"})
    ends = {name: run.peers[name] for name in "ab"}
    for peer in ends.values():
        peer.work()

    def lying(hops: Any) -> Any:
        got = None
        while True:
            try:
                found = hops.send(got)
            except StopIteration as end:
                return end.value
            if found is not None and "rows" in found.body:
                rows = torch.zeros(len(found.body["rows"]), width)
                found = replace(found, body={**found.body, "rows": rows})
            got = yield found

    talk = (converse(_end(ends["a"], "0" * 8), True), lying(converse(_end(ends["b"], "1" * 8), False)))
    with pytest.raises(DataError, match=f"rows of {width} numbers, expected 8"):
        introduced(*talk)


def test_a_run_in_which_nobody_will_meet_warns(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="nobody will meet"):
        meeting(tmp_path, method={"first": 10})


def test_what_peers_cannot_do_is_said_first(tmp_path: Path) -> None:
    for options, why in (
        ({"method": {"noise": 1.0}}, "give clip"),
        ({"method": {"epsilon": 1.0}}, "give scale"),
        ({"method": {"models": ["b rotate"]}}, "expected as in"),
        ({"method": {"share": "relations"}}, "neighbours need aligned entities"),
        ({"codec": {"name": "int8"}}, "expected float32"),
        ({"runtime": {"name": "processes"}}, "fedkge peer"),
        ({"method": {"models": ["q: rotate"]}}, "'q' is no site"),
        ({"method": {"models": ["b: rotate", "b: transe"]}}, "two models"),
        ({"method": {"budget": 0, "scale": 1.0}}, "at least 1 vote"),
        ({"method": {"delta": 1.0}}, "below 1"),
        ({"accept": {"a": {"rounds": 1}}}, "what a hub may ask"),
        ({"participation": {"fraction": 0.5}}, "answers a hub"),
        ({"evaluate": {"rule": "drops"}}, "expected 'patience'"),
        ({"aggregate": {"name": "median"}}, "aggregate"),
        ({"privacy": {"mode": "fulldp", "epsilon": 1.0, "delta": 1e-6}}, "expected off"),
    ):
        with pytest.raises(ConfigError, match=why):
            meeting(tmp_path / why.replace(" ", "-"), **options)  # type: ignore[arg-type]


# The run


def test_a_run_has_accuracy_and_ranks_before_and_after(tmp_path: Path) -> None:
    one = experiment(method=SMALL, rounds=6, evaluate={"every": 2, "patience": 1})
    folder = RunFolder.create(tmp_path / "run", one, resume=False)
    seen: list[Progress] = []
    summary = run(one, folder, torch.device("cpu"), SITES, seen.append)
    assert all(isfinite(step.loss) and step.triples_per_s > 0 for step in seen)
    assert len(seen) >= 6
    assert summary["method"] == "fkge"
    assert summary["traffic"]["up_bytes"] > 0
    for site in SITES:
        assert {"before", "after", "talks", "seconds"} <= summary["peers"][site].keys()
        assert {"test", "test_before"} <= summary["sites"][site]["metrics"].keys()
        assert (folder.path / "sites" / site / "before" / "entities.safetensors").is_file()
    (found,) = load_runs([folder.path])
    assert [row["site"] for row in peer_rows(found)] == list(SITES)
    assert found.last_round > 0
    words = " ".join(spent(found).words)
    assert "WX is a linear image of X" in words
    assert "Told without noise" in words
    assert "Votes have no noise" in words


@pytest.mark.parametrize("translate", ["ppat", "procrustes", "random", "none"])
def test_privacy_lists_what_crosses_and_nothing_else(tmp_path: Path, translate: str) -> None:
    sent: list[Message] = []
    run = meeting(tmp_path, tap=sent.append, method={"translate": translate, "apart": False})
    run.play()
    (said,) = (w for w in peer_words({"translate": translate}, [], {}) if w.startswith("What crosses"))
    assert ("gradients" in said) == any("gradient" in message.body for message in sent)
    own = {row.numpy().tobytes() for p in run.peers.values() for row in p.own.before.entities}  # type: ignore[union-attr]
    told = {row.numpy().tobytes() for m in sent for row in m.body.get("rows", ())}
    assert ("as they are" in said) == bool(own & told)


def test_privacy_is_said_of_votes_and_rows(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    said = {}
    for name, options in {"votes": {}, "both": {"clip": 1.0, "noise": 1.0}}.items():
        method = {**SMALL, "law": "laplace", "scale": 20.0, **options}
        one = experiment(method=method, rounds=4, evaluate={"every": 2, "patience": 1})
        folder = RunFolder.create(tmp_path / name, one, resume=False)
        run(one, folder, torch.device("cpu"), SITES)
        (loaded,) = load_runs([folder.path])
        said[name] = spent(loaded)
    assert {cost.guarantee for cost in said["votes"].costs} == {"none"}, "the same rows are sent as a client"
    assert {cost.guarantee for cost in said["both"].costs} == {"formal"}
    assert "Eqs. 8 to 10" in said["votes"].words[-1]
    assert said["both"].costs[0].epsilon > said["votes"].costs[0].epsilon


class Killed(Exception):
    pass


def killed_at(kind: str, times: int) -> Callable[[Message], None]:
    """Listens, and dies when a kind of message was sent so many times."""
    sent = Counter[str]()

    def tap(message: Message) -> None:
        sent[message.kind] += 1
        if sent[kind] == times:
            raise Killed

    return tap


def test_a_run_that_was_killed_goes_on_bit_by_bit(tmp_path: Path) -> None:
    """Whenever it is killed: in a conversation, before it counts, after an update, late, several times."""
    sent = Counter[str]()
    whole = meeting(tmp_path / "whole", tap=lambda message: sent.update([message.kind]))
    whole.play()
    assert min(sent["commit"], sent["call"]) >= 4
    for number, kills in enumerate(
        (
            [("say", sent["say"] // 3)],
            [("commit", sent["commit"] - 1)],
            [("status", sent["status"] // 2)],
            [("say", sent["say"] // 4)] * 3,
        )
    ):
        path = tmp_path / str(number)
        for kind, times in kills:
            with pytest.raises(Killed):
                meeting(path, tap=killed_at(kind, times)).play()
        again = meeting(path)
        assert again.saves
        again.play()
        for name, peer in again.peers.items():
            (tensors, plain), (others, other) = peer.state(), whole.peers[name].state()
            assert tensors.keys() == others.keys()
            assert all(torch.equal(tensor, others[key]) for key, tensor in tensors.items())
            del plain["own"]["seconds"], other["own"]["seconds"]
            assert plain == other
        assert again.record.tally.summary() == whole.record.tally.summary()
        assert again.record.scores == whole.record.scores


def test_a_run_that_was_not_saved_begins_anew(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        meeting(tmp_path / "a", tap=killed_at("say", 40), save_every=1e9).play()
    again, whole = met(tmp_path / "a"), met(tmp_path / "b")
    assert all(torch.equal(table, rows(whole)[name]) for name, table in rows(again).items())


def test_a_caller_that_dies_before_the_answer_asks_and_both_agree(tmp_path: Path) -> None:
    """As over a network: each peer has a checkpoint of its own, and conversations under way are lost."""

    def lasting(tap: Callable[[Message], None] | None) -> Meeting:
        run = meeting(tmp_path, tap=tap, save_every=1e9)
        for peer in run.peers.values():
            peer.setting = replace(peer.setting, often=True)
            peer.resume()
        return run

    with pytest.raises(Killed):
        lasting(killed_at("commit", 1)).play()
    again = lasting(None)
    assert any(peer.shakes.doubts for peer in again.peers.values())
    again.play()
    talks = Counter(e["talk"] for own in events(again, "update").values() for e in own if e["talk"])
    assert set(talks.values()) == {2}
    assert {peer.shakes.news.own.life for peer in again.peers.values()} == {1}
