"""What every registered attack promises: it succeeds without the protection, and fails with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedkge.audits.base import ATTACKS, Attack, Row
from fedkge.audits.ranks import OURS
from fedkge.audits.targets import Target, pair
from fedkge.graphs.graph import Axis, Federation, Graph, Names
from fedkge.runs.data import Sources
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import run
from small_federations import experiment

CPU = torch.device("cpu")


def by_heart() -> Graph:
    """Random triples, of which nothing can be learnt but which they are; half of them confidential."""
    random = np.random.default_rng(0)
    rows = random.permutation(np.unique(random.integers(0, [60, 3, 60], (700, 3)), axis=0))
    entities, relations = Names([f"e{i}" for i in range(60)]), Names(["r0", "r1", "r2"], Axis.RELATION)
    return Graph(
        entities, relations, rows[200:], rows[:100], rows[100:200], np.arange(len(rows) - 200) % 2 > 0
    )


TRIPLES: Federation = {"lab": by_heart()}
ENTITIES: Federation = {site: replace(by_heart(), confidential=None) for site in ("north", "south")}
LEARNT: dict[str, Any] = {
    "rounds": 10,
    "model": {"name": "transe", "dim": 32, "margin": 6.0},
    "trainer": {"epochs": 4, "batch_size": 128, "negatives": 16, "lr": 2e-2},
    "evaluate": {"every": 10},
}
STRICT = {"privacy": {"mode": "strict", "noise": 8.0, "delta": 1e-4, "accountant": "rdp"}}
AVERAGED: dict[str, Any] = {"rounds": 1, "method": {"name": "fedep"}, "evaluate": {"every": 1}}


@dataclass(frozen=True)
class Case:
    """What an attack is tried on, and how well it did, from 0, no better than guessing, to 1."""

    federation: Federation
    plain: Mapping[str, Any]
    protected: Mapping[str, Any]
    success: Callable[[Sequence[Row]], float]


def best(rows: Sequence[Row]) -> float:
    return max(2 * row["auc_low"] - 1 for row in rows)


def told_apart(rows: Sequence[Row]) -> float:
    (row,) = (row for row in rows if row["question"] == OURS)
    return float(2 * row["below_low"] - 1)


def recovered(rows: Sequence[Row]) -> float:
    return float(rows[0].get("recovered", 0))


CASES = {
    "membership": Case(TRIPLES, LEARNT, STRICT, best),
    "ranks": Case(TRIPLES, LEARNT, STRICT, told_apart),
    "pairs": Case(ENTITIES, AVERAGED, {"align": {"withhold": "names.txt"}}, recovered),
}


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the names that a protected site does not announce."""
    home = tmp_path_factory.mktemp("attacked")
    (home / "names.txt").write_text("\n".join(TRIPLES["lab"].entities))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        yield home


def target(name: str, federation: Federation, options: Mapping[str, Any]) -> Target:
    """A run that has ended, as it would be opened."""
    one = experiment(**options)
    path = Path(f"{name}-{'-'.join(federation)}")
    sources = Sources.of(one, federation)
    if not path.exists():
        run(one, RunFolder.create(path, one, resume=False), CPU, sources)
    tables = {site: RunFolder.open(path).load_site(site)[0] for site in federation}
    return Target(name, one, sources, sources.named, tables, {})


@pytest.fixture(params=list(ATTACKS))
def attack(request: pytest.FixtureRequest) -> Attack:
    return ATTACKS[request.param]()


@pytest.fixture
def case(attack: Attack) -> Case:
    return CASES[ATTACKS.name_of(attack)]


@pytest.fixture
def targets(case: Case) -> tuple[Target, Target]:
    """The run without the protection, and the one with it."""
    plain = target("plain", case.federation, case.plain)
    return pair(plain, target("protected", case.federation, {**case.plain, **case.protected}))


pytestmark = pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")  # nothing is shared, as is meant


def test_it_succeeds_without_the_protection_and_fails_with_it(
    attack: Attack, case: Case, targets: tuple[Target, Target]
) -> None:
    plain, protected = (case.success(attack.run([one])) for one in targets)
    assert plain > 0.5
    assert protected < 0.2


def test_what_it_finds_is_written_down_and_shown(attack: Attack, targets: tuple[Target, Target]) -> None:
    """Rows are plain and the same every time; tables, words and plots need nothing but rows."""
    pytest.importorskip("plotly")
    from fedkge.reports.pages.audits import attack_page

    rows = attack.run(targets)
    written = json.loads(json.dumps(rows, allow_nan=False))
    assert json.loads(json.dumps(attack.run(targets))) == written
    assert {"plain", "protected"} <= set(attack.words(rows).replace(",", " ").replace(":", " ").split())
    assert len({tuple(attack.shown(row)) for row in rows}) == 1
    assert attack_page("Attacks", {attack: written}) == attack_page("Attacks", {attack: rows})
    assert escape(attack.title) in attack_page("Attacks", {attack: rows})
