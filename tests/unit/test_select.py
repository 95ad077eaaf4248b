"""How rows are chosen and counted, against exact numbers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedkge.exchange.channel import channel
from fedkge.exchange.rows import Rows
from fedkge.exchange.select import TopK, portion, turned
from fedkge.exchange.svd import Svd
from fedkge.exchange.values import values
from fedkge.graphs.graph import Axis
from fedkge.nodes.terms import Participation
from small_federations import played, small_federation

SITES = small_federation()


@pytest.mark.parametrize("change", [1e-2, 1e-3, 1e-4, 1e-5])
def test_up_goes_what_turned_furthest_however_little_that_is(change: float, device: torch.device) -> None:
    random = torch.Generator().manual_seed(0)
    last = torch.randn(1000, 64, generator=random)
    moved = change * torch.randn(1000, 64, generator=random) * torch.rand(1000, 1, generator=random)
    moved[::3] = 0
    now = last + moved
    exact = 1 - torch.nn.functional.cosine_similarity(now.double(), last.double())
    at = TopK(p=0.2).up(Rows(torch.arange(1000, device=device), now.to(device)), last.to(device), 1)
    assert at is not None
    right = set(exact.topk(200).indices.tolist()) & set(at.tolist())
    assert len(right) >= (190 if change < 1e-4 else 199)  # of 200; a bit of float32 is 1e-7
    found = turned(now.to(device), last.to(device)).cpu()
    assert not found[::3].any(), "what stays as it is has not turned"
    assert bool((found >= 0).all())


def test_rows_of_zeros_and_longer_rows(device: torch.device) -> None:
    zero, one = torch.zeros(1, 4, device=device), torch.tensor([[0.3, -0.7, 2.0, 1e-3]], device=device)
    expected = {(zero, zero): 0.0, (zero, one): 1.0, (one, zero): 1.0, (one, one): 0.0, (-one, one): 2.0}
    for (now, then), change in expected.items():
        assert turned(now, then).tolist() == [pytest.approx(change)]
    assert float(turned(5 * one, one)) < 1e-12, "longer is not turned"
    assert bool(turned(one * torch.nan, one).isnan().all()), "a diverged row is seen"


@pytest.mark.parametrize(
    ("part", "whole", "count"),
    [(0.07, 100, 7), (0.4, 98, 40), (0.7, 10, 7), (0.1, 30, 3), (1.0, 13, 13), (1e-15, 9, 1), (0.4, 0, 0)],
)
def test_shares_are_rounded_up_and_not_by_what_floats_add(part: float, whole: int, count: int) -> None:
    assert portion(part, whole) == TopK(p=part).count(whole) == count
    if whole:
        assert Participation(quorum=part).needed(whole) == count


def test_shares_are_those_of_exact_fractions() -> None:
    for per_cent, whole in product(range(1, 101), range(1, 300)):
        assert portion(per_cent / 100, whole) == ceil(Fraction(per_cent, 100) * whole)


def test_values_do_not_depend_on_how_rows_are_written(tmp_path: Path) -> None:
    """Also where some rows are changes and others whole, in rounds of some rows and of all."""

    def counted(name: str, codec: dict[str, Any]) -> list[tuple[int, int]]:
        options = {"method": {"name": "fedep"}, "select": {"name": "topk", "p": 0.4, "s": 2}, "rounds": 6}
        run = played(tmp_path / name, SITES, codec=codec, **options)
        return [(r["up_values"], r["down_values"]) for r in run.record.tally.summary()["per_round"]]

    plain = counted("plain", {"name": "float32"})
    assert counted("int8", {"name": "int8"}) == plain
    assert counted("changes", {"name": "int8", "delta": True}) == plain


def test_whole_rows_count_whole_beside_factors() -> None:
    codec, ids = Svd(), torch.arange(4)
    hub, site = (
        channel(codec, {Axis.ENTITY: ids}, {Axis.ENTITY: 256}, hub=is_hub) for is_hub in (True, False)
    )

    def numbers(body: Mapping[str, Tensor]) -> int:
        return values(body, {Axis.ENTITY: 4}, codec, {Axis.ENTITY: 256})

    rows = Rows(ids, torch.randn(4, 256, generator=torch.Generator().manual_seed(0)))
    assert numbers(site.encode({Axis.ENTITY: rows}, 2)) == 4 * 256
    site.decode(hub.encode({Axis.ENTITY: rows[ids[:3]]}, 4), 4)
    assert numbers(site.encode({Axis.ENTITY: rows}, 4)) == 3 * 205 + 256
    assert numbers(site.encode({Axis.ENTITY: rows[ids[1:]]}, 4)) == 2 * 205 + 256 + 4


def test_where_the_hub_knows_everyones_last_rows_all_means_travel_down(tmp_path: Path) -> None:
    options = {"select": {"name": "topk", "p": 0.3}, "rounds": 4}
    last = played(tmp_path, SITES, method={"name": "fedep", "absent": "last"}, **options)
    sums = last.record.tally.summary()["per_round"][-1]
    every = 8 * sum(len(node.site.shared[Axis.ENTITY].ids) for node in last.sites.values())
    assert sums["up_values"] < every / 2
    assert sums["down_values"] > every / 2
