"""The front door, item 14: options from the environment, one shape of JSON, any encoding, 80 columns."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import typer

import fedkge as package
from commands import ENVIRONMENT, LINE, fedkge, printed, refused
from fedkge.cli.main import app, main
from fedkge.durable import json_text


def spoken(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in an environment of its own, and its output as bytes."""
    return subprocess.run(
        [*LINE, *arguments], env={**ENVIRONMENT, **environment}, capture_output=True, check=False
    )


def test_14_version() -> None:
    found = fedkge("--version")
    assert (found.exit_code, found.output) == (0, f"fedkge {package.__version__}\n")


def test_14_help_takes_less_than_half_a_second() -> None:
    """0.4 s of processor time, the best of three: other work may run beside."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert spoken("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.4


def test_14_options_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one command or for all that have the option; the command line wins, then the longer name."""
    monkeypatch.setenv("FEDKGE_JSON", "1")
    assert printed(fedkge("list", "codecs").stdout)[0]["name"] == "bfloat16"
    monkeypatch.setenv("FEDKGE_LIST_JSON", "0")
    assert "┃ name" in fedkge("list", "codecs").stdout
    assert printed(fedkge("data", "stats", "atlas").stdout)
    monkeypatch.setenv("FEDKGE_DATA_STATS_JSON", "0")
    assert "┃ site" in fedkge("data", "stats", "atlas").stdout


def test_14_several_values_and_what_is_required(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKGE_RUN_SET", "rounds=0 trainer.epochs=1")
    assert refused("run", "tiny.toml").startswith("--set rounds: expected at least 1, got 0")
    monkeypatch.setenv("FEDKGE_METHOD", "nobody")
    assert "no method is named 'nobody'" in refused("compare", "tiny.toml")


def test_14_a_variable_that_names_no_option_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKGE_LIST_JSN", "1")
    assert refused("list") == (
        "FEDKGE_LIST_JSN: the command has no such option; did you mean 'FEDKGE_LIST_JSON'?"
    )
    assert fedkge("explain", "fede").exit_code == 0


def test_14_the_folder_of_graphs_is_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKGE_DATA", str(tmp_path))
    assert fedkge("data", "stats", "atlas").exit_code == 0


def written(monkeypatch: pytest.MonkeyPatch, encoding: str, *arguments: str) -> tuple[int, bytes, bytes]:
    """The exit code of the command, and what it writes to a terminal with this encoding."""
    streams = {name: TextIOWrapper(BytesIO(), encoding, write_through=True) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(sys, "argv", ["fedkge", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    out, error = (stream.buffer.getvalue() for stream in streams.values())  # type: ignore[attr-defined]
    return int(left.value.code or 0), out, error


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_14_output_that_is_not_utf_8(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkge.cli.main.prepare", lambda: None)
    for line in (["explain", "fedlu"], ["list"], ["explain", "nöbody"], ["--help"]):
        code, out, error = written(monkeypatch, encoding, *line)
        assert b"Traceback" not in error
        assert code == (2 if "nöbody" in line else 0)
        out.decode(encoding)
    found = [written(monkeypatch, one, "list", "codecs", "--json")[1] for one in (encoding, "utf-8")]
    assert json.loads(found[0].decode(encoding)) == json.loads(found[1])


def test_14_a_process_with_ascii_output() -> None:
    found = spoken("data", "stats", "atlas", PYTHONIOENCODING="ascii")
    assert found.returncode == 0, found.stderr
    assert "government" in found.stdout.decode("ascii")


def test_14_tables_and_help_fit_into_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that do not fit stand in a further table; numbers are never broken."""
    monkeypatch.setenv("COLUMNS", "80")
    for line in (["--help"], ["run", "--help"], ["data", "stats", "atlas"], ["explain", "fede"], ["list"]):
        text = fedkge(*line).stdout
        wide = [one for one in text.splitlines() if len(one) > 80 and not one.startswith("example: ")]
        assert not wide, wide
        assert text
    stats = fedkge("data", "stats", "atlas").stdout
    for whole in ("1.05e-04", "mean_degree", "government", "1579.5000"):
        assert whole in stats


def test_14_no_nan_in_json() -> None:
    numbers = {"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (float("-inf"), 2)}}
    assert json.loads(json_text(numbers)) == {"a": None, "b": [1.5, None], "c": {"d": [None, 2]}}


def test_14_start_is_fast() -> None:
    """`import fedkge` without torch, and help without what commands need; benchmarks have the seconds."""
    code = "import sys, fedkge; print(len([m for m in sys.modules if m.startswith('fedkge')]))"
    found = subprocess.run([*LINE[:2], code], capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 2


def test_14_without_plotly_no_report_is_named(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel without extras trains, and says what a page needs."""
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    done = fedkge("run", "tiny.toml", "--set", "rounds=1", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "needs plotly" in done.stderr
    assert "None" not in done.stdout


def test_14_every_command_that_ends_by_itself_takes_json() -> None:
    def without(group: Any, above: tuple[str, ...] = ()) -> Iterator[str]:
        for name, one in group.commands.items():
            if hasattr(one, "commands"):
                yield from without(one, (*above, name))
            elif not any("--json" in param.opts for param in one.params):
                yield " ".join((*above, name))

    assert set(without(typer.main.get_command(app))) == {"hub", "site", "peer"}
