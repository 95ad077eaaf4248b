"""What goes wrong between a hub and sites that are processes over NVIDIA FLARE, each bounded in time."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedkge.errors import FedkgeError
from fedkge.graphs.graph import Names
from fedkge.privacy.ledger import Ledger
from fedkge.runtimes.authority import Authority
from fedkge.runtimes.kits import Address, Kit
from fedkge.runtimes.signing import make_request
from network_of_sites import HUB, TERMS, Network, events, in_process, lay_out
from small_federations import small_federation

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedkge[network]'")
pytestmark = pytest.mark.network

ODD = Path(__file__).parents[1] / "odd_site.py"
START = 240.0  #: seconds that all have to be there, on a busy machine
LONG = {**TERMS, "rounds": 12}
QUORUM = {"participation": {"quorum": 0.6}}


@pytest.fixture
def opened() -> Iterator[list[Network]]:
    networks: list[Network] = []
    yield networks
    for network in networks:
        network.close()


def begun(opened: list[Network], folder: Path, terms: dict[str, Any], **odd: str) -> Network:
    """Everybody is started; `odd` sites have an oddity, the others take a quarter of a second per round."""
    graphs = small_federation()
    network = lay_out(folder, graphs, terms, {"assembly": START, "timeout": START})
    opened.append(network)
    network.expected = in_process(folder, graphs, terms)  # first, so that kernels are compiled once
    network.start(HUB)
    for name in network.sites:
        network.start(name, script=ODD, env={"ODD": odd.get(name, "slow:0.25")})
    return network


def same(network: Network) -> bool:
    return {name: network.tables(name) for name in network.sites} == network.expected


def rounds(network: Network) -> dict[int, list[str]]:
    return {event["round"]: event["participants"] for event in events(network, "round")}


def journal(network: Network, site: str) -> list[dict[str, Any]]:
    lines = (network.folder / "homes" / site / "journal.jsonl").read_text().splitlines()
    return list(map(json.loads, lines))


def test_killed_and_ended_sites_and_hubs_go_on(tmp_path: Path, opened: list[Network]) -> None:
    network = begun(opened, tmp_path, LONG)
    network.wait_for(HUB, "round 2/", START)
    network.kill("a")
    network.start("a", script=ODD, env={"ODD": "slow:0.25"})
    network.wait_for(HUB, "round 4/", START)
    network.kill(HUB)
    network.start(HUB)
    network.wait_for(HUB, "round 7/", START)
    assert network.kill(HUB, signal.SIGTERM) == 143
    network.start(HUB)
    network.wait_for(HUB, "round 9/", START)
    network.kill("b", signal.SIGTERM)
    assert "leaves when the question at hand is answered" in network.said("b")
    network.start("b", script=ODD, env={"ODD": "slow:0.25"})
    assert set(network.wait(seconds=START).values()) == {0}
    assert same(network)


@pytest.mark.parametrize("seed", [7])
def test_random_kills_lose_nothing(tmp_path: Path, opened: list[Network], seed: int) -> None:
    draw, terms = random.Random(seed), {**TERMS, "rounds": 16}
    network = begun(opened, tmp_path, terms)
    network.wait_for(HUB, "round 1/", START)
    for kill in range(5):
        victim = draw.choice([HUB, *network.sites])
        time.sleep(draw.uniform(0.0, 1.0))
        network.kill(victim)
        network.start(victim, **({} if victim == HUB else {"script": ODD, "env": {"ODD": "slow:0.25"}}))
        network.wait_for(HUB, f"round {2 * kill + 3}/", START)
    assert set(network.wait(seconds=START).values()) == {0}
    assert same(network)


def test_a_site_that_is_gone_for_good_is_left_out(tmp_path: Path, opened: list[Network]) -> None:
    network = begun(opened, tmp_path, {**TERMS, "rounds": 5, **QUORUM})
    network.wait_for(HUB, "round 1/", START)
    network.kill("a")
    assert set(network.wait(HUB, "b", "c", seconds=START).values()) == {0}
    assert "a: away" in network.said(HUB)
    assert "a: not there at the end" in network.said(HUB)
    assert set(rounds(network)[5]) <= {"b", "c"}


def test_a_slow_site_is_not_waited_for(tmp_path: Path, opened: list[Network]) -> None:
    network = begun(opened, tmp_path, {**TERMS, "rounds": 4, **QUORUM}, a="slow:5", b="slow:0", c="slow:0")
    assert set(network.wait(seconds=START).values()) == {0}
    assert set(rounds(network)[4]) == {"b", "c"}


def test_a_site_that_comes_late_joins_under_the_secret(tmp_path: Path, opened: list[Network]) -> None:
    """The others go on as they are, and the hub hears pseudonyms only."""
    terms = {**TERMS, "rounds": 500, "participation": {"open": True}}
    graphs = {
        site: replace(graph, entities=Names([f"a thing called {name}" for name in graph.entities]))
        for site, graph in small_federation().items()
    }
    network = lay_out(tmp_path, graphs, terms, {"assembly": 60.0, "timeout": START})
    opened.append(network)
    network.start(HUB)
    for name in "ab":
        network.start(name, script=ODD, env={"ODD": "slow:0.5"})
    network.wait_for(HUB, "round 2/", START)
    assert "c" not in rounds(network)[2]
    network.start("c", script=ODD, env={"ODD": "slow:0.5"})
    until = time.monotonic() + START
    while sum("c" in of for of in rounds(network).values()) < 2:
        assert time.monotonic() < until, network.said(HUB)
        time.sleep(0.5)
    assert network.kill(HUB, signal.SIGTERM) == 143
    joined = [one for one in events(network, "aligned") if one["sites"] == ["a", "b", "c"]]
    assert len(joined) == 1
    for name in "ab":
        trained = [e["round"] for e in journal(network, name) if e["event"] == "trained"]
        assert trained == sorted(set(trained))  # nothing was done again
    kept = [path.read_bytes() for path in (tmp_path / "homes" / "hub").rglob("*") if path.is_file()]
    assert not any(b"a thing called" in content for content in kept)


def test_a_private_site_that_is_killed_shows_all_that_it_spent(tmp_path: Path, opened: list[Network]) -> None:
    """A round that was trained and not answered is trained again: both times are in the ledger."""
    terms = {**TERMS, "rounds": 4, "evaluate": {"every": 4, "patience": 0}}
    terms["privacy"] = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
    network = lay_out(
        tmp_path,
        small_federation(),
        terms,
        {"assembly": START, "timeout": START},
        {"marks": {"share": 0.5}, "account": {"folder": "accounts"}},
    )
    opened.append(network)
    network.start(HUB)
    for name in network.sites:
        network.start(name, script=ODD, env={"ODD": "counted"})
    for round, name in ((2, "a"), (3, "b")):
        network.wait_for_file(f"{name}.fits", f"ends {round}", START)
        network.kill(name)  # before it has answered
        network.start(name, script=ODD, env={"ODD": "counted"})
    network.wait_for_file("c.fits", "begins 4", START)
    network.kill(HUB)
    network.start(HUB)
    assert set(network.wait(seconds=START).values()) == {0}
    for name in network.sites:
        fits = (tmp_path / f"{name}.fits").read_text().split("\n")
        ended = sum(line.startswith("ends") for line in fits)
        assert ended == (5 if name in "ab" else 4)
        ledger = Ledger(tmp_path / "homes" / name / "ledger.jsonl")
        each = ledger.total / ended
        assert each == int(each) > 0, "the ledger has every step of every training"
        account = Ledger(next((tmp_path / "accounts").rglob(f"{name}/ledger.jsonl")))
        assert account.total == ledger.total


def test_a_full_disk_at_a_site_loses_nothing(tmp_path: Path, opened: list[Network]) -> None:
    terms = {**TERMS, "model": {"name": "transe", "dim": 64}}
    network = begun(opened, tmp_path, terms, a="full:12000")
    assert network.wait("a", seconds=START) == {"a": 2}
    assert "cannot be written" in network.said("a")
    network.start("a", script=ODD, env={"ODD": "slow:0"})
    assert set(network.wait(seconds=START).values()) == {0}
    assert same(network)


def test_a_site_that_sends_too_much_is_cut_off(tmp_path: Path, opened: list[Network]) -> None:
    """Other forgeries are in test_network_carried.py."""
    network = lay_out(
        tmp_path,
        small_federation(),
        {**TERMS, "rounds": 3, **QUORUM},
        {"assembly": START, "timeout": 20.0, "most": 2},
    )
    opened.append(network)
    network.start(HUB, "b", "c")
    network.start("a", script=ODD, env={"ODD": "oversized"})
    assert set(network.wait(HUB, "b", "c", seconds=START).values()) == {0}
    assert set(rounds(network)[2]) == set(rounds(network)[3]) == {"b", "c"}


def test_another_version_is_refused_at_both_ends(tmp_path: Path, opened: list[Network]) -> None:
    network = begun(opened, tmp_path, TERMS, a="version:0.0.1")
    network.wait_for(HUB, "refused: site 'a' refuses", START)
    assert network.wait("a", seconds=START) == {"a": 2}
    assert "install the same version" in network.said("a")
    assert "install the same version" in network.said(HUB)


def test_foreign_and_revoked_certificates_get_nothing(tmp_path: Path, opened: list[Network]) -> None:
    """A key of another authority does not get through TLS, a revoked one is told why."""
    graphs = small_federation()
    network = lay_out(tmp_path, graphs, TERMS, {"assembly": START, "timeout": 90.0})
    opened.append(network)
    other = Authority.create(
        tmp_path / "other", Address("localhost", Authority(tmp_path / "authority").address.port)
    )
    key, request = make_request("a", "", tmp_path / "foreign")
    kit = other.approve(request.read_bytes())
    shutil.copy(tmp_path / "a.kit", tmp_path / "good.kit")
    (tmp_path / "a.kit").write_bytes(kit.packed())
    (tmp_path / "a.toml").write_text((tmp_path / "a.toml").read_text().replace("keys/a.key", str(key)))
    Authority(tmp_path / "authority").revoke("b")
    network.start()
    assert network.wait("b", seconds=START) == {"b": 2}
    assert "was revoked" in network.said("b")
    network.wait_for(HUB, "c: here", START)
    assert "a: here" not in network.said(HUB)
    assert not (tmp_path / "homes" / "a" / "node.json").exists()
    assert_cannot_administer(tmp_path, Kit.read(tmp_path / "c.kit"), tmp_path / "keys" / "c.key")


def assert_cannot_administer(folder: Path, kit: Kit, key: Path) -> None:
    """A site's certificate does not log in as the administrator."""
    from fedkge.runtimes.engine import Administrator
    from fedkge.runtimes.flare_files import write_admin

    workspace = folder / "intruder"
    write_admin(workspace, Authority(folder / "authority"))
    for name, content in (("client.key", key.read_bytes()), ("client.crt", kit.certificate)):
        (workspace / "startup" / name).write_bytes(content)
    intruder = Administrator(workspace)
    try:
        with pytest.raises(FedkgeError):
            intruder.online()
    finally:
        intruder.stop()
