"""Random numbers are the same bits on every backend, and negatives are uniform over what is no answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from fedkge import randomness
from fedkge.kernels import Backend, Draw, backend, reference

KNOWN = [  # key, counter, answer: the known answers that Philox's authors publish (Random123, kat_vectors)
    (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (2**64 - 1, (2**32 - 1,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        0x299F31D0_A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
CLOCKS = [(0, 0), (3, 7), (2**31 + 5, 2**32 - 1)]


@pytest.fixture(scope="module")
def kernels(device: torch.device) -> Backend:
    return backend(device)


def signed(key: int) -> int:
    return key - 2**64 if key >= 2**63 else key


@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN)
def test_philox_gives_the_published_answers(
    key: int, counter: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    assert tuple(randomness.philox(key, np.array(counter, np.uint32))) == answer
    bits = reference.philox(torch.tensor(signed(key)), tuple(map(torch.tensor, counter)))
    assert tuple(map(int, bits)) == answer


@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN)
def test_compiled_philox_gives_the_published_answers(
    key: int, counter: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    pytest.importorskip("numba")
    from fedkge.kernels.cpu import sampling

    assert tuple(map(int, sampling.philox(np.uint64(key), *map(np.uint64, counter)))) == answer


def test_philox_in_torch_equals_philox_in_numpy() -> None:
    random = np.random.default_rng(0)
    for key in (0, 1, 2**63, 2**64 - 1, randomness.key(0, "site", "negatives")):
        counter = random.integers(2**32, size=(500, 4), dtype=np.uint32)
        expected = randomness.philox(key, counter)
        found = reference.philox(torch.tensor(signed(key)), torch.from_numpy(counter).long().unbind(-1))
        assert torch.equal(torch.stack(found, -1), torch.from_numpy(expected).long())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 4, 130])
def test_uniform(kernels: Backend, device: torch.device, width: int, dtype: torch.dtype) -> None:
    keys = torch.from_numpy(randomness.name_keys(f"name {i}" for i in range(50)).view(np.int64))
    assert keys.min() < 0 < keys.max()
    for key in (0, randomness.key(1, "first rows"), 2**64 - 1):
        found = kernels.uniform(key, keys.to(device), width, dtype).cpu()
        counter = np.zeros((len(keys), width, 4), np.uint32)
        counter[..., 0] = np.arange(width) // 4
        counter[..., 2:] = keys.numpy().view(np.uint32).reshape(-1, 1, 2)
        lane = np.arange(width) % 4
        bits = np.take_along_axis(randomness.philox(key, counter), lane[None, :, None], -1)[..., 0]
        assert torch.equal(found, torch.from_numpy((bits >> 8) / 2**24).to(dtype))
        assert torch.equal(found, reference.uniform(key, keys, width, dtype))
        assert ((found >= 0) & (found < 1)).all()


def test_uniform_of_nothing(kernels: Backend, device: torch.device) -> None:
    none = torch.empty(0, dtype=torch.int64, device=device)
    assert kernels.uniform(0, none, 5, torch.float32).shape == (0, 5)


@pytest.mark.parametrize("clock", CLOCKS)
def test_order_keys(kernels: Backend, device: torch.device, clock: tuple[int, int]) -> None:
    keys = torch.tensor([5, -3, 2**62])
    site = torch.tensor([0] * 300 + [1] * 200 + [2])
    local = torch.cat([torch.arange(n) for n in (300, 200, 1)])
    visit, epoch = clock[0], torch.tensor(clock[1], device=device)
    found = kernels.order_keys(keys.to(device), site.to(device), local.to(device), visit, epoch).cpu()
    assert torch.equal(found, reference.order_keys(keys, site, local, visit, epoch.cpu()))
    order = found.argsort()
    assert torch.equal(site[order], site), "sites stay apart"
    assert not torch.equal(order[:300], torch.arange(300)), "items are shuffled"
    second = keys[1:2].to(device), site[300:500].to(device) - 1, local[300:500].to(device)
    alone = kernels.order_keys(*second, visit, epoch)
    assert torch.equal(alone.cpu().argsort(), order[300:500] - 300), "whatever trains beside them"
    later = kernels.order_keys(keys.to(device), site.to(device), local.to(device), visit, epoch ^ 1)
    assert not torch.equal(later.cpu(), found)


def draw(sizes: list[int], rows: list[tuple[int, set[int]]], keys: list[int]) -> Draw:
    """Rows (site, local ids of its answers), each at its position among the rows of its site."""
    first = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    seen = [0] * len(sizes)
    position, known, ends = [], [], [0]
    for site, answers in rows:
        position.append(seen[site])
        seen[site] += 1
        known += [answer - j for j, answer in enumerate(sorted(answers))]
        ends.append(len(known))
    site, lo, hi = [site for site, _ in rows], ends[:-1], ends[1:]
    arrays = (keys, first, sizes, known, site, position, lo, hi)
    return Draw(*(torch.tensor(np.array(array, np.int64)) for array in arrays))


def filled(
    kernels: Backend, device: torch.device, one: Draw, n: int, clock: tuple[int, int] = (0, 0)
) -> Tensor:
    """The negatives `[b, n]`; the first column, which holds the answer itself, must stay as it is."""
    index = torch.full((len(one.site), 1 + n), -7, device=device)
    on_device = Draw(*(getattr(one, name).to(device) for name in Draw.__slots__))
    kernels.negatives_(index, on_device, torch.tensor(clock, device=device))
    assert (index[:, 0] == -7).all()
    return index[:, 1:].cpu()


def random_rows(sizes: list[int], count: int, seed: int) -> list[tuple[int, set[int]]]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        site = int(random.integers(len(sizes)))
        answers = random.permutation(sizes[site])[: random.integers(sizes[site] + 1)]
        rows.append((site, set(answers.tolist())))
    return rows


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("n", [0, 1, 4, 7, 130])
def test_negatives_equal_reference(
    kernels: Backend, device: torch.device, n: int, clock: tuple[int, int]
) -> None:
    sizes = [5, 1, 40, 3]
    one = draw(sizes, random_rows(sizes, 60, seed=n), keys=[3, -9, 2**62, 0])
    expected = torch.full((60, 1 + n), -7)
    reference.negatives_(expected, one, torch.tensor(clock))
    assert torch.equal(filled(kernels, device, one, n, clock), expected[:, 1:])


def test_negatives_are_no_answers_and_of_their_own_site(kernels: Backend, device: torch.device) -> None:
    sizes = [5, 1, 40, 3]
    rows = random_rows(sizes, 200, seed=0)
    one = draw(sizes, rows, keys=[1, 2, 3, 4])
    for (site, answers), found in zip(rows, filled(kernels, device, one, 50), strict=True):
        local = set((found - one.first[site]).tolist())
        assert local <= set(range(sizes[site]))
        if len(answers) < sizes[site]:
            assert not local & answers


def test_the_only_non_answer_is_drawn(kernels: Backend, device: torch.device) -> None:
    everyone = set(range(30))
    one = draw([30], [(0, everyone - {i}) for i in range(30)], keys=[8])
    assert torch.equal(filled(kernels, device, one, 9), torch.arange(30)[:, None].expand(30, 9))


def test_nothing_but_answers_draws_from_all(kernels: Backend, device: torch.device) -> None:
    filtered = draw([6], [(0, set(range(6)))] * 40, keys=[8])
    plain = draw([6], [(0, set())] * 40, keys=[8])
    found = filled(kernels, device, filtered, 25)
    assert set(found.flatten().tolist()) == set(range(6))
    assert torch.equal(found, filled(kernels, device, plain, 25))


@pytest.mark.parametrize("answers", [set(), {0}, {6}, {1, 2, 5}, {0, 1, 2, 3, 5, 6}])
def test_negatives_are_uniform_over_the_non_answers(
    kernels: Backend, device: torch.device, answers: set[int]
) -> None:
    found = filled(kernels, device, draw([7], [(0, answers)] * 1000, keys=[8]), 42)
    count = torch.bincount(found.flatten(), minlength=7).double()
    free = [i for i in range(7) if i not in answers]
    expected = found.numel() / len(free)
    chi_square = ((count[free] - expected) ** 2 / expected).sum()
    assert chi_square < 27.9  # p = 1e-4 for six degrees of freedom, the most there are here
    assert count.sum() == count[free].sum()


def test_negatives_do_not_depend_on_the_sites_beside(kernels: Backend, device: torch.device) -> None:
    sizes, keys = [9, 12, 7], [11, 22, 33]
    rows = random_rows(sizes, 90, seed=3)
    together = draw(sizes, rows, keys)
    found = filled(kernels, device, together, 13, (5, 2**31 + 1))
    for site, size in enumerate(sizes):
        alone = draw(
            [size], [(0, answers) for owner, answers in rows if owner == site], keys[site : site + 1]
        )
        mine = found[together.site == site] - together.first[site]
        assert torch.equal(filled(kernels, device, alone, 13, (5, 2**31 + 1)), mine)


def test_negatives_are_fresh_at_every_tick_row_and_place(kernels: Backend, device: torch.device) -> None:
    one = draw([10_000], [(0, set())] * 50, keys=[4])
    ticks = [filled(kernels, device, one, 40, clock) for clock in ((0, 0), (0, 1), (1, 0))]
    distinct = torch.stack(ticks).unique().numel()
    assert distinct == pytest.approx(10_000 * (1 - np.exp(-0.6)), rel=0.03)  # 6,000 draws with replacement
