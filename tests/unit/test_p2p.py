"""Who may speak on the network: peers whose certificates are on file, and not too much or too often."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from threading import Thread

import pytest
import torch

grpc = pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from fedkge.config import choose  # noqa: E402
from fedkge.errors import ConfigError, DataError, DataWarning  # noqa: E402
from fedkge.exchange.hops import introduced  # noqa: E402
from fedkge.exchange.rows import Message  # noqa: E402
from fedkge.exchange.wire import encode  # noqa: E402
from fedkge.graphs.graph import Axis  # noqa: E402
from fedkge.graphs.indexing import graph_from_names  # noqa: E402
from fedkge.methods.conversation import converse  # noqa: E402
from fedkge.methods.ends import End, Heard  # noqa: E402
from fedkge.methods.handshake import Handshake  # noqa: E402
from fedkge.methods.lines import Talk  # noqa: E402
from fedkge.methods.news import Report  # noqa: E402
from fedkge.models import MODELS  # noqa: E402
from fedkge.reports.folders.load import load_runs  # noqa: E402
from fedkge.reports.pages.privacy import spent  # noqa: E402
from fedkge.runs.experiment import Align, Persons  # noqa: E402
from fedkge.runs.peering import PeerFile, own_secret, peer_of  # noqa: E402
from fedkge.runtimes import calls, p2p  # noqa: E402
from fedkge.runtimes.calls import Credentials, Network, Outbox  # noqa: E402
from fedkge.runtimes.keys import Certificate, new_keys  # noqa: E402
from fedkge.runtimes.p2p import PeerRuntime, alone  # noqa: E402
from network_of_peers import lay_out  # noqa: E402
from small_federations import small_federation, small_graph  # noqa: E402


@pytest.fixture
def files(tmp_path: Path) -> dict[str, PeerFile]:
    return {name: PeerFile.read(file) for name, file in lay_out(tmp_path, small_federation()).items()}


@pytest.mark.parametrize("mentions", [False, True])
def test_a_peer_brings_no_name_to_others_that_only_triples_about_persons_mention(
    tmp_path: Path, mentions: bool
) -> None:
    train = [("patient/1", "has", "gout"), ("patient/2", "takes", "drug"), ("drug", "of", "class")]
    graph = graph_from_names(train, [("patient/2", "has", "gout")], [("class", "of", "drug")])
    file = PeerFile.read(lay_out(tmp_path, {"a": graph, "b": graph})["a"])
    file = replace(file, persons=Persons(prefixes=("patient/",), mentions=mentions))
    with nullcontext() if mentions else pytest.warns(DataWarning, match="1 entities and 2 relations are not"):
        identity = peer_of(file, torch.device("cpu"), lasting=False).identity
    brought = {axis: sorted(identity.ids[axis][i] for i in identity.announced(axis)) for axis in Axis}
    hidden: dict[Axis, list[bytes]] = {Axis.ENTITY: [b"gout"], Axis.RELATION: [b"has", b"takes"]}
    assert brought[Axis.ENTITY] == sorted([b"class", b"drug", *hidden[Axis.ENTITY] * mentions])
    assert brought[Axis.RELATION] == sorted([b"of", *hidden[Axis.RELATION] * mentions])


def test_a_peer_is_known_by_its_key_and_a_stranger_is_not(
    files: dict[str, PeerFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "TRIES", 1)
    network = Network(files["a"])
    try:
        way = Outbox(files["b"].peers["a"].address, Credentials.of(files["b"]), "a", 1 << 20)
        assert way._sent(b"hello")
        assert network.inbox.get(5) == ("b", b"hello")
        forged = new_keys("b", tmp_path / "forged")  # another key that says the same name
        stranger = replace(files["b"], key=forged.key, certificate=forged.certificate)
        other = Outbox(files["b"].peers["a"].address, Credentials.of(stranger), "a", 1 << 20)
        assert not other._sent(b"hello")
        assert "connect" in other.why
        assert network.inbox.get(0.2) is None
    finally:
        network.close()


def test_too_large_and_too_many_messages_are_refused(
    files: dict[str, PeerFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "TRIES", 1)
    monkeypatch.setattr(calls, "WAITING", 3)
    network = Network(replace(files["a"], most=1))
    try:
        way = Outbox(files["b"].peers["a"].address, Credentials.of(files["b"]), "a", 64 << 20)
        assert not way._sent(bytes(2 << 20))
        assert [way._sent(b"x") for _ in range(5)] == [True] * 3 + [False] * 2
        until = time.monotonic() + 5  # a sender may hear of it before it is counted
        while network.refused.total() < 3 and time.monotonic() < until:
            time.sleep(0.02)
        told = {event["why"]: event["times"] for event in network.news()}
        assert told == {
            "a message of more than 1 megabytes (most), or none": 1,
            "too many messages wait already": 2,
        }
        assert network.news() == [], "told once"
        assert network.inbox.get(5) is not None
        assert way._sent(b"x"), "there is room again"
    finally:
        network.close()


def test_what_waits_is_bounded_in_bytes_too() -> None:
    inbox = calls.Inbox(most=100)
    assert [inbox.put("b", bytes(90)) for _ in range(3)] == [True, True, False]
    assert inbox.put("c", bytes(90)), "others have room of their own"
    assert inbox.get(1) is not None
    assert inbox.put("b", bytes(90))


def test_a_flood_does_not_keep_a_peer_from_its_work(
    files: dict[str, PeerFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = PeerRuntime(files["a"], torch.device("cpu"))
    read, worked = count(), count(1)

    def flooded(wait: float) -> list[Message]:
        assert next(read) < 1000, "it never gets to its work"
        return []

    def work() -> list[Message]:
        runtime.ended = next(worked) == 3
        return []

    monkeypatch.setattr(runtime, "_read", flooded)
    monkeypatch.setattr(runtime.node, "work", work)
    try:
        runtime._talk()
    finally:
        runtime.network.close()
    assert next(worked) == 4


def test_keys_are_private_and_never_replaced(tmp_path: Path) -> None:
    files = new_keys("film", tmp_path)
    assert files.key.stat().st_mode & 0o077 == 0
    assert Certificate.read(files.certificate).name == "film"
    with pytest.raises(ConfigError, match="exists already"):
        new_keys("film", tmp_path)
    assert own_secret(tmp_path) == own_secret(tmp_path)
    assert (tmp_path / "secret.key").stat().st_mode & 0o077 == 0


def test_a_certificate_of_somebody_else_is_an_error(files: dict[str, PeerFile]) -> None:
    mixed = {**files["a"].peers, "b": files["a"].peers["c"]}
    with pytest.raises(ConfigError, match="its certificate is of 'c'"):
        Credentials.of(replace(files["a"], peers=mixed))
    with pytest.raises(ConfigError, match="is of 'b'; expected 'a'"):
        Credentials.of(replace(files["a"], certificate=files["b"].certificate))
    with pytest.raises(ConfigError, match="is not the key of"):
        Credentials.of(replace(files["a"], key=files["b"].key))


@pytest.mark.parametrize("address", ["10.1.2.3", "10.1.2.3:x", "10.1.2.3:70000", ":"])
def test_an_address_has_a_port(files: dict[str, PeerFile], address: str) -> None:
    with pytest.raises(ConfigError, match="expected host and port"):
        replace(files["a"], listen=address)


def test_a_peer_that_waits_for_an_answer_is_not_taken_for_absent(files: dict[str, PeerFile]) -> None:
    with pytest.raises(ConfigError, match="more than timeout"):
        replace(files["a"], timeout=20.0, absence=20.0)


def test_names_in_the_open_need_a_secret(files: dict[str, PeerFile]) -> None:
    with pytest.raises(ConfigError, match="a common"):
        replace(files["a"], method=replace(files["a"].method, intersect="ids"))


def test_a_peer_runs_once_and_its_port_is_its_own(files: dict[str, PeerFile]) -> None:
    with alone(files["a"]):
        network = Network(files["a"])
        try:
            with pytest.raises(ConfigError, match="listen"):
                Network(files["a"])
            with pytest.raises(ConfigError, match="another process"), alone(files["a"]):
                pass
        finally:
            network.close()


def test_a_peer_goes_on_only_as_what_it_was(files: dict[str, PeerFile]) -> None:
    first = peer_of(files["a"], torch.device("cpu"))
    first.open()
    first.work()
    assert peer_of(files["a"], torch.device("cpu")).resume()
    others = {name: one for name, one in files["a"].peers.items() if name != "c"}
    model = choose(MODELS, {"name": "distmult", "dim": 8}, "model")
    for changed, why in (
        (replace(files["a"], model=model), "other options"),
        (replace(files["a"], graph=files["b"].graph), "another graph"),
        (replace(files["a"], peers=others), "other partners"),
    ):
        with pytest.raises(DataError, match=f"a peer with {why}"):
            peer_of(changed, torch.device("cpu")).resume()


def test_the_folder_of_a_peer_says_what_it_has_spent(files: dict[str, PeerFile]) -> None:
    pytest.importorskip("dp_accounting")
    method = replace(files["a"].method, law="laplace", scale=20.0)  # type: ignore[call-arg]
    peer = peer_of(replace(files["a"], method=method), torch.device("cpu"))
    peer.open()
    assert peer.spending.votes(29, 1)
    peer.note({"event": "conversation", "gaps": {"0": 29}})
    peer.flush()
    (run,) = load_runs([files["a"].folder])
    found = spent(run)
    (cost,) = found.costs
    assert (cost.site, cost.plain()["releases"], cost.guarantee) == ("a", 29, "none")
    assert 1 < cost.epsilon < 2.73
    assert "a 2.73" in found.words[-1]
    assert any("which of them both ends have" in said for said in found.words)


@pytest.mark.parametrize("speaks", [False, True])
def test_a_peer_that_says_it_has_news_and_answers_no_call_holds_nobody_up(
    files: dict[str, PeerFile], monkeypatch: pytest.MonkeyPatch, speaks: bool
) -> None:
    """It may have died for good, or go on to say that it has news and never talk about them."""
    monkeypatch.setattr(calls, "CLOSING", 0.1)
    monkeypatch.setattr(p2p, "LOOK", 0.0)
    file = replace(files["a"], timeout=0.1, nap=0.05, absence=60.0 if speaks else 0.6, rounds=8)
    runtime = PeerRuntime(file, torch.device("cpu"))
    shakes, numbers = runtime.node.shakes, count(1)
    runtime.node.work()  # the first rounds

    def status() -> Message:
        stamp = next(numbers)
        own = {"life": 0, "stamp": stamp, "version": stamp, "met": {}}
        said = {"talk": "", **own, "idle": False, "left": False, "over": False}
        return Message("b", "a", "status", 0, {}, said, "test")

    read, until = runtime._read, time.monotonic() + 30

    def speaking(wait: float) -> list[Message] | None:
        assert time.monotonic() < until, shakes.report()
        if speaks and shakes.calling is None and not shakes.news.of("b"):
            runtime.network.inbox.put("b", encode(status()))
        runtime.ended = speaks and shakes.content
        return read(wait)

    monkeypatch.setattr(runtime, "_read", speaking)
    runtime.node.receive(status())
    runtime.heard = dict.fromkeys(file.peers, time.monotonic())
    try:
        runtime._talk()
    finally:
        runtime.network.close()
    assert shakes.number >= 1, "it has called"
    assert runtime.node.own.rounds == 8 or runtime.node.own.content
    assert speaks or runtime.node.stopped


def test_who_does_not_answer_comes_last_and_training_first() -> None:
    peer = Handshake("a", "abc")
    peer.trained(True, content=False)
    for name in "bc":
        peer.hear(name, "status", "", asdict(Report(stamp=1, version=1)))
    assert [line.to for line in peer.act()] == ["b"]
    peer.expired()
    assert peer.act() == [], "it trains"
    assert [line.to for line in peer.act()] == ["c"]


def heard_of(files: dict[str, PeerFile], *names: str) -> list[Heard]:
    peers = [peer_of(files[name], torch.device("cpu")) for name in names]
    ends = [
        End(p.method, p.own.best, p.learner.member.graph, p.identity.ids, p.keys, "0123456789", None)
        for p in peers
    ]
    ends = [replace(end, withheld=p.identity.withheld) for end, p in zip(ends, peers, strict=True)]
    return list(introduced(converse(ends[0], True), converse(ends[1], False)))


@pytest.mark.parametrize("names", [True, False])
def test_links_in_a_file_say_who_is_the_same_and_others_are_kept_back(tmp_path: Path, names: bool) -> None:
    graphs = {
        "x": small_graph(1, [f"e{i}" for i in range(12)], ["r"], 60, 6),
        "y": small_graph(2, [f"e{i}" for i in range(4)] + [f"ding {i}" for i in range(8)], ["s"], 60, 6),
    }
    read = {name: PeerFile.read(file) for name, file in lay_out(tmp_path, graphs).items()}
    (tmp_path / "same.tsv").write_text("".join(f"x\te{i + 4}\ty\tding {i}\n" for i in range(5)))
    (tmp_path / "hidden").write_text("e0\n")
    align = Align(names=names, entities=tmp_path / "same.tsv", withhold=tmp_path / "hidden")
    files = {name: replace(file, align=align) for name, file in read.items()}
    assert [len(one.aligned[Axis.ENTITY]) for one in heard_of(read, "x", "y")] == [4, 4]
    heard = heard_of(files, "x", "y")
    own = [
        [list(peer_of(files[n], torch.device("cpu")).learner.member.graph.entities)[i] for i in one]
        for n, one in zip("xy", (h.aligned[Axis.ENTITY].tolist() for h in heard), strict=True)
    ]
    pairs = set(zip(*own, strict=True))
    linked = {(f"e{i + 4}", f"ding {i}") for i in range(5)}
    assert pairs == linked | ({(f"e{i}", f"e{i}") for i in range(1, 4)} if names else set())


def test_reports_of_others_do_not_prolong_the_wait_for_an_answer(
    files: dict[str, PeerFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partner that died and came back reports itself, and says nothing in the old conversation."""
    monkeypatch.setattr(calls, "CLOSING", 0.1)
    runtime = PeerRuntime(replace(files["a"], timeout=0.3, nap=0.1), torch.device("cpu"))
    shakes, inbox = runtime.node.shakes, runtime.network.inbox
    shakes.working, shakes.calling = False, Talk("a/1", "b", mine=True)

    def report() -> None:
        until = time.monotonic() + 3
        while shakes.calling is not None and time.monotonic() < until:
            inbox.put("b", b"a report, as far as waiting is concerned")
            time.sleep(0.02)
        runtime.ended = True

    try:
        Thread(target=report).start()
        runtime._talk()
    finally:
        runtime.network.close()
    assert shakes.calling is None
