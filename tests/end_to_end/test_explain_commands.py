"""`fedkge list` and `fedkge explain`: what can be named, described from its source."""

from __future__ import annotations

import tomllib
from dataclasses import fields

import pytest

from commands import answer, fedkge, refused
from fedkge.front.described import options, parts
from fedkge.runs.experiment import PARTS, Experiment
from fedkge.training import Trainer

KINDS = {
    "methods": {"single", "collective", "fede", "fedep", "fedprox", "fedec", "fedr"},
    "models": {"transe", "rotate", "rescal"},
    "codecs": {"float32", "float16", "bfloat16", "int8"},
    "selections": {"full", "topk", "moved"},
    "aggregations": {"mean", "bounded", "median", "trimmed"},
    "losses": {"self-adversarial", "margin", "logistic"},
    "optimizers": {"adam", "row-adam", "adagrad", "sgd"},
    "data": {"atlas", "fb15k-237", "ddb14-T5"},
}


@pytest.mark.parametrize(("what", "some"), KINDS.items())
def test_list(what: str, some: set[str]) -> None:
    rows = answer("list", what)
    assert some <= {row["name"] for row in rows}
    assert all(row["about"] for row in rows)
    shown = fedkge("list", what)
    assert shown.exit_code == 0, shown.output
    assert all(name in shown.stdout for name in some)


def test_list_all() -> None:
    rows = answer("list")
    assert {row["name"] for row in rows} >= set().union(*KINDS.values())


def test_list_refuses() -> None:
    assert refused("list", "model").endswith("got 'model'; did you mean 'models'?")


def test_explain_a_method() -> None:
    (found,) = answer("explain", "fedprox")
    assert found["kind"] == "method"
    assert found["about"].startswith("FedProx (Li et al., MLSys 2020)")
    assert "mu / 2 ||E - E_t||^2" in found["text"]
    own = {option["path"]: option for option in found["options"]}
    assert own["method.mu"]["default"] == "0.001"
    assert own["method.mu"]["type"] == "number"
    assert (
        own["method.mu"]["about"]
        == "strength of the pull towards the rows at the start of the round; 0 is FedEP"
    )
    assert own["method.share"]["about"] == "which rows are sent"  # said where FedE has it
    assert own["method.share"]["type"] == '"entities" or "relations" or "both"'
    shown = fedkge("explain", "fedprox").stdout
    assert "strength of the pull towards" in shown
    assert found["example"] in shown


def test_explain_an_option() -> None:
    (found,) = answer("explain", "trainer.negatives")
    assert (found["path"], found["default"], found["about"]) == (
        "trainer.negatives", "256", "negative samples per positive and side"
    )  # fmt: skip
    assert answer("explain", "negatives") == [found]
    assert "--set trainer.negatives=256" in fedkge("explain", "trainer.negatives").stdout


def test_explain_an_option_of_several_methods() -> None:
    found = answer("explain", "method.mu")
    assert {option["of"]: option["default"] for option in found} == {
        "fedec": "0.3",
        "fedlu": "2.0",
        "fedprox": "0.001",
    }
    assert "fedec" in fedkge("explain", "mu").stdout


def test_explain_a_name_of_several_things() -> None:
    found = answer("explain", "margin")
    assert [one["kind"] for one in found if "example" in one] == ["loss"]
    assert {one["path"] for one in found if "path" in one} == {"model.margin"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fedporx", "did you mean 'fedprox'?"),
        ("trainer.negative", "did you mean 'trainer.negatives'?"),
        ("dmi", "did you mean 'dim'?"),
        ("x", "(`fedkge list` shows what has a name"),
    ],
)
def test_explain_refuses(name: str, hint: str) -> None:
    said = refused("explain", name)
    assert said.startswith(f"explain: nothing is named {name!r}")
    assert hint in said


def test_a_comment_of_several_lines_is_one_text() -> None:
    (found,) = answer("explain", "data")
    about = {option["path"]: option["about"] for option in found["options"]}
    assert 'left out of the later one, no error; "across": that, and no site' in about["data.drop_leaks"]
    assert about["data.held_out"].startswith("by ratio; unset: all")
    assert about["data.name"].startswith("a named data set")
    assert about["data.path"].startswith("a graph, or a folder")


def test_everything_is_described() -> None:
    every = list(options())
    paths = {option.path for option in every}
    assert all(part.about for part in parts())
    assert all(option.type and option.default and option.about for option in every)
    for name in ("seed", "rounds", "data.path", "evaluate.patience", "participation.quorum", "align.names"):
        assert name in paths
    assert {f"trainer.{field.name}" for field in fields(Trainer)} <= paths
    for kind, registry in PARTS.items():
        for name in registry:
            own = {f"{kind}.{field.name}" for field in fields(registry[name])}
            assert own == {option.path for option in every if option.of == name and option.path in own}


@pytest.mark.parametrize("part", list(parts()), ids=lambda part: f"{part.kind} {part.name}")
def test_examples_are_experiments(part: object) -> None:
    """The line that is shown, and each default of it, is what an experiment has anyway."""
    base = {"model": {"name": "transe"}, "data": {"name": "atlas"}}
    given = tomllib.loads(part.example)
    experiment = Experiment.parse(base | given)
    ((table, values),) = given.items()
    least = {"name": values["name"]} if "name" in values else {}
    if part.kind in (*PARTS, "table"):
        assert experiment == Experiment.parse(base | {table: least})
