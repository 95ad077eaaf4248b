"""Names for parts: found by importing a package, missing with a suggestion."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedkge.errors import ConfigError
from fedkge.registry import Registry

BASE = """
from fedkge.registry import Registry
SHAPES = Registry("shape", "{package}")
"""
PART = """
from {package} import SHAPES
@SHAPES.register("{name}")
class Shape: ...
"""


@pytest.fixture
def shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Registry[object]:
    """A registry over a package with two modules, square and circle, made for one test."""
    package = f"shapes_{request.node.name}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").write_text(BASE.format(package=package))
    for name in ("square", "circle"):
        (folder / f"{name}.py").write_text(PART.format(package=package, name=name))
    monkeypatch.syspath_prepend(tmp_path)
    found: Registry[object] = __import__(package).SHAPES
    return found


def test_lists_every_module_of_its_package(shapes: Registry[object]) -> None:
    assert list(shapes) == ["circle", "square"]


def test_finds_a_class_and_its_name(shapes: Registry[object]) -> None:
    square = shapes["square"]
    assert square.__module__.endswith(".square")
    assert shapes.name_of(square()) == "square"


def test_unknown_name(shapes: Registry[object]) -> None:
    with pytest.raises(
        ConfigError, match=r"^no shape is named 'sqare'; did you mean 'square'\? \(known: circle, square\)$"
    ):
        shapes["sqare"]


def test_unknown_name_that_resembles_nothing(shapes: Registry[object]) -> None:
    with pytest.raises(ConfigError, match=r"^no shape is named 'xyz' \(known: circle, square\)$"):
        shapes["xyz"]


def test_two_parts_of_one_name(shapes: Registry[object]) -> None:
    """The package's own names stay; others can be claimed again by the module that has them."""
    first, second = dataclass(type("First", (), {})), dataclass(type("Second", (), {}))
    with pytest.raises(ConfigError, match=r"\.square has a shape named 'square' already"):
        shapes.register("square")(first)
    assert shapes.register("one")(first) is first
    assert shapes.register("one")(second) is shapes["one"] is second
    second.__module__ = "another"
    with pytest.raises(ConfigError, match=r"another has a shape named 'one' already"):
        shapes.register("one")(first)


def test_making_a_registry_imports_nothing() -> None:
    Registry("shape", "a package that does not exist")


def test_a_class_that_was_never_registered(shapes: Registry[object]) -> None:
    with pytest.raises(ConfigError, match=r"^\w*Path is no registered shape \(known: circle, square\)$"):
        shapes.name_of(Path())


def test_a_module_that_cannot_be_imported(shapes: Registry[object]) -> None:
    """Every use says so, not only the first: the registry is not taken for complete."""
    package = __import__(shapes.package)
    (Path(package.__file__).parent / "broken.py").write_text("import a_package_that_does_not_exist")
    importlib.invalidate_caches()
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="a_package_that_does_not_exist"):
            list(shapes)
