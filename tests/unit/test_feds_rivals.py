"""FedS's rivals: fewer dimensions, and two models that teach each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from fedkge.errors import ConfigError
from fedkge.graphs.graph import Axis
from fedkge.methods.fedepl import FedEPL
from fedkge.methods.fedkd import FedKD
from fedkge.models import MODELS, Side, Tables
from fedkge.training import Batch, Trainer
from small_federations import assert_same, experiment, federated, played, result, small_federation

SITES = small_federation()


@pytest.mark.parametrize(("p", "dim"), [(0.4, 135), (0.7, 196), (1.0, 256)])
def test_fedepl_has_the_papers_dimensions(p: float, dim: int) -> None:
    assert FedEPL(p=p).embedding(MODELS["transe"](dim=256)).dim == dim


def test_fedepl_is_fedep_in_that_dimension(tmp_path: Path) -> None:
    dim = FedEPL().embedding(experiment().model).dim
    assert dim < 8
    assert_same(
        played(tmp_path / "l", SITES, method={"name": "fedepl"}),
        played(tmp_path / "ep", SITES, method={"name": "fedep"}, model={"dim": dim}),
    )


def slow_kd(large: torch.Tensor, small: torch.Tensor, trainer: Trainer) -> torch.Tensor:
    own = trainer.losses(large) + trainer.losses(small)
    h, l = large.softmax(-1), small.softmax(-1)  # noqa: E741
    both = F.kl_div(h.log(), l, reduction="none").sum(-1) + F.kl_div(l.log(), h, reduction="none").sum(-1)
    return own + both / own


def test_the_loss_of_fedkd_is_the_papers() -> None:
    generator = torch.Generator().manual_seed(0)
    model, trainer = MODELS["distmult"](dim=6), Trainer()
    tables = Tables(model, *torch.randn(2, 9, 6, generator=generator))
    tables.second = Tables(MODELS["distmult"](dim=3), *torch.randn(2, 9, 3, generator=generator))
    index = torch.randint(0, 9, (4, 5), generator=generator)
    anchor, relation, site = index[:, 1], index[:, 2], torch.zeros(4, dtype=torch.int64)
    batch = Batch(Side.TAIL, anchor, relation, index, site, torch.full((4,), 0.25))
    large, small = (one.scores(anchor, relation, index, Side.TAIL) for one in (tables, tables.second))
    torch.testing.assert_close(
        FedKD(small=3).objective(trainer, tables, batch, {}), slow_kd(large, small, trainer)
    )


def kd_of(large: list[float], small: list[float], trainer: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss [1] of a triple whose scores by the two models these are, and the large model's gradient."""
    row = torch.tensor([[1.0]])
    entities, second = (torch.tensor([[1.0], *([one] for one in found)]) for found in (large, small))
    tables = Tables(MODELS["distmult"](dim=1), entities.requires_grad_(), row)
    tables.second = Tables(MODELS["distmult"](dim=1), second, row)
    index, zero = torch.arange(1, 1 + len(large))[None], torch.zeros(1, dtype=torch.int64)
    batch = Batch(Side.TAIL, zero, zero, index, zero, torch.ones(1))
    losses = FedKD(small=1).objective(trainer, tables, batch, {})
    losses.sum().backward()
    assert entities.grad is not None
    return losses.detach(), entities.grad


@pytest.mark.parametrize("own", [0.0, 2.0**-23], ids=["nothing", "less than rounding"])
def test_models_teach_each_other_nothing_where_no_loss_is_left(own: float) -> None:
    """The losses of both are what the sum of divergences is divided by; a margin loss is often 0."""
    trainer = Trainer(loss="margin", ranking_margin=1.0 + own)
    loss, gradient = kd_of([1.0, 0.0, -3.0], [2.0, -1.0, 0.0], trainer)
    assert (loss < 1e-7).all()
    assert (gradient.abs() <= 1).all(), "what the margin loss by itself may have at most"
    loss, gradient = kd_of([0.5, 0.0, -3.0], [2.0, -1.0, 0.0], trainer)
    assert (loss > 0.25).all(), "0.5 / 2 and the divergences by it"
    assert (gradient.abs() > 0.5).any()


def test_fedkd_trains_by_a_margin_loss(tmp_path: Path) -> None:
    run = played(tmp_path, SITES, method={"name": "fedkd"}, trainer={"loss": "margin", "chunk": 16}, rounds=2)
    for stack in run.stack_of.values():
        assert all(table.isfinite().all() for _, table in stack.tables.named().values())


def test_only_the_small_model_travels_and_both_are_measured(tmp_path: Path) -> None:
    run = federated(tmp_path, SITES, method={"name": "fedkd", "small": 3}, rounds=2)
    before = {n: s.sites[n].tables.entities.clone() for n, s in run.stack_of.items()}
    run.play()
    shared = sum(len(site.site.shared[Axis.ENTITY].ids) for site in run.sites.values())
    assert run.record.tally.summary()["up_values"] == 2 * shared * 3
    for name, stack in run.stack_of.items():
        tables = stack.sites[name].tables
        assert tables.second is not None
        assert (tables.entities.shape[1], tables.second.entities.shape[1]) == (8, 3)
        assert not torch.equal(tables.entities, before[name])
    found = result(run).metrics
    assert set(found) == {"valid", "test", "test_small"}
    assert set(found["test_small"]) == set(SITES)
    assert found["test_small"]["a"] != found["test"]["a"]


def test_a_small_model_is_no_larger(tmp_path: Path) -> None:
    sizes = [FedKD().second(MODELS["transe"](dim=dim)).model.dim for dim in (256, 8, 1)]
    assert sizes == [192, 6, 1]
    with pytest.raises(ConfigError, match=r"method\.small: expected 1 to 8, the model's dim, got 9"):
        federated(tmp_path, SITES, method={"name": "fedkd", "small": 9})
