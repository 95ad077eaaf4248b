"""Examples are experiments, and the presets of a paper are fair: one budget for every method."""

from __future__ import annotations

from itertools import groupby
from math import isqrt
from pathlib import Path
from re import findall
from typing import Any

import pytest

from fedkge.config import following, read_toml, variants
from fedkge.graphs.catalogue import DATASETS
from fedkge.methods import METHODS
from fedkge.runs.experiment import Experiment
from fedkge.training.cadence import Cadence

EXAMPLES = Path(__file__).parents[2] / "examples"
ALL = {
    f"{path.stem}-{name}" if name else path.stem: following(options, Path("runs"))
    for path in sorted(EXAMPLES.glob("*.toml"))
    for name, options in variants(read_toml(path)).items()
}  #: every experiment, as FILE-VARIANT


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_comments_name_pages_and_sections_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("\n# ", " ")
    for page, section in findall(r'(docs/[a-z-]+\.md)(?:, "([^"]+)")?', text):
        found = (EXAMPLES.parent / page).read_text(encoding="utf-8")
        assert not section or f"\n## {section}\n" in found, f"{page} has no section {section!r}"


def beginning(prefix: str) -> list[str]:
    return [name for name in ALL if name.startswith(prefix)]


FEDLU, L3, SA = beginning("fedlu-2023-"), beginning("fedkge-l3-"), beginning("fedkge-sa-")
FEDS, PFEDEG, DPKGE = beginning("feds-2024-"), beginning("pfedeg-2024-"), beginning("dpkge-2022-")
FRONTIER = beginning("fedkge-fb15k237-transe-privacy-")
PRINTED = {"printed10": 10.0, "printed20": 20.0, "printed50": 50.0}  # FedLU as printed: margins
METHOD_OF = {
    "svd": "fedep",
    "fedepkept": "fedep",
    **dict.fromkeys(PRINTED, "fedlu"),
}  # variants that are not named after one
ROWS = ("single", "collective", "fedep", "fedprox", "fedec", "fedlu", *PRINTED)


def subject(name: str) -> str:
    """A preset's data set and model."""
    return name.rpartition("-")[0]


@pytest.mark.parametrize("path", ALL)
def test_examples_parse(path: str) -> None:
    experiment = Experiment.parse(ALL[path])
    assert str(experiment.data).lower() in DATASETS
    *_, name = path.split("-")
    if path not in (*DPKGE, *FRONTIER) and not path.startswith(("atlas", "joining")):
        assert METHODS.name_of(experiment.method) == METHOD_OF.get(name, name)


def test_there_is_a_preset_for_every_row() -> None:
    found = set(FEDLU)
    assert found == {
        f"fedlu-2023-fb15k237-{data}-{model}-{method}"
        for data in ("c3", "c10", "r3", "r10")
        for model in ("transe", "rotate", "complex")
        for method in ROWS
    }


@pytest.mark.parametrize("of", sorted({subject(path) for path in (*FEDLU, *L3, *SA)}))
def test_presets_differ_in_the_method_alone(of: str) -> None:
    configs: list[dict[str, Any]] = [
        Experiment.parse(ALL[path]).config() for path in (*FEDLU, *L3, *SA) if subject(path) == of
    ]
    for config in configs:
        if config.pop("method").get("relations") == "local":  # as printed, with a margin of its own
            config["model"]["margin"] = configs[0]["model"]["margin"]
    assert len(configs) == {"fedkge-l3": 7, "fedkge-sa": 6}.get(of[:9], len(ROWS))
    assert [next(group) for _, group in groupby(configs)] == configs[:1]


@pytest.mark.parametrize("path", [*L3, *SA])
def test_rivals_restart_as_fedlu_does(path: str) -> None:
    """Moments are kept over rounds by all methods of an improved setting, or by none that average."""
    methods = {
        name.rpartition("-")[2]: Experiment.parse(ALL[name]).config()["method"]
        for name in ALL
        if subject(name) == subject(path)
    }
    rivals = {
        name: of["restart"] for name, of in methods.items() if name in ("fedepkept", "fedprox", "fedec")
    }
    assert set(rivals.values()) == {methods["fedlu"]["restart_global"]}


@pytest.mark.parametrize("path", FEDLU)
def test_the_budget(path: str) -> None:
    experiment = Experiment.parse(ALL[path])
    trainer = experiment.trainer
    assert (experiment.model.dim, trainer.batch_size, trainer.negatives) == (256, 1024, 256)
    assert (trainer.lr, trainer.sides, trainer.epochs, experiment.rounds) == (1e-4, "both", 3, 200)
    assert (experiment.evaluate.every, experiment.evaluate.patience) == (5, 3)
    config = experiment.config()
    model = config["model"]["name"]
    first = 9.0 if "237-r" in config["data"]["name"].lower() else 7.0
    usual = {"transe": 10.0, "rotate": 9.0, "complex": first}[model]
    assert config["model"]["margin"] == PRINTED.get(path.rpartition("-")[2], usual)
    assert model in path
    assert config["data"]["name"].lower().replace("fb15k-237", "fb15k237") in path
    assert trainer.subsampling
    assert trainer.loss == ("self-adversarial" if model == "rotate" else "logistic")


@pytest.mark.parametrize("path", [path for path in FEDLU if path.rpartition("-")[2] in PRINTED])
def test_fedlu_as_printed(path: str) -> None:
    """Eqs. 5 to 11: from the first round on, with the paper's mu, relations by the local table alone."""
    method = Experiment.parse(ALL[path]).config()["method"]
    found = {key: method[key] for key in ("name", "mu", "relations", "when", "temperature")}
    asked = {"name": "fedlu", "mu": 2.0, "relations": "local", "when": "always", "temperature": 1.0}
    assert found == asked


# PFedEG


def test_there_is_a_preset_of_pfedeg_and_its_rivals_for_every_data_set_and_model() -> None:
    assert set(PFEDEG) == {
        f"pfedeg-2024-{data}-{model}-{method}"
        for data in ("fb15k237-r3", "fb15k237-r10", "nell995-r3")
        for model in ("transe", "rotate", "complex")
        for method in ("single", "collective", "fede", "fedep", "fedec", "pfedeg")
    }


@pytest.mark.parametrize("of", sorted({subject(path) for path in PFEDEG}))
def test_pfedeg_and_its_rivals_have_one_budget(of: str) -> None:
    found = [Experiment.parse(ALL[path]).config() for path in PFEDEG if subject(path) == of]
    methods = [config.pop("method") for config in found]
    assert all(config == found[0] for config in found)
    assert len({method["name"] for method in methods}) == 6


@pytest.mark.parametrize("path", PFEDEG)
def test_the_settings_of_pfedeg(path: str) -> None:
    experiment = Experiment.parse(ALL[path])
    trainer, config = experiment.trainer, experiment.config()
    assert (experiment.model.dim, config["model"]["margin"], trainer.lr) == (128, 10.0, 1e-3)
    assert (trainer.batch_size, trainer.negatives, trainer.epochs, trainer.sides) == (512, 256, 3, "tail")
    assert (trainer.loss, trainer.temperature, trainer.optimizer) == ("self-adversarial", 1.0, "adam")
    asked = {"every": 5, "patience": 5, "rule": "drops", "sides": "tail", "keep": "together", "sure": 0.0}
    assert config["evaluate"] == asked
    assert config["model"]["name"] in path
    name = config["data"]["name"].lower()
    assert name.replace("fb15k-237", "fb15k237").replace("nell-995", "nell995") in path
    if config["method"]["name"] == "pfedeg":
        assert config["method"]["beta"] == (0.0005 if config["model"]["name"] == "complex" else 0.003)
        assert experiment.participation.fraction == 1.0


# FedS


def test_there_is_a_preset_for_every_rival_of_feds() -> None:
    rivals = ("fedep", "feds", "fedepl", "fedkd", "svd", "svdplus")
    subjects = [
        f"feds-2024-fb15k237-{data}-{model}" for data in ("r3", "r10") for model in ("transe", "rotate")
    ]
    own = {f"{subject}-{name}" for name in ("single", *rivals, "fedternary") for subject in subjects}
    better = ("collective", "fedprox", "fedec", "fedlu")
    beside = {f"{subject}-{name}" for name in better for subject in subjects if "transe" in subject}
    tables = {f"feds-2024-fb15k237-{data}-complex" for data in ("r3", "r10")}  # II to IV
    third = {f"{subject}-{name}" for subject in tables for name in ("single", "fedep", "feds", "fedepl")}
    assert set(FEDS) == own | beside | third


@pytest.mark.parametrize("path", FEDS)
def test_rivals_of_feds_have_one_budget(path: str) -> None:
    config = Experiment.parse(ALL[path]).config()
    data, model, name = path.split("-")[-3:]
    expected = Experiment.parse(ALL[f"feds-2024-fb15k237-{data}-{model}-fedep"]).config()
    if name == "svd":
        assert config.pop("codec")["name"] == "svd"
        del expected["codec"]
    del config["method"], expected["method"]
    assert config == expected


# DPKGE


MODES = ("fulldp", "off", "paper", "strict", "u-only")
SUBJECTS = sorted(
    {path.removesuffix(f"-{mode}") for mode in MODES for path in DPKGE if path.endswith(f"-{mode}")}
)


@pytest.mark.parametrize("subject", [*SUBJECTS, "fedkge-fb15k237-transe-privacy"])
def test_presets_differ_in_their_protection_alone(subject: str) -> None:
    named = {mode: ALL[path] for mode in MODES if (path := f"{subject}-{mode}") in ALL}
    experiments = {name: Experiment.parse(options) for name, options in named.items()}
    assert {name: one.privacy.mode for name, one in experiments.items()} == {name: name for name in named}
    assert {"fulldp", "off", "paper", "u-only"} <= named.keys()
    configs = [one.config() for one in experiments.values()]
    for config in configs:
        del config["privacy"]
    assert all(config == configs[0] for config in configs)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_presets_of_dpkge_have_the_papers_batches_and_delta(subject: str) -> None:
    experiment = Experiment.parse(ALL[f"{subject}-paper"])
    counts = DATASETS[str(experiment.data.name)].counts
    assert counts is not None
    assert experiment.trainer.batch_size == isqrt(counts[0])
    assert experiment.privacy.delta == pytest.approx(1 / counts[0], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "triples", "epsilon"), [("paper", 136_058, 10.08), ("fulldp", 272_115, 6.86)]
)
def test_presets_of_dpkge_cost_what_the_paper_says(name: str, triples: int, epsilon: float) -> None:
    """Table 7; half of FB15k-237's 272,115 triples are confidential, or all."""
    experiment = Experiment.parse(ALL[f"dpkge-2022-fb15k237-transe-{name}"])
    privacy = experiment.privacy
    cadence = Cadence.of(experiment.trainer, privacy, triples)
    epochs = experiment.rounds * experiment.trainer.epochs
    assert (cadence.expected, cadence.steps) == (int(272_115**0.5), triples // 521)
    assert privacy.noise is not None
    assert privacy.delta == pytest.approx(1 / 272_115, rel=1e-4)
    spent = privacy.counted_by.epsilon(
        [cadence.release(privacy, privacy.noise, epochs * cadence.steps)], privacy.delta
    )
    assert spent == pytest.approx(epsilon, abs=0.02)
