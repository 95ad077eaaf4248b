"""Options from plain mappings: what fits is built, what does not fit is an error with its path."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkge import config
from fedkge.errors import ConfigError
from fedkge.front.options import PATHS
from fedkge.registry import Registry
from fedkge.runs.experiment import Experiment


@dataclass(frozen=True)
class Inner:
    mu: float = 0.5


@dataclass(frozen=True)
class Outer:
    size: int
    rate: float = 1.0
    on: bool = False
    kind: Literal["full", "topk"] = "full"
    norm: Literal[1, 2] = 1
    limit: int | None = None
    path: Path | None = None
    names: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)
    computed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ConfigError(f"size: expected at least 0, got {self.size}")


def build(**options: object) -> Outer:
    return config.build(Outer, {"size": 1, **options}, "part")


def test_builds_what_fits() -> None:
    found = build(rate=2, limit=3, path="a/b", names=["x", "y"], kind="topk", on=True, inner={"mu": 1})
    assert found == Outer(1, 2.0, True, "topk", 1, 3, Path("a/b"), ("x", "y"), Inner(1.0))
    assert type(found.rate) is float
    assert type(found.inner.mu) is float


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"siez": 2}, r"^part\.siez: no such option; did you mean 'size'\? \(known: .*size.*\)$"),
        ({"computed": 2}, r"^part\.computed: no such option"),
        ({"size": "2"}, r"^part\.size: expected int, got '2'$"),
        ({"size": 2.0}, r"^part\.size: expected int, got 2\.0$"),
        ({"size": True}, r"^part\.size: expected int, got True$"),
        ({"size": -1}, r"^part\.size: expected at least 0, got -1$"),
        ({"size": 2**63}, r"^part\.size: expected a number that fits into 64 bits, got one of 64 bits$"),
        ({"rate": 10**400}, r"^part\.rate: expected a number that fits into 64 bits, got one of 1329 bits$"),
        ({"rate": "fast"}, r"^part\.rate: expected float, got 'fast'$"),
        ({"rate": False}, r"^part\.rate: expected float, got False$"),
        ({"on": 1}, r"^part\.on: expected bool, got 1$"),
        (
            {"kind": "topp"},
            r"^part\.kind: expected one of 'full', 'topk', got 'topp'; did you mean 'topk'\?$",
        ),
        ({"norm": 3}, r"^part\.norm: expected one of 1, 2, got 3$"),
        ({"norm": True}, r"^part\.norm: expected one of 1, 2, got True$"),
        ({"norm": 1.0}, r"^part\.norm: expected one of 1, 2, got 1\.0$"),
        ({"limit": "many"}, r"^part\.limit: expected int, got 'many'$"),
        ({"names": ["x", 3]}, r"^part\.names\[1\]: expected str, got 3$"),
        ({"names": "xy"}, r"^part\.names: expected .*, got 'xy'$"),
        ({"inner": {"mue": 1}}, r"^part\.inner\.mue: no such option; did you mean 'mu'\?"),
        ({"inner": {"mu": "x"}}, r"^part\.inner\.mu: expected float, got 'x'$"),
        ({"inner": 3}, r"^part\.inner: expected Inner, got 3$"),
    ],
)
def test_refuses_what_does_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(**options)


def test_missing_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^part: .*missing.*'size'"):
        config.build(Outer, {}, "part")


def test_paths_start_at_the_root() -> None:
    with pytest.raises(ConfigError, match=r"^size: expected at least 0"):
        config.build(Outer, {"size": -1}, "")
    with pytest.raises(ConfigError, match=r"^siez: no such option"):
        config.build(Outer, {"siez": -1}, "")


def test_choose_by_name() -> None:
    registry: Registry[object] = Registry("part", "fedkge.cli")
    registry._loaded = True
    registry.register("inner")(Inner)
    assert config.choose(registry, {"name": "inner", "mu": 3}, "method") == Inner(3.0)
    for options in ({}, {"name": 3}):
        with pytest.raises(ConfigError, match=r"^method\.name: which part\? one of inner$"):
            config.choose(registry, options, "method")
    with pytest.raises(ConfigError, match=r"^method\.name: no part is named 'iner'; did you mean 'inner'\?"):
        config.choose(registry, {"name": "iner"}, "method")
    with pytest.raises(ConfigError, match=r"^method\.mue: no such option; did you mean 'mu'\?"):
        config.choose(registry, {"name": "inner", "mue": 3}, "method")


@given(
    st.builds(
        Outer,
        size=st.integers(0, 10**6),
        rate=st.floats(),
        on=st.booleans(),
        kind=st.sampled_from(["full", "topk"]),
        norm=st.sampled_from([1, 2]),
        limit=st.none() | st.integers(),
        names=st.lists(st.text(st.characters(exclude_categories=["Cs"]))).map(tuple),
        inner=st.builds(Inner, st.floats(allow_nan=False)),
    )
)
def test_options_survive_toml(part: Outer) -> None:
    text = config.to_toml({"seed": 0, "part": config.options(part)})
    again = config.build(Outer, tomllib.loads(text)["part"], "part")
    assert again == part or (math.isnan(part.rate) and math.isnan(again.rate))


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_any_mapping_survives_toml(mapping: dict[str, object]) -> None:
    assert tomllib.loads(config.to_toml(mapping)) == mapping


def test_unset_options_are_left_out() -> None:
    assert config.options(Outer(1)) == {
        "size": 1,
        "rate": 1.0,
        "on": False,
        "kind": "full",
        "norm": 1,
        "names": [],
        "inner": {"mu": 0.5},
    }


def test_override() -> None:
    start = {"seed": 0, "method": {"name": "fede", "mu": 0.1}}
    found = config.override(
        start,
        ["method.mu=0.5", "seed=3", "method.name=fedprox", "a.b.c=[1, 2]", "s='x=y'", "on=true", "t=x=y"],
    )
    assert found == {
        "seed": 3,
        "method": {"name": "fedprox", "mu": 0.5},
        "a": {"b": {"c": [1, 2]}},
        "s": "x=y",
        "on": True,
        "t": "x=y",
    }
    assert start == {"seed": 0, "method": {"name": "fede", "mu": 0.1}}, "the given mapping is not changed"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("method.mu", r"^--set method\.mu: expected KEY=VALUE"),
        ("seed.x=1", r"^--set seed\.x=1: seed is not a table"),
    ],
)
def test_override_refuses(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.override({"seed": 0}, [assignment])


def test_read_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('seed = 1\nmodel = { name = "transe" }\n', encoding="utf-8")
    assert config.read_toml(path) == {"seed": 1, "model": {"name": "transe"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = = 1\n", r"run\.toml: .*line 1"),
        (b"a = 1\na = 2\n", r"run\.toml: .*line 2"),
        (b"seed = '\xff'", r"run\.toml: not UTF-8 at byte 8"),
    ],
)
def test_read_toml_refuses(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        config.read_toml(path)


def test_read_toml_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.toml: no such file"):
        config.read_toml(tmp_path / "run.toml")
    with pytest.raises(ConfigError, match="found a folder"):
        config.read_toml(tmp_path)


def test_overriding_copies(tmp_path: Path) -> None:
    """What TOML can hold can be overridden around: dates, infinities, nested tables."""
    path = tmp_path / "x.toml"
    path.write_text("made = 2026-01-02\nbig = inf\n[a.b]\nlist = [1, 2]\n")
    before = config.read_toml(path)
    changed = config.override(before, ["a.b.c=3"])
    assert changed["made"] == before["made"]
    assert changed["a"]["b"] == {"list": [1, 2], "c": 3}
    assert "c" not in before["a"]["b"]
    changed["a"]["b"]["list"].append(4)
    assert before["a"]["b"]["list"] == [1, 2]


def test_options_that_name_files_are_made_whole() -> None:
    """A run is used from other folders too: every path among the options is known to the commands."""
    parts = {
        part: get_type_hints(Experiment)[part] for part in ("data", "marks", "align", "persons", "account")
    }
    paths = {
        (part, key)
        for part, kind in {"": Experiment, **parts}.items()
        for key, hint in get_type_hints(kind).items()
        if Path in (hint, *get_args(hint))
    }
    assert paths == set(PATHS)
