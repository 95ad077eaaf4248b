"""What the documents say is so: links lead somewhere, commands and options exist, examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import typer

from documents import DOCUMENTS, ROOT, TUTORIALS, Block, every_block, small
from fedkge.aggregation import AGGREGATIONS
from fedkge.cli.main import app
from fedkge.config import following, read_toml, variants
from fedkge.graphs.datasets import load
from fedkge.graphs.table import Table
from fedkge.methods import METHODS
from fedkge.models import MODELS
from fedkge.nodes.terms import Participation
from fedkge.privacy import Privacy
from fedkge.runs.experiment import (
    Accept,
    Account,
    Align,
    Data,
    Evaluate,
    Experiment,
    Marks,
    Persons,
    Runtime,
)
from fedkge.training import Trainer

PLAIN = ("`seed`", "`rounds`", "`name`", "`start`", "`plugins`")  #: options that are no tables


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def tables(path: Path, *heading: str) -> list[list[str]]:
    """The cells of every row of the tables that begin with these columns."""
    rows, inside = [], False
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            inside = False
        elif cells[: len(heading)] == list(heading):
            inside = True
        elif inside and not set("".join(cells)) <= set("-: "):
            rows.append(cells)
    return rows


def shown(value: object) -> str:
    """A default as the tables write it."""
    if value is None:
        return "unset"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


# Links


def slugs(path: Path) -> set[str]:
    """The anchors of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{target}: no such file"
        assert not anchor or anchor in slugs(there), f"{target}: no such heading"


# Command lines


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Where it stands, and the words after `fedkge`, of every line in a block of shell."""
    for block in every_block("sh"):
        for number, line in enumerate(block.text.splitlines(), block.line + 1):
            words = shlex.split(line, comments=True)
            if words[:1] == ["fedkge"]:
                yield f"{block.path.relative_to(ROOT)}:{number}", words[1:]


def mentions() -> Iterator[tuple[str, list[str]]]:
    """The same for commands named in the text, which may leave out what they need."""
    for path in DOCUMENTS:
        for text in re.findall(r"`fedkge ([^`]+)`", prose(path)):
            yield f"{path.relative_to(ROOT)}: {text}", shlex.split(text)


def command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and the words that are left."""
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands"):
        if not words or words[0].startswith("--"):
            return found, words
        assert words[0] in found.commands, f"no command {words[0]!r}; there are {', '.join(found.commands)}"
        found, words = found.commands[words[0]], words[1:]
    return found, words


def every_command() -> Iterator[tuple[str, Any]]:
    waiting: list[tuple[str, Any]] = [("fedkge", typer.main.get_command(app))]
    while waiting:
        name, one = waiting.pop()
        inner = getattr(one, "commands", None)
        if inner is None:
            yield name, one
        else:
            waiting += [(f"{name} {word}", sub) for word, sub in inner.items()]


@pytest.mark.parametrize(("where", "words"), [pytest.param(*one, id=one[0]) for one in command_lines()])
def test_command_lines_parse(where: str, words: list[str]) -> None:
    found, left = command(words)
    found.make_context(found.name, left)  # parses and checks, and runs nothing


@pytest.mark.parametrize(("where", "words"), [pytest.param(*one, id=one[0]) for one in mentions()])
def test_commands_in_the_text_exist(where: str, words: list[str]) -> None:
    found, left = command(words)
    options = {option for parameter in found.params for option in parameter.opts}
    assert {word for word in left if word.startswith("--")} <= options


def test_commands_that_are_not_there_would_be_noticed() -> None:
    with pytest.raises(AssertionError, match="no command 'rnu'"):
        command(["rnu", "first.toml"])
    found, left = command(["run", "first.toml", "--ste", "a=1"])
    with pytest.raises(Exception, match="--ste"):
        found.make_context(found.name, left)


@pytest.mark.parametrize(("name", "found"), [pytest.param(*one, id=one[0]) for one in every_command()])
def test_every_command_and_option_is_documented(name: str, found: Any) -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    parts = re.split(r"^#+ (fedkge.*)$", text, flags=re.MULTILINE)
    own = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert name in own, "no heading in docs/commands.md"
    about = own[name] + (own["fedkge data"] if name.startswith("fedkge data") else "") + parts[0]
    for parameter in found.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert not option.startswith("--") or option in about, f"{option} is not in docs/commands.md"


def test_predictions_ask_for_names_that_atlas_has() -> None:
    federation = load("atlas")
    asked = 0
    for where, words in command_lines():
        if words[0] == "predict" and Path(where.split(":")[0]).name not in TUTORIALS:
            given = dict(pairwise(words))
            graph = federation[given.get("--site", "mapping")]
            assert given.get("--head", graph.entities[0]) in graph.entities, where
            assert given.get("--tail", graph.entities[0]) in graph.entities, where
            assert given.get("--relation", graph.relations[0]) in graph.relations, where
            asked += 1
    assert asked


# Experiments


@pytest.mark.parametrize("block", [b for b in every_block("toml") if b.path.name not in TUTORIALS], ids=str)
def test_toml_parses(block: Block) -> None:
    """A block that leaves out the model or the data is tried with some."""
    base: dict[str, Any] = {"model": {"name": "transe"}, "data": {"name": "atlas"}}
    Experiment.parse(base | tomllib.loads(block.text))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_examples_parse_and_are_listed(path: Path) -> None:
    for options in variants(read_toml(path)).values():
        Experiment.parse(following(options, Path("runs")))
    assert f"({path.name})" in (ROOT / "examples" / "README.md").read_text()


PLAYED = {block.text for block in every_block("python") if block.path.name in TUTORIALS}  #: as cells


@pytest.mark.parametrize("block", [b for b in every_block("python") if b.text not in PLAYED], ids=str)
def test_python_runs(block: Block, tmp_path: Path) -> None:
    """In a process of its own, beside the first experiment, all with a smaller budget."""
    pytest.importorskip("numba")
    (first,) = (one for one in every_block("toml") if one.title == "first.toml")
    (tmp_path / "first.toml").write_text(small(first))
    done = subprocess.run(
        [sys.executable, "-c", small(block)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


# Options


def test_trainer_options() -> None:
    documented = tables(ROOT / "docs" / "training.md", "option", "default")
    found = [(name, default) for name, default, _ in documented if "." not in name]
    expected = [(f"`{field.name}`", shown(field.default)) for field in fields(Trainer)]
    assert [pair for pair in found if pair[0] not in PLAIN] == expected


def test_experiment_options() -> None:
    documented = tables(ROOT / "docs" / "training.md", "option", "default")
    found = {name: default for name, default, _ in documented}
    parts = {
        "data": Data,
        "evaluate": Evaluate,
        "participation": Participation,
        "align": Align,
        "marks": Marks,
        "persons": Persons,
        "account": Account,
        "runtime": Runtime,
    }
    for part, cls in parts.items():
        expected = {f"`{part}.{field.name}`": shown(field.default) for field in fields(cls)}
        assert {name: value for name, value in found.items() if name.startswith(f"`{part}.")} == expected
    own = [field for field in fields(Experiment) if field.type in ("int", "str | None", "Path | None")]
    plain = {f"`{field.name}`": shown(field.default) for field in own}
    assert plain | {"`plugins`": "`()`"} == {name: found[name] for name in PLAIN}


def test_options_of_tables() -> None:
    documented = tables(ROOT / "docs" / "graphs.md", "data.table", "convert")
    found = [name for cells in documented for name in re.findall(r"`(\w+)`", cells[0])]
    assert found == [field.name for field in fields(Table)]


def test_what_a_site_accepts() -> None:
    documented = tables(ROOT / "docs" / "alignment.md", "accept", "default")
    expected = {f"`{field.name}`": shown(field.default) for field in fields(Accept)}
    assert {name: default for name, default, _ in documented} == expected


def test_privacy_options() -> None:
    documented = tables(ROOT / "docs" / "privacy.md", "privacy", "default")
    expected = {f"`{field.name}`": shown(field.default) for field in fields(Privacy)}
    assert {name: default for name, default, _ in documented} == expected


def test_methods() -> None:
    path = ROOT / "docs" / "methods.md"
    rows = {cells[0].strip("`"): cells for cells in tables(path, "name", "paper")}
    assert sorted(rows) == list(METHODS)
    documented = tables(path, "method", "option", "default")
    found = {(method.strip("`"), name): default for method, name, default, _ in documented}
    for name in METHODS:
        for field in fields(METHODS[name]):
            owner = next(m for m in (name, "fede") if (m, f"`{field.name}`") in found)
            if owner == name or field.name not in ("share", "restart"):
                assert found[owner, f"`{field.name}`"] == shown(field.default), (name, field.name)


def test_aggregations() -> None:
    path = ROOT / "docs" / "methods.md"
    rows = {cells[0].strip("`"): cells[3] for cells in tables(path, "`aggregate`")}
    assert {name: "sums" if AGGREGATIONS[name].sums else "single rows" for name in AGGREGATIONS} == rows
    documented = tables(path, "aggregation", "option", "default")
    found = {(rule.strip("`"), name): default for rule, name, default, _ in documented}
    for name in AGGREGATIONS:
        for field in fields(AGGREGATIONS[name]):
            owner = next(rule for rule in (name, "bounded") if (rule, f"`{field.name}`") in found)
            assert found[owner, f"`{field.name}`"] == shown(field.default), (name, field.name)


def test_models() -> None:
    path = ROOT / "docs" / "models.md"
    rows = {cells[0].strip("`"): cells for cells in tables(path, "name", "score")}
    assert sorted(rows) == list(MODELS)
    for name, (_, _, entity, relation, margin, rest) in rows.items():
        cls = MODELS[name]
        defaults = {field.name: field.default for field in fields(cls)}
        assert float(margin) == defaults.pop("margin"), name
        assert (defaults.pop("dim"), defaults.pop("epsilon")) == (128, 2.0), name
        for option, value in defaults.items():
            assert value is not MISSING
            if value is None:
                assert f"`{option}` unset" in rest, f"{name}: {option}"
            else:
                assert f"`{option} = {shown(value).strip('`')}`" in rest, f"{name}: {option}"
        for cell, blocks_ in zip((entity, relation), cls().blocks.values(), strict=True):
            assert re.sub(r" \(\w\)", "", cell).split(", ") == list(blocks_), name
    for columns in (("name", "kept after every step"), ("name", "interaction in PyKEEN")):
        named = [name for cells in tables(path, *columns) for name in re.findall(r"`(\w+)`", cells[0])]
        assert sorted(named) == list(MODELS)


def test_layers() -> None:
    """Those of CONTRIBUTING.md are those that import-linter checks."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^    (\w+(?:, \w+)*)(?:  .*)?$", text.split("## Layers")[1].split("## ")[0], re.MULTILINE
    )
    told = [name for line in lines for name in line.split(", ")]
    (contract,) = settings["contracts"]
    checked = [layer.removeprefix("fedkge.") for layer in reversed(contract["layers"])]
    assert sorted(told[:4]) == sorted(checked[:4])
    assert told[4:] == checked[4:]


def test_named_data_sets() -> None:
    from fedkge.graphs.catalogue import DATASETS

    counts = {cells[0].strip("`"): cells[1] for cells in tables(ROOT / "docs" / "graphs.md", "name")}
    for dataset in DATASETS.values():
        if dataset.counts:
            assert counts[dataset.name] == "/".join(f"{n:,}" for n in dataset.counts)


@pytest.mark.skipif(which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_units_of_a_deployment_are_units(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (unit,) = re.findall(r"```text\n(\[Unit\].*?)```", text, re.DOTALL)
    (command,) = re.findall(r"ExecStart=(\S+)", unit)
    (tmp_path / "fedkge-hub.service").write_text(unit.replace(command, sys.executable))
    found = subprocess.run(
        ["systemd-analyze", "verify", "fedkge-hub.service"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (found.returncode, found.stderr) == (0, "")
