"""Every backend computes the indexed similarity, and its gradients, as plain torch does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import pytest
import torch
from torch import Tensor

from fedkge.kernels import Backend, Contribution, Similarity, backend, reference, similarity

CLOSE = {torch.float64: {"rtol": 1e-11, "atol": 1e-12}, torch.float32: {"rtol": 2e-4, "atol": 2e-5}}
SHAPES = [  # b, n, rows of the table, width (one less, thus odd, unless rows are complex), extra rows
    (1, 1, 1, 2, 0),
    (1, 9, 4, 6, 3),
    (7, 1, 3, 10, 1),
    (5, 3, 1, 8, 2),
    (33, 17, 11, 34, 5),
    (6, 5, 40_000, 6, 70),  # more rows than one radix digit holds
    (3, 0, 9, 6, 4),
    (0, 0, 9, 6, 4),
    (0, 0, 9, 6, 0),
]


@dataclass(frozen=True)
class Case:
    """One call of the operation, and the gradient that comes back for it."""

    kind: Similarity
    query: Tensor
    table: Tensor
    index: Tensor
    d_scores: Tensor
    ids: Tensor
    values: Tensor

    def to(self, device: torch.device) -> Case:
        return Case(self.kind, *(getattr(self, f.name).to(device) for f in fields(self)[1:]))

    def part(self) -> Contribution:
        scores = reference.forward(self.kind, self.query, self.table, self.index)
        return Contribution(self.kind, self.query, self.index, scores, self.d_scores, self.ids, self.values)


def make(kind: Similarity, dtype: torch.dtype, shape: tuple[int, int, int, int, int], whole: bool) -> Case:
    """Random numbers; `whole` ones are in -1..1, so that many coordinates, and some rows, coincide."""
    b, n, rows, width, extra = shape
    width -= kind is not Similarity.MODULUS
    random = torch.Generator().manual_seed(b + n + rows)

    def numbers(*size: int) -> Tensor:
        if whole:
            return torch.randint(-1, 2, size, generator=random).to(dtype)
        return torch.randn(size, generator=random, dtype=torch.float64).to(dtype)

    return Case(
        kind,
        query=numbers(b, width),
        table=numbers(rows, width),
        index=torch.randint(rows, (b, n), generator=random),
        d_scores=numbers(b, n) if n else torch.empty(b, n, dtype=dtype),
        ids=torch.randint(rows, (extra,), generator=random),
        values=numbers(extra, width),
    )


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(params=list(Similarity), ids=lambda kind: kind.name.lower())
def kind(request: pytest.FixtureRequest) -> Similarity:
    return request.param


def assert_close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.cpu(), expected.cpu(), **CLOSE[expected.dtype])


def check_forward(kernels: Backend, case: Case, here: Case) -> None:
    expected = reference.forward(case.kind, case.query, case.table, case.index)
    assert_close(kernels.forward(here.kind, here.query, here.table, here.index), expected)


def check_all_scores(kernels: Backend, case: Case, here: Case) -> None:
    expected = reference.all_scores(case.kind, case.query, case.table)
    assert_close(kernels.all_scores(here.kind, here.query, here.table), expected)


def check_backward_query(kernels: Backend, case: Case, here: Case) -> None:
    part, mine = case.part(), here.part()
    expected = reference.backward_query(
        case.kind, case.query, case.table, case.index, part.scores, part.d_scores
    )
    found = kernels.backward_query(here.kind, here.query, here.table, here.index, mine.scores, mine.d_scores)
    assert_close(found, expected)


def check_touched(kernels: Backend, case: Case, here: Case) -> None:
    expected_rows, expected = reference.touched(case.table, case.part())
    rows, values = kernels.touched(here.table, here.part())
    assert torch.equal(rows.cpu(), expected_rows)
    assert_close(values, expected)


def check_accumulate(kernels: Backend, case: Case, here: Case) -> None:
    expected, found = torch.ones_like(case.table), torch.ones_like(here.table)
    reference.accumulate_(expected, case.table, case.part())
    kernels.accumulate_(found, here.table, here.part())
    assert_close(found, expected)


def check(kernels: Backend, case: Case, here: Case) -> None:
    """`here` holds what `case` holds, on the kernels' device."""
    check_forward(kernels, case, here)
    check_all_scores(kernels, case, here)
    check_backward_query(kernels, case, here)
    check_touched(kernels, case, here)
    check_accumulate(kernels, case, here)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("whole", [False, True], ids=["real", "whole"])
def test_kernels_equal_reference(
    kernels: Backend,
    device: torch.device,
    kind: Similarity,
    dtype: torch.dtype,
    shape: tuple[int, int, int, int, int],
    whole: bool,
) -> None:
    case = make(kind, dtype, shape, whole)
    check(kernels, case, case.to(device))


def spread(x: Tensor) -> Tensor:
    """The same numbers, every other one of a larger piece of memory."""
    return torch.stack((x, torch.full_like(x, 7)), -1)[..., 0]


def transposed(x: Tensor) -> Tensor:
    """The same numbers, column after column."""
    return x.T.contiguous().T if x.ndim == 2 else x


@pytest.mark.parametrize("lay", [spread, transposed])
def test_memory_layout_does_not_matter(
    kernels: Backend, device: torch.device, kind: Similarity, lay: Callable[[Tensor], Tensor]
) -> None:
    case = make(kind, torch.float64, (33, 17, 11, 34, 5), False)
    here = Case(kind, *(lay(getattr(case, f.name).to(device)) for f in fields(case)[1:]))
    check(kernels, case, here)


def test_expanded_index_and_gradient(kernels: Backend, device: torch.device, kind: Similarity) -> None:
    b, n = 5, 8
    case = make(kind, torch.float64, (b, n, 6, 10, 2), False)
    same = Case(
        kind,
        case.query[:1].expand(b, -1),
        case.table,
        case.index[:, :1].expand(b, n),
        torch.ones((), dtype=torch.float64).expand(b, n),  # as the backward pass of a sum hands it over
        case.ids,
        case.values,
    )
    check(kernels, same, same.to(device))


@pytest.mark.parametrize("kind", [Similarity.L1, Similarity.L2, Similarity.MODULUS])
def test_zero_distance_has_zero_gradient(
    kernels: Backend, device: torch.device, kind: Similarity, dtype: torch.dtype
) -> None:
    row = torch.randn(6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    table = row.expand(4, 6).contiguous().to(device)
    index, d_scores = torch.tensor([[0, 1, 1], [3, 3, 3]]), torch.ones(2, 3, dtype=dtype)
    none = index.new_empty(0), d_scores.new_empty(0, 6)
    here = Case(kind, table[:2].clone(), table, index, d_scores, *none).to(device)
    part = here.part()
    assert not kernels.forward(kind, here.query, table, here.index).any()
    assert not kernels.all_scores(kind, here.query, table).any()
    assert not kernels.backward_query(kind, here.query, table, here.index, part.scores, part.d_scores).any()
    assert not kernels.touched(table, part)[1].any()


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1e18])
def test_very_small_and_large_distances_stay_finite(
    kernels: Backend, device: torch.device, kind: Similarity, size: float
) -> None:
    """Squares of these under- or overflow in float32, where infinity is right but NaN is not."""
    case = make(kind, torch.float32, (5, 3, 4, 8, 0), False)
    here = Case(
        kind, case.query * size, case.table * size, *(case.index, case.d_scores, case.ids, case.values)
    )
    here = here.to(device)
    scores = kernels.forward(kind, here.query, here.table, here.index)
    part = Contribution(kind, here.query, here.index, scores, here.d_scores, here.ids, here.values)
    d_query = kernels.backward_query(kind, here.query, here.table, here.index, scores, here.d_scores)
    for tensor in (scores, d_query, kernels.touched(here.table, part)[1]):
        assert not tensor.isnan().any()


def test_similarity_passes_gradcheck(device: torch.device, kind: Similarity) -> None:
    """Random rows keep away from the kinks of l1."""
    here = make(kind, torch.float64, (4, 3, 5, 6, 0), False).to(device)
    query, table = here.query.requires_grad_(), here.table.requires_grad_()

    def scores(q: Tensor, t: Tensor) -> Tensor:
        return similarity(kind, q, t, here.index)

    assert torch.autograd.gradcheck(scores, (query, table), nondet_tol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_similarity_equals_autograd(
    device: torch.device, kind: Similarity, dtype: torch.dtype, sparse: bool
) -> None:
    case, here = (make(kind, dtype, (6, 5, 40_000, 6, 0), False) for _ in range(2))
    here = here.to(device)
    inputs, here_inputs = ((one.query.requires_grad_(), one.table.requires_grad_()) for one in (case, here))
    scores = reference.forward(kind, *inputs, case.index)
    here_scores = similarity(kind, *here_inputs, here.index, sparse=sparse)
    expected = torch.autograd.grad(scores, inputs, case.d_scores)
    d_query, d_table = torch.autograd.grad(here_scores, here_inputs, here.d_scores)
    assert d_table.is_sparse == sparse
    if sparse:
        assert torch.equal(d_table.indices()[0].cpu(), case.index.unique())
        d_table = d_table.to_dense()
    assert_close(d_query, expected[0])
    assert_close(d_table, expected[1])


def test_similarity_differentiates_only_what_asks(device: torch.device, kind: Similarity) -> None:
    here = make(kind, torch.float64, (4, 3, 5, 6, 0), False).to(device)
    similarity(kind, here.query.requires_grad_(), here.table, here.index).sum().backward()
    assert here.query.grad is not None
    assert here.table.grad is None


@pytest.mark.parametrize(
    ("query", "table", "index"),
    [((2, 4), (9, 6), (2, 3)), ((2, 4), (9, 4), (3, 3)), ((4,), (9, 4), (4, 3)), ((2, 4), (9, 2, 2), (2, 3))],
)
def test_shapes_that_do_not_fit_are_refused(
    query: tuple[int, ...], table: tuple[int, ...], index: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"query \[.*\], table \[.*\], index \[.*\]"):
        similarity(
            Similarity.L1, torch.zeros(query), torch.zeros(table), torch.zeros(index, dtype=torch.int64)
        )


def test_complex_rows_have_an_even_width() -> None:
    with pytest.raises(ValueError, match="even width, not 5"):
        similarity(
            Similarity.MODULUS, torch.zeros(2, 5), torch.zeros(9, 5), torch.zeros(2, 3, dtype=torch.int64)
        )
