"""What every registered model promises: scores and gradients that agree, rows that names alone decide."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge import config, randomness
from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis
from fedkge.kernels import backend
from fedkge.models import MODELS, Gradient, Model, Side, Tables

DIM, ENTITIES, RELATIONS, BATCH, CANDIDATES = 5, 23, 4, 6, 7
OPTIONS = {
    "norm": (1, 2),
    "classic": (False, True),
    "relation_dim": (None, 3),
}  #: options whose every value is tested


def variants() -> list[Model]:
    """Every registered model, with every combination of the options that change what it computes."""
    models = []
    for cls in map(MODELS.__getitem__, MODELS):
        mine = {f.name: OPTIONS[f.name] for f in fields(cls) if f.name in OPTIONS}
        models += [
            cls(dim=DIM, **dict(zip(mine, chosen, strict=True)))
            for chosen in itertools.product(*mine.values())
        ]
    return models


def described(model: Model) -> str:
    options = [f"{name}={getattr(model, name)}" for name in OPTIONS if hasattr(model, name)]
    return "-".join([MODELS.name_of(model), *options])


@pytest.fixture(params=variants(), ids=described)
def model(request: pytest.FixtureRequest) -> Model:
    return request.param


def keys(names: list[str]) -> Tensor:
    return torch.from_numpy(randomness.name_keys(names).view(np.int64))


def random_tables(model: Model, dtype: torch.dtype = torch.float64) -> Tables:
    """Rows that no constraint has touched, so that nothing is zero, one, or orthogonal by construction."""
    random = torch.Generator().manual_seed(3)
    entities = torch.randn(ENTITIES, model.width(Axis.ENTITY), generator=random, dtype=torch.float64)
    relations = torch.randn(RELATIONS, model.width(Axis.RELATION), generator=random, dtype=torch.float64)
    return Tables(model, (0.7 * entities).to(dtype), (0.7 * relations).to(dtype))


def questions() -> tuple[Tensor, Tensor, Tensor]:
    """Anchors `[b]`, relations `[b]`, candidates `[b, n]`; some repeat, and one candidate is its anchor."""
    random = torch.Generator().manual_seed(4)
    anchor = torch.randint(ENTITIES, (BATCH,), generator=random)
    relation = torch.randint(RELATIONS, (BATCH,), generator=random)
    index = torch.randint(ENTITIES, (BATCH, CANDIDATES), generator=random)
    index[:, -1] = index[:, 0]
    index[0, 1] = anchor[0]
    return anchor, relation, index


def triples(anchor: Tensor, relation: Tensor, index: Tensor, side: Side) -> Tensor:
    """The triples `[b, n, 3]` that a question's candidates make."""
    a, r = (x[:, None].expand_as(index) for x in (anchor, relation))
    return torch.stack((a, r, index) if side is Side.TAIL else (index, r, a), -1)


@pytest.mark.parametrize("side", Side)
def test_scores_agree(model: Model, side: Side, device: torch.device) -> None:
    tables = random_tables(model)
    anchor, relation, index = questions()
    expected = tables.score(triples(anchor, relation, index, side))
    here = tables.to(device)
    asked = anchor.to(device), relation.to(device)
    torch.testing.assert_close(here.scores(*asked, index.to(device), side).cpu(), expected)
    everyone = here.all_scores(*asked, side).cpu()
    assert everyone.shape == (BATCH, ENTITIES)
    torch.testing.assert_close(everyone.gather(1, index), expected)


def test_scores_of_no_question(model: Model) -> None:
    tables = random_tables(model)
    none = torch.empty(0, dtype=torch.int64)
    assert tables.scores(none, none, none.view(0, 3), Side.TAIL).shape == (0, 3)
    assert tables.all_scores(none, none, Side.HEAD).shape == (0, ENTITIES)
    assert tables.score(none.view(0, 3)).shape == (0,)


def expected_gradients(tables: Tables, weights: dict[Side, Tensor]) -> dict[Axis, Tensor]:
    """What plain autograd finds through `Model.score`."""
    leaves = {axis: tables.table(axis).clone().requires_grad_() for axis in Axis}
    for side, weight in weights.items():
        h, r, t = triples(*questions(), side).unbind(-1)
        entities, relations = leaves[Axis.ENTITY], leaves[Axis.RELATION]
        (tables.model.score(entities[h], relations[r], entities[t]) * weight).sum().backward()
    return {axis: leaf.grad for axis, leaf in leaves.items()}


def weights() -> dict[Side, Tensor]:
    random = torch.Generator().manual_seed(5)
    return {side: torch.randn(BATCH, CANDIDATES, generator=random, dtype=torch.float64) for side in Side}


@pytest.mark.parametrize("rows_only", [False, True])
def test_gradients_equal_autograd(model: Model, rows_only: bool, device: torch.device) -> None:
    tables = random_tables(model)
    expected = expected_gradients(tables, weights())
    here = tables.to(device)
    here.gradients = {axis: Gradient(here.table(axis), rows_only) for axis in Axis}
    anchor, relation, index = (x.to(device) for x in questions())
    for side, weight in weights().items():
        (here.scores(anchor, relation, index, side) * weight.to(device)).sum().backward()
    for axis in Axis:
        gradient, table = here.gradients[axis], here.table(axis)
        found = gradient.dense
        if found is None:
            rows, values = backend(device).touched(table, gradient.take())
            named = torch.cat((index.flatten(), anchor)) if axis is Axis.ENTITY else relation
            assert torch.equal(rows, named.unique())
            found = torch.zeros_like(table).index_add(0, rows, values)
        torch.testing.assert_close(found.cpu(), expected[axis], msg=lambda m, a=axis: f"{a}: {m}")
    assert torch.equal(here.entities.cpu(), tables.entities), "differentiating changes no row"


def test_plain_autograd_through_scores(model: Model) -> None:
    tables = random_tables(model)
    expected = expected_gradients(tables, weights())
    for axis in Axis:
        tables.table(axis).requires_grad_()
    for side, weight in weights().items():
        (tables.scores(*questions(), side) * weight).sum().backward()
    for axis in Axis:
        torch.testing.assert_close(tables.table(axis).grad, expected[axis])


def test_no_gradient_is_kept_without_grad_mode(model: Model) -> None:
    tables = random_tables(model)
    tables.gradients = {axis: Gradient(tables.table(axis), True) for axis in Axis}
    with torch.no_grad():
        assert not tables.scores(*questions(), Side.TAIL).requires_grad
    for axis in Axis:
        part = tables.gradients[axis].take()
        assert len(part.ids) == part.index.numel() == 0


def test_take_refuses_what_cannot_be_joined() -> None:
    tables = random_tables(MODELS["transe"](dim=DIM))
    tables.gradients = {axis: Gradient(tables.table(axis), True) for axis in Axis}
    anchor, relation, index = questions()
    for n in (2, 3):
        tables.scores(anchor, relation, index[:, :n], Side.TAIL).sum().backward()
    with pytest.raises(ValueError, match="unlike"):
        tables.gradients[Axis.ENTITY].take()


def test_blocks_tile_the_row(model: Model) -> None:
    for axis in Axis:
        width = model.width(axis)
        rows = torch.arange(2 * width).view(2, width)
        parts = [model.block(rows, axis, name) for name in model.blocks[axis]]
        assert torch.equal(torch.cat(parts, -1), rows)
        assert parts[0].data_ptr() == rows.data_ptr(), "a block is a view"
        with pytest.raises(KeyError, match="nonsense"):
            model.block(rows, axis, "nonsense")


def test_first_rows_depend_on_the_seed_and_the_name_alone(model: Model, device: torch.device) -> None:
    entities, relations = ([f"{kind} {i}" for i in range(50)] for kind in "er")

    def create(some: slice, seed: int) -> Tables:
        return Tables.create(model, keys(entities[some]), keys(relations[some]), seed, device)

    every = create(slice(None), 7)
    for some in (slice(None, None, -1), slice(3, 40, 5), slice(0, 0)):
        part = create(some, 7)
        for axis in Axis:
            where = torch.arange(50)[range(50)[some]]
            assert torch.equal(part.table(axis), every.table(axis)[where.to(device)])
    assert not torch.equal(create(slice(None), 8).entities, every.entities)
    assert all(every.table(axis).isfinite().all() for axis in Axis)
    assert every.entities.unique(dim=0).shape[0] == 50


def test_first_rows_do_not_depend_on_the_dtype(model: Model) -> None:
    names = keys([str(i) for i in range(20)])
    single, double = (Tables.create(model, names, names, 0, dtype=d) for d in (torch.float32, torch.float64))
    for axis in Axis:
        torch.testing.assert_close(single.table(axis).double(), double.table(axis), rtol=1e-5, atol=1e-6)


def test_first_rows_are_rows_that_the_model_allows(model: Model) -> None:
    tables = Tables.create(
        model, keys([str(i) for i in range(200)]), keys(["r", "s"]), 0, dtype=torch.float64
    )
    for axis in Axis:
        allowed = model.constrain(tables.table(axis), axis)
        if allowed is not None:
            torch.testing.assert_close(tables.table(axis), allowed)


def test_constraint_is_idempotent(model: Model) -> None:
    tables = random_tables(model)
    for axis in Axis:
        once = model.constrain(3 * tables.table(axis), axis)
        if once is not None:
            assert once.shape == tables.table(axis).shape
            torch.testing.assert_close(model.constrain(once, axis), once)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, r"model\.dim: expected at least 1, got 0"),
        ({"dim": -3}, r"model\.dim: expected at least 1, got -3"),
        ({"dim": 2.5}, r"model\.dim: expected int, got 2\.5"),
        ({"margin": -1.0}, r"model\.margin.*got -1\.0"),
        ({"epsilon": 0.0}, r"model\.margin, epsilon: .*got .*0\.0"),
        ({"dims": 4}, r"model\.dims: no such option; did you mean 'dim'\?"),
    ],
)
def test_wrong_options_are_refused_with_their_path(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config.choose(MODELS, {"name": name, **options}, "model")


@pytest.mark.parametrize(
    "name", [name for name in MODELS if "norm" in {f.name for f in fields(MODELS[name])}]
)
@pytest.mark.parametrize("norm", [0, 3, "1", 1.5])
def test_only_norms_1_and_2(name: str, norm: object) -> None:
    with pytest.raises(ConfigError, match=r"model\.norm: expected one of 1, 2, got"):
        config.choose(MODELS, {"name": name, "norm": norm}, "model")


@pytest.mark.parametrize("relation_dim", [0, -1])
def test_transr_needs_a_relation_space(relation_dim: int) -> None:
    with pytest.raises(ConfigError, match=rf"model\.relation_dim: expected at least 1, got {relation_dim}"):
        config.choose(MODELS, {"name": "transr", "relation_dim": relation_dim}, "model")


PEAK = """
import sys, torch
from fedkge.graphs.graph import Axis
from fedkge.models import MODELS, Gradient, Side, Tables

def peak():  # VmHWM, not ru_maxrss: a child inherits the latter from its parent
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

def step(b, n, width):
    tables = Tables(MODELS["transe"](dim=width), torch.randn(900, width), torch.randn(3, width))
    tables.gradients = {axis: Gradient(tables.table(axis), factors=sys.argv[1] == "rows") for axis in Axis}
    scores = tables.scores(torch.arange(b), torch.arange(b) % 3, torch.randint(900, (b, n)), Side.TAIL)
    scores.logsumexp(1).sum().backward()
    assert tables.gradients[Axis.ENTITY].dense is None or tables.gradients[Axis.ENTITY].dense.any()

step(2, 3, 4)
before = peak()
step(512, 1024, 800)
print((peak() - before) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
@pytest.mark.parametrize("kept", ["dense", "rows"])
def test_scoring_needs_no_memory_for_every_pair_and_number(kept: str) -> None:
    """512 x 1,024 candidates of width 800 would take 1,600 MB; index, scores and sorted positions take 30."""
    child = subprocess.run([sys.executable, "-c", PEAK, kept], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) < 160
