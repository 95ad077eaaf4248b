"""What every rule of aggregation promises: who counts, in any order, and how far one site can move a row."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np
import pytest
import torch

from fedkge.aggregation import AGGREGATIONS, Aggregation, Mean, ordered
from fedkge.aggregation.bounded import Bounded, limited
from fedkge.aggregation.median import Median
from fedkge.aggregation.ordered import Ordered
from fedkge.aggregation.trimmed import Trimmed
from fedkge.errors import ConfigError
from fedkge.exchange.rows import Rows

SIZE = 30
ROBUST = [name for name in AGGREGATIONS if name != "mean"]


@pytest.fixture(params=list(AGGREGATIONS))
def rule(request: pytest.FixtureRequest) -> Aggregation:
    return AGGREGATIONS[request.param]()


def rows(
    sites: int = 6, width: int = 5, share: float = 0.6, seed: int = 0, device: str | torch.device = "cpu"
) -> dict[str, Rows]:
    """Some rows of each site, whose norms are unlike the others'; some are far longer than the rest."""
    random, found = torch.Generator().manual_seed(seed), {}
    for number in range(sites):
        ids = (torch.rand(SIZE, generator=random) < share).nonzero()[:, 0]
        length = torch.logspace(-1, 1.5, SIZE)[torch.randint(0, SIZE, (len(ids),), generator=random), None]
        values = torch.randn(len(ids), width, generator=random) * length * (1 + number / 4)
        found[f"site {number}"] = Rows(ids.to(device), values.to(device))
    return found


def slow_longest(rule: Aggregation, sent: Mapping[str, Rows]) -> float:
    if not isinstance(rule, Bounded):
        return inf
    if rule.limit is not None:
        return rule.limit
    found = sorted(
        sorted(float(np.linalg.norm(row)) for row in of.values.double().cpu().numpy())[(len(of) - 1) // 2]
        for of in sent.values()
        if len(of)
    )
    return rule.factor * found[(len(found) - 1) // 2]


def slow(rule: Aggregation, sent: Mapping[str, Rows], longest: float) -> dict[int, tuple[np.ndarray, int]]:
    """Id -> its aggregate and how many sent it, one id and one number at a time."""
    by_id: dict[int, list[np.ndarray]] = {}
    for site in sorted(sent):
        for number, row in zip(
            sent[site].ids.tolist(), sent[site].values.double().cpu().numpy(), strict=True
        ):
            by_id.setdefault(number, []).append(row)
    found = {}
    for number, held in by_id.items():
        if isinstance(rule, Ordered) and len(held) >= 3:
            columns = [sorted(column) for column in zip(*held, strict=True)]
            drop = (len(held) - 1) // 2
            if isinstance(rule, Trimmed):
                drop = max(1, int(rule.share * len(held))) if rule.share else 0
            row = np.array([np.mean(column[drop : len(held) - drop]) for column in columns])
        else:
            row = np.mean([one * min(1.0, longest / max(np.linalg.norm(one), 1e-300)) for one in held], 0)
        found[number] = row, len(held)
    return found


def checked(rule: Aggregation, sent: Mapping[str, Rows]) -> None:
    aggregate, owners = rule.combined(sent, SIZE)
    expected = slow(rule, sent, slow_longest(rule, sent))
    assert aggregate.shape == (SIZE, next(iter(sent.values())).values.shape[1])
    for number in range(SIZE):
        row, count = expected.get(number, (np.zeros(aggregate.shape[1]), 0))
        assert int(owners[number]) == count
        np.testing.assert_allclose(aggregate[number].double().cpu().numpy(), row, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 3, 256])
@pytest.mark.parametrize("sites", [1, 2, 3, 4, 7, 12])
def test_it_is_the_slow_and_obvious_one(
    rule: Aggregation, sites: int, width: int, device: torch.device
) -> None:
    checked(rule, rows(sites, width, share=0.5, device=device))
    checked(rule, rows(sites, width, share=1.0, device=device))


@pytest.mark.parametrize(
    "rule",
    [Bounded(factor=0.5), Bounded(limit=0.3), Median(limit=1.0), Trimmed(share=0.0), Trimmed(share=0.4)],
    ids=str,
)
def test_so_it_is_with_options(rule: Aggregation) -> None:
    for share in (0.4, 1.0):
        checked(rule, rows(11, 4, share))


def test_numpy_and_scipy_agree() -> None:
    trim_mean = pytest.importorskip("scipy.stats").trim_mean
    sent = rows(10, 16, share=1.0)
    every = np.stack([of.values.numpy() for of in sent.values()])
    assert np.array_equal(Median().combined(sent, SIZE)[0].numpy(), np.median(every, 0))
    for share in (0.1, 0.2, 0.25, 0.4):
        found = Trimmed(share=share).combined(sent, SIZE)[0]
        np.testing.assert_allclose(found, trim_mean(every, share), rtol=1e-5, atol=1e-5)
    found = Trimmed(share=0.01).combined(sent, SIZE)[0]
    np.testing.assert_allclose(found, trim_mean(every, 0.1), rtol=1e-5, atol=1e-5)  # one is always dropped


def test_the_order_of_sites_does_not_matter(rule: Aggregation) -> None:
    sent = rows()
    forth, back = (rule.combined(dict(order), SIZE) for order in (sent.items(), reversed(sent.items())))
    assert all(map(torch.equal, forth, back))


def test_neither_do_threads_nor_blocks(rule: Aggregation, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = rows(9, 64)
    whole, threads = rule.combined(sent, SIZE), torch.get_num_threads()
    monkeypatch.setattr(ordered, "BLOCK", 128)
    try:
        torch.set_num_threads(3)
        assert all(map(torch.equal, whole, rule.combined(sent, SIZE)))
    finally:
        torch.set_num_threads(threads)


def test_what_was_sent_stays_as_it_is(rule: Aggregation) -> None:
    sent = rows()
    before = {site: of.values.clone() for site, of in sent.items()}
    rule.combined(sent, SIZE)
    assert all(torch.equal(before[site], of.values) for site, of in sent.items())


def test_one_owner_counts_with_its_row(rule: Aggregation) -> None:
    only = Rows(torch.tensor([2, 7]), torch.tensor([[1.0, -2.0], [1.5, 0.25]], dtype=torch.float64))
    aggregate, owners = rule.combined({"a": only}, SIZE)
    assert aggregate.dtype == torch.float64
    assert torch.equal(aggregate[only.ids], only.values)
    assert owners.sum() == 2


def test_a_site_without_rows_changes_nothing(rule: Aggregation) -> None:
    sent, nothing = rows(), Rows(torch.empty(0, dtype=torch.int64), torch.empty(0, 5))
    assert all(map(torch.equal, rule.combined(sent, SIZE), rule.combined({**sent, "z": nothing}, SIZE)))
    aggregate, owners = rule.combined({"z": nothing}, SIZE)
    assert not aggregate.any()
    assert not owners.any()


@pytest.mark.parametrize("large", [1e9, 1e30])
@pytest.mark.parametrize("sites", [3, 4, 5, 8])
def test_one_site_cannot_move_a_row_far_but_a_mean(rule: Aggregation, sites: int, large: float) -> None:
    """It sends every row, each of which two honest sites have at least."""
    random = torch.Generator().manual_seed(1)
    honest = {
        f"{number}": Rows(torch.arange(SIZE), torch.randn(SIZE, 5, generator=random))
        for number in range(sites - 1)
    }
    longest = max(float(of.values.norm(dim=1).max()) for of in honest.values())
    for bad in (torch.full((SIZE, 5), large), torch.full((SIZE, 5), -large)):
        hostile = {"hostile": Rows(torch.arange(SIZE), bad)}
        aggregate, _ = rule.combined({**honest, **hostile}, SIZE)
        assert aggregate.isfinite().all()
        far = float((aggregate - Mean().combined(honest, SIZE)[0]).norm(dim=1).max())
        assert far > large / 100 if isinstance(rule, Mean) else far < 2 * longest


@pytest.mark.parametrize("name", ROBUST)
def test_a_minority_cannot_move_what_is_typical(name: str) -> None:
    """Nor what becomes of the rows that it shares with one other, however many it sends."""
    rule, honest = AGGREGATIONS[name](), rows(5, share=0.3)
    norms = sorted(sorted(of.values.norm(dim=1).tolist())[(len(of) - 1) // 2] for of in honest.values())
    for large in (0.0, 1e-9, 1e9):
        bad = {f"z{k}": Rows(torch.arange(SIZE), torch.full((SIZE, 5), large)) for k in range(4)}
        assert 2 * norms[0] * (1 - 1e-6) <= rule.longest({**honest, **bad}) <= 2 * norms[-1] * (1 + 1e-6)


def test_where_nothing_is_left_out_it_is_the_mean() -> None:
    sent = rows()
    mean = Mean().combined(sent, SIZE)
    for rule in (Bounded(factor=1e9), Bounded(limit=1e9), Trimmed(share=0.0, factor=1e9)):
        assert all(map(torch.equal, rule.combined(sent, SIZE), mean)), rule
    for other in (Bounded(), Trimmed(factor=1e9), Median(factor=1e9)):
        assert not torch.equal(other.combined(sent, SIZE)[0], mean[0]), other


@pytest.mark.parametrize("name", ["median", "trimmed"])
def test_rows_of_few_owners_are_bounded(name: str) -> None:
    sent = rows(2, share=1.0)
    found, bounded = AGGREGATIONS[name]().combined(sent, SIZE), Bounded().combined(sent, SIZE)
    assert all(map(torch.equal, found, bounded))


def test_some_rows_of_a_round_are_bounded_as_the_whole() -> None:
    sent = rows(4, share=0.5)
    longest = Bounded().longest(sent)
    few = {site: of[of.ids < 3] for site, of in sent.items()}
    for rule in (Bounded(), Median(), Trimmed()):
        whole, part = rule.combined(sent, SIZE)[0], rule.combined(few, SIZE, longest)[0]
        assert torch.equal(whole[:3], part[:3])


def test_long_rows_keep_their_direction() -> None:
    values = torch.tensor([[3.0, 4.0], [0.3, 0.4], [3e30, 4e30], [0.0, 0.0]])
    found = limited({"a": Rows(torch.arange(4), values)}, 1.0)["a"].values
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.6, 0.8], [0.0, 0.0]]))
    assert torch.equal(found[1], values[1])


def test_only_the_mean_is_content_with_sums() -> None:
    assert [name for name in AGGREGATIONS if AGGREGATIONS[name].sums] == ["mean"]
    assert [name for name in AGGREGATIONS if AGGREGATIONS[name].averages] == ["bounded", "mean"]


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("bounded", {"factor": 0.0}),
        ("median", {"factor": float("nan")}),
        ("trimmed", {"limit": -1.0}),
        ("trimmed", {"share": 0.5}),
        ("trimmed", {"share": -0.1}),
    ],
)
def test_bad_options(name: str, bad: dict[str, float]) -> None:
    (option,) = bad
    with pytest.raises(ConfigError, match=f"{option}: expected a number .* got {bad[option]}"):
        AGGREGATIONS[name](**bad)
