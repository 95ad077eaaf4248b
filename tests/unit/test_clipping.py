"""Each unit's gradient is cut by a bound of its norm, over all tables together, that nothing exceeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.kernels import Shared
from fedkge.kernels.reference import cut
from fedkge.methods.fedkd import FedKD
from fedkge.methods.fedlu import FedLU
from fedkge.models import MODELS, Gradient, Side, Tables
from fedkge.training import Batch, Trainer
from fedkge.training.clipping import Grouping, PerTriple, at_once, differentiated

ROWS = {Axis.ENTITY: 11, Axis.RELATION: 3}
CPU = torch.device("cpu")


def tables_of(name: str, seed: int = 0, dim: int = 6, options: dict[str, int] | None = None) -> Tables:
    model, random = MODELS[name](dim=dim, **(options or {})), torch.Generator().manual_seed(seed)
    rows = {
        axis: torch.randn(count, model.width(axis), generator=random, dtype=torch.float64)
        for axis, count in ROWS.items()
    }
    return Tables(model, rows[Axis.ENTITY], rows[Axis.RELATION])


def trained(tables: Tables) -> Tables:
    for one in (tables, tables.second):
        if one is not None:
            one.gradients = {axis: Gradient(one.table(axis), factors=False) for axis in Axis}
    return tables


def shared(batch: Batch) -> Batch:
    """The same with candidates that four share; one of each is left out."""
    negatives, starts = batch.index[::4, 1:].contiguous(), torch.tensor([0, 4, 8, 9])
    left_out = torch.zeros_like(batch.index[:, 1:], dtype=torch.bool)
    left_out[:, 2] = True
    return replace(batch, index=Shared(batch.true, negatives, starts, left_out, 4))


def _one(batch: Batch, i: int) -> Batch:
    own, names = slice(i, i + 1), ("anchor", "relation", "site", "weight")
    index = batch.index[own] if isinstance(batch.index, Tensor) else batch.index.some(own)
    return replace(batch, index=index, **{name: getattr(batch, name)[own] for name in names})


def batch_of(side: Side, b: int = 9, n: int = 8, seed: int = 1) -> Batch:
    """Some candidates repeat, and some are the anchor."""
    random = torch.Generator().manual_seed(seed)
    anchor, relation = (torch.randint(ROWS[axis], (b,), generator=random) for axis in Axis)
    index = torch.randint(ROWS[Axis.ENTITY], (b, n), generator=random)
    index[::2, 1] = anchor[::2]
    return Batch(side, anchor, relation, index, torch.zeros_like(anchor), torch.ones(b))


def one_by_one(tables: Tables, batch: Batch, losses: Callable[[Tables, Batch], Tensor]) -> list[list[Tensor]]:
    """Every triple's gradients of all tables, by autograd."""
    found = []
    for i in range(len(batch.anchor)):
        leaves = tables.to("cpu")
        leaves.gradients = {}
        every = [table.requires_grad_() for _, table in leaves.named().values()]
        gradients = torch.autograd.grad(losses(leaves, _one(batch, i)).sum(), every, allow_unused=True)
        found.append([torch.zeros_like(t) if g is None else g for g, t in zip(gradients, every, strict=True)])
    return found


def norm(gradients: list[Tensor]) -> Tensor:
    return torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()


def plainly(trainer: Trainer, tables: Tables, batch: Batch) -> Tensor:
    return trainer.losses(tables.scores(batch.anchor, batch.relation, batch.index, batch.side))


def norms_of(triples: PerTriple, units: Grouping | None = None) -> Tensor:
    return triples.squares(units or Grouping.single(len(triples.losses), CPU)).sum(0).sqrt()


@pytest.mark.parametrize(("loss", "l3"), [("self-adversarial", 0.0), ("margin", 0.0), ("logistic", 0.1)])
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("shares", [False, True])
def test_bounds_are_above_norms_and_cut_sums_those_of_gradients_one_by_one(
    name: str, side: Side, loss: str, l3: float, shares: bool
) -> None:
    """Candidates of this batch repeat often and are anchors: bounds are loose, and no lower."""
    trainer, tables, batch = Trainer(loss=loss, l3=l3), trained(tables_of(name)), batch_of(side)
    batch = shared(batch) if shares else batch
    expected = one_by_one(tables, batch, trainer.regularised(partial(plainly, trainer)))
    norms = torch.stack([norm(gradients) for gradients in expected])
    triples = differentiated(tables, trainer.regularised(trainer.objective), batch)
    bounds = norms_of(triples)
    assert (bounds >= norms).all()
    assert bounds.sum() <= 2 * norms.sum()
    clip = float(norms.median())
    assert (norms > clip).any(), "some are cut, some are not"
    factors = cut(norms, clip)
    triples.release_(factors)
    for number, axis in enumerate(Axis):
        total = sum(f * gradients[number] for f, gradients in zip(factors, expected, strict=True))
        assert torch.allclose(tables.gradients[axis].dense, total, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("name", ["transe", "rotate", "distmult", "complex", "rescal", "transm"])
def test_bounds_are_norms_where_no_row_is_met_twice(name: str, side: Side) -> None:
    """Each candidate once and not the anchor: only then are all terms of a row one term."""
    trainer, tables, batch = Trainer(), trained(tables_of(name)), batch_of(side, n=7)
    for i in range(len(batch.anchor)):
        others = torch.randperm(11, generator=torch.Generator().manual_seed(i))
        batch.index[i] = others[others != batch.anchor[i]][:7]
    norms = torch.stack([norm(g) for g in one_by_one(tables, batch, partial(plainly, trainer))])
    assert torch.allclose(norms_of(differentiated(tables, trainer.objective, batch)), norms, rtol=1e-9)


@pytest.mark.parametrize("one_relation_table", [True, False])
@pytest.mark.parametrize("shares", [False, True])
def test_two_tables_are_cut_jointly(one_relation_table: bool, shares: bool) -> None:
    method = FedLU() if one_relation_table else FedKD(small=4)
    tables = tables_of("transe")
    tables.second = tables_of("transe", seed=2, dim=6 if one_relation_table else 4)
    if one_relation_table:
        tables.second.relations = tables.relations
    trained(tables)
    if one_relation_table:
        tables.second.gradients[Axis.RELATION] = tables.gradients[Axis.RELATION]
    objective = partial(method.objective, Trainer(), dials={})
    batch = shared(batch_of(Side.TAIL)) if shares else batch_of(Side.TAIL)
    expected = one_by_one(tables, batch, objective)
    norms = torch.stack([norm(gradients) for gradients in expected])
    bounds = norms_of(differentiated(tables, objective, batch))
    assert ((norms <= bounds) & (bounds <= 3 * norms)).all()
    alone = torch.stack([norm(gradients[:2]) for gradients in expected])
    assert (norms > alone).all()


# Rows of any size

SIZES = [1e-44, 1e-38, 1e-30, 1e-23, 1e-20, 1e-12, 1e-4, 1.0, 1e4, 1e9]
PERSONS = Grouping(
    torch.arange(9), torch.tensor([0, 4, 4, 6, 9]), torch.tensor([0] * 4 + [2] * 2 + [3] * 3), 4
)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("loss", ["self-adversarial", "margin", "logistic"])
@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in MODELS), ("transe", {"norm": 2})])
def test_no_unit_adds_more_than_its_bound_to_rows_of_any_size(
    name: str, options: dict[str, int], loss: str, size: float
) -> None:
    """As the kernels sum in float32, unit by unit, after cutting: entities, relations, or both."""
    for entities, relations in ((size, size), (size, 1.0), (1.0, size)):
        for units in (Grouping.single(9, CPU), PERSONS):
            tables, batch = tables_of(name, dim=8, options=options), batch_of(Side.TAIL, seed=3)
            tables.entities = (tables.entities * entities).float()
            tables.relations = (tables.relations * relations).float()
            trained(tables)
            triples = differentiated(tables, Trainer(loss=loss).objective, batch)
            norms, clip = norms_of(triples, units), 0.5
            factors = units.of_triples(cut(norms, clip))
            for u in range(len(norms)):
                own = torch.arange(9)[units.order[units.starts[u] : units.starts[u + 1]]]
                only = torch.zeros(9)
                only[own] = factors[own]
                triples.release_(only)
                added = [gradient.dense.double() for gradient in tables.gradients.values()]
                total = float(norm(added))
                assert total <= clip, f"{total} by {units.most}"
                for gradient in tables.gradients.values():
                    gradient.dense.zero_()


def test_persons_are_cut_jointly() -> None:
    """The bound of several triples is above the norm of their sum, and below the sum of their norms."""
    tables, batch = trained(tables_of("transe")), batch_of(Side.TAIL)
    expected = one_by_one(tables, batch, partial(plainly, Trainer()))
    triples = differentiated(tables, Trainer().objective, batch)
    singly, jointly = norms_of(triples), norms_of(triples, PERSONS)
    for u in range(4):
        own = slice(int(PERSONS.starts[u]), int(PERSONS.starts[u + 1]))
        summed = [sum(gradients) for gradients in zip(*expected[own], strict=True)]
        assert (float(norm(summed)) if summed else 0.0) <= float(jointly[u])
        assert float(jointly[u]) <= float(singly[own].sum()) * (1 + 1e-9)
    assert jointly[1] == 0
    assert jointly[0] < 0.95 * singly[:4].sum(), "rows that differ do not add up"


def test_pieces_that_cannot_be_told_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, batch = trained(tables_of("transr")), batch_of(Side.TAIL, b=6)
    monkeypatch.setattr("fedkge.models.tables.CHUNK", 8 * 6 * 4)  # scores of four triples at a time
    assert at_once(tables, 8) > 6
    with pytest.raises(ValueError, match="of 6 triples"):
        norms_of(differentiated(tables, Trainer().objective, batch))


def test_models_that_project_are_differentiated_some_triples_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch, found = batch_of(Side.HEAD), []
    for chunk in (1 << 22, 8 * 6 * 4):
        for module in ("fedkge.models.tables", "fedkge.training.clipping"):
            monkeypatch.setattr(f"{module}.CHUNK", chunk)
        tables = trained(tables_of("transh"))
        triples = differentiated(tables, Trainer().objective, batch)
        bounds = norms_of(triples, PERSONS)
        triples.release_(torch.linspace(0, 1, 9, dtype=torch.float64))
        found.append((len(triples.pieces), bounds, tables.gradients[Axis.ENTITY].dense))
    assert [pieces for pieces, *_ in found] == [1, 3]
    assert all(torch.allclose(a, b) for a, b in zip(found[0][1:], found[1][1:], strict=True))


@pytest.mark.parametrize("name", ["transe", "distmult", "transr"])
def test_a_triple_whose_gradient_overflows_adds_nothing(name: str) -> None:
    tables, batch = tables_of(name), batch_of(Side.TAIL)
    for axis in Axis:
        setattr(
            tables, {Axis.ENTITY: "entities", Axis.RELATION: "relations"}[axis], tables.table(axis).float()
        )
    tables.relations[1] = 1e38
    trained(tables)
    triples = differentiated(tables, Trainer().objective, batch)
    norms = norms_of(triples)
    assert not norms.isfinite().all()
    assert norms.isfinite().any()
    triples.release_(cut(norms, 1.0))
    for gradient in tables.gradients.values():
        assert gradient.dense.isfinite().all()
        assert gradient.dense.any()


def test_no_gradient_is_not_cut() -> None:
    assert cut(torch.zeros(3), 0.5).tolist() == [1.0, 1.0, 1.0]
    assert torch.allclose(cut(torch.tensor([0.1, 0.5, 5.0]), 0.5), torch.tensor([1.0, 1.0, 0.1]))


def test_tables_have_their_own_gradients_again_after_a_failure() -> None:
    tables = trained(tables_of("transe"))
    before = dict(tables.gradients)

    def fails(tables: Tables, batch: Batch) -> Tensor:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        differentiated(tables, fails, batch_of(Side.TAIL))
    assert tables.gradients == before


@pytest.mark.parametrize("scale", [1e-23, 1e-20, 1e8])
@pytest.mark.parametrize("name", list(MODELS))
def test_a_triple_that_is_dropped_adds_nothing_to_rows_of_any_size(name: str, scale: float) -> None:
    tables, batch = tables_of(name), batch_of(Side.TAIL)
    tables.entities, tables.relations = tables.entities.float() * scale, tables.relations.float()
    trained(tables)
    triples = differentiated(tables, Trainer().objective, batch)
    triples.release_(torch.zeros(len(batch.anchor)))
    for gradient in tables.gradients.values():
        assert not gradient.dense.any(), "NaN is something too"
