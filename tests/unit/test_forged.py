"""Uploads as nobody writes them: each is refused, its site is left out of the round, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

from fedkge.exchange.rows import Message
from fedkge.exchange.wire import length
from small_federations import federated, ignore, small_federation

SITES = small_federation()
Body: TypeAlias = dict[str, Tensor]
NAN = torch.full((3, 8), torch.nan)
PLAIN: dict[str, Any] = {"method": {"name": "fedep"}}
FEWER: dict[str, Any] = {"method": {"name": "feds", "s": 8}}
CHANGES: dict[str, Any] = {"method": {"name": "fedternary"}}


def beside(name: str, tensor: Tensor) -> Callable[[Body], Body]:
    return lambda body: {**body, name: tensor}


def instead(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Body], Body]:
    return lambda body: {**body, name: change(body[name])}


def filled(number: float) -> Callable[[Tensor], Tensor]:
    return lambda tensor: torch.full_like(tensor, number)


def fewer(body: Body) -> Body:
    """One row instead of all: whoever averaged it as if it were all would mislead everyone."""
    where = torch.zeros(-(-len(body["entity.values"]) // 8), dtype=torch.uint8)
    where[0] = 1
    return {"entity.where": where, "entity.values": body["entity.values"][:1]}


def more(body: Body) -> Body:
    """All rows in a round in which some are sent."""
    return {"entity.values": torch.zeros(14, 8)}


def every_factor(body: Body) -> Body:
    n = len(body["entity.singular"])
    shapes = {"values": (n, 1, 8), "singular": (n, 8), "right": (n, 8, 8)}
    return {**body, **{f"entity.{part}": torch.zeros(shape) for part, shape in shapes.items()}}


def with_codec(name: str, **options: Any) -> dict[str, Any]:
    return {**PLAIN, "codec": {"name": name, **options}}


FORGED: dict[str, tuple[dict[str, Any], Callable[[Body], Body], str]] = {
    "rows of another kind": (PLAIN, beside("relation.values", NAN), "no rows of that kind"),
    "bits of another kind": (FEWER, beside("relation.where", NAN), "no rows of that kind"),
    "of no kind": (PLAIN, beside("foo.values", NAN), "no rows of that kind"),
    "no dimension": (PLAIN, instead("entity.values", lambda t: t[0, 0]), "expected torch.float32"),
    "no numbers": (PLAIN, instead("entity.values", lambda t: t[:, :0]), "expected"),
    "new of another kind": (CHANGES, beside("relation.new.values", NAN), "no rows of that kind"),
    "new of no kind": (CHANGES, beside("foo.new.bar", NAN), "no rows of that kind"),
    "beside the turn": (CHANGES, beside("base.junk", NAN), "no rows of that kind"),
    "twice": (CHANGES, beside("entity.new.values", torch.ones(14, 8).half()), "a code of"),
    "no turn": (CHANGES, lambda body: {k: t for k, t in body.items() if k != "base.turn"}, "number of a"),
    "turns": (CHANGES, beside("base.turn", torch.zeros(3, dtype=torch.int32)), "number of a message"),
    "unknown turn": (CHANGES, beside("base.turn", torch.tensor(99, dtype=torch.int32)), "rows of turn 99"),
    "ternary byte": (CHANGES, instead("entity.values", filled(243)), "NaN"),
    "negative scale": (CHANGES, instead("entity.scale", torch.neg), "NaN"),
    "int4 byte": (with_codec("int4"), instead("entity.values", filled(225)), "NaN"),
    "int8 byte": (with_codec("int8"), instead("entity.values", filled(-128)), "NaN"),
    "more factors": ({"method": {"name": "svdplus", "rank": 5}}, every_factor, "factors"),
    "too long": (PLAIN, instead("entity.values", filled(3.3e38)), "a number of 3.3e"),
    "too long a change": (
        with_codec("int8", delta=True),
        instead("entity.scale", filled(2.6e36)),
        "a number of 3.3e",
    ),
    "nothing": (PLAIN, lambda body: {}, "0 of 14, expected 14 in round 3"),
    "nothing of some": (FEWER, lambda body: {}, "0 of 14, expected 6 in round 3"),
    "some of all": (PLAIN, fewer, "1 of 14, expected 14 in round 3"),
    "all of some": (FEWER, more, "14 of 14, expected 6 in round 3"),
}


@pytest.mark.parametrize(("options", "forge", "why"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_upload_is_refused_and_the_run_goes_on(
    tmp_path: Path, options: dict[str, Any], forge: Callable[[Body], Body], why: str
) -> None:
    run = federated(tmp_path, SITES, rounds=5, **options)
    finish, weighed = run.sites["c"].finish, []

    def forged(round: int) -> Message:
        message = finish(round)
        if round == 3:
            message = replace(message, body=forge(dict(message.body)))
            weighed.append(length(message))
        return message

    run.sites["c"].finish = forged  # type: ignore[method-assign]
    run.play(ignore)
    events = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    rounds = {event["round"]: event for event in events if event["event"] == "round"}
    took_part = {n: "c" in event["participants"] for n, event in rounds.items()}
    assert took_part == {1: True, 2: True, 3: False, 4: True, 5: True}
    assert why in rounds[3]["refused"]["c"]
    assert rounds[3]["sites"]["c"]["up_bytes"] == weighed[0], "it was sent"
    for name, stack in run.stack_of.items():
        assert float(stack.sites[name].tables.entities.abs().max()) < 10
