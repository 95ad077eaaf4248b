"""PFedEG against a slow and obvious version, and against other methods where they must meet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedkge.config import override, read_toml
from fedkge.errors import ConfigError
from fedkge.exchange.rows import Rows
from fedkge.exchange.select import TopK
from fedkge.graphs.graph import Axis, Graph
from fedkge.methods import Hub
from fedkge.methods.pfedeg import PFedEG, cosine
from fedkge.reports.folders.load import events
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Progress, Simulated, Simulation, run
from fedkge.training import BySite
from small_federations import (
    Once,
    assert_same,
    differ,
    experiment,
    federated,
    moments,
    played,
    rows,
    small_federation,
    small_graph,
)
from small_graphs import start

EXAMPLE = Path(__file__).parents[2] / "examples" / "atlas-pfedeg-topk-int8.toml"
SITES = small_federation()
ROUNDS = 3
FEW_STEPS = {"batch_size": 40}
AFFINITIES = ("cosine", "cosine-mean", "jaccard", "uniform")
LEARNT = ("cosine", "cosine-mean")
Held = Mapping[str, Mapping[str, list[float]]]  # site -> entity -> row, of what the hub has


# The slow version: names, dictionaries and Python's own numbers


def slow_cos(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(x * x for x in b))


def slow_weights(affinity: str, held: Held, entities: Mapping[str, set[str]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for i in entities:
        raw = {}
        for j in entities:
            both = [e for e in held.get(i, {}) if e in held.get(j, {})]
            if affinity == "uniform":
                raw[j] = 1.0
            elif i == j:
                raw[j] = math.exp(-1)
            elif affinity == "jaccard":
                raw[j] = len(entities[i] & entities[j]) / len(entities[i] | entities[j])
            else:
                likeness = [math.exp(slow_cos(held[i][e], held[j][e])) for e in both]
                raw[j] = sum(likeness) / (max(len(both), 1) if affinity == "cosine-mean" else 1)
        if affinity == "jaccard":
            raw[i] = min((raw[j] for j in raw if j != i), default=1.0)
        raw = {j: weight if j in held else 0.0 for j, weight in raw.items()}
        total = sum(raw.values())
        found[i] = {j: raw[j] / total if total else float(i == j) for j in raw}
    return found


def slow_mean(weights: Mapping[str, float], held: Held, entity: str) -> list[float]:
    """Eqs. 8 and 9 for one entity of one site."""
    owners = [j for j in weights if entity in held.get(j, {}) and weights[j] > 0]
    mass = sum(weights[j] for j in owners)
    width = len(next(iter(held[owners[0]].values())))
    return [sum(weights[j] * held[j][entity][k] for j in owners) / mass for k in range(width)]


# The hub alone

OWNED = {
    "a": [0, 1, 2, 3],
    "b": [1, 2, 3, 4, 5],
    "c": [0, 3, 5],
    "d": [],
}
MORE = {"a": 3, "b": 0, "c": 10, "d": 4}  # entities that nobody else has
ENTITIES = {
    site: {f"e{i}" for i in ids} | {f"{site}{k}" for k in range(MORE[site])} for site, ids in OWNED.items()
}


def hub() -> Hub:
    ids = {site: {Axis.ENTITY: torch.tensor(owned, dtype=torch.int64)} for site, owned in OWNED.items()}
    totals = {site: {Axis.ENTITY: len(names)} for site, names in ENTITIES.items()}
    return Hub(ids, {Axis.ENTITY: 6}, totals=totals)


def random_rows(seed: int, ids: list[int], width: int = 4) -> Rows:
    values = torch.randn(len(ids), width, generator=torch.Generator().manual_seed(seed))
    return Rows(torch.tensor(ids, dtype=torch.int64), values)


def by_name(sent: Mapping[str, Rows]) -> dict[str, dict[str, list[float]]]:
    return {
        site: {f"e{i}": row for i, row in zip(of.ids.tolist(), of.values.tolist(), strict=True)}
        for site, of in sent.items()
    }


def combined(affinity: str, *rounds: Mapping[str, Rows]) -> tuple[PFedEG, Hub]:
    method, at = PFedEG(affinity=affinity), hub()  # type: ignore[arg-type]
    for sent in rounds:
        some = any(len(of) < len(OWNED[site]) for site, of in sent.items())
        at.sparse, at.fresh = some, {}
        method.aggregate(at, {site: {Axis.ENTITY: of} for site, of in sent.items()})
    return method, at


def everyone(seed: int = 0) -> dict[str, Rows]:
    return {site: random_rows(seed + k, ids) for k, (site, ids) in enumerate(OWNED.items()) if ids}


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_affinity_is_the_formula(affinity: str) -> None:
    sent = everyone()
    method, at = combined(affinity, sent)
    slow = slow_weights(affinity, by_name(sent), ENTITIES)
    found = method.notes(at)["affinity"]
    assert found.shape == (4, 4)
    expected = torch.tensor([list(row.values()) for row in slow.values()], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(found.sum(1), torch.ones(4, dtype=torch.float64))


@given(st.data())
def test_what_a_site_hears_is_the_formula_whoever_has_sent_what(data: st.DataObject) -> None:
    """Some sites, some of their rows, over rounds: the last row of each counts."""
    affinity = data.draw(st.sampled_from(AFFINITIES))
    rounds, last = [], {}
    for number in range(data.draw(st.integers(1, 3))):
        sent = {}
        for k, (site, ids) in enumerate(OWNED.items()):
            chosen = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
            if chosen:
                sent[site] = random_rows(10 * number + k, sorted(chosen))
                last[site] = last.get(site, {}) | by_name({site: sent[site]})[site]
        rounds.append(sent)
    method, at = combined(affinity, *rounds)
    weights = slow_weights(affinity, last, ENTITIES)
    partial = any(len(of) < len(OWNED[site]) for site, of in rounds[-1].items())
    for site, ids in OWNED.items():
        told = method.answer(at, site).get(Axis.ENTITY, Rows(torch.tensor([]), torch.empty(0, 4)))
        news = {  # entity -> others that have news of it
            i: [
                j
                for j in OWNED
                if j != site
                and weights[site][j] > 0
                and f"e{i}" in last.get(j, {})
                and (not partial or i in rounds[-1].get(j, Rows(torch.tensor([]), torch.empty(0, 4))).ids)
            ]
            for i in ids
        }
        assert told.ids.tolist() == [i for i in ids if news[i]]
        assert (told.support is None) == (not partial or not last)
        if told.support is not None:
            assert told.support.tolist() == [len(news[i]) for i in told.ids.tolist()]
        for i, row in zip(told.ids.tolist(), told.values, strict=True):
            expected = torch.tensor(slow_mean(weights[site], last, f"e{i}"))
            torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_affinity_is_computed_again_where_it_was_forgotten(affinity: str) -> None:
    method, at = combined(affinity, everyone())
    before = {site: method.answer(at, site)[Axis.ENTITY] for site in OWNED}
    at.fresh.clear()
    for site, told in before.items():
        assert torch.equal(method.answer(at, site)[Axis.ENTITY].values, told.values)


def test_nothing_is_told_before_anyone_has_sent_rows() -> None:
    assert PFedEG().answer(hub(), "a") == {}
    assert PFedEG().notes(hub()) == {}


def test_who_has_sent_nothing_is_not_heard_and_with_likeness_hears_nobody() -> None:
    sent = everyone()
    del sent["a"]
    for affinity in AFFINITIES:
        method, at = combined(affinity, sent)
        assert len(method.answer(at, "a")[Axis.ENTITY]) == (0 if affinity in LEARNT else 4)
        assert method.answer(at, "b")[Axis.ENTITY].ids.tolist() == [3, 5], "1 and 2 only a has too, 4 nobody"
        weights = method.notes(at)["affinity"]
        assert weights[1:, 0].tolist() == [0, 0, 0]
        torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))


def test_the_hub_does_not_depend_on_the_number_of_threads() -> None:
    size = 70_000
    method = PFedEG()
    found = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            ids = {site: {Axis.ENTITY: torch.arange(size)} for site in "ab"}
            at = Hub(ids, {Axis.ENTITY: size})
            method.aggregate(
                at, {s: {Axis.ENTITY: random_rows(k, list(range(size)), 3)} for k, s in enumerate("ab")}
            )
            found.append((cosine(at, mean=False), method.answer(at, "a")[Axis.ENTITY].values))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


# Whole rounds


def tables(graph: Graph, table: Tensor) -> dict[str, list[float]]:
    return dict(zip(graph.entities, table.tolist(), strict=True))


def slow_rounds(affinity: str, p: float, initialise: bool) -> dict[str, Tensor]:
    """Every site trained by itself; knowledge by name, in dictionaries. Entities after training."""
    one = experiment(trainer=FEW_STEPS)
    training = {site: start(one.trainer, one.model, {site: graph}) for site, graph in SITES.items()}
    entities = {site: set(graph.entities) for site, graph in SITES.items()}
    after: dict[str, dict[str, list[float]]] = {}
    for number in range(ROUNDS):
        weights = slow_weights(affinity, after, entities)
        for site, graph in SITES.items():
            for i, name in enumerate(graph.entities) if after and initialise else ():
                mean = slow_mean(weights[site], after, name)
                own = after[site][name]
                mixed = [p * m + (1 - p) * e for m, e in zip(mean, own, strict=True)]
                training[site].tables.entities[i] = torch.tensor(mixed)
        for one_site in training.values():
            one_site.restart()
            one_site.run(number * one.trainer.epochs)
        after = {site: tables(graph, training[site].tables.entities) for site, graph in SITES.items()}
    return {site: one_site.tables.entities for site, one_site in training.items()}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    return Once(tmp_path_factory.mktemp("once"), **FEW_STEPS)


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_rounds_are_training_and_weighing_by_name(once: Once, affinity: str) -> None:
    method = {"name": "pfedeg", "affinity": affinity, "p": 0.6, "beta": 0.0}
    fed = once(SITES, method=method, rounds=ROUNDS)
    for site, expected in slow_rounds(affinity, 0.6, True).items():
        torch.testing.assert_close(rows(fed)[f"now {site} entity"], expected, rtol=1e-4, atol=1e-5)


def close(one: Simulated, other: Simulated, kind: str = "") -> None:
    for name, tensor in rows(one).items():
        if name.startswith(kind):
            torch.testing.assert_close(tensor, rows(other)[name], rtol=1e-4, atol=1e-5)


def by(once: Once, sites: Mapping[str, Graph] = SITES, **method: Any) -> Simulated:
    return once(sites, method={"name": "pfedeg", **method})


def test_with_equal_weights_it_is_fedep_and_fedprox(once: Once) -> None:
    equal = {"affinity": "uniform", "p": 1.0}
    fedep = once(SITES, method={"name": "fedep"})
    close(by(once, **equal, beta=0.0), fedep)
    prox = {"name": "fedprox", "mu": 0.2, "squared": False}
    close(by(once, **equal, beta=0.1), once(SITES, method=prox))
    assert distance(by(once, p=1.0, beta=0.0), fedep) > 1e-3, "other weights"
    assert distance(by(once, **equal | {"p": 0.5}, beta=0.0), fedep) > 1e-3


def test_two_sites_are_always_fedep_by_what_they_have_in_common(once: Once) -> None:
    two = {site: SITES[site] for site in "ab"}
    fedep = once(two, method={"name": "fedep"})
    close(by(once, two, affinity="jaccard", p=1.0, beta=0.0), fedep)
    assert distance(by(once, two, affinity="cosine", p=1.0, beta=0.0), fedep) > 1e-3


def test_sites_with_the_same_entities_are_fedep_by_what_they_have_in_common(once: Once) -> None:
    names = [f"e{i}" for i in range(20)]
    same = {s: small_graph(k, names, [f"{s}.r{i}" for i in range(3)], 70) for k, s in enumerate("abc")}
    fedep = once(same, method={"name": "fedep"})
    close(by(once, same, affinity="jaccard", p=1.0, beta=0.0), fedep)


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("off", [{"p": 0.0}, {"initialise": False}], ids=str)
def test_a_site_that_takes_nothing_over_is_alone(once: Once, off: dict[str, Any], restart: bool) -> None:
    single = once(SITES, method={"name": "single", "restart": restart})
    same = {"restart": restart, "beta": 0.0}
    close(by(once, **off, **same), single, "now")
    assert distance(by(once, **off, **same | {"beta": 1.0}), single, "now") > 1e-3, "the pull is left"
    assert distance(by(once, **off, **same | {"restart": not restart}), single, "now") > 1e-3
    assert distance(by(once, **same), single, "now") > 1e-3


@pytest.mark.filterwarnings("ignore:no two sites have anything in common")
@pytest.mark.parametrize("affinity", AFFINITIES)
def test_one_site_is_alone(once: Once, affinity: str) -> None:
    one = {"b": SITES["b"]}
    single = once(one, method={"name": "single", "restart": True})
    close(by(once, one, affinity=affinity, beta=0.0), single)


def distance(one: Simulated, other: Simulated, kind: str = "") -> float:
    names = [name for name in rows(one) if name.startswith(kind)]
    return max(float((rows(one)[name] - rows(other)[name]).abs().max()) for name in names)


# The site


def test_knowledge_is_mixed_and_rounds_begin_there_unless_told_not_to(tmp_path: Path) -> None:
    for initialise in (True, False):
        options = {"name": "pfedeg", "p": 0.25, "initialise": initialise}
        fed = federated(tmp_path / str(initialise), SITES, method=options, rounds=1)
        fed.play(until=lambda round: round == 1)
        site = fed.stack_of["a"].sites["a"]
        before = site.tables.entities.clone()
        answer = Rows(site.shared[Axis.ENTITY].ids[2:5], torch.ones(3, 8))
        fed.experiment.method.adopt(site, {Axis.ENTITY: answer})
        mixed, at = before.clone(), site.shared[Axis.ENTITY].local[2:5]
        mixed[at] = 0.75 * before[at] + 0.25
        torch.testing.assert_close(site.kept[Axis.ENTITY]["knowledge"], mixed)
        torch.testing.assert_close(site.tables.entities, mixed if initialise else before)


def test_the_pull_is_the_norm_and_its_slope_is_right() -> None:
    generator = torch.Generator().manual_seed(0)
    e, knowledge = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    sites = BySite(torch.tensor([0, 0, 0, 1, 1]), torch.tensor([3.0, 2.0]))
    slow = [sum(x * x for x in (e - knowledge)[part].flatten().tolist()) for part in (slice(3), slice(3, 5))]
    expected = torch.tensor([0.4 * math.sqrt(square) for square in slow], dtype=torch.float64)
    torch.testing.assert_close(PFedEG(beta=0.4).penalty(moments(e, knowledge), sites), expected)
    rows_ = e.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda r: PFedEG(beta=0.4).penalty(moments(r, knowledge), sites), (rows_,)
    )


def test_the_pull_has_a_slope_where_nothing_has_moved() -> None:
    e = torch.ones(4, 3, requires_grad=True)
    sites = BySite(torch.zeros(4, dtype=torch.int64), torch.tensor([4.0]))
    PFedEG().penalty(moments(e, e.detach().clone()), sites).sum().backward()
    assert e.grad is not None
    assert torch.equal(e.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("model", ["transe", "rotate", "complex"])
def test_a_strong_pull_keeps_rows_near_their_knowledge_and_finite(once: Once, model: str) -> None:
    def far(beta: float) -> float:
        method = {"name": "pfedeg", "beta": beta}
        fed = once(SITES, method=method, model={"name": model}, rounds=2)
        stack = fed.stacks[0]
        assert all(torch.isfinite(table).all() for table in rows(fed).values())
        return float((stack.tables.entities - stack.kept[Axis.ENTITY]["knowledge"]).norm())

    assert far(30.0) < 0.7 * far(0.0)


# With everything else

HARD = {
    "participation": {"fraction": 0.7, "quorum": 0.5, "late": "use", "dropout": 0.2},
    "codec": {"name": "int8"},
    "select": {"name": "topk", "p": 0.5, "s": 2},
    "rounds": 5,
    "trainer": FEW_STEPS,
}
OTHERS = (
    {"affinity": "jaccard"},
    {"affinity": "cosine-mean", "initialise": False},
    {"affinity": "uniform", "beta": 0.0},
)


@pytest.mark.parametrize("options", OTHERS, ids=str)
def test_every_variant_stacks_and_resumes(tmp_path: Path, options: dict[str, Any]) -> None:
    """Some sites, some late or lost, top-K rows in 8 bits; the default is in the contracts."""
    common = {"method": {"name": "pfedeg", **options}, **HARD}
    alone = played(tmp_path / "alone", SITES, how=Simulation(stacked=False), **common)
    how = Simulation(save_every=0)

    def stop(progress: Progress) -> None:
        if progress.round == 4:
            raise KeyboardInterrupt

    broken = federated(tmp_path / "broken", SITES, how=how, watch=stop, **common)
    with pytest.raises(KeyboardInterrupt):
        broken.play()
    resumed = federated(tmp_path / "broken", SITES, how=how, **common)
    assert resumed.hub.round == 3
    resumed.play()
    assert_same(alone, resumed)
    assert differ(
        alone, played(tmp_path / "whole", SITES, **{**common, "select": {"name": "full"}, "rounds": 3})
    )


def test_fewer_rows_travel_both_ways(once: Once) -> None:
    def sent(**options: Any) -> dict[str, Any]:
        return once(SITES, method={"name": "pfedeg"}, **options).record.tally.summary()

    whole, half = sent(), sent(select={"name": "topk", "p": 0.5})
    for direction in ("up_values", "down_values"):  # which rows, and how many sent them, are counted too
        assert half[direction] < 0.7 * whole[direction]


def test_the_example_runs(tmp_path: Path) -> None:
    """Partial participation, top-K rows and 8 bits, on atlas, with a smaller budget."""
    small = ["rounds=2", "model.dim=8", "trainer.epochs=1", "trainer.negatives=4", "evaluate.every=1"]
    one = Experiment.parse(override(read_toml(EXAMPLE), small))
    assert (one.select, one.participation.fraction) == (TopK(0.5, 4), 0.75)
    summary = run(one, RunFolder.create(tmp_path / "run", one, resume=False), torch.device("cpu"))
    assert summary["metrics"]["test"]["mrr"] > 0
    found = list(events(tmp_path / "run"))
    assert [len(event["participants"]) for event in found if event["event"] == "round"] == [3, 3]
    assert sum("notes" in event for event in found) == 2


# What the hub is told, and what it notes


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_the_hub_knows_how_many_entities_sites_have(once: Once, affinity: str) -> None:
    """All that they announce, whether others have them too or not."""
    hub = by(once, affinity=affinity).hub.hub
    assert hub.totals == {site: {Axis.ENTITY: n} for site, n in (("a", 20), ("b", 30), ("c", 14))}
    assert {site: len(ids[Axis.ENTITY]) for site, ids in hub.ids.items()} == {"a": 10, "b": 14, "c": 14}


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_the_journal_has_the_affinity_of_every_evaluated_round(once: Once, affinity: str) -> None:
    fed = by(once, affinity=affinity)
    found = [event for event in events(fed.folder.path) if event["event"] == "evaluate"]
    assert [event["round"] for event in found] == [2, 4]
    noted = [event["notes"]["affinity"] for event in found]
    assert all(note["sites"] == ["a", "b", "c"] for note in noted)
    last = torch.tensor(noted[-1]["values"], dtype=torch.float64)
    torch.testing.assert_close(last, fed.hub.hub.fresh["affinity"], rtol=1e-5, atol=1e-9)
    assert (noted[0] == noted[1]) == (affinity not in LEARNT), "constant but for what is learnt"


def test_a_method_that_notes_nothing_adds_nothing_to_the_journal(once: Once) -> None:
    fed = once(SITES, method={"name": "fedep"})
    assert all("notes" not in event for event in events(fed.folder.path))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"p": 1.5}, "method.p: expected a number from 0 to 1, got 1.5"),
        ({"p": math.nan}, "method.p: expected a number from 0 to 1, got nan"),
        ({"beta": -1.0}, "method.beta: expected a finite number of at least 0, got -1.0"),
        ({"beta": math.inf}, "method.beta: expected a finite number of at least 0, got inf"),
        ({"beta": math.nan}, "method.beta: expected a finite number of at least 0, got nan"),
        ({"affinity": "cosin"}, "did you mean 'cosine'"),
        ({"initialize": False}, "did you mean 'initialise'"),
    ],
)
def test_wrong_options_are_errors_with_a_hint(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        experiment(method={"name": "pfedeg", **options})
