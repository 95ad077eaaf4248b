"""Top-K exchange against dictionaries and loops, against FedEP where they must meet, and what it weighs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.errors import ConfigError, DataError
from fedkge.exchange.codec import Float32
from fedkge.exchange.direction import Receiver, Sender
from fedkge.exchange.rows import Message, Rows
from fedkge.exchange.select import History, Moved, TopK
from fedkge.graphs.graph import Axis, Graph
from fedkge.nodes.journal import read_journal
from fedkge.nodes.learner import Fitted
from small_federations import (
    assert_same,
    differ,
    experiment,
    federated,
    played,
    small_federation,
    small_graph,
)
from small_graphs import start

SITES = small_federation()
SHARED = {
    site: sorted(n for n in graph.entities if any(n in o.entities for s, o in SITES.items() if s != site))
    for site, graph in SITES.items()
}


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


def slow_feds(rounds: int, p: float, s: int) -> dict[str, dict[str, Tensor]]:
    """FedS by the paper's text, row by row; downstream historys only where no tie has to be broken."""
    one = experiment()
    training = {site: start(one.trainer, one.model, {site: graph}) for site, graph in SITES.items()}

    def rows(site: str) -> dict[str, Tensor]:
        return dict(zip(SITES[site].entities, training[site].tables.entities, strict=True))

    sent = {site: {n: rows(site)[n].clone() for n in SHARED[site]} for site in SITES}
    uploads: dict[str, dict[str, Tensor]] = {}
    full = True
    for number in range(1, rounds + 1):
        for site in SITES:
            own = rows(site)
            if uploads and full:
                for n in SHARED[site]:
                    held = [uploads[o][n] for o in sorted(uploads) if n in uploads[o]]
                    own[n].copy_(torch.stack(held).sum(0) / len(held))
            elif uploads:
                others = {n: [u[n] for o, u in uploads.items() if o != site and n in u] for n in SHARED[site]}
                assert sum(map(bool, others.values())) <= ceil(p * len(SHARED[site])) or p > 0.9
                for n, held in others.items():
                    if held:
                        own[n].copy_((torch.stack(held).sum(0) + own[n]) / (1 + len(held)))
        for one_site in training.values():
            one_site.restart()
            one_site.run((number - 1) * one.trainer.epochs)
        full = (number - 1) % (s + 1) == 0
        uploads = {}
        for site in SITES:
            own = rows(site)
            change = {n: 1 - cosine(own[n], sent[site][n]) for n in SHARED[site]}
            best = sorted(change, key=lambda n: -change[n])[: ceil(p * len(change))]
            uploads[site] = {n: own[n].clone() for n in (SHARED[site] if full else best)}
            sent[site] |= uploads[site]
    return {site: {n: t.clone() for n, t in rows(site).items()} for site in SITES}


def test_feds_is_what_the_paper_says_row_by_row(tmp_path: Path) -> None:
    p, s = 0.95, 2  # so many that every row that others sent fits in the answer
    run = played(tmp_path, SITES, method={"name": "feds", "p": p, "s": s}, rounds=6)
    slow = slow_feds(6, p, s)
    for site, graph in SITES.items():
        found = run.stack_of[site].sites[site].tables.entities
        for i, name in enumerate(graph.entities):
            torch.testing.assert_close(found[i], slow[site][name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"p": 1.0}, {"s": 0}])
def test_with_all_rows_in_every_round_it_is_fedep(tmp_path: Path, options: dict[str, Any]) -> None:
    fedep = played(tmp_path / "fedep", SITES, method={"name": "fedep"})
    assert_same(fedep, played(tmp_path / "feds", SITES, method={"name": "feds", **options}))
    assert differ(fedep, played(tmp_path / "some", SITES, method={"name": "feds", "p": 0.3}))


def test_feds_is_a_name_for_fedep_with_topk(tmp_path: Path) -> None:
    select = {"name": "topk", "p": 0.4, "s": 4}
    assert_same(
        played(tmp_path / "feds", SITES, method={"name": "feds"}, rounds=7),
        played(tmp_path / "fedep", SITES, method={"name": "fedep"}, select=select, rounds=7),
    )


def test_values_are_the_papers_equation_5_in_the_worst_case(tmp_path: Path) -> None:
    """Where every site has every entity, all answers are full; a cycle is s sparse rounds and one more."""
    p, s, width, entities = 0.5, 2, 8, [f"e{i}" for i in range(20)]
    sites = {site: small_graph(n, entities, [f"{site}.r"], 60) for n, site in enumerate("abc")}
    cycles = 2 * (s + 1)
    run = played(tmp_path, sites, method={"name": "feds", "p": p, "s": s}, rounds=cycles + 1)
    rounds = run.record.tally.summary()["per_round"]
    counted = sum(r["up_values"] for r in rounds[:cycles]) + sum(r["down_values"] for r in rounds[1:])
    ratio = (p * s + 1 + (2 + p) * s / (2 * width)) / (s + 1)
    assert counted == ratio * cycles * 2 * len(sites) * len(entities) * width


def test_answers_never_exceed_k_rows(tmp_path: Path) -> None:
    p = 0.3
    run = federated(tmp_path, SITES, method={"name": "feds", "p": p, "s": 2}, rounds=6)
    choose, seen = run.hub.questions._chosen, []

    def record(site: str, axis: Axis, rows: Rows, round: int) -> Rows:
        chosen = choose(site, axis, rows, round)
        if rows.support is not None:
            seen.append(len(chosen) == min(len(rows), ceil(p * len(SHARED[site]))))
        return chosen

    run.hub.questions._chosen = record  # type: ignore[method-assign]
    run.play()
    assert len(seen) == 3 * 3
    assert all(seen)


def test_down_goes_to_the_most_supported_with_random_ties() -> None:
    rows = Rows(torch.arange(6), torch.zeros(6, 2), torch.tensor([1, 3, 1, 2, 1, 1]))
    topk = TopK(p=0.5)
    chosen = [topk.down(rows, 6, seed) for seed in range(200)]
    assert all(at is not None and {1, 3} <= set(at.tolist()) and len(at) == 3 for at in chosen)
    third = {(set(at.tolist()) - {1, 3}).pop() for at in chosen if at is not None}
    assert third == {0, 2, 4, 5}
    assert torch.equal(chosen[7], topk.down(rows, 6, 7))  # type: ignore[arg-type]
    assert topk.down(Rows(rows.ids, rows.values), 6, 0) is None, "a full answer is not cut"
    assert topk.down(rows[torch.tensor([0, 1])], 6, 0) is None, "fewer than K are all sent"


def test_up_goes_what_turned_furthest_since_it_was_sent() -> None:
    first = {Axis.ENTITY: Rows(torch.arange(4), torch.tensor([[1.0, 0.0]] * 4))}
    history = History(TopK(p=0.25), first)
    now = torch.tensor([[1.0, 0.1], [5.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    update = {Axis.ENTITY: Rows(torch.arange(4), now)}
    assert history.chosen(update, 1)[Axis.ENTITY].ids.tolist() == [2], "longer is not changed, turned is"
    history.settle(False)
    assert history.chosen(update, 2)[Axis.ENTITY].ids.tolist() == [2], "refused: not sent yet"
    history.settle(True)
    assert history.chosen(update, 3)[Axis.ENTITY].ids.tolist() == [3]
    saved = {name: tensor.clone() for name, tensor in history.memory().items()}
    again = History(TopK(p=0.25), first)
    again.load(saved)
    for one in (history, again):
        one.settle(True)
        assert one.chosen(update, 4)[Axis.ENTITY].ids.tolist() == [0]


def test_moved_sends_the_fewest_rows_that_make_up_the_change() -> None:
    last = torch.tensor([[1.0, 0.0]] * 5)
    angles = torch.tensor([0.0, 0.1, 0.2, 1.0, 1.5])
    rows = Rows(torch.arange(5), torch.stack((angles.cos(), angles.sin()), 1))
    change = 1 - angles.cos()
    for mass in (0.1, 0.6, 0.7, 0.95, 0.999):
        at = Moved(p=1.0, mass=mass).up(rows, last, 1)
        assert at is not None
        chosen = change[at]
        assert chosen.sum() >= mass * change.sum() - 1e-6
        assert chosen.sum() - chosen.min() < mass * change.sum(), "one row less would not do"
    few = Moved(p=0.4, mass=1.0).up(rows, last, 1)
    assert few is not None
    assert few.tolist() == [3, 4]
    still = Moved(mass=0.5).up(Rows(torch.arange(5), last), last, 1)
    assert still is not None
    assert len(still) <= 1, "nothing moved"


def test_rounds_in_which_all_rows_travel() -> None:
    assert [n for n in range(1, 12) if TopK(s=4).synchronises(n)] == [4, 9]
    assert [n for n in range(1, 12) if TopK(s=4, first=1).synchronises(n)] == [1, 6, 11]
    assert [n for n in range(1, 12) if TopK(s=4, first=5).synchronises(n)] == [5, 10]
    assert not any(TopK().synchronises(n) for n in range(1, 12))
    assert all(TopK(s=0).synchronises(n) for n in range(1, 12))


@pytest.mark.parametrize(
    ("largest", "dtype"), [(255, torch.uint8), (256, torch.int16), (40_000, torch.int32)]
)
def test_priorities_travel_as_the_smallest_integers_that_hold_them(largest: int, dtype: torch.dtype) -> None:
    ids = {Axis.ENTITY: torch.arange(3)}
    support = torch.tensor([1, largest, 2])
    body = Sender(Float32(), ids).encode({Axis.ENTITY: Rows(ids[Axis.ENTITY], torch.ones(3, 2), support)})
    assert body["entity.support"].dtype is dtype
    again = Receiver(Float32(), ids, {Axis.ENTITY: 2}, supported=True).decode(body)[Axis.ENTITY]
    assert again.support is not None
    assert again.support.tolist() == support.tolist()
    with pytest.raises(DataError, match="support"):
        Receiver(Float32(), ids, {Axis.ENTITY: 2}).decode(body)


@pytest.mark.parametrize(
    "bad", [torch.zeros(3, dtype=torch.uint8), torch.ones(2, dtype=torch.uint8), torch.ones(3)]
)
def test_priorities_that_make_no_sense_are_refused(bad: Tensor) -> None:
    ids = {Axis.ENTITY: torch.arange(3)}
    receiver = Receiver(Float32(), ids, {Axis.ENTITY: 2}, supported=True)
    with pytest.raises(DataError, match="numbers of sites"):
        receiver.decode({"entity.values": torch.ones(3, 2), "entity.support": bad})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"select": {"name": "topk", "p": 0.0}},
            r"select\.p: expected a number above 0 and at most 1, got 0\.0",
        ),
        ({"select": {"name": "topk", "p": 1.1}}, r"select\.p"),
        ({"select": {"name": "topk", "s": -1}}, r"select\.s: expected at least 0, got -1"),
        ({"select": {"name": "topk", "s": 4, "first": 6}}, r"select\.first: expected 1 to 5, .* got 6"),
        ({"select": {"name": "topk", "first": 1}}, r"select\.first: expected s with it, got 1"),
        ({"method": {"name": "feds", "first": 0}}, r"method\.first: expected 1 to 5"),
        ({"select": {"name": "moved", "mass": 0.0}}, r"select\.mass"),
        ({"method": {"name": "feds", "p": 2.0}}, r"method\.p"),
        ({"method": {"name": "feds", "p": float("nan")}}, r"method\.p"),
        ({"method": {"name": "feds", "s": -1}}, r"method\.s: expected at least 0, got -1"),
        ({"method": {"name": "fedepl", "s": -1}}, r"method\.s: expected at least 0, got -1"),
        ({"method": {"name": "fedternary"}, "codec": {"name": "int8"}}, "codec of its own"),
        ({"method": {"name": "feds"}, "select": {"name": "topk"}}, "selection of its own"),
        ({"select": {"name": "top"}}, "no selection is named 'top'; did you mean 'topk'"),
    ],
)
def test_wrong_options(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        experiment(**changes)


def test_a_site_that_shares_nothing_trains_alone_and_is_told_so(tmp_path: Path) -> None:
    alone = Graph(
        *(type(n)([f"x{x}" for x in n], n.axis) for n in (SITES["c"].entities, SITES["c"].relations)),
        *SITES["c"].splits().values(),
    )
    sites = {"a": SITES["a"], "b": SITES["b"], "c": alone}
    with pytest.warns(match="site 'c' has nothing in common with the others: it trains alone"):
        run = played(tmp_path / "feds", sites, method={"name": "feds"})
    single = played(tmp_path / "single", {"c": alone}, method={"name": "single", "restart": True})
    here, there = run.stack_of["c"].sites["c"].tables, single.stack_of["c"].sites["c"].tables
    assert torch.equal(here.entities, there.entities)


def spoilt(body: Mapping[str, Tensor], how: str) -> dict[str, Tensor]:
    """An upload as it must not be: of unknown rows, too wide, or not finite."""
    found = dict(body)
    values = next(name for name in found if name.endswith(".values"))
    if how == "ids":
        found["entity.where"] = torch.full((9,), 255, dtype=torch.uint8)
    elif how == "width":
        found[values] = torch.cat((found[values], found[values]), 1)
    elif f"{values.removesuffix('values')}scale" in found:
        found["entity.scale"] = torch.full_like(found["entity.scale"], float(how))
    else:
        found[values] = torch.full_like(found[values], float(how))
    return found


@pytest.mark.parametrize("how", ["ids", "width", "nan", "inf"])
@pytest.mark.parametrize("method", ["fedep", "feds", "fedternary", "svdplus"])
def test_a_spoilt_upload_excludes_its_site_from_the_round_and_the_run_goes_on(
    tmp_path: Path, method: str, how: str
) -> None:
    run = federated(tmp_path, SITES, method={"name": method}, rounds=5)
    finish = run.sites["b"].finish

    def spoil(round: int, trained: Fitted) -> Message:
        message = finish(round, trained)
        return replace(message, body=spoilt(message.body, how)) if round == 3 else message

    run.sites["b"].finish = spoil  # type: ignore[method-assign]
    run.play()
    assert run.hub.store is not None
    events = read_journal(run.hub.store.journal.path)
    rounds = {event["round"]: event for event in events if event["event"] == "round"}
    assert {n: event["participants"] for n, event in rounds.items()} == {
        n: ["a", "c"] if n == 3 else ["a", "b", "c"] for n in range(1, 6)
    }
    assert "expected" in rounds[3]["refused"]["b"]
    for name, stack in run.stack_of.items():
        assert bool(torch.isfinite(stack.sites[name].tables.entities).all())


def test_moved_repeats_and_breaks_ties_by_place() -> None:
    last = torch.tensor([[1.0, 0.0]] * 6)
    turned = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    rows = Rows(torch.arange(6), turned)
    chosen = [Moved(p=1.0, mass=0.5).up(rows, last, 1) for _ in range(3)]
    assert [at.tolist() for at in chosen if at is not None] == [[1, 2]] * 3


def test_moved_follows_the_change_round_by_round(tmp_path: Path) -> None:
    """Fewer rows go up than `topk` sends, and with all of the mass and p = 1 all that moved."""
    options = {"method": {"name": "fedep"}, "rounds": 5}
    topk = played(tmp_path / "topk", SITES, select={"name": "topk", "p": 0.9}, **options)
    moved = played(tmp_path / "moved", SITES, select={"name": "moved", "p": 0.9, "mass": 0.5}, **options)
    again = played(tmp_path / "again", SITES, select={"name": "moved", "p": 0.9, "mass": 0.5}, **options)
    assert_same(moved, again)
    assert moved.record.tally.summary()["up_values"] < 0.8 * topk.record.tally.summary()["up_values"]


def test_fedternary_is_a_name_for_fedep_with_ternary_changes(tmp_path: Path) -> None:
    codec = {"name": "ternary", "delta": True}
    own = played(tmp_path / "own", SITES, method={"name": "fedternary"}, rounds=6)
    assert_same(own, played(tmp_path / "fedep", SITES, method={"name": "fedep"}, codec=codec, rounds=6))
    assert differ(own, played(tmp_path / "plain", SITES, method={"name": "fedep"}, rounds=6))
