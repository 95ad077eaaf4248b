"""FedLU: what its two tables are when nothing is distilled, its loss, its switches, and what it reports."""

from __future__ import annotations

import re
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.config import read_toml
from fedkge.errors import ConfigError
from fedkge.evaluation import Known, metrics_by_side, rank
from fedkge.evaluation.metrics import NAMES
from fedkge.exchange.rows import HUB
from fedkge.graphs.graph import Axis, Graph, Names, Split
from fedkge.methods import Hub
from fedkge.methods.fedlu import FedLU
from fedkge.models import MODELS, Side, Tables
from fedkge.nodes.journal import read_journal
from fedkge.reports.folders.load import events
from fedkge.runs.data import load
from fedkge.runs.experiment import Experiment
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Simulated, Simulation, run
from fedkge.training import Batch, Trainer
from small_federations import Once, assert_same, federated, played, result, small_federation

SITES = small_federation()
APART = {
    site: Graph(Names([f"{site}.{e}" for e in graph.entities]), graph.relations, *graph.splits().values())
    for site, graph in SITES.items()
}
#: A loss of the scores alone: the usual ones have a kernel of their own that rounds otherwise, for one table.
EXACT = {"loss": "margin"}
FEW_STEPS = {"batch_size": 40}
PLATEAU = {"name": "fedlu", "when": "plateau"}
ALONE = {"relations": "local"}


def lu(**options: Any) -> dict[str, Any]:
    return {"name": "fedlu", **options}


def both(run: Simulated) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """Each site's local, global and relation rows."""
    found = {}
    for name, stack in run.stack_of.items():
        tables = stack.sites[name].tables
        assert tables.second is not None
        assert tables.second.relations is tables.relations
        found[name] = (tables.entities, tables.second.entities, tables.relations)
    return found


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    return Once(tmp_path_factory.mktemp("once"), **FEW_STEPS)


# Degenerate equivalences


def test_without_distillation_the_local_table_is_single(once: Once) -> None:
    """Whatever the global table does, where relations learn by the local scores alone."""
    alone = once(SITES, method={"name": "single"}, rounds=3, trainer=EXACT)
    beside = once(SITES, method=lu(mu=0.0, **ALONE), rounds=3, trainer=EXACT)
    taught = once(SITES, method=lu(**ALONE), rounds=3, trainer=EXACT)
    for name, stack in alone.stack_of.items():
        tables = stack.sites[name].tables
        local, common, relations = both(beside)[name]
        assert torch.equal(local, tables.entities)
        assert torch.equal(relations, tables.relations)
        assert not torch.equal(common, local)
        assert not torch.equal(both(taught)[name][0], tables.entities)


def test_without_distillation_the_first_global_table_is_fedep(tmp_path: Path) -> None:
    """For one round: from the second on, the global table scores with relations that the local one made."""
    ep = played(tmp_path / "ep", SITES, method={"name": "fedep"}, rounds=1, trainer=EXACT)
    beside = played(tmp_path / "lu", SITES, method=lu(mu=0.0, **ALONE), rounds=1, trainer=EXACT)
    for name, stack in ep.stack_of.items():
        assert torch.equal(both(beside)[name][1], stack.sites[name].tables.entities)
    for name in ("mean", "known"):
        means = [run.hub.hub.by_id[Axis.ENTITY][name] for run in (ep, beside)]
        assert torch.equal(*means)


def test_so_it_is_with_the_usual_loss_up_to_rounding(tmp_path: Path) -> None:
    alone = played(tmp_path / "single", SITES, method={"name": "single"}, rounds=1)
    beside = played(tmp_path / "lu", SITES, method=lu(mu=0.0, **ALONE), rounds=1)
    for name, stack in alone.stack_of.items():
        tables = stack.sites[name].tables
        for mine, right in zip(
            both(beside)[name], (tables.entities, tables.entities, tables.relations), strict=True
        ):
            torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:no two sites have anything in common")
def test_who_has_nothing_in_common_is_taught_nothing(once: Once) -> None:
    """Then the two tables are one and the same, to the bit, as long as their optimizers are."""
    alone = once(APART, method={"name": "single"}, rounds=3, trainer=EXACT)
    taught = once(APART, method=lu(restart_global=False, **ALONE), rounds=3, trainer=EXACT)
    for name, stack in alone.stack_of.items():
        local, common, relations = both(taught)[name]
        assert torch.equal(local, stack.sites[name].tables.entities)
        assert torch.equal(common, local)
        assert torch.equal(relations, stack.sites[name].tables.relations)


@pytest.mark.filterwarnings("ignore:no two sites have anything in common")
def test_relations_learn_by_both(tmp_path: Path) -> None:
    """A step of relations is the sum of two: twice as far, where the two tables are the same."""
    step = {**EXACT, "optimizer": "sgd", "lr": 0.125, "batch_size": 10_000, "epochs": 1, "sides": "tail"}
    alone, taught = (
        both(played(tmp_path / by, APART, method=lu(relations=by), rounds=1, trainer=step))
        for by in ("local", "both")
    )
    first = both(federated(tmp_path / "first", APART, method=lu(), rounds=1, trainer=step))
    for name, (local, common, _) in taught.items():
        assert torch.equal(local, common)
        assert torch.equal(local, alone[name][0])
        once, twice = (of[name][2] - first[name][2] for of in (alone, taught))
        assert once.abs().max() > 1e-3
        torch.testing.assert_close(twice, 2 * once, rtol=1e-5, atol=1e-6)


# The loss


def leaves(model: str) -> tuple[Tables, list[Tensor]]:
    random = torch.Generator().manual_seed(0)
    made = MODELS[model](dim=4)
    widths = (made.width(Axis.ENTITY), made.width(Axis.ENTITY), made.width(Axis.RELATION))
    rows = [torch.randn(9, w, generator=random, dtype=torch.float64).requires_grad_() for w in widths]
    tables = Tables(made, rows[0], rows[2], second=Tables(made, rows[1], rows[2]))
    return tables, rows


@pytest.mark.parametrize("model", ["transe", "rotate", "complex"])
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("taught_by", ["both", "local"])
def test_the_loss_and_whom_it_moves(model: str, side: Side, taught_by: Any) -> None:
    random, trainer = torch.Generator().manual_seed(1), Trainer()
    index = torch.randint(0, 9, (6, 5), generator=random)
    anchor, relation, site = index[:, 1], index[:, 2], torch.zeros(6, dtype=torch.int64)
    batch = Batch(side, anchor, relation, index, site, torch.full((6,), 1 / 6))
    tables, rows = leaves(model)
    losses = FedLU(mu=0.7, temperature=2.0, relations=taught_by).objective(trainer, tables, batch, {})
    losses.sum().backward()

    again, (local, common, relations) = leaves(model)
    head_first = side is Side.TAIL

    def scores(entities: Tensor, of: Tensor) -> Tensor:
        a, c, r = entities[anchor][:, None], entities[index], of[relation][:, None]
        return again.model.score(a, r, c) if head_first else again.model.score(c, r, a)

    own = scores(local, relations)
    shared = scores(common, relations if taught_by == "both" else relations.detach())
    expected = torch.zeros(6, dtype=torch.float64)
    for pupil, teacher in ((own, shared), (shared, own)):
        weight = pupil[:, 1:].detach().softmax(-1)
        expected = expected - F.logsigmoid(pupil[:, 0]) / 2
        expected = expected - (weight * F.logsigmoid(-pupil[:, 1:])).sum(-1) / 2
        p, q = (pupil / 2).softmax(-1), (teacher.detach() / 2).softmax(-1)
        expected = expected + 0.7 / 2 * (q * (q.log() - p.log())).sum(-1)
    expected.sum().backward()
    torch.testing.assert_close(losses, expected)
    for found, right in zip(rows, (local, common, relations), strict=True):
        torch.testing.assert_close(found.grad, right.grad)


def test_mu_is_the_paper_s() -> None:
    """The loss is half of Eq. 11, of both tables, term by term as Eqs. 7 to 10 are printed."""
    random = torch.Generator().manual_seed(2)
    index = torch.randint(0, 9, (4, 6), generator=random)
    anchor, relation, site = index[:, 1], index[:, 2], torch.zeros(4, dtype=torch.int64)
    batch = Batch(Side.TAIL, anchor, relation, index, site, torch.full((4,), 1 / 4))
    tables, (local, common, relations) = leaves("transe")
    mu = 1.4
    losses = FedLU(mu=mu).objective(Trainer(loss="logistic"), tables, batch, {})
    for i, found in enumerate(losses.tolist()):
        scores = [
            [
                float(
                    tables.model.score(
                        rows[anchor[i]][None], relations[relation[i]][None], rows[tail][None]
                    ).detach()
                )
                for tail in index[i]
            ]
            for rows in (local, common)
        ]  # by table: of the triple, then of its negatives
        printed = 0.0
        for own, other in (scores, scores[::-1]):
            n = len(own) - 1
            predict = -log(sigmoid(own[0])) - sum(log(sigmoid(-s)) / n for s in own[1:])
            p, q = ([exp(s) / sum(map(exp, of)) for s in of] for of in (own, other))
            divergence = sum(b * log(b / a) for a, b in zip(p, q, strict=True))
            printed += predict + mu * divergence
        assert found == pytest.approx(printed / 2)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


# Switched on by plateaus


def test_each_way_is_switched_on_when_the_other_table_has_stalled() -> None:
    dials, hub = FedLU(when="plateau", wait=20).dials(), Hub()
    assert dials is not None

    def after(round: int, local: float, shared: float) -> tuple[float, ...]:
        dials.validated(hub, round, local, {"global": shared})
        return tuple(dials.told(hub, "a")[way] for way in ("to_local", "to_global"))

    assert dials.told(hub, "a") == {"to_local": 0, "to_global": 0}
    assert after(5, 0.1, 0.1) == (0, 0)
    assert after(10, 0.1005, 0.2) == (0, 0)  # a small gain is one, before `wait`
    assert after(15, 0.2, 0.2) == (1, 0)
    assert after(16, 0.3, 0.3) == (1, 0)  # for good
    assert after(17, 0.3, 0.4) == (1, 1)
    hub.memory.clear()
    assert after(15, 0.1, 0.1) == (0, 0)
    assert after(20, 0.1005, 0.2) == (0, 1)
    assert after(25, 0.0, 0.0) == (1, 1)


def test_until_a_plateau_nothing_is_distilled(once: Once) -> None:
    """Validated once, at the end: all rounds pass without distillation."""
    options = {"evaluate": {"every": 3}, "rounds": 3}
    assert_same(
        once(SITES, method=PLATEAU, **options),
        once(SITES, method=lu(mu=0.0), **options),
    )


def test_a_plateau_switches_distillation_on_at_the_sites(once: Once) -> None:
    options = {"evaluate": {"every": 1}, "rounds": 8}
    run = once(SITES, method=PLATEAU, **options)
    off = once(SITES, method=lu(mu=0.0), **options)
    assert run.hub.hub.memory["taught"].any()
    dials = run.experiment.method.dials()
    assert dials is not None
    ways = dials.told(run.hub.hub, "a")
    assert any(ways.values())
    assert {n: s.site.dials for n, s in run.sites.items()}.keys() == SITES.keys()
    told = [event["dials"] for event in events(run.folder.path) if event["event"] == "evaluate"]
    assert told[0] == dict.fromkeys(ways, 0.0)
    assert told[-1] == ways
    assert any(not torch.equal(both(run)[n][0], both(off)[n][0]) for n in SITES)


@pytest.mark.parametrize("method", [PLATEAU, lu()], ids=["plateau", "always"])
def test_composed_with_everything_it_resumes_and_stacks(tmp_path: Path, method: dict[str, Any]) -> None:
    """Top-K rows in int8, some sites each round, some late, some lost; the global tables too are the same."""
    options = {
        "method": method,
        "rounds": 6,
        "evaluate": {"every": 1},
        "select": {"name": "topk", "p": 0.5, "s": 2},
        "codec": {"name": "int8"},
        "trainer": FEW_STEPS,
        "participation": {"fraction": 0.7, "quorum": 0.5, "late": "use", "dropout": 0.1},
    }
    whole = played(tmp_path / "whole", SITES, **options)
    alone = played(tmp_path / "alone", SITES, how=Simulation(stacked=False), **options)

    class Stopped(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.round == 5:
            raise Stopped

    broken = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), watch=stop, **options)
    with pytest.raises(Stopped):
        broken.play()
    resumed = federated(tmp_path / "broken", SITES, how=Simulation(save_every=0), **options)
    resumed.play()
    found = result(whole).metrics
    assert {"test_global", "test_hub"} <= found.keys()
    for other in (alone, resumed):
        assert_same(whole, other)
        for name, tables in both(whole).items():
            assert all(map(torch.equal, tables, both(other)[name]))
        assert other.hub.validation.stopping == whole.hub.validation.stopping
        assert result(other).metrics == found


# What is measured


def test_local_global_and_hub_are_reported(tmp_path: Path) -> None:
    options = {"rounds": 3, "evaluate": {"every": 3}}
    one = federated(tmp_path / "r", SITES, method=lu(), **options)
    one.play()
    assert set(result(one).metrics) == {"valid", "test", "test_global", "test_hub"}
    for name, node in one.sites.items():
        stack, laid = one.stack_of[name], node.tables()["hub"]
        site, mean = stack.sites[name], one.hub.hub.by_id[Axis.ENTITY]["mean"]
        local, common, relations = both(one)[name]
        assert torch.equal(
            laid.entities[site.shared[Axis.ENTITY].local], mean[one.hub.hub.ids[name][Axis.ENTITY]]
        )
        own = torch.ones(len(laid.entities), dtype=torch.bool)
        own[site.shared[Axis.ENTITY].local] = False
        assert torch.equal(laid.entities[own], common[own])
        assert torch.equal(laid.relations, relations)
        assert torch.equal(stack.bests[name].entities, local)
    without = played(tmp_path / "w", SITES, method=lu(measure_hub=False), **options)
    assert set(result(without).metrics) == {"valid", "test", "test_global"}
    assert_same(one, without)
    down = [run.record.tally.summary()["down_values"] for run in (one, without)]
    assert down[0] > down[1]


def rank_saved(folder: Path, experiment: Experiment, view: str) -> dict[str, float]:
    """Test MRR by site of the tables that a run has saved."""
    found = {}
    for name, graph in load(experiment).named.items():
        tables, entities, relations = RunFolder.open(folder).load_site(name, view)
        assert (list(entities), list(relations)) == (list(graph.entities), list(graph.relations))
        ranks = rank(tables, graph.test, Known.from_graph(graph), site=name)
        found[name] = metrics_by_side(ranks)["both"]["mrr"]
    return found


def test_the_summary_and_the_journal_have_both(tmp_path: Path) -> None:
    from fedkge.reports.compared.tables import metric_rows, own_rows
    from fedkge.reports.folders.load import load_run

    one = Experiment.parse(read_toml(Path(__file__).parents[2] / "examples" / "atlas-fedlu-topk-int8.toml"))
    config = one.config() | {"rounds": 1, "evaluate": {"every": 1}}
    config["trainer"] |= {"epochs": 1, "negatives": 4}
    config["model"] |= {"dim": 8}
    one = Experiment.parse(config)
    summary = run(one, RunFolder.create(tmp_path / "r", one, False), torch.device("cpu"))
    assert {"test", "test_global", "test_hub"} <= summary["metrics"].keys()
    for site in summary["sites"].values():
        assert {"test", "test_global", "test_hub"} <= site["metrics"].keys()
    loaded = load_run(tmp_path / "r")
    (row,) = metric_rows([loaded])
    assert row["mrr"] == summary["metrics"]["test"]["mrr"]
    assert row["global_mrr"] == summary["metrics"]["test_global"]["mrr"]
    assert row["hub_mrr"] == summary["metrics"]["test_hub"]["mrr"]
    found = {view: rank_saved(tmp_path / "r", one, view) for view in ("", "global", "hub")}
    assert found[""] == {n: site["metrics"]["test"]["mrr"] for n, site in summary["sites"].items()}
    for view in ("global", "hub"):
        assert found[view] == {n: s["metrics"][f"test_{view}"]["mrr"] for n, s in summary["sites"].items()}
    assert found["global"] != found["hub"] != found[""]
    for found in own_rows(loaded)[:-1]:
        assert found["hub_mrr"] == summary["sites"][found["site"]]["metrics"]["test_hub"]["mrr"]


def told(run: Simulated, mrrs: list[float]) -> None:
    """Have every site find these values one after another when it validates, whatever its tables are."""
    for name, node in run.sites.items():
        values = iter(mrrs)
        count = 2 * len(SITES[name].valid)

        def found(_: Tables, name: str = name, values: Any = values, count: int = count) -> Any:
            return {name: dict.fromkeys(NAMES, next(values)) | {"mr": 2.0, "count": count}}

        node._validate = found  # type: ignore[method-assign]


def test_a_run_goes_on_while_the_global_table_improves(tmp_path: Path) -> None:
    run = federated(tmp_path, SITES, method=lu(), evaluate={"every": 1, "patience": 2}, rounds=9)
    told(run, [0.5, 0.1, 0.4, 0.2, 0.4, 0.3, 0.4, 0.3, 0.4, 0.3])  # local, global, by turns
    run.play()
    assert run.hub.round == 5  # better locally at 1, globally until 3, then twice neither
    assert run.hub.validation.stopping[""].best_at == 1
    (course,) = result(run).courses.values()
    assert (course["best_round"], course["best_rounds"]) == (1, {"global": 3})


def test_each_table_is_kept_at_the_round_where_it_validates_best(tmp_path: Path) -> None:
    """With the relations that it had then, though the two share them while they are trained."""
    options: dict[str, Any] = {"method": lu(), "evaluate": {"every": 1, "patience": 0}}
    run = federated(tmp_path / "all", SITES, rounds=4, **options)
    told(run, [0.5, 0.1, 0.4, 0.2, 0.4, 0.3, 0.4, 0.3])  # local is best at 1, global at 3
    run.play()
    first, third = (both(played(tmp_path / str(n), SITES, rounds=n, **options)) for n in (1, 3))
    for name, stack in run.stack_of.items():
        best = stack.bests[name]
        assert best.second is not None
        assert torch.equal(best.entities, first[name][0])
        assert torch.equal(best.relations, first[name][2])
        assert torch.equal(best.second.entities, third[name][1])
        assert torch.equal(best.second.relations, third[name][2])
        assert not torch.equal(best.second.relations, best.relations)


def test_bad_messages(tmp_path: Path) -> None:
    run = federated(tmp_path, SITES, method=PLATEAU, evaluate={"every": 1})
    run.play(until=lambda round: round == 1)
    site, hub, trained = run.sites["a"], run.hub, {"loss": 1.0, "triples": 1, "seconds": 1.0}
    site.unwritten, hub.unwritten = [], []
    assert site.begin(hub.message("a", "train", 1)) == []
    (event,) = site.unwritten
    assert "dials: {}, expected ['to_global', 'to_local']; another method?" in event["why"]
    for name, one in run.sites.items():
        hub.receive(one.finish(1, trained))
        assert hub.phase == ("train" if name != "c" else "measure")
    found = {name: one.learner.measure(one.site.tables, Split.VALID) for name, one in run.sites.items()}
    good = {name: of[name]["both"] for name, of in found.items()}
    noted: list[dict[str, Any]] = [
        {"metrics": {"a": good["a"]}},
        {"metrics": {"b": good["b"]}, "views": {"global": {"b": 1}}},
        {"metrics": {"c": good["c"]}, "views": {"global": {"c": good["c"]}}},
    ]
    for one, note in zip(run.sites.values(), noted, strict=True):
        hub.receive(one.message(HUB, "metrics", 1, **note))
    journal = read_journal(tmp_path / "hub" / "journal.jsonl")
    assert [event["site"] for event in journal if event["event"] == "refused"] == ["a", "b"]
    assert hub.validation.measured == {"c"}


@pytest.mark.parametrize(
    "bad",
    [
        {"mu": -1.0},
        {"mu": float("nan")},
        {"temperature": 0.0},
        {"temperature": 1e-45},
        {"temperature": 1.5e39},
        {"wait": -1},
        {"share": "relations"},
    ],
)
def test_bad_options(bad: dict[str, Any]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ConfigError, match=f"{name}: expected .* got {re.escape(str(value))}"):
        FedLU(**bad)
