"""What every federated method must do, whatever it computes: one test per promise, over the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.config import to_toml
from fedkge.exchange.rows import HUB, Message
from fedkge.exchange.wire import decode, encode, length
from fedkge.graphs.graph import Axis
from fedkge.methods import METHODS
from fedkge.nodes.base import Node
from fedkge.runs.experiment import Experiment
from fedkge.runtimes.run import Progress, Simulation
from small_federations import (
    assert_same,
    differ,
    experiment,
    federated,
    played,
    rows,
    small_federation,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*left out of the pooled train")

SITES = small_federation(relations_in_common=True)
HARD = {  # everything at once: some sites, some late, some lost, coded with memory
    "participation": {"fraction": 0.7, "quorum": 0.5, "late": "use", "dropout": 0.2},
    "codec": {"name": "int8"},
    "rounds": 8,
}
FEWER = {
    "trainer": {"chunk": 6},
    "select": {"name": "topk", "p": 0.5, "s": 2},
    "codec": {"name": "int4", "delta": True},
    "evaluate": {"keep": "each"},
    "rounds": 8,
}


def having(method: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options that the method can have: one with a selection or a codec of its own takes no other."""
    one = experiment(method=method)
    own = {"select": one.selection != one.select, "codec": one.coding != one.codec}
    return {k: v for k, v in options.items() if not own.get(k)}


@pytest.fixture(params=[name for name in METHODS if not METHODS[name].hubless])
def method(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"name": request.param, **({"small": 4} if request.param == "fedkd" else {})}


def exchanges(method: dict[str, Any]) -> bool:
    return bool(experiment(method=method).method.shares)


def test_its_class_says_what_it_is(method: dict[str, Any]) -> None:
    cls = METHODS[method["name"]]
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "a docstring of its own"


def test_its_configuration_is_complete_and_parses_to_itself(method: dict[str, Any]) -> None:
    import tomllib

    one = experiment(method=method)
    assert Experiment.parse(tomllib.loads(to_toml(one.config()))) == one


@pytest.mark.parametrize("hard", [{}, HARD, {**HARD, **FEWER}], ids=["plain", "hard", "fewer"])
def test_stacked_is_site_by_site(
    tmp_path: Path, method: dict[str, Any], hard: dict[str, Any], device: torch.device
) -> None:
    options = {"device": device, "method": method, **having(method, hard)}
    alone = played(tmp_path / "alone", SITES, how=Simulation(stacked=False), **options)
    stacked = played(tmp_path / "stacked", SITES, **options)
    assert len(alone.stacks) == len(alone.members)
    assert len(stacked.stacks) == 1
    if device.type == "cpu":
        assert_same(alone, stacked)
    else:
        a, b = (torch.cat([table.flatten() for table in rows(run).values()]) for run in (alone, stacked))
        near = torch.isclose(a, b, rtol=1e-3, atol=1e-3).double().mean()
        flips = "select" in hard  # a last bit turns over choices of the top K and rounding to int4
        assert near >= (0.95 if flips else 1)


def test_the_order_of_sites_does_not_matter(tmp_path: Path, method: dict[str, Any]) -> None:
    if method["name"] == "collective":
        pytest.skip("pooled rows follow the order of sites")
    forth = played(tmp_path / "forth", SITES, method=method)
    back = played(tmp_path / "back", dict(reversed(SITES.items())), method=method)
    assert_same(forth, back)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("after", [1, 2, 5])
@pytest.mark.parametrize("hard", [{}, HARD, {**HARD, **FEWER}], ids=["plain", "hard", "fewer"])
def test_a_run_goes_on_where_it_stopped(
    tmp_path: Path, method: dict[str, Any], after: int, hard: dict[str, Any]
) -> None:
    options = {"method": method, "rounds": 8, **having(method, hard)}
    whole = played(tmp_path / "whole", SITES, how=Simulation(save_every=0), **options)

    def stop(progress: Progress) -> None:
        if progress.round == after + 1:
            raise Stopped

    broken = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), watch=stop, **options)
    with pytest.raises(Stopped):
        broken.play()
    resumed = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), **options)
    assert resumed.hub.round == after
    resumed.play()
    assert_same(whole, resumed)
    assert resumed.record.tally.summary() == whole.record.tally.summary()
    assert resumed.hub.validation.plain() == whole.hub.validation.plain()


def test_another_seed_gives_other_tables(tmp_path: Path, method: dict[str, Any]) -> None:
    assert differ(
        played(tmp_path / "0", SITES, method=method),
        played(tmp_path / "1", SITES, method=method, seed=1),
    )


def test_only_rows_that_are_shared_leave_a_site(tmp_path: Path, method: dict[str, Any]) -> None:
    everything: list[Message] = []
    run = played(tmp_path, SITES, method=method, tap=everything.append)
    shares = run.experiment.method.shares
    for message in everything:
        if message.recipient != HUB:
            continue
        assert message.kind in ("join", "upload", "metrics")
        if message.kind == "metrics":
            assert not message.body
        if message.kind == "join":  # names, or pseudonyms, of rows that may be shared
            parts = [name.partition(".")[0] for name in message.body]
            assert set(parts) == set(shares)
    for name, stack in run.stack_of.items():
        site = stack.sites[name]
        for axis in Axis:
            names = (
                run.members[name].graph.entities if axis is Axis.ENTITY else run.members[name].graph.relations
            )
            held_by = [
                set(other.graph.entities if axis is Axis.ENTITY else other.graph.relations)
                for other_name, other in run.members.items()
                if other_name != name
            ]
            expected = [i for i, thing in enumerate(names) if any(thing in others for others in held_by)]
            shared = site.shared[axis].local.tolist() if axis in site.shared else []
            assert sorted(shared) == (expected if axis in shares else [])
        sent = [e for e in everything if e.sender == name and e.kind == "upload"]
        for message in sent:
            for axis in Axis:
                parts = (f"{axis}.values", f"{axis}.new.values")  # new: rows of which both ends hold none
                rows = [len(message.body[part]) for part in parts if part in message.body]
                most = len(site.shared[axis].ids) if axis in shares else 0
                assert bool(rows) == (most > 0)
                assert sum(rows) <= most


def test_messages_survive_the_wire_and_weigh_what_was_counted(tmp_path: Path, method: dict[str, Any]) -> None:
    everything: list[Message] = []
    options = having(method, {"codec": {"name": "int8"}})
    run = played(tmp_path, SITES, method=method, tap=everything.append, **options)
    total = 0
    for message in everything:
        again = decode(encode(message))
        for name in ("sender", "recipient", "kind", "round", "run", "protocol", "note"):
            assert getattr(again, name) == getattr(message, name)
        assert again.body.keys() == message.body.keys()
        assert all(torch.equal(again.body[name], message.body[name]) for name in message.body)
        assert len(encode(message)) == length(message)
        total += length(message)
    summary = run.record.tally.summary()
    counted = summary["up_bytes"] + summary["down_bytes"]
    assert counted == (total if exchanges(method) else 0)
    assert sum(r["up_bytes"] + r["down_bytes"] for r in summary["per_round"]) == counted


def test_a_site_on_its_own_behind_the_wire_ends_with_the_same_tables(
    tmp_path: Path, method: dict[str, Any]
) -> None:
    """Bytes in, every node called by `read` alone, as a network runtime does it."""
    together = played(tmp_path / "together", SITES, method=method)
    apart = federated(tmp_path / "apart", SITES, method=method, how=Simulation(stacked=False))
    nodes: dict[str, Node] = {node.id: node for node in apart.nodes}
    post = [message for site in apart.sites.values() for message in site.open()]
    while post:
        message = post.pop(0)
        post += nodes[message.recipient].read(encode(message), message.sender)
    assert apart.hub.phase == "done"
    assert_same(together, apart)


def test_sites_that_are_not_asked_stay_as_they_are(tmp_path: Path, method: dict[str, Any]) -> None:
    run = federated(tmp_path, SITES, method=method, rounds=1, participation={"fraction": 0.34})
    before = rows(run)
    run.play()
    asked = run.hub._asked
    assert len(asked) == (1 if exchanges(method) else len(run.members))
    for name, tensor in rows(run).items():
        kind, site, _ = name.split()
        if kind == "now":
            assert torch.equal(tensor, before[name]) == (site not in asked), name
