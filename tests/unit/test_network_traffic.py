"""What a hub counts is what left it and what came, also where sites are away, slow, or come again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedkge.exchange.codec import Float32
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.tally import KINDS, Tally
from fedkge.exchange.wire import length
from fedkge.graphs.graph import Axis
from fedkge.nodes.learner import Learner
from fedkge.runtimes.hello import MESSAGE
from fedkge.runtimes.network_hub import NetworkHub
from fedkge.runtimes.network_site import Site
from fedkge.runtimes.remote import Reply
from fedkge.runtimes.stream import Frame, Link
from network_of_sites import FORGED, TERMS, Network, Wire, events, hub_of, lay_out, played, site_thread
from odd_site import OddSite
from small_federations import small_federation

QUORUM = {**TERMS, "rounds": 6, "participation": {"quorum": 0.6}}


class Weighing(Site):
    """Weighs the messages that it hears and says."""

    heard = said = 0

    def _hear(self, link: Link, parcel: list[Frame]) -> None:
        self.heard += weight(parcel)
        super()._hear(link, parcel)

    def _send(self, link: Link, frames: list[Frame]) -> None:
        super()._send(link, frames)
        self.said += weight(frames)


def weight(frames: Sequence[Frame]) -> int:
    return sum(len(content) for kind, content in frames if kind == MESSAGE)


def journal_of(network: Network) -> dict[int, dict[str, Any]]:
    """Traffic by round; the last line counts."""
    lines = (network.folder / "homes" / "hub" / "run.jsonl").read_text().splitlines()
    traffic = (event for event in map(json.loads, lines) if event["event"] == "traffic")
    return {event["round"]: event for event in traffic if event["round"] > 0}


def assert_journal_has_all(network: Network, hub: NetworkHub) -> None:
    """Every byte that was counted is in the journal, and in a hub that goes on from it."""
    counted = hub.record.tally.summary()
    rounds = journal_of(network)
    assert [
        {"round": n, **{kind: one[kind] for kind in KINDS}} for n, one in sorted(rounds.items())
    ] == counted["per_round"]
    assert hub_of(network).record.tally.summary() == counted


def slow_in_round_five(monkeypatch: pytest.MonkeyPatch, site: str, seconds: float) -> None:
    fit = Learner.fit

    def slowly(self: Learner, round: int, *given: Any) -> Any:
        if site in self.member.parts and round == 5:
            time.sleep(seconds)
        return fit(self, round, *given)

    monkeypatch.setattr(Learner, "fit", slowly)


def test_what_a_slow_site_says_after_the_last_round_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = lay_out(tmp_path, small_federation(), QUORUM)
    Wire(monkeypatch)
    slow_in_round_five(monkeypatch, "c", 2.0)
    hub, found = played(network, dict.fromkeys(network.sites, Weighing))
    assert any("c" in event["late"] for event in events(network, "round"))
    sums = {site: (own["down_bytes"], own["up_bytes"]) for site, own in hub.record.tally.sites.items()}
    assert sums == {site: (own.heard, own.said) for site, own in found.items()}
    assert_journal_has_all(network, hub)


def test_a_site_that_joins_again_is_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, said = lay_out(tmp_path, small_federation(), TERMS), list[Message]()
    wire, left = Wire(monkeypatch), {("upload", 2, "b"), ("stop", 4, "a")}

    def tap(message: Message) -> None:
        said.append(message)
        who = message.sender if message.kind == "upload" else message.recipient
        if (message.kind, message.round, who) in left:
            left.remove((message.kind, message.round, who))
            wire.cut(who)

    hub, _ = played(network, tap=tap)
    assert not left
    assert sum(message.kind == "join" for message in said) == 5
    assert_journal_has_all(network, hub)


def test_nothing_counts_that_is_for_a_site_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = lay_out(tmp_path, small_federation(), QUORUM)
    wire, found = Wire(monkeypatch), dict[str, Any]()

    def tap(message: Message) -> None:
        if (message.kind, message.round, message.sender) == ("metrics", 2, "c"):
            wire.sites.pop("c")
            wire.cut("c")

    threads = [site_thread(network, name, found, Weighing) for name in network.sites]
    hub = hub_of(network, tap=tap)
    hub.play()
    found["c"].ended = True
    for thread in threads:
        thread.join(60)
    assert "c: away" in hub.heard  # type: ignore[attr-defined]
    rounds = journal_of(network)
    assert rounds.keys() == {1, 2, 3, 4, 5, 6}
    assert "c" in rounds[2]["sites"]
    assert not any("c" in rounds[n]["sites"] for n in (5, 6))  # a question may be under way when it leaves
    for site in "ab":
        own = hub.record.tally.sites[site]
        assert (own["down_bytes"], own["up_bytes"]) == (found[site].heard, found[site].said)


def test_what_comes_over_a_stream_that_was_replaced_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not heeded: the site joins over the new stream, and is asked again."""
    network, said = lay_out(tmp_path, small_federation(), TERMS), list[Message]()
    wire, streams = Wire(monkeypatch), list[Any]()
    greet = NetworkHub._greet

    def greeted(self: NetworkHub, remote: Any, stream: Any) -> None:
        greet(self, remote, stream)
        if remote.id == "b":
            streams.append(stream)
            if len(streams) == 2:
                self.door.news.put(("b", streams[0], late))

    late: list[Frame] = []
    answered = NetworkHub._answered

    def noted(self: NetworkHub, remote: Any, frames: list[Frame]) -> Reply | None:
        if remote.id == "b" and not late:
            late.extend(frames)  # b has joined
            wire.connect("b")
        return answered(self, remote, frames)

    monkeypatch.setattr(NetworkHub, "_greet", greeted)
    monkeypatch.setattr(NetworkHub, "_answered", noted)
    hub, _ = played(network, tap=said.append)
    assert len(streams) == 2
    joins = [message for message in said if message.kind == "join"]
    assert [message.sender for message in joins].count("b") == 3
    assert_journal_has_all(network, hub)


class WeighingOdd(Weighing, OddSite):
    """Weighs what it forges, too."""


@pytest.mark.parametrize("odd", [odd for odd in FORGED if odd != "oversized"])  # that is not read to its end
def test_what_is_refused_counts_as_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    terms = {**TERMS, "rounds": 3, "participation": {"quorum": 0.6}}
    network = lay_out(tmp_path, small_federation(), terms, {"timeout": 5.0, "most": 2})
    Wire(monkeypatch)
    found = dict.fromkeys(network.sites, Weighing) | {"a": partial(WeighingOdd, odd=odd)}
    hub, sites = played(network, found)
    assert any(event["site"] in ("a", "?") for event in events(network, "refused"))
    sums = {site: (own["down_bytes"], own["up_bytes"]) for site, own in hub.record.tally.sites.items()}
    assert sums == {site: (own.heard, own.said) for site, own in sites.items()}
    assert journal_of(network).keys() == {1, 2, 3}
    assert_journal_has_all(network, hub)


def test_what_is_said_of_a_round_to_come_counts_in_the_latest() -> None:
    tally = Tally(Float32(), {Axis.ENTITY: 4})
    early, late = (Message("a", HUB, "upload", round) for round in (10**9, 1))
    for message in (early, late):
        tally.count(message, latest=2)
    tally.unread("a", 7, 2)
    found = {number: tally.round(number)["a"]["up_bytes"] for number in tally.rounds}
    assert found == {1: length(late), 2: length(early) + 7}
