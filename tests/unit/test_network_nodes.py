"""Hub and sites that talk in parcels: the same tables as in one process, whoever carries the parcels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedkge.methods import METHODS
from network_of_sites import TERMS, Wire, hub_of, in_process, lay_out, site_thread
from small_federations import small_federation

METHODS_WITH_HUB = sorted(
    name for name in METHODS if not METHODS[name].hubless and name not in ("collective",)
)


@pytest.mark.parametrize("method", METHODS_WITH_HUB)
def test_the_tables_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    graphs = small_federation(relations_in_common=True)
    terms = {**TERMS, "method": {"name": method}}
    network = lay_out(tmp_path, graphs, terms)
    expected = in_process(tmp_path, graphs, terms)
    Wire(monkeypatch)
    found: dict[str, Any] = {}
    threads = [site_thread(network, name, found) for name in graphs]
    hub = hub_of(network)
    hub.play()
    for thread in threads:
        thread.join(20)
    assert all(site.ended for site in found.values()), found
    assert {name: network.tables(name) for name in graphs} == expected
