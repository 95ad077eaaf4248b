"""Who may speak on the network: peers whose certificates are on file, and not too much or too often."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import torch

grpc = pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from fedkge.errors import ConfigError  # noqa: E402
from fedkge.exchange.hops import introduced  # noqa: E402
from fedkge.graphs.graph import Axis  # noqa: E402
from fedkge.methods.conversation import converse  # noqa: E402
from fedkge.methods.ends import End, Heard  # noqa: E402
from fedkge.methods.lines import Talk  # noqa: E402
from fedkge.runs.experiment import Align  # noqa: E402
from fedkge.runs.peering import PeerFile, own_secret, peer_of  # noqa: E402
from fedkge.runtimes import p2p  # noqa: E402
from fedkge.runtimes.keys import Certificate, new_keys  # noqa: E402
from fedkge.runtimes.p2p import Credentials, Network, Outbox, PeerRuntime  # noqa: E402
from network_of_peers import lay_out  # noqa: E402
from small_federations import small_federation, small_graph  # noqa: E402


@pytest.fixture
def files(tmp_path: Path) -> dict[str, PeerFile]:
    return {name: PeerFile.read(file) for name, file in lay_out(tmp_path, small_federation()).items()}


def test_a_peer_is_known_by_its_key_and_a_stranger_is_not(
    files: dict[str, PeerFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p2p, "TRIES", 1)
    network = Network(files["a"])
    try:
        way = Outbox(files["b"].peers["a"].address, Credentials.of(files["b"]), "a", 1 << 20)
        assert way._sent(b"hello")
        assert network.inbox.get(5) == ("b", b"hello")
        forged = new_keys("b", tmp_path / "forged")  # another key that says the same name
        stranger = replace(files["b"], key=forged.key, certificate=forged.certificate)
        other = Outbox(files["b"].peers["a"].address, Credentials.of(stranger), "a", 1 << 20)
        assert not other._sent(b"hello")
        assert network.inbox.get(0.2) is None
    finally:
        network.close()


def test_too_large_and_too_many_messages_are_refused(
    files: dict[str, PeerFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(p2p, "TRIES", 1)
    monkeypatch.setattr(p2p, "WAITING", 3)
    network = Network(replace(files["a"], most=1))
    try:
        way = Outbox(files["b"].peers["a"].address, Credentials.of(files["b"]), "a", 64 << 20)
        assert not way._sent(bytes(2 << 20))
        assert [way._sent(b"x") for _ in range(5)] == [True] * 3 + [False] * 2
        assert network.refused["b"] == 2
        assert network.inbox.get(5) is not None
        assert way._sent(b"x"), "there is room again"
    finally:
        network.close()


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


def test_names_in_the_open_need_a_secret(files: dict[str, PeerFile]) -> None:
    with pytest.raises(ConfigError, match="a common"):
        replace(files["a"], method=replace(files["a"].method, intersect="ids"))


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
    monkeypatch.setattr(p2p, "CLOSING", 0.1)
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
