"""Hub and sites as processes over NVIDIA FLARE, with keys, on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from network_of_sites import TERMS, Network, in_process, lay_out
from small_federations import small_federation

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedkge[network]'")


@pytest.fixture
def opened() -> Iterator[list[Network]]:
    networks: list[Network] = []
    yield networks
    for network in networks:
        network.close()


def test_two_sites_over_flare_end_with_the_same_tables(tmp_path: Path, opened: list[Network]) -> None:
    graphs = {name: graph for name, graph in small_federation().items() if name != "c"}
    network = lay_out(tmp_path, graphs, TERMS)
    opened.append(network)
    network.start()
    expected = in_process(tmp_path, graphs, TERMS)
    assert set(network.wait(seconds=120).values()) == {0}, network.said("hub")
    assert {name: network.tables(name) for name in graphs} == expected
    assert traffic(tmp_path / "homes" / "hub") == traffic(tmp_path / "in-process")
    assert not list((tmp_path / "homes").glob("*/flare/*/custom"))  # no code has travelled


def traffic(run: Path) -> dict[str, Any]:
    """What each site sent and was sent, by the journal."""
    events = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    return {event["round"]: event["sites"] for event in events if event["event"] == "traffic"}
