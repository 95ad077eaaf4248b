"""Optimizer steps: equal to plain torch on every backend, and to torch.optim over several steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import mul

import pytest
import torch
from torch import Tensor

from fedkge.kernels import Adam, Backend, Contribution, Pace, Room, Similarity, Tie, backend, reference

CLOSE = {torch.float64: {"rtol": 1e-11, "atol": 1e-13}, torch.float32: {"rtol": 1e-5, "atol": 1e-7}}
ROWS, WIDTH = 13, 7
RATE = Adam(rate=0.1)
Step = Callable[[Backend, dict[str, Tensor], Pace], None]


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def pace(ends: list[int], steps: list[int], active: list[bool], device: torch.device | str = "cpu") -> Pace:
    return Pace(*(torch.tensor(x, device=device) for x in (ends, steps, active)))


def numbers(dtype: torch.dtype, seed: int) -> dict[str, Tensor]:
    """A table, its gradient, and what optimizers remember, under the names that torch.optim uses."""
    random = torch.Generator().manual_seed(seed)
    table, gradient, m, v = torch.randn(4, ROWS, WIDTH, generator=random, dtype=torch.float64).to(dtype)
    return {"table": table, "gradient": gradient, "exp_avg": m, "exp_avg_sq": v.abs(), "sum": v.square()}


def adam(kernels: Backend, x: dict[str, Tensor], now: Pace) -> None:
    kernels.adam_(x["table"], x["gradient"], x["exp_avg"], x["exp_avg_sq"], now, Adam(rate=0.1))


def adagrad(kernels: Backend, x: dict[str, Tensor], now: Pace) -> None:
    kernels.adagrad_(x["table"], x["gradient"], x["sum"], now, 0.1)


def sgd(kernels: Backend, x: dict[str, Tensor], now: Pace) -> None:
    kernels.sgd_(x["table"], x["gradient"], now, 0.1)


STEPS = [adam, adagrad, sgd]
TURNS = [  # ends, steps, active
    ([ROWS], [1], [True]),
    ([ROWS], [100_000], [True]),
    ([4, 4, 9, ROWS], [3, 5, 0, 7], [True, True, False, True]),  # the second site has no rows
    ([1, ROWS], [2, 4], [False, True]),
    ([5, ROWS], [0, 0], [False, False]),
]


@pytest.mark.parametrize("now", TURNS, ids=str)
@pytest.mark.parametrize("step", STEPS)
def test_step_equals_reference(
    kernels: Backend,
    device: torch.device,
    dtype: torch.dtype,
    step: Step,
    now: tuple[list[int], list[int], list[bool]],
) -> None:
    expected = numbers(dtype, seed=1)
    found = {name: tensor.to(device, copy=True) for name, tensor in expected.items()}
    step(reference, expected, pace(*now))  # type: ignore[arg-type]
    step(kernels, found, pace(*now, device=device))
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name].cpu(), tensor, **CLOSE[dtype], msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("step", STEPS)
def test_inactive_sites_stay_as_they_are_and_gradients_are_cleared(
    kernels: Backend, device: torch.device, dtype: torch.dtype, step: Step
) -> None:
    before = numbers(dtype, seed=2)
    after = {name: tensor.to(device, copy=True) for name, tensor in before.items()}
    step(kernels, after, pace([4, 9, ROWS], [3, 2, 8], [True, False, True], device))
    assert not after.pop("gradient").any()
    for name, tensor in after.items():
        assert torch.equal(tensor[4:9].cpu(), before[name][4:9])
    assert (after["table"].cpu() != before["table"]).sum() == WIDTH * (ROWS - 5)


def optimizer(step: Step, table: Tensor) -> torch.optim.Optimizer:
    if step is adam:
        return torch.optim.Adam([table], lr=0.1)
    return (torch.optim.Adagrad if step is adagrad else torch.optim.SGD)([table], lr=0.1)


@pytest.mark.parametrize("step", STEPS)
def test_steps_equal_torch_optim(
    kernels: Backend, device: torch.device, dtype: torch.dtype, step: Step
) -> None:
    """The gradients differ in size, so that a wrong constant cannot hide behind Adam's normalisation."""
    theirs = numbers(dtype, seed=3)["table"].requires_grad_()
    oracle = optimizer(step, theirs)
    mine = {name: torch.zeros_like(t, device=device) for name, t in numbers(dtype, seed=3).items()}
    mine["table"].copy_(theirs.detach())
    for count in range(1, 7):
        theirs.grad = numbers(dtype, seed=10 + count)["gradient"] * 10.0 ** (count % 3)
        mine["gradient"].copy_(theirs.grad)
        oracle.step()
        step(kernels, mine, pace([ROWS], [count], [True], device))
        torch.testing.assert_close(mine["table"].cpu(), theirs.detach(), **CLOSE[dtype])
        for name, state in oracle.state[theirs].items():
            if name in mine:
                torch.testing.assert_close(mine[name].cpu(), state, **CLOSE[dtype])


def contribution(kind: Similarity, table: Tensor, seed: int, rows: list[int]) -> Contribution:
    """Two queries with three candidates each, and two extra rows, all among `rows`."""
    random = torch.Generator().manual_seed(seed)
    some = torch.tensor(rows)
    index = some[torch.randint(len(rows), (2, 3), generator=random)]
    ids = some[torch.randint(len(rows), (2,), generator=random)]
    width = table.shape[1]
    sizes = ((2, width), (2, 3), (2, width))
    query, d_scores, values = (
        torch.randn(size, generator=random, dtype=torch.float64).to(table.dtype) for size in sizes
    )
    scores = reference.forward(kind, query, table.cpu(), index)
    parts = (query, index, scores, d_scores, ids, values)
    return Contribution(kind, *(tensor.to(table.device) for tensor in parts))


def even(x: Tensor, kind: Similarity) -> Tensor:
    """Complex rows have an even width."""
    return x[:, : WIDTH - (kind is Similarity.MODULUS)].contiguous()


@pytest.mark.parametrize("kind", Similarity)
@pytest.mark.parametrize(
    "sites", [([ROWS], [4], [True]), ([4, 4, 9, ROWS], [3, 0, 0, 7], [True, False, False, True])]
)
def test_touched_step_equals_reference(
    kernels: Backend,
    device: torch.device,
    dtype: torch.dtype,
    kind: Similarity,
    sites: tuple[list[int], list[int], list[bool]],
) -> None:
    """Rows of a site that takes no step now may be touched; they stay as they are."""
    state = {name: even(x, kind) for name, x in numbers(dtype, seed=4).items()}
    before = [state[name] for name in ("table", "exp_avg", "exp_avg_sq")]
    expected, found = ([x.to(d, copy=True) for x in before] for d in ("cpu", device))
    for kernel, (table, m, v), where in ((reference, expected, "cpu"), (kernels, found, device)):
        part = contribution(kind, table, 5, [0, 2, 3, 5, 8, 12])
        kernel.adam_touched_(table, part, m, v, pace(*sites, device=where), Adam(rate=0.1))
    for mine, theirs, start in zip(found, expected, before, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, **CLOSE[dtype])
        changed = (theirs != start).any(1).nonzero()[:, 0]
        assert set(changed.tolist()) <= ({0, 2, 3, 5, 8, 12} if len(sites[0]) == 1 else {0, 2, 3, 12})
        assert torch.equal((mine.cpu() != start).any(1).nonzero()[:, 0], changed)


def test_touched_steps_equal_sparse_adam(kernels: Backend, device: torch.device, dtype: torch.dtype) -> None:
    """torch adds epsilon before the bias correction and we after, as Adam does; a tiny one hides that."""
    constants = Adam(rate=0.1, epsilon=1e-30)
    theirs = numbers(dtype, seed=6)["table"].requires_grad_()
    oracle = torch.optim.SparseAdam([theirs], lr=constants.rate, eps=constants.epsilon)
    table = theirs.detach().to(device, copy=True)
    m, v = torch.zeros_like(table), torch.zeros_like(table)
    for count in range(1, 7):
        touched = [[0, 2, 3], [2, 5, 12], [7]][count % 3]
        part = contribution(Similarity.L2, theirs.detach(), 20 + count, touched)
        rows, values = reference.touched(theirs.detach(), part)
        theirs.grad = torch.sparse_coo_tensor(
            rows[None], values, theirs.shape, is_coalesced=True, check_invariants=False
        )
        oracle.step()
        on_device = contribution(Similarity.L2, table, 20 + count, touched)
        kernels.adam_touched_(table, on_device, m, v, pace([ROWS], [count], [True], device), constants)
        torch.testing.assert_close(table.cpu(), theirs.detach(), rtol=1e-5, atol=1e-5)


def test_touching_nothing_changes_nothing(kernels: Backend, device: torch.device) -> None:
    start = numbers(torch.float64, seed=7)
    table, m, v = (start[name].to(device, copy=True) for name in ("table", "exp_avg", "exp_avg_sq"))
    none = table.new_empty(0, 0)
    part = Contribution(
        Similarity.DOT,
        query=table.new_empty(0, WIDTH),
        index=torch.empty(0, 0, dtype=torch.int64, device=device),
        scores=none,
        d_scores=none,
        ids=torch.empty(0, dtype=torch.int64, device=device),
        values=table.new_empty(0, WIDTH),
    )
    kernels.adam_touched_(table, part, m, v, pace([ROWS], [1], [True], device), Adam(rate=0.1))
    for found, name in ((table, "table"), (m, "exp_avg"), (v, "exp_avg_sq")):
        assert torch.equal(found.cpu(), start[name])


@pytest.mark.parametrize("ahead", [None, 0, 3, 7])
def test_rows_without_candidates_are_added_up(
    kernels: Backend, device: torch.device, dtype: torch.dtype, ahead: int | None
) -> None:
    """Gradients of shared negatives come as rows; some of them may lie ahead of the others."""
    state = numbers(dtype, seed=11)
    ids, values = torch.tensor([12, 3, 3, 0, 12, 5, 3]), numbers(dtype, seed=12)["table"][:7]
    gradient = torch.zeros_like(state["table"]).index_add(0, ids, values)
    for whole in (True, False):
        expected, found = (
            [state[name].to(where, copy=True) for name in ("table", "exp_avg", "exp_avg_sq")]
            for where in ("cpu", device)
        )
        table, empty = found[0], found[0].new_empty(0, 0)
        there = ids.to(device), values[ahead or 0 :].to(device)
        nothing = table.new_empty(0, WIDTH), empty.long(), empty, empty
        part = Contribution(Similarity.DOT, *nothing, *there)
        if ahead is not None:
            part = replace(part, ahead=values[:ahead].to(device))
        step = kernels.adam_whole_ if whole else kernels.adam_touched_
        step(*found[:1], part, *found[1:], pace([ROWS], [4], [True], device), Adam(rate=0.1))
        reference.adam_(
            expected[0], gradient.clone(), *expected[1:], pace([ROWS], [4], [True]), Adam(rate=0.1)
        )
        rows = slice(None) if whole else ids
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine.cpu()[rows], theirs[rows], **CLOSE[dtype])


@pytest.mark.parametrize("kind", Similarity)
@pytest.mark.parametrize(
    "sites", [([ROWS], [4], [True]), ([4, 4, 9, ROWS], [3, 0, 0, 7], [True, False, False, True])]
)
@pytest.mark.parametrize("held", [False, True])
def test_whole_step_from_factors_equals_adding_up_and_stepping(
    kernels: Backend,
    device: torch.device,
    dtype: torch.dtype,
    kind: Similarity,
    held: bool,
    sites: tuple[list[int], list[int], list[bool]],
) -> None:
    state = {name: even(x, kind) for name, x in numbers(dtype, seed=8).items()}
    expected, found = (
        [state[name].to(where, copy=True) for name in ("table", "exp_avg", "exp_avg_sq")]
        for where in ("cpu", device)
    )
    part = contribution(kind, expected[0], 9, [0, 2, 3, 5, 8, 12])
    gradient = torch.zeros_like(expected[0])
    reference.accumulate_(gradient, expected[0], part)
    on_device = contribution(kind, found[0], 9, [0, 2, 3, 5, 8, 12])
    if held:
        kept, factors = even(numbers(dtype, seed=9)["table"], kind), numbers(dtype, seed=10)["table"][:, :3]
        rows = expected[0].clone().requires_grad_()
        (reference.moments(rows, kept) * factors).sum().backward()
        assert rows.grad is not None
        gradient += rows.grad
        slopes = factors * torch.tensor([2, 2, 1])
        on_device = replace(on_device, tie=Tie(kept.to(device), slopes.to(device)))
    reference.adam_(expected[0], gradient, *expected[1:], pace(*sites), Adam(rate=0.1))
    kernels.adam_whole_(found[0], on_device, *found[1:], pace(*sites, device=device), Adam(rate=0.1))
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, **CLOSE[dtype])


@pytest.mark.parametrize("ends", [[ROWS], [4, 4, 9, ROWS]])
@pytest.mark.parametrize("compared", [False, True], ids=["rows", "candidates"])
@pytest.mark.parametrize("width", [6, 600])
def test_late_rows_end_as_if_they_had_taken_every_step(
    kernels: Backend, device: torch.device, dtype: torch.dtype, ends: list[int], compared: bool, width: int
) -> None:
    """Beside `adam_whole_`, on a CPU bit by bit; rows that a step reads are as they are there before it."""
    same = CLOSE[dtype] if device.type == "cuda" else {"rtol": 0, "atol": 0}
    random = torch.Generator().manual_seed(1)
    first = torch.randn(3, ROWS, width, generator=random, dtype=torch.float64).to(dtype).abs()
    whole, late = ([one.to(device, copy=True) for one in first] for _ in range(2))
    taken = torch.zeros(ROWS, dtype=torch.int32, device=device)
    room = Room(torch.zeros_like(whole[0]), torch.zeros(ROWS, dtype=torch.uint8, device=device))
    steps, sites = torch.zeros(len(ends), dtype=torch.int64), torch.tensor(ends)
    for number in range(14):
        active = torch.rand(len(ends), generator=random) < 0.7
        asked = torch.randperm(ROWS, generator=random)[:4]
        asked = asked[active[torch.searchsorted(sites, asked, right=True)]]
        before = pace(ends, steps.tolist(), active.tolist(), device)
        ids = asked.to(device)
        kernels.catch_up_(*late, replace(before, taken=taken), RATE, (ids[:2], ids[1:], ids))
        torch.testing.assert_close(late[0][ids], whole[0][ids], **same)
        steps += active
        now = pace(ends, steps.tolist(), active.tolist(), device)
        if compared and len(ids):
            part = contribution(Similarity.L2, whole[0], number, asked.tolist())
        else:
            values = torch.randn(len(ids), width, generator=random, dtype=torch.float64).to(device, dtype)
            empty = values.new_empty(0, 0)
            nothing = values.new_empty(0, width), empty.long(), empty, empty
            part = Contribution(Similarity.DOT, *nothing, ids, values, room=room)
        kernels.adam_whole_(whole[0], part, *whole[1:], now, RATE)
        kernels.adam_touched_(late[0], part, *late[1:], replace(now, taken=taken), RATE)
    assert (taken.cpu() < steps[torch.searchsorted(sites, torch.arange(ROWS), right=True)]).any()
    kernels.catch_up_(*late, replace(now, taken=taken), RATE)
    for mine, theirs in zip(late, whole, strict=True):
        torch.testing.assert_close(mine, theirs, **same)
    assert torch.equal(taken.cpu().long(), steps[torch.searchsorted(sites, torch.arange(ROWS), right=True)])


@pytest.mark.parametrize("ends", [[ROWS], [4, 4, 9, ROWS]])
@pytest.mark.parametrize("width", [6, 600])
def test_rows_are_made_ready_while_a_step_is_under_way(
    kernels: Backend, device: torch.device, dtype: torch.dtype, ends: list[int], width: int
) -> None:
    """Those that were promised a step take it, whether or not it gives them a gradient."""
    same = {"rtol": 0, "atol": 0}
    if device.type == "cuda":  # rounded otherwise in either kernel, in each of 15 steps
        same = CLOSE[dtype] | {"atol": 10 * CLOSE[dtype]["atol"]}
    random = torch.Generator().manual_seed(2)
    first = torch.randn(3, ROWS, width, generator=random, dtype=torch.float64).to(dtype).abs()
    whole, late = ([one.to(device, copy=True) for one in first] for _ in range(2))
    taken, stepped = (torch.zeros(ROWS, dtype=torch.int32, device=device) for _ in range(2))
    room = Room(torch.zeros_like(whole[0]), torch.zeros(ROWS, dtype=torch.uint8, device=device))
    active = [number != 2 for number in range(len(ends))]
    own = torch.tensor(active)[torch.searchsorted(torch.tensor(ends), torch.arange(ROWS), right=True)]
    drawn = [own.nonzero()[:, 0][torch.randperm(int(own.sum()), generator=random)[:4]] for _ in range(15)]
    steps = torch.zeros(len(ends), dtype=torch.int64)
    for asked, soon in zip([None, *drawn], drawn, strict=False):
        begun = pace(ends, steps.tolist(), active, device)
        now = replace(begun, taken=taken, stepped=stepped)
        ready = soon.to(device)
        kernels.catch_up_(*late, now, RATE, (ready, ready[1:], ready[:2]), promised=True)
        if asked is not None:
            ids = asked.to(device)
            values = torch.randn(2, width, generator=random, dtype=torch.float64).to(device, dtype)
            empty = values.new_empty(0, 0)
            nothing = values.new_empty(0, width), empty.long(), empty, empty
            part = Contribution(Similarity.DOT, *nothing, ids[:2], values, room=room)
            kernels.adam_whole_(whole[0], part, *whole[1:], begun, RATE)
            kernels.adam_touched_(late[0], part, *late[1:], replace(now, promised=(ids, ids[:1])), RATE)
            torch.testing.assert_close(late[0][ready], whole[0][ready], **same)
        steps += torch.tensor(active)
    assert not room.sums.any()
    assert not room.touched.any()
    kernels.catch_up_(*late, now, RATE)
    for mine, theirs in zip(late, whole, strict=True):
        torch.testing.assert_close(mine, theirs, **same)


@pytest.mark.parametrize("ends", [[ROWS], [4, 4, 9, ROWS]])
@pytest.mark.parametrize("width", [6, 600])
def test_rows_are_stepped_up_to_their_next_reading(
    kernels: Backend, device: torch.device, dtype: torch.dtype, ends: list[int], width: int
) -> None:
    """Where the next steps are known; bit by bit as in `adam_whole_`, and as in the slow version."""
    if device.type == "cuda":
        pytest.skip("a GPU makes rows ready beside the step before")
    random = torch.Generator().manual_seed(3)
    first = torch.randn(3, ROWS, width, generator=random, dtype=torch.float64).to(dtype).abs()
    whole, late, slow = ([one.clone() for one in first] for _ in range(3))
    every = {"late": (kernels, late), "slow": (reference, slow)}
    taken = {name: torch.zeros(ROWS, dtype=torch.int32) for name in every}
    rooms = {name: (torch.full_like(of, -1), torch.empty_like(of)) for name, of in taken.items()}
    steps, sites = torch.zeros(len(ends), dtype=torch.int64), torch.tensor(ends)
    owner, more = torch.searchsorted(sites, torch.arange(ROWS), right=True), False
    for count in (5, 1, 4):
        active = [torch.rand(len(ends), generator=random) < 0.7 for _ in range(count)]
        read = []
        for now in active:
            now[-1] = True  # every step reads something
            mine = now[owner].nonzero()[:, 0]
            asked = mine[torch.randperm(len(mine), generator=random)[:4]]
            read.append((asked, asked[1:]))  # ids may repeat
        begun = Pace(sites, steps, active[0])
        until = {
            name: kernel.foresee(*own, replace(begun, taken=taken[name]), RATE, read, active, rooms[name])  # type: ignore[attr-defined]
            for name, (kernel, own) in every.items()
        }
        for k, ((ids, _), now) in enumerate(zip(read, active, strict=True)):
            for _, own in every.values():
                same = {"rtol": 0, "atol": 0} if own is late else CLOSE[dtype]
                torch.testing.assert_close(own[0][ids], whole[0][ids], **same)
            steps = steps + now
            pulled = ids[: len(ids) - k % 2]  # every other step leaves one without a gradient
            values = torch.randn(len(pulled), width, generator=random, dtype=torch.float64).to(dtype)
            empty = values.new_empty(0, 0)
            nothing = values.new_empty(0, width), empty.long(), empty, empty
            part = Contribution(Similarity.DOT, *nothing, pulled, values)
            begun = Pace(sites, steps, now)
            kernels.adam_whole_(whole[0], part, *whole[1:], begun, RATE)
            for name, (kernel, own) in every.items():
                far = replace(begun, taken=taken[name], until=until[name][k])
                kernel.adam_touched_(own[0], part, *own[1:], far, RATE)  # type: ignore[attr-defined]
                more |= bool((taken[name] > steps[owner]).any())
    assert more, "no row was ever ahead of its site"
    assert torch.equal(taken["late"], taken["slow"])
    for name, (kernel, own) in every.items():
        assert (rooms[name][0] == -1).all()
        assert (taken[name] < steps[owner]).any()
        kernel.catch_up_(*own, replace(begun, taken=taken[name]), RATE)  # type: ignore[attr-defined]
        for mine, theirs in zip(own, whole, strict=True):
            torch.testing.assert_close(
                mine, theirs, **({"rtol": 0, "atol": 0} if own is late else CLOSE[dtype])
            )


@pytest.mark.parametrize("taken", [39_995, 65_530, 100_000])
def test_late_rows_after_many_steps(
    kernels: Backend, device: torch.device, dtype: torch.dtype, taken: int
) -> None:
    """Adam's corrections are 1 from some step on, and tables of them end there."""
    first = torch.randn(3, ROWS, WIDTH, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    slow, late = ([one.to(device, copy=True) for one in first.to(dtype).abs()] for device in ("cpu", device))
    for kernel, own, where in ((reference, slow, "cpu"), (kernels, late, device)):
        had = torch.full((ROWS,), taken, dtype=torch.int32, device=where)
        due = replace(pace([ROWS], [taken + 13], [True], where), taken=had)
        kernel.catch_up_(*own, due, RATE)  # type: ignore[attr-defined]
        assert (had == taken + 13).all()
    for mine, theirs in zip(late, slow, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, **CLOSE[dtype])


def test_moments_of_all_sizes(kernels: Backend, device: torch.device, dtype: torch.dtype) -> None:
    """Roots and quotients of what is nothing, tiny, large, or no number, as torch has them."""
    large = 1e300 if dtype == torch.float64 else 1e37
    sizes = torch.tensor([0, 1e-45, 1e-39, 1e-30, 1e-8, 1.0, large, float("inf"), float("nan")])
    sizes = torch.cat((sizes.to(dtype), sizes.new_zeros(WIDTH).to(dtype)))  # more than whole vectors have
    rows = torch.ones(ROWS, len(sizes), dtype=dtype)
    m = torch.linspace(-2, 2, ROWS, dtype=torch.float64).to(dtype)[:, None].expand_as(rows).contiguous()
    expected = [rows, torch.zeros_like(rows), m, sizes.expand_as(rows).contiguous()]
    found = [one.to(device, copy=True) for one in expected]
    reference.adam_(*expected, pace([ROWS], [3], [True]), RATE)
    kernels.adam_(*found, pace([ROWS], [3], [True], device), RATE)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True, **CLOSE[dtype])


@pytest.mark.parametrize("width", [2, 50, 700])
def test_moments_of_rows(kernels: Backend, device: torch.device, dtype: torch.dtype, width: int) -> None:
    random = torch.Generator().manual_seed(0)
    table, kept = (torch.randn(9, width, generator=random, dtype=torch.float64).to(dtype) for _ in range(2))
    kept[3] = table[3]
    found = kernels.moments(table.to(device), kept.to(device)).cpu()
    pairs = zip(table.double().tolist(), kept.double().tolist(), strict=True)
    expected = [
        [sum((a - b) ** 2 for a, b in zip(x, k, strict=True)), sum(a * a for a in x), sum(map(mul, x, k))]
        for x, k in pairs
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), **CLOSE[dtype])
    assert found[3, 0] == 0
