"""Every method that trains site by site can be made to forget, by every mode."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedkge.audits.asked import Questions
from fedkge.audits.standing import standing
from fedkge.audits.telling import membership
from fedkge.errors import ConfigError
from fedkge.methods import METHODS
from fedkge.methods.unlearn import Unlearn
from fedkge.runs.holdings import Holdings
from unlearning import QUICK, forgetting, some, trained

BY_SITE = [name for name in METHODS if name != "collective" and not METHODS[name].hubless]


@pytest.mark.parametrize("method", BY_SITE)
def test_a_run_of_every_method_forgets(tmp_path: Path, method: str) -> None:
    held = trained(tmp_path / "raw", relations_in_common=True, method={"name": method})
    triples = some(held, "a")
    done = forgetting(held, tmp_path / "new", triples, how=QUICK)
    new = Holdings.open(done.folder.path)
    graph = new.sources.named["a"]
    left = {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.all().tolist()}
    assert not left & set(triples)
    assert set(new.summary["sites"]) == {"a", "b", "c"}
    assert new.experiment.method == held.experiment.method
    asked = Questions.of(done.erasure, new)
    before, after = asked.tables(held), asked.tables(new)
    for site in after:
        assert torch.isfinite(after[site].entities).all()
        assert not torch.equal(before[site].entities, after[site].entities)
    found = standing(asked, after)
    assert found["local"]["forget"]["count"] == 2 * len(triples)
    assert ("hub" in found) == bool(new.experiment.method.shares)
    assert membership(asked, after, before=before)


def test_peers_are_trained_again_or_refused(tmp_path: Path) -> None:
    held = trained(tmp_path / "raw", relations_in_common=True, method={"name": "fkge", "first": 1})
    triples = some(held, "a")
    with pytest.raises(ConfigError, match=r"the method has no hub.*expected mode exact"):
        forgetting(held, tmp_path / "new", triples, how=QUICK)
    done = forgetting(held, tmp_path / "again", triples, how=Unlearn("exact"))
    graph = Holdings.open(done.folder.path).sources.named["a"]
    left = {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.all().tolist()}
    assert not left & set(triples)


@pytest.mark.parametrize("method", ["single", "fede", "fedlu"])
def test_mode_paper_forgets(tmp_path: Path, method: str) -> None:
    held = trained(tmp_path / "raw", method={"name": method})
    how = Unlearn("paper", epochs=2, decay=2, rounds=1)
    done = forgetting(held, tmp_path / "new", some(held, "a"), how=how)
    assert done.sites["a"]["0"]["interference"]["epochs"] == 2
    assert done.sites["a"]["0"]["decay"]["epochs"] == 2
    assert set(done.sites) == {"a"}
