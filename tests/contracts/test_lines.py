"""Whatever a method sends and whoever answers, both ends of every line hold the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.exchange.line import TURN, DeltaLine
from fedkge.exchange.rows import Message, Update
from fedkge.methods import METHODS
from fedkge.runtimes.inprocess import Federated
from small_federations import experiment, federated, ignore, small_federation

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

    def __init__(self, run: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.meant = run, dict[tuple[str, int], tuple[Update, Update]]()
        self.up = self.down = 0
        self.farthest = 0.0  # a decoded number from the one that the site has
        for name, party in run.sites.items():
            self._record(name, party)
        decode = DeltaLine.decode

        def watched(line: DeltaLine, body: Any, turn: int) -> Update:
            update = decode(line, body, turn)
            if body and line.hub:
                self._arrived(line, update, turn)
            elif body:
                self._told(line, turn)
            return update

        monkeypatch.setattr(DeltaLine, "decode", watched)

    def _record(self, name: str, party: Any) -> None:
        finish = party.finish

        def recorded(round: int) -> Message:
            rows = party.method.publish(party.site)
            message: Message = finish(round)
            body = {part: tensor for part, tensor in message.body.items() if part != TURN}
            self.meant[name, round] = rows, party.line.receiver.decode(body, party.line.base)
            return message

        party.finish = recorded

    def _arrived(self, line: DeltaLine, update: Update, turn: int) -> None:
        name = next(name for name, one in self.run.hub.lines.items() if one is line)
        rows, expected = self.meant[name, turn // 2]
        assert update.keys() == expected.keys()
        for axis, found in update.items():
            assert torch.equal(found.values, expected[axis].values), "as the site decodes it"
            at = torch.searchsorted(self.run.hub.hub.ids[name][axis], found.ids)
            off = (found.values - rows[axis].values[at]).abs().max()
            self.farthest = max(self.farthest, float(off))
        self.up += 1

    def _told(self, line: DeltaLine, turn: int) -> None:
        name = next(name for name, party in self.run.sites.items() if party.line is line)
        there = self.run.hub.lines[name]
        assert isinstance(there, DeltaLine)
        assert line.base.turn == there.other.turn == turn
        for axis, values in line.base.values.items():
            assert torch.equal(values, there.other.values[axis])
            assert torch.equal(line.base.known[axis], there.other.known[axis])
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
    run.play(ignore)
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert not [event for event in events if event["event"] == "refused"]
    assert watched.up > 8
    assert watched.down > 8
    if codec["name"] == "int8" and own.coding == own.codec:
        assert 0 < watched.farthest < 0.005, "within its code's error of a change"
    if participation:
        assert any(event["used"] for event in events if event["event"] == "late")
