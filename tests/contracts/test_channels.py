"""Whatever a method sends and whoever answers, both ends of every channel hold the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.exchange.channel import SERIAL, DeltaChannel, Reading
from fedkge.exchange.rows import Message, Update
from fedkge.methods import METHODS
from fedkge.nodes.journal import read_journal
from fedkge.nodes.learner import Fitted
from fedkge.nodes.site import SiteNode
from fedkge.runtimes.run import Simulated
from small_federations import experiment, federated, small_federation

pytestmark = pytest.mark.filterwarnings("ignore:.*left out of the pooled train")

SITES = small_federation(relations_in_common=True)
INT8 = {"name": "int8", "delta": True, "feedback": False}
HARD = {"fraction": 0.67, "quorum": 0.5, "late": "use", "dropout": 0.2}
HOW = {
    "int8": (INT8, {}),
    "int8, some": (INT8, HARD),
    "ternary, some": ({"name": "ternary", "delta": True}, HARD),
    "svd": ({"name": "svd", "rank": 1}, {}),
}
METHOD: dict[str, dict[str, Any]] = {name: {"name": name} for name in METHODS}
METHOD["fedkd"]["small"], METHOD["fedec"]["ensemble"] = 4, 0.5
SHARING = [name for name, method in METHOD.items() if experiment(method=method).method.shares]


class Watched:
    """A run of which every message is looked at: what its sender meant, and what its reader makes of it."""

    def __init__(self, run: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.meant = run, dict[tuple[str, int], tuple[Update, Update]]()
        self.up = self.down = 0
        self.farthest = 0.0  # a decoded number from the one that the site has
        for name, node in run.sites.items():
            self._record(name, node)
        accept = DeltaChannel.accept

        def watched(channel: DeltaChannel, reading: Reading, serial: int) -> Update:
            update = accept(channel, reading, serial)
            if reading.base is not None and channel.hub:
                self._arrived(channel, update, serial)
            elif reading.base is not None:
                self._told(channel, serial)
            return update

        monkeypatch.setattr(DeltaChannel, "accept", watched)

    def _record(self, name: str, node: SiteNode) -> None:
        finish = node.finish

        def recorded(round: int, trained: Fitted) -> Message:
            rows = node.method.publish(node.site)
            message = finish(round, trained)
            body = {part: tensor for part, tensor in message.body.items() if part != SERIAL}
            assert isinstance(node.channel, DeltaChannel)
            self.meant[name, round] = rows, node.channel.receiver.decode(body, node.channel.base)
            return message

        node.finish = recorded  # type: ignore[method-assign]

    def _arrived(self, channel: DeltaChannel, update: Update, serial: int) -> None:
        name = next(name for name, one in self.run.hub.channels.items() if one is channel)
        rows, expected = self.meant[name, serial // 2]
        assert update.keys() == expected.keys()
        for axis, found in update.items():
            assert torch.equal(found.values, expected[axis].values), "as the site decodes it"
            at = torch.searchsorted(self.run.hub.hub.ids[name][axis], found.ids)
            assert torch.equal(at, expected[axis].ids), "the same rows, as each end numbers them"
            off = (found.values - rows[axis].values[at]).abs().max()
            self.farthest = max(self.farthest, float(off))
        self.up += 1

    def _told(self, channel: DeltaChannel, serial: int) -> None:
        name = next(name for name, node in self.run.sites.items() if node.channel is channel)
        there = self.run.hub.channels[name]
        assert isinstance(there, DeltaChannel)
        assert channel.base.serial == there.other.serial == serial
        for axis, values in channel.base.values.items():
            assert torch.equal(values, there.other.values[axis])
            assert torch.equal(channel.base.known[axis], there.other.known[axis])
        self.down += 1


@pytest.mark.parametrize(("codec", "participation"), HOW.values(), ids=HOW.keys())
@pytest.mark.parametrize("name", SHARING)
def test_both_ends_hold_the_same_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    codec: dict[str, Any],
    participation: dict[str, Any],
) -> None:
    own = experiment(method=METHOD[name])
    if own.coding != own.codec and codec != INT8:
        pytest.skip("has a codec of its own, and was tested")
    options = {
        "method": METHOD[name],
        "trainer": {"epochs": 1},
        "participation": participation,
        "rounds": 8,
        **({"codec": codec} if own.coding == own.codec else {}),
        **({"select": {"name": "topk", "p": 0.5, "s": 2}} if own.selection == own.select else {}),
    }
    run = federated(tmp_path, SITES, **options)
    watched = Watched(run, monkeypatch)
    run.play()
    events = [event for node in run.nodes if node.store for event in read_journal(node.store.journal.path)]
    assert not [event for event in events if event["event"] == "refused"]
    assert watched.up > 8
    assert watched.down > 8
    if codec["name"] == "int8" and own.coding == own.codec:
        assert 0 < watched.farthest < 0.005, "within its code's error of a change"
    if participation:
        assert any(event["used"] for event in events if event["event"] == "late")
