"""Hub and sites that talk in parcels: the same tables as in one process, whoever carries the parcels."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from safetensors.torch import load_file

from fedkge.errors import ConfigError, FedkgeError
from fedkge.exchange.rows import Message
from fedkge.front.progress import told
from fedkge.reports.folders.load import load_run
from fedkge.runtimes import hello
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.engine import BEAT
from fedkge.runtimes.progress import Progress
from fedkge.runtimes.remote import Remote, Reply
from fedkge.runtimes.steward import SILENCE, Steward
from fedkge.runtimes.stream import Frame
from network_of_sites import (
    FORGED,
    TERMS,
    WITH_HUB,
    Wire,
    assert_refused,
    assert_same_as_in_process,
    events,
    hub_of,
    in_process,
    lay_out,
    played,
    site_thread,
)
from odd_site import OddSite
from small_federations import small_federation


@pytest.mark.parametrize("method", WITH_HUB)
def test_the_tables_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    Wire(monkeypatch)
    assert_same_as_in_process(tmp_path, method)


def test_a_stream_that_breaks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut in the middle of training, of measuring, and as the run ends."""
    graphs = small_federation()
    network = lay_out(tmp_path, graphs, TERMS)
    wire, left = (
        Wire(monkeypatch),
        {("train", 2, "a"), ("upload", 3, "b"), ("measure", 2, "c"), ("stop", 4, "a")},
    )

    def tap(message: Message) -> None:
        who = message.sender if message.kind == "upload" else message.recipient
        if (message.kind, message.round, who) in left:
            left.remove((message.kind, message.round, who))
            wire.cut(who)

    _, found = played(network, tap=tap)
    assert not left
    assert {name: network.tables(name) for name in graphs} == in_process(tmp_path, graphs, TERMS)
    assert all(site.ended for site in found.values())


def test_a_site_that_comes_over_two_streams_joins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a job of FLARE's that took long, and was submitted again."""
    wire, joined, twice = Wire(monkeypatch), set[str](), set[str]()
    answered, connect = Remote.answered, wire.connect

    def noted(self: Remote, frames: list[Frame]) -> Reply | None:
        joined.add(self.id)
        return answered(self, frames)

    def connected(site: str) -> None:
        connect(site)
        until = time.monotonic() + 20
        while site not in joined and time.monotonic() < until:
            time.sleep(0.01)
        if site not in twice:
            twice.add(site)
            connect(site)

    monkeypatch.setattr(Remote, "answered", noted)
    monkeypatch.setattr(wire, "connect", connected)
    assert_same_as_in_process(tmp_path, "fedepl")
    assert "a" in twice


def test_no_job_is_submitted_for_a_run_that_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLARE takes seconds to abort the job of a site that has gone. Meanwhile the run ends."""
    ended, door, jobs = threading.Event(), SimpleNamespace(ended={}), list[str]()

    class Administrator:
        workspace = tmp_path

        def online(self) -> dict[str, float]:
            return {"a": time.time() + 1}

        def submit(self, job: Path) -> str:
            jobs.append(job.name)
            door.ended["a"] = time.time() + 1  # the stream has ended
            return "job"

        def abort(self, job: str) -> None:
            ended.set()

    monkeypatch.setattr("fedkge.runtimes.steward.LOOK", 0.01)
    engine: Any = SimpleNamespace(runs=True, listens=lambda port: True)
    steward = Steward(engine, cast(Any, Administrator()), {"a": Remote("a")}, ended, cast(Any, door), 0)
    steward.start()
    steward.join(20)
    assert ended.is_set()
    assert jobs == ["to-a"]


@pytest.mark.parametrize("odd", FORGED)
def test_a_forged_answer_is_refused_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    Wire(monkeypatch)
    assert_refused(tmp_path, partial(OddSite, odd=odd))


def test_huge_values_are_bounded_by_the_aggregation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = small_federation()
    terms = {**TERMS, "rounds": 3, "aggregate": {"name": "median"}}
    network = lay_out(tmp_path, graphs, terms)
    Wire(monkeypatch)
    played(network, {"a": partial(OddSite, odd="huge")})
    for name in "bc":
        rows = load_file(network.folder / "homes" / name / "entities.safetensors")
        assert all(float(table.abs().max()) < 1e3 for table in rows.values())


def test_a_version_that_does_not_match_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = lay_out(tmp_path, small_federation(), TERMS, {"assembly": 2.0})
    Wire(monkeypatch)
    plain = hello.HubHello.of

    def older(*given: Any) -> hello.HubHello:
        return replace(plain(*given), fedkge="0.0.1")

    monkeypatch.setattr(hello.HubHello, "of", older)
    with pytest.raises(FedkgeError, match=r"did not join"):
        played(network)


def test_a_hub_that_asks_for_more_than_a_site_accepts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = lay_out(tmp_path, small_federation(), TERMS, site={"accept": {"rounds": 2}})
    Wire(monkeypatch)
    with pytest.raises(FedkgeError, match=r"a declines: rounds: 4, the site accepts at most 2"):
        played(network)


@pytest.mark.filterwarnings("ignore:.*only triples about persons mention them")
def test_a_site_without_questions_is_null_in_a_journal_that_is_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows a loss at the hub, and a site may have no validation triple about nobody."""
    graphs = small_federation()
    train = graphs["c"].train
    graphs["c"] = replace(graphs["c"], train=train[train[:, 0] > 0], valid=train[train[:, 0] == 0])  # of e10
    network = lay_out(tmp_path, graphs, {**TERMS, "rounds": 2}, {"assembly": 20.0})
    with (tmp_path / "c.toml").open("a") as file:
        file.write('[persons]\nprefixes = ["e10"]\n')
    Wire(monkeypatch)
    said: list[Progress] = []
    played(network, watch=said.append)
    lines = (network.folder / "homes" / "hub" / "hub" / "journal.jsonl").read_text().splitlines()
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    (measured,) = (event for event in found if event["event"] == "evaluate")
    assert measured["sites"]["c"]["mrr"] is None
    assert load_run(network.folder / "homes" / "hub").validation()["a"].keys() == {2}
    assert [one.loss for one in said] == [None, None]
    assert "nan" not in told(said[-1])


def test_names_are_not_announced_unless_the_hub_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = lay_out(tmp_path, small_federation(), TERMS, {"assembly": 5.0}, {"align": {}})
    Wire(monkeypatch)
    with pytest.raises(FedkgeError, match="was refused"):
        played(network)


def test_a_revoked_site_is_cut_off_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = small_federation()
    terms = {**TERMS, "rounds": 3, "participation": {"quorum": 0.6}}
    network = lay_out(tmp_path, graphs, terms, {"timeout": 5.0})
    Wire(monkeypatch)

    def tap(message: Message) -> None:
        if (message.kind, message.round, message.recipient) == ("train", 2, "a"):
            Authority(tmp_path / "authority").revoke("a")

    _, found = played(network, tap=tap)
    assert "was revoked" in str(found["a"])
    taken = {event["round"]: event["participants"] for event in events(network, "round")}
    assert (taken[2], taken[3]) == (["b", "c"], ["b", "c"])
    assert any("revoked" in event["why"] for event in events(network, "refused"))


def test_a_hub_goes_on_by_itself_and_with_the_same_terms_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = small_federation()
    network = lay_out(tmp_path, graphs, TERMS)
    Wire(monkeypatch)
    found: dict[str, Any] = {}
    threads = [site_thread(network, name, found) for name in graphs]
    hub_of(network).play(until=lambda round: round == 3)
    hub = hub_of(network)
    assert hub.round == 2
    hub.play()
    for thread in threads:
        thread.join(20)
    assert {name: network.tables(name) for name in graphs} == in_process(tmp_path, graphs, TERMS)
    text = (tmp_path / "hub.toml").read_text().replace("rounds = 4", "rounds = 5")
    (tmp_path / "hub.toml").write_text(text)
    with pytest.raises(ConfigError, match="same terms"):
        hub_of(network)


def test_a_site_waits_between_two_signs_of_life() -> None:
    """FLARE waits `int(interval / 2)` times two seconds: below 2 it floods the hub without a pause."""
    assert int(BEAT / 2) >= 1
    assert SILENCE >= 4 * BEAT  # a busy machine may be late
