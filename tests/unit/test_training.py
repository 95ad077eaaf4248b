"""A training step against plain autograd and torch.optim, and what must not change its bits."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedkge.graphs.graph import Axis, Graph
from fedkge.kernels import Shared
from fedkge.models import MODELS, Model, Side, Tables, tables
from fedkge.training import Batch, Trainer, Training
from fedkge.training.optimizers import OPTIMIZERS
from fedkge.training.trainer import Penalty
from small_graphs import first_tables, random_graph, ring, shares, start, triples_of, watch

numba = pytest.importorskip("numba")

SITES = {"a": random_graph(1, 23, 3, 90), "b": random_graph(2, 31, 4, 200), "c": random_graph(3, 9, 2, 31)}
SMALL = Trainer(epochs=2, batch_size=16, negatives=5, lr=1e-2)
TRUE = torch.ones(1, dtype=torch.bool)
CHUNKS = pytest.mark.parametrize("chunk", [1, 6])  # negatives of one's own, and shared by up to six


# A step, slow and obvious.


def slow_losses(trainer: Trainer, model: Model, entities: Tensor, relations: Tensor, batch: Batch) -> Tensor:
    """The losses [b] from `model.score` of every candidate, by the formulas of the papers."""
    if not isinstance(batch.index, Tensor):
        every = zip(batch.index.index(), batch.index.left_out, range(len(batch.anchor)), strict=True)
        own = [one_of(batch, index[torch.cat((TRUE, ~gone))], i) for index, gone, i in every]
        return torch.cat([slow_losses(trainer, model, entities, relations, one) for one in own])
    anchor, candidates = entities[batch.anchor][:, None], entities[batch.index]
    head, tail = (anchor, candidates) if batch.side is Side.TAIL else (candidates, anchor)
    scores = model.score(head, relations[batch.relation][:, None], tail)
    true, false = scores[:, :1], scores[:, 1:]
    vectors = relations[:, : model.width(Axis.RELATION) - ("weight" in model.untrained)]
    triple = [entities[batch.anchor], vectors[batch.relation], entities[batch.index[:, 0]]]
    large = trainer.l3 * torch.cat(triple, 1).norm(p=3, dim=1) ** 3
    if trainer.loss == "margin":
        each = torch.relu(trainer.ranking_margin - true + false)
        return each.sum(1) / max(1, each.shape[1]) + large
    temperature = trainer.temperature if trainer.loss == "self-adversarial" else 0.0
    weight = torch.softmax(temperature * false, 1).detach()
    return -(F.logsigmoid(true).squeeze(1) + (weight * F.logsigmoid(-false)).sum(1)) / 2 + large


def one_of(batch: Batch, index: Tensor, i: int) -> Batch:
    """The i-th triple of a batch alone, with these candidates."""
    parts = (getattr(batch, name)[i : i + 1] for name in ("anchor", "relation"))
    return Batch(batch.side, *parts, index[None], batch.site[i : i + 1], batch.weight[i : i + 1])


def slow_optimizer(trainer: Trainer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    kind = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}.get(trainer.optimizer, torch.optim.Adam)
    return kind(parameters, lr=trainer.lr)


def slow_step(
    optimizer: torch.optim.Optimizer, parameters: list[Tensor], touched: list[Tensor] | None
) -> None:
    """A step; given touched rows, all others and their moments are put back."""
    rows = [p.detach().clone() for p in parameters]
    states = [{k: v.clone() for k, v in optimizer.state.get(p, {}).items()} for p in parameters]
    optimizer.step()
    if touched is None:
        return
    for parameter, before, state, ids in zip(parameters, rows, states, touched, strict=True):
        others = torch.ones(len(parameter), dtype=torch.bool)
        others[ids.flatten()] = False
        parameter.data[others] = before[others]
        for name in ("exp_avg", "exp_avg_sq"):
            optimizer.state[parameter][name][others] = state[name][others] if state else 0


def slow_training(trainer: Trainer, model: Model, first: tables.Tables, batches: list[Batch]) -> list[Tensor]:
    parameters = [first.entities.clone().requires_grad_(), first.relations.clone().requires_grad_()]
    optimizer = slow_optimizer(trainer, parameters)
    for batch in batches:
        optimizer.zero_grad()
        (slow_losses(trainer, model, *parameters, batch) * batch.weight).sum().backward()
        touched = [torch.cat((batch.anchor, batch.candidates)), batch.relation]
        rows_only = trainer.optimizer == "row-adam"
        slow_step(optimizer, parameters, touched if rows_only else None)
        for axis, parameter, ids in zip(Axis, parameters, touched, strict=True):
            allowed = model.constrain(parameter.detach(), axis)
            if allowed is not None:
                mine = ids.unique() if rows_only else slice(None)
                parameter.data[mine] = allowed[mine]
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("name", ["transe", "rotate", "complex", "transh", "transm"])
@pytest.mark.parametrize(
    ("loss", "optimizer", "subsampling", "l3"),
    [
        ("self-adversarial", "adam", False, 0.0),
        ("self-adversarial", "row-adam", True, 0.0),
        ("logistic", "adagrad", True, 0.1),
        ("margin", "sgd", False, 0.0),
        ("margin", "row-adam", False, 0.1),
        ("logistic", "adam", True, 0.0),
        ("self-adversarial", "adam", False, 0.1),
    ],
)
@CHUNKS
def test_steps_equal_autograd_and_torch_optim(
    name: str, loss: str, optimizer: str, subsampling: bool, l3: float, chunk: int
) -> None:
    options = {"loss": loss, "optimizer": optimizer, "subsampling": subsampling, "l3": l3, "chunk": chunk}
    trainer = Trainer(epochs=2, batch_size=40, negatives=5, lr=1e-2, **options)
    graph, model = SITES["a"], MODELS[name](dim=5)
    training = start(trainer, model, {"a": graph}, dtype=torch.float64)
    batches = watch(training)
    mean = training.run(0)
    first = first_tables(model, graph, dtype=torch.float64)
    expected = slow_training(trainer, model, first, batches)
    assert len(batches) == 2 * 2 * 3
    found = (training.tables.entities, training.tables.relations)
    for table, slow, before in zip(found, expected, (first.entities, first.relations), strict=True):
        torch.testing.assert_close(table, slow, rtol=1e-7, atol=1e-9)
        assert (table - before).abs().max() > 1e-3
    assert mean.shape == (1,)


@CHUNKS
@pytest.mark.parametrize("name", ["transe", "complex", "transh", "rotate", "distmult", "transm"])
def test_steps_in_single_precision(name: str, chunk: int) -> None:
    model, trainer = MODELS[name](dim=7), dataclasses.replace(SMALL, batch_size=40, chunk=chunk)
    training = start(trainer, model, {"a": SITES["a"]})
    batches = watch(training)
    training.run(0)
    expected = slow_training(trainer, model, first_tables(model, SITES["a"]), batches)
    for table, slow in zip((training.tables.entities, training.tables.relations), expected, strict=True):
        torch.testing.assert_close(table, slow, rtol=1e-3, atol=1e-4)


def test_reported_loss_is_the_mean_over_steps() -> None:
    model = MODELS["distmult"](dim=4)
    tiny = 1e-30  # the tables stay where they are, so that every step's loss can be computed afterwards
    training = start(dataclasses.replace(SMALL, lr=tiny, optimizer="sgd"), model, SITES, dtype=torch.float64)
    batches = watch(training)
    found = training.run(0)
    rows = training.tables.entities, training.tables.relations
    sums, steps = torch.zeros(3, dtype=torch.float64), torch.zeros(3)
    for batch in batches:
        losses = slow_losses(training.trainer, model, *rows, batch) * batch.weight
        sums.index_add_(0, batch.site, losses)
        steps[batch.site.unique()] += 1
    torch.testing.assert_close(found, sums / steps)


# What must not change a bit.


def trained(
    trainer: Trainer, model: Model, sites: dict[str, Graph], seed: int = 0
) -> dict[str, tuple[Tensor, Tensor]]:
    training = start(trainer, model, sites, seed)
    training.run(0)
    training.run(trainer.epochs)
    return shares(training, sites)


def same(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@CHUNKS
def test_steps_taken_together_are_those_taken_one_by_one(chunk: int) -> None:
    """The next batch is drawn before a step is taken: what it draws depends on the clock alone."""
    trainer = dataclasses.replace(SMALL, chunk=chunk)
    one, several = (start(trainer, MODELS["transe"](dim=5), SITES) for _ in range(2))
    one.run(0, 1)
    several._shuffle(0)
    with torch.no_grad():
        several._take(list(several._steps_of(0)), False)
    assert len(list(several._steps_of(0))) > 2
    assert torch.equal(one.tables.entities, several.tables.entities)
    assert torch.equal(one.clock, several.clock)


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("name", ["transe", "rotate", "transh"])
@CHUNKS
def test_a_stack_trains_as_its_sites_alone(name: str, optimizer: str, chunk: int) -> None:
    options = {"optimizer": optimizer, "subsampling": True, "chunk": chunk}
    model, trainer = MODELS[name](dim=7), dataclasses.replace(SMALL, **options)
    stacked = trained(trainer, model, SITES)
    for site, graph in SITES.items():
        assert same(trained(trainer, model, {site: graph})[site], stacked[site]), site


@pytest.mark.parametrize("name", ["transr", "transd", "transm", "complex", "distmult", "rescal"])
@pytest.mark.parametrize("l3", [0.0, 0.1])
@CHUNKS
def test_a_stack_of_any_model(name: str, l3: float, chunk: int) -> None:
    model, trainer = MODELS[name](dim=3), dataclasses.replace(SMALL, l3=l3, chunk=chunk)
    stacked = trained(trainer, model, SITES)
    assert all(same(trained(trainer, model, {site: SITES[site]})[site], stacked[site]) for site in SITES)
    assert (l3, chunk) == (0, 1) or not same(trained(SMALL, model, SITES)["a"], stacked["a"])


@pytest.mark.parametrize("name", ["transr", "rescal", "transe"])
def test_products_with_matrices_differ_by_rounding_at_most(name: str) -> None:
    """Torch multiplies one wide matrix in another order than several: a step of one triple shows it."""
    sites = SITES | {"one": random_graph(4, 9, 1, 1)}
    model = MODELS[name](dim=33)
    stacked = trained(SMALL, model, sites)
    for site, graph in sites.items():
        alone = trained(SMALL, model, {site: graph})[site]
        for mine, other in zip(alone, stacked[site], strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
        assert name in ("transr", "rescal") or same(alone, stacked[site])


@pytest.mark.parametrize("optimizer", ["adam", "row-adam"])
@pytest.mark.parametrize("name", ["transh", "transe"])
def test_a_stack_whose_work_is_done_in_pieces(
    name: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of projected candidates and of touched rows end elsewhere in a stack than alone."""
    options = {"classic": True} if name == "transe" else {}
    model, trainer = MODELS[name](dim=7, **options), dataclasses.replace(SMALL, optimizer=optimizer)
    whole = trained(trainer, model, SITES)
    monkeypatch.setattr(tables, "CHUNK", 7 * 6 * 5)
    stacked = trained(trainer, model, SITES)
    for site, graph in SITES.items():
        assert same(trained(trainer, model, {site: graph})[site], stacked[site]), site
        assert same(whole[site], stacked[site]), site


def test_order_of_a_stack_and_who_trains_beside() -> None:
    model = MODELS["transe"](dim=6)
    stacked = trained(SMALL, model, SITES)
    turned = trained(SMALL, model, dict(reversed(SITES.items())))
    fewer = trained(SMALL, model, {"c": SITES["c"], "a": SITES["a"]})
    assert all(same(stacked[site], turned[site]) for site in SITES)
    assert all(same(stacked[site], fewer[site]) for site in fewer)


def test_a_site_draws_the_same_beside_any_other() -> None:
    alone, beside = (
        watch_run(start(SMALL, MODELS["transe"](dim=4), sites))
        for sites in ({"a": SITES["a"]}, {"c": SITES["c"], "a": SITES["a"]})
    )
    shift = SITES["c"].n_entities
    mine = [batch.index[batch.site == 1] - shift for batch in beside]
    assert all(
        torch.equal(one.index, other)
        for one, other in zip(alone, (index for index in mine if len(index)), strict=True)
    )


def watch_run(training: Training, epochs: int = 1) -> list[Batch]:
    batches = watch(training)
    training.run(0, epochs)
    return batches


@pytest.fixture
def threads() -> Iterator[Callable[[int, int], None]]:
    """Sets numba's and torch's numbers of threads; puts them back."""
    before = numba.get_num_threads(), torch.get_num_threads()

    def set_(kernels: int, torchs: int) -> None:
        numba.set_num_threads(kernels)
        torch.set_num_threads(torchs)

    yield set_
    set_(*before)


@pytest.mark.parametrize(
    ("name", "optimizer"), [("transe", "row-adam"), ("rotate", "adam"), ("transh", "adam")]
)
@CHUNKS
def test_threads_change_no_bit(
    name: str, optimizer: str, chunk: int, threads: Callable[[int, int], None]
) -> None:
    counts = range(1, min(2, numba.config.NUMBA_NUM_THREADS) + 1)
    options = {"optimizer": optimizer, "batch_size": 50, "chunk": chunk}
    model, trainer = MODELS[name](dim=9), dataclasses.replace(SMALL, **options)
    found = []
    for kernels, torchs in itertools.product(counts, (1, 2, 3)):
        threads(kernels, torchs)
        found.append(trained(trainer, model, {"b": SITES["b"]})["b"])
        assert torch.get_num_threads() == torchs
    assert len(found) >= 3
    assert all(same(found[0], other) for other in found)


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize(("name", "chunk"), [("transh", 1), ("rotate", 6)])
def test_state_is_all_that_resuming_needs(optimizer: str, name: str, chunk: int) -> None:
    model, trainer = MODELS[name](dim=5), dataclasses.replace(SMALL, optimizer=optimizer, chunk=chunk)
    whole = trained(trainer, model, SITES)
    first = start(trainer, model, SITES)
    first.run(0)
    second = start(trainer, model, SITES, seed=0)
    second.tables.entities.copy_(first.tables.entities)
    second.tables.relations.copy_(first.tables.relations)
    second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
    second.run(trainer.epochs)
    resumed = shares(second, SITES)
    assert all(same(whole[site], resumed[site]) for site in SITES)


def test_seeds() -> None:
    model = MODELS["rotate"](dim=4)
    first, again, other = (trained(SMALL, model, SITES, seed) for seed in (0, 0, 1))
    for site in SITES:
        assert same(first[site], again[site])
        assert not torch.equal(first[site][0], other[site][0])


@CHUNKS
def test_plain_torch_trains_to_nearly_the_same(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = dataclasses.replace(SMALL, chunk=chunk)
    for name in ("transe", "rotate", "complex", "transh"):
        model = MODELS[name](dim=5)
        fast = trained(trainer, model, SITES)
        monkeypatch.setitem(os.environ, "FEDKGE_KERNELS", "reference")
        slow = trained(trainer, model, SITES)
        monkeypatch.delitem(os.environ, "FEDKGE_KERNELS")
        for site in SITES:
            for left, right in zip(fast[site], slow[site], strict=True):
                torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)


# What a step leaves behind.


@pytest.mark.parametrize("name", list(MODELS))
@CHUNKS
def test_loss_falls(name: str, chunk: int) -> None:
    trainer = Trainer(epochs=1, batch_size=24, negatives=8, lr=2e-2, chunk=chunk)
    training = start(trainer, MODELS[name](dim=8), {"ring": ring()})
    losses = [training.run(epoch).item() for epoch in range(25)]
    assert losses[-1] < 0.85 * losses[0]
    assert all(training.tables.table(axis).isfinite().all() for axis in Axis)


@pytest.mark.parametrize("optimizer", ["adam", "row-adam"])
@pytest.mark.parametrize(
    ("name", "options"), [("transh", {}), ("transr", {}), ("transd", {}), ("transe", {"classic": True})]
)
def test_constraints_hold_after_every_step(name: str, options: dict[str, bool], optimizer: str) -> None:
    model = MODELS[name](dim=5, **options)
    training = start(Trainer(epochs=1, batch_size=30, negatives=6, lr=0.3, optimizer=optimizer), model, SITES)
    step, checked = training._step, []

    def checking(batch: Batch, active: Tensor, factored: bool, soon: Batch | None) -> None:
        step(batch, active, factored, soon)
        for axis in Axis:
            rows = training.tables.table(axis)
            allowed = model.constrain(rows, axis)
            if allowed is not None:
                torch.testing.assert_close(rows, allowed, rtol=1e-5, atol=1e-5)
                checked.append(axis)

    training._step = checking
    training.run(0)
    assert Axis.ENTITY in checked


def both(tables: Tables, batch: Batch) -> Tensor:
    """The losses of two tables."""
    assert tables.second is not None
    return SMALL.objective(tables, batch) + SMALL.objective(tables.second, batch)


@pytest.mark.parametrize("name", ["transe", "rotate", "complex", "rescal"])
@pytest.mark.parametrize("two", [False, True], ids=["", "two"])
@CHUNKS
def test_rows_that_wait_end_as_if_they_had_not(
    name: str, two: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large sites, small batches: rows take their steps when they are read."""
    sites = {"a": random_graph(7, 600, 3, 90), "b": random_graph(8, 900, 4, 150)}
    trainer, found = dataclasses.replace(SMALL, chunk=chunk), []
    for waits in (True, False):
        monkeypatch.setattr(Training, "rows_wait", waits)
        first = start(trainer, MODELS[name](dim=6), sites)
        tables = first.tables
        if two:
            tables = dataclasses.replace(tables, second=tables.to("cpu"))
        training = Training(trainer, tables, first.corpus, both if two else None)
        optimizers = [stepper.every[""].by_axis[Axis.ENTITY] for stepper in training.steppers.values()]
        assert all((getattr(one, "taken", None) is not None) == waits for one in optimizers)
        for epoch, chosen in enumerate([(0, 1), (1,), (0, 1)]):
            training.choose(chosen)
            training.run(epoch, 1)
            if epoch == 1:
                training.restart()
        found.append([*(table for _, table in tables.named().values()), *training.state().values()])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*found, strict=True))


@pytest.mark.parametrize("size", [16, 90], ids=["wait", "all step"])
@pytest.mark.parametrize(
    ("name", "model", "options"),
    [
        ("transe", {}, {}),
        ("transe", {"norm": 2}, {"sides": "alternate", "subsampling": True}),
        ("distmult", {}, {"loss": "logistic", "filtered": False}),
        ("complex", {}, {"sides": "tail", "temperature": 0.5}),
        ("complex", {}, {"l3": 0.1, "subsampling": True}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
def test_steps_in_one_call_have_the_bits_of_single_ones(
    name: str, model: dict[str, int], options: dict[str, object], size: int, dtype: torch.dtype
) -> None:
    """Also where a site has no more triples, sits a run out, or begins anew."""
    sites = {"a": random_graph(7, 150, 3, 90), "b": random_graph(8, 230, 4, 150)}
    trainer, found = dataclasses.replace(SMALL, batch_size=size, chunk=6, **options), []
    for together in (True, False):
        training = start(trainer, MODELS[name](dim=9, **model), sites, dtype=dtype)
        assert training._together is not None
        entities = training.stepper.every[""].by_axis[Axis.ENTITY]
        assert (getattr(entities, "taken", None) is not None) == (size == 16)
        if not together:
            training._together = None
        losses = []
        for epoch, chosen in enumerate([(0, 1), (1,), (0, 1)]):
            training.choose(chosen)
            losses.append(training.run(2 * epoch))
            if epoch == 1:
                training.restart()
        tables = (table for _, table in training.tables.named().values())
        found.append([*losses, training.clock, *tables, *training.state().values()])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*found, strict=True))
    assert all(loss.isfinite().all() for loss in found[0][:3])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("transe", {"chunk": 1}),
        ("transe", {"loss": "margin"}),
        ("transe", {"optimizer": "row-adam"}),
        ("transe", {"optimizer": "adagrad"}),
        ("rotate", {}),
        ("transh", {}),
        ("transm", {}),
        ("rescal", {}),
    ],
)
def test_steps_of_another_kind_are_taken_one_by_one(name: str, options: dict[str, object]) -> None:
    trainer = dataclasses.replace(SMALL, **{"chunk": 6, **options})
    assert start(trainer, MODELS[name](dim=6), SITES)._together is None


def test_steps_with_something_besides_are_taken_one_by_one() -> None:
    trainer = dataclasses.replace(SMALL, chunk=6)
    first = start(trainer, MODELS["transe"](dim=6), SITES)
    assert first._together is not None
    kept = Penalty(torch.zeros_like(first.tables.entities), lambda moments, by_site: by_site.sum(moments.gap))
    twice = dataclasses.replace(first.tables, second=first.tables.to("cpu"))
    of = first.corpus
    assert Training(trainer, first.tables, of, penalties={Axis.ENTITY: kept})._together is None
    assert Training(trainer, first.tables, of, objective=SMALL.objective)._together is None
    assert Training(trainer, twice, of)._together is None


@pytest.mark.parametrize("name", ["transe", "transh"])
def test_rows_do_not_wait_where_others_move_them(name: str) -> None:
    """Most rows are in a batch; constraints move all; a penalty reads all."""
    graph = random_graph(7, 600, 3, 180)
    kept = Penalty(torch.zeros(600, 6), lambda moments, by_site: by_site.sum(moments.square))
    few, most = (dataclasses.replace(SMALL, batch_size=size) for size in (16, 90))
    first = start(few, MODELS[name](dim=6), {"a": graph})
    tied = Training(few, first.tables, first.corpus, penalties={Axis.ENTITY: kept})
    for training, waits in ((first, name == "transe"), (tied, False)):
        optimizer = training.stepper.every[""].by_axis[Axis.ENTITY]
        assert (getattr(optimizer, "taken", None) is not None) == waits
    training = start(most, MODELS[name](dim=6), {"a": graph})
    assert getattr(training.stepper.every[""].by_axis[Axis.ENTITY], "taken", None) is None


def test_row_adam_leaves_untouched_rows_alone() -> None:
    graph = random_graph(5, 60, 4, 40)
    trainer = Trainer(epochs=1, batch_size=4, negatives=2, optimizer="row-adam", lr=0.1)
    training = start(trainer, MODELS["transe"](dim=4), {"a": graph})
    step = training._step

    def checking(batch: Batch, active: Tensor, factored: bool, soon: Batch | None) -> None:
        before = {axis: training.tables.table(axis).clone() for axis in Axis}
        moments = {name: tensor.clone() for name, tensor in training.state().items() if name != "steps"}
        step(batch, active, factored, soon)
        for axis, ids in (
            (Axis.ENTITY, torch.cat((batch.anchor, batch.index.flatten()))),
            (Axis.RELATION, batch.relation),
        ):
            moved = (training.tables.table(axis) != before[axis]).any(1).nonzero()[:, 0]
            assert set(moved.tolist()) <= set(ids.tolist())
            assert len(moved) > 0
            for moment in ("m", "v"):
                name = f"{axis}.{moment}"
                changed = (training.state()[name] != moments[name]).any(1).nonzero()[:, 0]
                assert set(changed.tolist()) <= set(ids.tolist())

    training._step = checking
    training.run(0)


def test_adam_moves_rows_that_a_batch_did_not_touch() -> None:
    graph = random_graph(5, 60, 4, 40)
    training = start(
        Trainer(epochs=1, batch_size=4, negatives=2, lr=0.1), MODELS["transe"](dim=4), {"a": graph}
    )
    batches = watch(training)
    training.run(0)
    before = training.tables.entities.clone()
    training.run(1)
    last = batches[-1]
    untouched = torch.ones(60, dtype=torch.bool)
    untouched[torch.cat((last.anchor, last.index.flatten()))] = False
    assert (training.tables.entities != before)[untouched].any()


def test_restart_forgets_moments_and_steps() -> None:
    model = MODELS["transe"](dim=4)
    training, fresh = (start(SMALL, model, SITES) for _ in range(2))
    training.run(0)
    assert any(tensor.any() for tensor in training.state().values())
    training.restart()
    assert not any(tensor.any() for tensor in training.state().values())
    fresh.tables.entities.copy_(training.tables.entities)
    fresh.tables.relations.copy_(training.tables.relations)
    training.run(5)
    fresh.run(5)
    assert torch.equal(training.tables.entities, fresh.tables.entities)


def test_an_objective_of_ones_own() -> None:
    """A method may train another objective: here one that only pulls true triples."""
    trainer, model = Trainer(epochs=1, batch_size=30, negatives=1, lr=0.05), MODELS["transe"](dim=4)

    def pull(of: tables.Tables, batch: Batch) -> Tensor:
        return -of.scores(batch.anchor, batch.relation, batch.index[:, :1], batch.side)[:, 0]

    plain = start(trainer, model, {"ring": ring()})
    training = Training(trainer, plain.tables, plain.corpus, pull)
    losses = [training.run(epoch).item() for epoch in range(30)]
    assert losses[-1] < losses[0] - 1


def test_alternating_sides_visit_every_triple_once() -> None:
    graph = ring()
    training = start(
        Trainer(batch_size=16, negatives=2, sides="alternate"), MODELS["transe"](dim=4), {"a": graph}
    )
    batches = watch(training)
    training.run(0, 2)
    for epoch in (batches[:5], batches[5:]):
        seen = torch.cat([triples_of(batch) for batch in epoch])
        assert sorted(seen.tolist()) == sorted(graph.train.tolist())
    sides = [str(batch.side) for batch in batches]
    assert sides[:5] == ["head", "tail", "head", "tail", "head"]
    assert sides[5:] == ["tail", "head", "tail", "head", "tail"], "by epochs too"


# Shared negatives.


def shared_batches(trainer: Trainer, sites: dict[str, Graph]) -> list[Batch]:
    return watch_run(start(trainer, MODELS["transe"](dim=3), sites), 2)


def test_a_chunk_is_of_one_site_and_draws_as_it_does_alone() -> None:
    trainer = dataclasses.replace(SMALL, chunk=6)
    stacked = shared_batches(trainer, SITES)
    first = dict(zip(SITES, (0, 23, 23 + 31), strict=True))
    for number, name in enumerate(SITES):
        mine = iter(batch for batch in stacked if (batch.site == number).any())
        for alone in shared_batches(trainer, {name: SITES[name]}):
            batch = next(mine)
            own = (batch.site == number).nonzero()[:, 0]
            chunks = batch.index.chunks()
            assert len(chunks[own].unique()) == -(-len(own) // 6), "chunks of six, and what is left"
            assert (batch.site[chunks == chunks[own[0]]] == number).all()
            assert torch.equal(batch.index.index()[own] - first[name], alone.index.index())
            assert torch.equal(batch.index.left_out[own], alone.index.left_out)
        assert next(mine, None) is None


def test_negatives_that_are_left_out_are_the_known_triples() -> None:
    known = {tuple(triple) for triple in SITES["c"].train.tolist()}
    found = []
    for filtered in (True, False):
        trainer = dataclasses.replace(SMALL, chunk=6, filtered=filtered)
        for batch in shared_batches(trainer, {"c": SITES["c"]}):
            index = batch.index.index()
            for i, anchor, r in zip(range(99), batch.anchor.tolist(), batch.relation.tolist(), strict=False):
                for j, e in enumerate(index[i, 1:].tolist()):
                    triple = (anchor, r, e) if batch.side is Side.TAIL else (e, r, anchor)
                    assert bool(batch.index.left_out[i, j]) == (filtered and triple in known)
                    found.append(triple in known)
    assert any(found)


def test_a_chunk_of_one_draws_what_a_positive_draws_for_itself() -> None:
    """Unfiltered, so that both draw from all entities: only the kernels differ."""
    plain = dataclasses.replace(SMALL, filtered=False)
    own = start(plain, MODELS["transe"](dim=6), SITES, dtype=torch.float64)
    alone = start(plain, MODELS["transe"](dim=6), SITES, dtype=torch.float64)
    make = alone._batch

    def shared(size: tuple[int, int], side: Side, clock: Tensor) -> Batch:
        batch = make(size, side, clock)
        starts, none = (
            torch.arange(len(batch.anchor) + 1),
            torch.zeros_like(batch.index[:, 1:], dtype=torch.bool),
        )
        return dataclasses.replace(
            batch, index=Shared(batch.true, batch.index[:, 1:].contiguous(), starts, none, 1)
        )

    alone._batch = shared
    own.run(0)
    alone.run(0)
    torch.testing.assert_close(own.tables.entities, alone.tables.entities, rtol=1e-9, atol=1e-11)
