"""Whoever hears every message reads the same rows as the nodes do, whatever the codec and whoever is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.audits.transcript import Transcript
from fedkge.exchange.channel import Channel, DeltaChannel, Reading, serial
from fedkge.exchange.rows import HUB, Message, Update
from fedkge.graphs.graph import Axis
from small_federations import experiment, federated, small_federation

SITES = small_federation(relations_in_common=True)
CODECS: list[dict[str, Any]] = [
    {"name": "float32"},
    {"name": "int8", "feedback": True},
    {"name": "float16", "delta": True},
    {"name": "ternary", "delta": True, "feedback": True},
]
WHO = {
    "all": {},
    "some": {"fraction": 0.7},
    "late and lost": {"quorum": 0.6, "late": "use", "dropout": 0.3},
}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("method", ["fede", "feds"])
def test_it_reads_what_the_nodes_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, codec: dict[str, Any], who: str
) -> None:
    """Over rounds with validations in between, whose answers travel before the next question."""
    changes: dict[str, Any] = {"rounds": 5, "method": {"name": method}, "codec": codec}
    changes |= {"participation": WHO[who], "trainer": {"epochs": 1, "batch_size": 64}}
    read: dict[int, Update] = {}
    for kind in (Channel, DeltaChannel):
        plain = kind.read

        def noted(channel: Channel, body: Mapping[str, Tensor], plain: Any = plain) -> Reading:
            found: Reading = plain(channel, body)
            read[id(body)] = found.update
            return found

        monkeypatch.setattr(kind, "read", noted)
    heard: list[tuple[Message, Update]] = []
    transcript = Transcript(experiment(**changes))
    run = federated(
        tmp_path / "run",
        SITES,
        tap=lambda message: heard.append((message, transcript.read(message))),
        **changes,
    )
    run.play()
    monkeypatch.undo()
    compared = {HUB: 0, "a": 0, "b": 0, "c": 0}
    for message, update in heard:
        if id(message.body) in read:  # what is lost, nobody else reads
            known = read[id(message.body)]
            assert update.keys() == known.keys()
            compared[message.sender] += len(known)
            assert all(torch.equal(update[axis].values, rows.values) for axis, rows in known.items())
    assert min(compared.values()) > 1


def test_rows_of_two_sites_are_compared_by_their_announced_ids(tmp_path: Path) -> None:
    """e10 to e19 are at all three sites; e20 to e23 at b and c only."""
    transcript = Transcript(experiment(method={"name": "fede"}))
    federated(tmp_path / "run", SITES, tap=transcript.read, method={"name": "fede"}).play()
    every = sorted({name.encode() for graph in SITES.values() for name in graph.entities})
    names = {
        site: [every[i] for i in wire.shared[Axis.ENTITY].tolist()] for site, wire in transcript.wires.items()
    }
    assert names["a"] == [f"e{i}".encode() for i in range(10, 20)]
    assert names["b"] == names["c"] == [f"e{i}".encode() for i in range(10, 24)]
    assert transcript.twice(Axis.ENTITY).tolist() == [every.index(f"e{i}".encode()) for i in range(20, 24)]


@pytest.mark.parametrize("round", [1, 3])
def test_rows_are_kept_as_far_back_as_the_hub_starts_from_them(tmp_path: Path, round: int) -> None:
    """However many rounds are heard, a wire keeps the rows of two messages."""
    changes: dict[str, Any] = {"method": {"name": "fede"}, "codec": {"name": "int8", "delta": True}}
    transcript = Transcript(experiment(**changes))
    run = federated(tmp_path / "run", SITES, tap=transcript.read, **changes)
    run.play(until=lambda number: number > round)
    for site, wire in transcript.wires.items():
        assert len(wire.held) == 2
        assert max(wire.held) == serial("train", round + 1), site
