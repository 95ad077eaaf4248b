"""Each model against its paper's formula, written out number by number, and against PyKEEN 1.11.1."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedkge.graphs.graph import Axis
from fedkge.models import MODELS, Model, Side, Tables
from fedkge.models.transe import TransE

DIM, ROWS = 3, 5
Numbers = list[float]


def length(x: Numbers, norm: int) -> float:
    return sum(abs(a) for a in x) if norm == 1 else math.sqrt(sum(a * a for a in x))


def dot(x: Numbers, y: Numbers) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def translated(h: Numbers, r: Numbers, t: Numbers) -> Numbers:
    return [a + b - c for a, b, c in zip(h, r, t, strict=True)]


def complexes(row: Numbers) -> list[complex]:
    return [complex(row[k], row[DIM + k]) for k in range(DIM)]


def shortened(x: Numbers) -> Numbers:
    return [a / max(1.0, length(x, 2)) for a in x]


def transe(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    return model.margin - length(translated(h, r, t), model.norm)


def transm(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    return model.margin - r[-1] * length(translated(h, r[:-1], t), model.norm)


def squared(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    """TransH, TransR and TransD square the Euclidean distance."""
    return model.margin - length(translated(h, r, t), model.norm) ** model.norm


def transh(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    d, w = r[:DIM], r[DIM:]
    fallen = [[x[k] - dot(w, x) * w[k] for k in range(DIM)] for x in (h, t)]
    return squared(model, fallen[0], d, fallen[1])


def transr(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    k = model.relation_dim or DIM
    matrix = [r[k + DIM * i : k + DIM * (i + 1)] for i in range(k)]
    seen = [[dot(row, x) for row in matrix] for x in (h, t)]
    return squared(model, seen[0], r[:k], seen[1])


def transd(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    r, r_p = r[:DIM], r[DIM:]
    seen = []
    for x, x_p in ((h[:DIM], h[DIM:]), (t[:DIM], t[DIM:])):  # M = r_p x_p^T + I, times x
        matrix = [[r_p[i] * x_p[j] + (i == j) for j in range(DIM)] for i in range(DIM)]
        seen.append(shortened([dot(row, x) for row in matrix]))
    return squared(model, seen[0], r, seen[1])


def rescal(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    return sum(h[i] * r[DIM * i + j] * t[j] for i in range(DIM) for j in range(DIM))


def distmult(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    return sum(a * b * c for a, b, c in zip(h, r, t, strict=True))


def complex_(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    terms = zip(complexes(h), complexes(r), complexes(t), strict=True)
    return sum(a * b * c.conjugate() for a, b, c in terms).real


def rotate(model: Model, h: Numbers, r: Numbers, t: Numbers) -> float:
    """A stored phase of (margin + 2) / dim is half a turn."""
    turns = [cmath.exp(1j * math.pi * x / ((model.margin + 2.0) / DIM)) for x in r]
    return model.margin - sum(
        abs(a * b - c) for a, b, c in zip(complexes(h), turns, complexes(t), strict=True)
    )


Formula = Callable[[Model, Numbers, Numbers, Numbers], float]
FORMULAS: dict[str, Formula] = {
    "transe": transe,
    "transm": transm,
    "transh": transh,
    "transr": transr,
    "transd": transd,
    "rescal": rescal,
    "distmult": distmult,
    "complex": complex_,
    "rotate": rotate,
}
OPTIONS: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in FORMULAS),
    *(
        (name, {"norm": norm})
        for name in ("transe", "transm", "transh", "transr", "transd")
        for norm in (1, 2)
    ),
    ("transr", {"relation_dim": 2}),
    ("transr", {"relation_dim": 4, "norm": 1}),
    ("rotate", {"margin": 24.0}),
    ("transe", {"margin": 0.0, "classic": True}),
]


def rows(model: Model, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    widths = (model.width(axis) for axis in (Axis.ENTITY, Axis.RELATION, Axis.ENTITY))
    h, r, t = (torch.randn(ROWS, width, generator=random, dtype=torch.float64) for width in widths)
    return h, r, t


def test_every_model_has_its_formula_here() -> None:
    assert set(FORMULAS) == set(MODELS)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_score_is_the_formula(name: str, options: dict[str, object]) -> None:
    model = MODELS[name](dim=DIM, **options)
    h, r, t = rows(model)
    plain = zip(h.tolist(), r.tolist(), t.tolist(), strict=True)
    expected = torch.tensor([FORMULAS[name](model, *one) for one in plain], dtype=torch.float64)
    torch.testing.assert_close(model.score(h, r, t), expected)
    crossed = model.score(h[:, None], r[:, None], t[None])
    torch.testing.assert_close(crossed.diagonal(), expected)


def phase(model: Model, r: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(r), r * math.pi / model.range)


def imaginary(row: Tensor) -> Tensor:
    return torch.complex(*(half.contiguous() for half in row.chunk(2, -1)))


@pytest.fixture(scope="module")
def pykeen() -> object:
    return pytest.importorskip("pykeen.nn.modules")


@pytest.mark.parametrize("norm", [1, 2])
def test_translations_equal_pykeen(pykeen: object, norm: int) -> None:
    """PyKEEN has no margin, and TransR there bounds projected entities, which a large bound switches off."""
    power = {"p": norm, "power_norm": norm == 2}
    k = 2
    oracles = {
        "transe": (pykeen.TransEInteraction(p=norm), lambda x: x, lambda r: r),
        "transh": (pykeen.TransHInteraction(**power), lambda x: x, lambda r: (r[:, DIM:], r[:, :DIM])),
        "transr": (
            pykeen.TransRInteraction(**power, max_projection_norm=1e9),
            lambda x: x,
            lambda r: (r[:, :k], r[:, k:].unflatten(-1, (k, DIM)).mT),  # its matrices are transposed
        ),
        "transd": (
            pykeen.TransDInteraction(**power),  # bounds projected entities as we do
            lambda x: x.chunk(2, -1),
            lambda r: r.chunk(2, -1),
        ),
    }
    for name, (interaction, entity, relation) in oracles.items():
        options = {"relation_dim": k} if name == "transr" else {}
        model = MODELS[name](dim=DIM, norm=norm, **options)
        h, r, t = rows(model, seed=1)
        expected = interaction(entity(h), relation(r), entity(t))
        torch.testing.assert_close(
            model.score(h, r, t) - model.margin, expected, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_products_equal_pykeen(pykeen: object) -> None:
    oracles = {
        "distmult": (pykeen.DistMultInteraction(), lambda x: x, lambda r: r),
        "complex": (pykeen.ComplExInteraction(), imaginary, imaginary),
        "rescal": (pykeen.RESCALInteraction(), lambda x: x, lambda r: r.unflatten(-1, (DIM, DIM))),
    }
    for name, (interaction, entity, relation) in oracles.items():
        model = MODELS[name](dim=DIM)
        h, r, t = rows(model, seed=2)
        torch.testing.assert_close(model.score(h, r, t), interaction(entity(h), relation(r), entity(t)))


def test_rotate_sums_what_pykeen_squares(pykeen: object) -> None:
    """PyKEEN takes the Euclidean length of all moduli, the paper their sum: they agree number by number."""
    model = MODELS["rotate"](dim=DIM)
    h, r, t = rows(model, seed=3)
    one_by_one = (
        pykeen.RotatEInteraction()(
            imaginary(h)[:, k, None], phase(model, r)[:, k, None], imaginary(t)[:, k, None]
        )
        for k in range(DIM)
    )
    torch.testing.assert_close(model.score(h, r, t) - model.margin, sum(one_by_one))


def test_transm_weighs_relations_by_their_answers() -> None:
    model = MODELS["transm"](dim=DIM)
    random = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(n, (60,), generator=random) for n in (7, 4, 12)], -1)
    triples = torch.cat((triples, torch.tensor([[0, 5, 1]]))).unique(dim=0)  # relation 5: one triple, 4: none
    relations = torch.ones(6, model.width(Axis.RELATION), dtype=torch.float64)
    model.observe(relations, triples)
    for r in range(6):
        mine = [(h, t) for h, s, t in triples.tolist() if s == r]
        heads, tails = {h for h, _ in mine}, {t for _, t in mine}
        tails_per_head = sum(sum(h == x for h, _ in mine) for x in heads) / len(heads) if mine else 1.0
        heads_per_tail = sum(sum(t == x for _, t in mine) for x in tails) / len(tails) if mine else 1.0
        assert relations[r, -1].item() == pytest.approx(1 / math.log(heads_per_tail + tails_per_head))
    assert relations[5, -1].item() == pytest.approx(1 / math.log(2))
    assert (relations[:, :-1] == 1).all()


def test_only_transm_observes() -> None:
    for name in set(MODELS) - {"transm"}:
        model = MODELS[name](dim=DIM)
        relations = torch.randn(4, model.width(Axis.RELATION))
        before = relations.clone()
        model.observe(relations, torch.tensor([[0, 1, 2], [3, 1, 2]]))
        assert torch.equal(relations, before)


def first(model: Model) -> tuple[Tensor, Tensor]:
    """The first rows of 500 entities and 500 relations."""
    keys = torch.arange(500) * 7919
    tables = Tables.create(model, keys, keys, 0, dtype=torch.float64)
    return tables.entities, tables.relations


@pytest.mark.parametrize("name", ["transe", "transm", "rotate", "distmult", "complex", "rescal"])
def test_first_rows_fill_their_range(name: str) -> None:
    model = MODELS[name](dim=DIM, margin=4.0)
    edge = (4.0 + 2.0) / DIM
    entities, relations = first(model)
    if name == "transm":
        assert (relations[:, -1] == 1).all()
        relations = relations[:, :-1]
    for table in (entities, relations):
        assert table.abs().max() <= edge
        assert table.max() > 0.95 * edge
        assert table.min() < -0.95 * edge
        assert table.mean().abs() < 0.1 * edge


def test_classic_transe_starts_and_stays_on_the_sphere() -> None:
    model = TransE(dim=DIM, classic=True)
    entities, relations = first(model)
    ones = torch.ones(500, dtype=torch.float64)
    for table in (entities, relations):
        torch.testing.assert_close(table.norm(dim=1), ones)
    torch.testing.assert_close(model.constrain(3 * entities, Axis.ENTITY), entities)
    assert model.constrain(relations, Axis.RELATION) is None
    assert TransE(dim=DIM).constrain(entities, Axis.ENTITY) is None


def shortened_rows(table: Tensor) -> Tensor:
    return torch.tensor([shortened(row) for row in table.tolist()], dtype=table.dtype)


def test_transh_constraints() -> None:
    model = MODELS["transh"](dim=DIM)
    h, r, _ = rows(model, seed=4)
    torch.testing.assert_close(model.constrain(h, Axis.ENTITY), shortened_rows(h))
    allowed = model.constrain(r, Axis.RELATION)
    d, w = allowed.chunk(2, -1)
    torch.testing.assert_close(w, r[:, DIM:] / r[:, DIM:].norm(dim=1, keepdim=True))
    torch.testing.assert_close((d * w).sum(1), torch.zeros(ROWS, dtype=torch.float64))
    moved = r[:, :DIM] - d  # d moves along the normal alone
    torch.testing.assert_close(moved, (moved * w).sum(1, keepdim=True) * w)


def test_transr_and_transd_constraints() -> None:
    for name, axes in {
        "transr": {Axis.ENTITY: DIM, Axis.RELATION: DIM},
        "transd": dict.fromkeys(Axis, DIM),
    }.items():
        model = MODELS[name](dim=DIM)
        h, r, _ = rows(model, seed=5)
        for table, axis in ((h, Axis.ENTITY), (r, Axis.RELATION)):
            allowed = model.constrain(table, axis)
            n = axes[axis]
            torch.testing.assert_close(allowed[:, :n], shortened_rows(table[:, :n]))
            assert torch.equal(allowed[:, n:], table[:, n:])
            assert table[:, :n].norm(dim=1).max() > 1
            assert allowed[:, :n].norm(dim=1).max() <= 1 + 1e-12


def test_transr_starts_from_the_identity() -> None:
    model = MODELS["transr"](dim=DIM, relation_dim=2)
    entities, relations = first(model)
    assert torch.equal(model.project(entities, relations), entities[:, :2])
    assert model.query(entities, relations, Side.TAIL).shape == (500, 2)


def test_rows_that_are_allowed_are_not_moved() -> None:
    for name in ("transh", "transr", "transd"):
        model = MODELS[name](dim=DIM)
        short = torch.full((2, model.width(Axis.ENTITY)), 0.1)
        assert torch.equal(model.constrain(short, Axis.ENTITY), short)
