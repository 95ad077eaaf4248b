"""Examples are experiments, and the presets of a paper are fair: one budget for every method."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from fedkge.config import read_toml
from fedkge.graphs.catalogue import DATASETS
from fedkge.methods import METHODS
from fedkge.runtimes.experiment import Experiment

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.toml"))
FEDLU = sorted(EXAMPLES.glob("fedlu-2023-*.toml"))
METHOD_OF = {"fede": "fedep"}  # FedLU's name -> ours, where it is another
ROWS = ("single", "collective", "fede", "fedprox", "fedec")


def subject(path: Path) -> str:
    """A preset's data set and model."""
    return path.stem.rpartition("-")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples_parse(path: Path) -> None:
    experiment = Experiment.parse(read_toml(path))
    assert str(experiment.data).lower() in DATASETS
    *_, name = path.stem.split("-")
    if path.stem != "atlas":
        assert METHODS.name_of(experiment.method) == METHOD_OF.get(name, name)


def test_there_is_a_preset_for_every_row() -> None:
    found = {path.stem for path in FEDLU}
    assert found == {
        f"fedlu-2023-fb15k237-{data}-{model}-{method}"
        for data in ("c3", "r10")
        for model in ("transe", "rotate", "complex")
        for method in ROWS
    }


@pytest.mark.parametrize("of", sorted({subject(path) for path in FEDLU}))
def test_presets_differ_in_the_method_alone(of: str) -> None:
    configs: list[dict[str, Any]] = [
        Experiment.parse(read_toml(path)).config() for path in FEDLU if subject(path) == of
    ]
    for config in configs:
        del config["method"]
    assert len(configs) == len(ROWS)
    assert [next(group) for _, group in groupby(configs)] == configs[:1]


@pytest.mark.parametrize("path", FEDLU, ids=lambda path: path.stem)
def test_the_budget(path: Path) -> None:
    experiment = Experiment.parse(read_toml(path))
    trainer = experiment.trainer
    assert (experiment.model.dim, trainer.batch_size, trainer.negatives) == (256, 1024, 256)
    assert (trainer.lr, trainer.sides, trainer.epochs, experiment.rounds) == (1e-4, "both", 3, 200)
    assert (experiment.evaluate.every, experiment.evaluate.patience) == (5, 3)
    config = experiment.config()
    model = config["model"]["name"]
    assert config["model"]["margin"] == {"transe": 10.0, "rotate": 9.0, "complex": 9.0}[model]
    assert model in path.stem
    assert config["data"]["name"].lower().replace("fb15k-237", "fb15k237") in path.stem
    assert trainer.subsampling
    assert trainer.loss == ("self-adversarial" if model == "rotate" else "logistic")
