"""FedE and its relatives against a slow and obvious version, and against each other where they must meet."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.errors import ConfigError
from fedkge.exchange.rows import Rows
from fedkge.graphs.graph import Axis, Graph
from fedkge.methods import Hub
from fedkge.methods.fede import FedE
from fedkge.methods.fedec import FedEC
from fedkge.methods.fedprox import FedProx
from fedkge.training import BySite
from small_federations import (
    assert_same,
    differ,
    experiment,
    federated,
    moments,
    played,
    rows,
    small_federation,
)
from small_graphs import start

SITES = small_federation()
ROUNDS = 4


def by_name(graph: Graph, table: Tensor) -> dict[str, Tensor]:
    return dict(zip(graph.entities, table.clone(), strict=True))


def slow_fedep(sites: dict[str, Graph], rounds: int) -> dict[str, dict[str, Tensor]]:
    """Every site trained by itself; rows averaged name by name, in dictionaries. Entities after training."""
    one = experiment()
    training = {site: start(one.trainer, one.model, {site: graph}) for site, graph in sites.items()}
    after: dict[str, dict[str, Tensor]] = {}
    for number in range(rounds):
        for site, graph in sites.items():
            table = training[site].tables.entities
            for i, name in enumerate(graph.entities):
                held = [after[other][name] for other in sorted(after) if name in after[other]]
                if len(held) > 1:
                    table[i] = torch.stack(held).sum(0) / len(held)
        for one_site in training.values():
            one_site.restart()
            one_site.run(number * one.trainer.epochs)
        after = {site: by_name(graph, training[site].tables.entities) for site, graph in sites.items()}
    return after


def test_rounds_of_fedep_are_training_and_averaging_by_name(tmp_path: Path) -> None:
    run = played(tmp_path, SITES, method={"name": "fedep"}, rounds=ROUNDS)
    slow = slow_fedep(SITES, ROUNDS)
    for site, graph in SITES.items():
        found = by_name(graph, run.stack_of[site].sites[site].tables.entities)
        for name in graph.entities:
            torch.testing.assert_close(found[name], slow[site][name], rtol=1e-5, atol=1e-6)


def test_fede_keeps_the_mean_of_what_fedep_keeps(tmp_path: Path) -> None:
    one_validation = {"evaluate": {"every": ROUNDS, "patience": 0}, "rounds": ROUNDS}
    fede = played(tmp_path / "fede", SITES, method={"name": "fede"}, **one_validation)
    slow = slow_fedep(SITES, ROUNDS)
    for site, graph in SITES.items():
        kept = by_name(graph, fede.stack_of[site].bests[site].entities)
        for name in graph.entities:
            held = [slow[other][name] for other in SITES if name in slow[other]]
            torch.testing.assert_close(kept[name], torch.stack(held).mean(0), rtol=1e-5, atol=1e-6)
        own = fede.stack_of[site].sites[site].tables.relations
        assert torch.equal(fede.stack_of[site].bests[site].relations, own), "relations stay the site's own"


@pytest.mark.parametrize("name", ["fedprox", "fedec"])
def test_without_its_penalty_it_is_fedep(tmp_path: Path, name: str) -> None:
    fedep = played(tmp_path / "fedep", SITES, method={"name": "fedep"})
    without = played(tmp_path / "0", SITES, method={"name": name, "mu": 0.0})
    with_it = played(tmp_path / "1", SITES, method={"name": name, "mu": 1.0})
    for key, tensor in rows(without).items():
        torch.testing.assert_close(tensor, rows(fedep)[key], rtol=1e-4, atol=1e-5)
    drift = max(float((t - rows(fedep)[key]).abs().max()) for key, t in rows(with_it).items())
    assert drift > 1e-3


def test_a_strong_pull_keeps_the_rows_where_they_were(tmp_path: Path) -> None:
    def moved(mu: float) -> float:
        run = federated(tmp_path / str(mu), SITES, method={"name": "fedprox", "mu": mu}, rounds=1)
        before = rows(run)["now b entity"]
        run.play()
        return float((rows(run)["now b entity"] - before).abs().mean())

    assert moved(100.0) < moved(1.0) < moved(0.0)


@pytest.mark.filterwarnings("ignore:no two sites have anything in common")
@pytest.mark.parametrize("name", ["fede", "fedep"])
def test_one_site_alone_is_single(tmp_path: Path, name: str) -> None:
    alone = {"b": SITES["b"]}
    assert_same(
        played(tmp_path / "single", alone, method={"name": "single", "restart": True}),
        played(tmp_path / "fed", alone, method={"name": name}),
    )
    assert differ(
        played(tmp_path / "kept", alone, method={"name": "single"}),
        played(tmp_path / "restarted", alone, method={"name": "single", "restart": True}),
    )


def test_fedr_without_relations_in_common_is_single(tmp_path: Path) -> None:
    with pytest.warns(match="no two sites have anything in common"):
        fedr = played(tmp_path / "fedr", SITES, method={"name": "fedr"})
    single = played(tmp_path / "single", SITES, method={"name": "single", "restart": True})
    now = {name: tensor for name, tensor in rows(fedr).items() if name.startswith("now")}
    assert all(torch.equal(tensor, rows(single)[name]) for name, tensor in now.items())


def test_fedr_is_fede_that_shares_relations(tmp_path: Path) -> None:
    common = small_federation(relations_in_common=True)
    fedr = played(tmp_path / "fedr", common, method={"name": "fedr"})
    assert_same(fedr, played(tmp_path / "fede", common, method={"name": "fede", "share": "relations"}))
    assert fedr.record.tally.summary()["up_values"] == ROUNDS * 3 * 3 * 8  # rounds, sites, relations, width


def test_sharing_both_moves_both(tmp_path: Path) -> None:
    common = small_federation(relations_in_common=True)
    both = played(tmp_path / "both", common, method={"name": "fede", "share": "both"})
    relations = [rows(both)[f"best {site} relation"] for site in common]
    assert torch.equal(relations[0], relations[1])
    shared = sorted(set(common["a"].entities) & set(common["b"].entities))
    ids = {site: [common[site].entities.id(name) for name in shared] for site in "ab"}
    assert torch.equal(rows(both)["best a entity"][ids["a"]], rows(both)["best b entity"][ids["b"]])


def update(ids: list[int], value: float) -> dict[Axis, Rows]:
    return {Axis.ENTITY: Rows(torch.tensor(ids), torch.full((len(ids), 2), value))}


def hub() -> Hub:
    owned = {"a": [0, 1, 2], "b": [1, 2, 3], "c": [0, 3]}
    ids = {s: {Axis.ENTITY: torch.tensor(i), Axis.RELATION: torch.tensor([])} for s, i in owned.items()}
    return Hub(ids, {Axis.ENTITY: 4, Axis.RELATION: 0})


def told(method: FedE, at: Hub, site: str) -> dict[int, float]:
    rows = method.answer(at, site)[Axis.ENTITY]
    return dict(zip(rows.ids.tolist(), rows.values[:, 0].tolist(), strict=True))


def test_the_mean_is_over_those_that_answered_and_other_rows_keep_their_value() -> None:
    method, at = FedE(), hub()
    assert method.answer(at, "a") == {}
    method.aggregate(at, {"a": update([0, 1, 2], 1.0), "b": update([1, 2, 3], 3.0)})
    assert told(method, at, "a") == {0: 1.0, 1: 2.0, 2: 2.0}
    method.aggregate(at, {"c": update([0, 3], 9.0)})
    assert told(method, at, "a") == {0: 9.0, 1: 2.0, 2: 2.0}
    assert told(method, at, "c") == {0: 9.0, 3: 9.0}


def test_rows_that_nobody_has_sent_are_not_told() -> None:
    method, at = FedE(), hub()
    method.aggregate(at, {"c": update([0, 3], 5.0)})
    assert told(method, at, "a") == {0: 5.0}


def test_absent_owners_can_count_with_their_last_rows() -> None:
    method, at = FedE(absent="last"), hub()
    method.aggregate(at, {"a": update([0, 1, 2], 1.0), "b": update([1, 2, 3], 3.0)})
    method.aggregate(at, {"b": update([1, 2, 3], 5.0)})
    assert told(method, at, "a") == {0: 1.0, 1: 3.0, 2: 3.0}
    assert told(method, at, "b") == {1: 3.0, 2: 3.0, 3: 5.0}


def test_without_what_is_fresh_the_hub_tells_what_lasts() -> None:
    """Whoever plays the hub forgets it when rows get other numbers."""
    method, at = FedE(), hub()
    at.sparse = True
    method.aggregate(at, {"a": update([0, 1], 1.0), "b": update([1, 2], 3.0)})
    assert told(method, at, "a") == {1: 3.0, 2: 3.0}
    at.fresh.clear()
    assert told(method, at, "a") == {0: 1.0, 1: 2.0, 2: 3.0}


def test_penalties_are_the_formulas() -> None:
    generator = torch.Generator().manual_seed(0)
    e, received, previous = torch.randn(3, 5, 4, generator=generator)
    sites = BySite(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([3.0, 2.0]))
    drift = e - received
    for squared, power in ((True, 2), (False, 1)):
        pull = FedProx(mu=0.5, squared=squared).penalty(moments(e, received), sites)
        slow = [0.25 * torch.linalg.matrix_norm(drift[part]) ** power for part in (slice(3), slice(3, 5))]
        torch.testing.assert_close(pull, torch.stack(slow))
    g, p = F.cosine_similarity(e, received), F.cosine_similarity(e, previous)
    losses = -0.3 * torch.log((g / 0.2).exp() / ((g / 0.2).exp() + (p / 0.2).exp()))
    away = F.normalize(previous) - F.normalize(received)
    expected = torch.stack([losses[:3].mean(), losses[3:].mean()])
    torch.testing.assert_close(FedEC().penalty(moments(e, away), sites), expected)


def test_a_plain_norm_has_a_slope_where_nothing_has_moved() -> None:
    e = torch.ones(4, 3, requires_grad=True)
    sites = BySite(torch.zeros(4, dtype=torch.int64), torch.tensor([4.0]))
    FedProx(squared=False).penalty(moments(e, e.detach().clone()), sites).sum().backward()
    assert e.grad is not None
    assert torch.equal(e.grad, torch.zeros(4, 3))


def test_fedec_contrasts_with_the_round_before(tmp_path: Path) -> None:
    run = federated(tmp_path, SITES, method={"name": "fedec"}, rounds=2)
    stack = run.stacks[0]
    ended: list[Tensor] = []
    fit = stack.fit

    def record(names: Any, number: int) -> dict[str, float]:
        if number == 2:
            received = stack.tables.entities
            away = F.normalize(ended[0]) - F.normalize(received)
            torch.testing.assert_close(stack.kept[Axis.ENTITY]["away"], away)
            assert away.abs().max() > 1e-3
        losses = fit(names, number)
        ended.append(stack.tables.entities.clone())
        return losses

    stack.fit = record  # type: ignore[method-assign]
    run.play()
    assert len(ended) == 2


def test_the_ensemble_lies_between_own_and_aggregate(tmp_path: Path) -> None:
    def kept(name: str, **options: Any) -> Tensor:
        method = {"name": name, **options}
        run = played(tmp_path / f"{name}{options}", SITES, method=method, rounds=1, evaluate={"every": 1})
        return rows(run)["best a entity"]

    quarter = kept("fedec", mu=0.0, ensemble=0.25)
    own, aggregate = kept("fedep"), kept("fede")
    torch.testing.assert_close(quarter, 0.75 * own + 0.25 * aggregate, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "strength"), [("fedprox", "mu"), ("fedec", "mu"), ("pfedeg", "beta")])
def test_a_penalty_needs_an_optimizer_that_steps_every_row(name: str, strength: str) -> None:
    with pytest.raises(ConfigError, match="row-adam steps only touched rows"):
        experiment(method={"name": name}, trainer={"optimizer": "row-adam"})
    without = experiment(method={"name": name, strength: 0.0}, trainer={"optimizer": "row-adam"})
    kept = without.method.kept()
    assert kept is not None
    assert kept.penalty is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": "fedprox", "mu": -1.0}, "method.mu: expected at least 0, got -1.0"),
        ({"name": "fedec", "temperature": 0.0}, "temperature"),
        ({"name": "fedec", "ensemble": 1.5}, "ensemble"),
        ({"name": "fedprox", "mue": 1.0}, "did you mean 'mu'"),
        ({"name": "fedpro"}, "did you mean 'fedprox'"),
        ({"name": "fede", "share": "entity"}, "did you mean 'entities'"),
        ({"name": "fede", "absent": "stay"}, "'out', 'last'"),
    ],
)
def test_wrong_options_are_errors_with_a_hint(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        experiment(method=options)


def test_methods_are_values() -> None:
    assert FedProx(mu=0.2) == dataclasses.replace(FedProx(), mu=0.2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        FedProx().mu = 1.0  # type: ignore[misc]
