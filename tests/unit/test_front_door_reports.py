"""The front door, item 11: tables and plots as files, runs for experiment trackers."""

from __future__ import annotations

import ast
import csv
import re
import struct
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from commands import answer, fedkge, refused
from fedkge import reports
from fedkge.methods import METHODS
from fedkge.reports.drawing.figure import Figure
from fedkge.reports.drawing.svg import panels, svg
from fedkge.reports.files.tracking import Tracking, masked, scalars
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.run import Kind
from fedkge.reports.pages.html import render
from fedkge.reports.pages.markup import recorded
from run_folders import SITES, write_run, write_seeds


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_seeds(tmp_path / "runs" / "single", "single")
    write_seeds(tmp_path / "runs" / "fedep", "fedep")
    return tmp_path / "runs"


def made(runs: Path, form: str, out: Path) -> dict[str, str]:
    files = answer("report", runs, "--format", form, "--out", out)["files"]
    return {Path(file).name: Path(file).read_text() for file in files}


def results(files: dict[str, str]) -> str:
    return next(text for name, text in files.items() if "-results-" in name)


@pytest.mark.parametrize(("form", "ending"), [("csv", ".csv"), ("latex", ".tex"), ("markdown", ".md")])
def test_11_every_table_is_a_file(runs: Path, tmp_path: Path, form: str, ending: str) -> None:
    found = made(runs, form, tmp_path / "out")
    with recorded() as sheets:
        page = render(load_runs([runs]))
    assert len(found) == len(sheets) == page.count("<table>") > 5
    assert all(name.endswith(ending) for name in found)
    assert [name[:11] for name in found][:2] == ["01-in-plain", "02-results-"]


def test_11_csv_has_keys_and_raw_numbers(runs: Path, tmp_path: Path) -> None:
    first = results(made(runs, "csv", tmp_path / "out"))
    rows = list(csv.DictReader(StringIO(first)))
    assert {"run", "seeds", "mrr", "mrr_std", "hits@10"} <= set(rows[0])
    assert [row["run"] for row in rows] == ["single", "fedep"]
    assert len(rows[0]["mrr"]) > 6  # as it was measured, not as it is shown


def test_11_latex_and_markdown_are_written_as_they_are_read(runs: Path, tmp_path: Path) -> None:
    latex = results(made(runs, "latex", tmp_path / "tex"))
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 1
    assert r"$\pm$" in latex
    markdown = results(made(runs, "markdown", tmp_path / "md"))
    widths = {line.count("|") for line in markdown.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    assert "<" not in markdown


def test_11_every_plot_is_an_svg_file(runs: Path, tmp_path: Path) -> None:
    found = made(runs, "svg", tmp_path / "out")
    page = render(load_runs([runs]))
    assert len(found) == page.count('<div class="plot"') > 5
    for name, text in found.items():
        root = ElementTree.fromstring(text)
        marks = [
            one for one in root.iter() if one.tag.split("}")[1] in ("polyline", "rect", "circle", "polygon")
        ]
        assert len(marks) > 1, name  # more than the background
        assert "nan" not in text, name
    bars = next(text for name, text in found.items() if "test-mrr-by-site" in name)
    for site in SITES:
        assert f">{site}</text>" in bars


def test_11_higher_values_have_higher_bars(runs: Path, tmp_path: Path) -> None:
    found = made(runs, "svg", tmp_path / "out")
    root = ElementTree.fromstring(next(text for name, text in found.items() if "test-mrr-by-site" in name))
    rects = [one.attrib for one in root.iter() if one.tag.endswith("rect")][1:]
    bars = [one for one in rects if float(one["height"]) > 8]
    rows = [
        row for row in answer("report", runs, "--out", tmp_path / "p.html")["sites"] if row["site"] in SITES
    ]
    values = [row[run] for run in ("single", "fedep") for row in rows]
    heights = [float(bar["height"]) for bar in bars]
    assert len(heights) == len(values)
    ratios = [height / value for height, value in zip(heights, values, strict=True)]
    assert max(ratios) / min(ratios) < 1.01


def test_11_an_unknown_format_is_refused(runs: Path) -> None:
    assert "--format: expected one of html, csv, latex, markdown, svg" in refused(
        "report", runs, "--format", "tex"
    )


# trackers


def records(content: bytes) -> list[bytes]:
    """The records of an event file, whose checksums must be right."""
    found = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        assert struct.unpack("<I", content[8:12])[0] == masked(content[:8])
        data = content[12 : 12 + length]
        assert struct.unpack("<I", content[12 + length : 16 + length])[0] == masked(data)
        found.append(data)
        content = content[16 + length :]
    return found


def event_class() -> Any:
    """TensorFlow's message, as far as scalars need it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t", syntax="proto3")
    kinds = {"double": 1, "float": 2, "int64": 3, "string": 9, "message": 11}
    fields = {
        "Value": [("tag", 1, "string", ""), ("simple_value", 2, "float", "")],
        "Summary": [("value", 1, "message", ".t.Value")],
        "Event": [
            ("wall_time", 1, "double", ""),
            ("step", 2, "int64", ""),
            ("file_version", 3, "string", ""),
            ("summary", 5, "message", ".t.Summary"),
        ],
    }
    for name, of in fields.items():
        message = file.message_type.add(name=name)
        for field, number, kind, type_name in of:
            label = 3 if field == "value" else 1
            message.field.add(name=field, number=number, type=kinds[kind], label=label)
            if type_name:
                message.field[-1].type_name = type_name
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def test_11_pictures_say_what_the_page_shows() -> None:
    line = {"type": "scatter", "mode": "lines", "x": [1, 2], "y": [1, 2], "meta": {"series": "s0", "dash": 1}}
    star = {**line, "mode": "markers", "marker": {"symbol": "star", "size": 14}, "showlegend": False}
    hollow = {**line, "name": "b", "mode": "markers", "marker": {"symbol": "circle-open", "size": 9}}
    small = svg(Figure("site", "What it is.", [{**line, "name": "a"}, star, hollow], {"showlegend": False}))
    assert small.count('stroke-dasharray="7 4"') == 2, "the line, and its piece beside the name"
    assert small.count("<polygon") == 2
    assert small.count('fill="#ffffff" stroke=') == 2
    assert ">What it is.</text>" in small
    assert ">a</text>" in small
    bar = {"type": "bar", "x": [0, 1], "y": [0.25, 1500.0], "meta": {"series": "s0", "dash": 0}}
    assert ">0.250</text>" in svg(Figure("t", "l", [{**bar, "texttemplate": "%{y:.3f}"}], {}))
    across = {**bar, "orientation": "h", "x": [250, 1500], "y": [0, 1], "texttemplate": "%{x:.3s}B"}
    assert {">250B</text>", ">1.5kB</text>"} <= set(
        re.findall(r">[^<]*</text>", svg(Figure("t", "l", [across], {})))
    )


def test_11_plots_side_by_side_have_one_legend() -> None:
    line = {"type": "scatter", "mode": "lines", "x": [1, 2], "y": [1, 2], "meta": {"series": "s0", "dash": 0}}
    left = Figure("left", "", [{**line, "name": "a"}, {**line, "name": "b"}], {})
    right = Figure("right", "", [{**line, "name": "b"}, {**line, "name": "c"}], {})
    both = panels("Both", "What they are.", [left, right])
    texts = re.findall(r">([^<]*)</text>", both)
    assert [name for name in texts if name in "abc"] == ["a", "b", "c"]
    assert {"Both", "left", "right"} < set(texts)
    assert both.count("<polyline") == 4
    places = [float(x) for x in re.findall(r'points="([\d.]+),', both)]
    assert all(place < 820 / 2 for place in places), "each within its half"


def test_11_checksums_are_those_of_tensorflow() -> None:
    crc = 0xE3069283  # CRC-32C of "123456789" (RFC 3720)
    assert masked(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_11_tensorboard_reads_what_the_journal_tells(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "fedep")
    told = answer("track", run, "--to", "tensorboard")
    assert told == {
        "run": str(run),
        "to": "tensorboard",
        "out": str(run / "tensorboard"),
        "numbers": told["numbers"],
    }
    assert told["numbers"] > 0
    (file,) = (run / "tensorboard").iterdir()
    event = event_class()
    first, *rest = [event.FromString(data) for data in records(file.read_bytes())]
    assert first.file_version == "brain.Event:2"
    expected = list(scalars(run))
    assert len(rest) == len(expected) > 50
    for one, scalar in zip(rest, expected, strict=True):
        (value,) = one.summary.value
        assert (value.tag, one.step) == (scalar.name, scalar.round)
        assert value.simple_value == pytest.approx(scalar.value, rel=1e-6)
    assert {"valid/mrr", "sent/bytes", *(f"sites/{site}/loss" for site in SITES)} <= {
        s.name for s in expected
    }


def test_11_mlflow_has_metrics_and_options(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "fedep")
    for _ in range(2):  # a second time replaces the first
        assert fedkge("track", run, "--to", "mlflow", "--out", tmp_path / "mlruns").exit_code == 0
    (home,) = [path for path in (tmp_path / "mlruns" / "0").iterdir() if path.is_dir()]
    assert (home / "params" / "model.dim").read_text() == "128"
    lines = (home / "metrics" / "valid" / "mrr").read_text().splitlines()
    expected = [s for s in scalars(run) if s.name == "valid/mrr"]
    assert [float(line.split()[1]) for line in lines] == [s.value for s in expected]
    assert [int(line.split()[2]) for line in lines] == [s.round for s in expected]
    assert "status: 3" in (home / "meta.yaml").read_text()
    names = [path.name for path in (home / "metrics").rglob("*")]
    assert not [name for name in names if "@" in name]  # MLflow would refuse it


def test_11_mlflow_itself_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    run = write_run(tmp_path / "run", "fedep", options=("name='mine'", f"data.path='{tmp_path}/graphs'"))
    assert fedkge("track", run, "--to", "mlflow", "--out", tmp_path / "mlruns").exit_code == 0
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = tracking.MlflowClient((tmp_path / "mlruns").as_uri())
    (found,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert (found.info.run_name, found.info.status) == ("mine", "FINISHED")
    assert found.data.params["data.path"] == "graphs"
    history = client.get_metric_history(found.info.run_id, "valid/mrr")
    expected = [(s.round, s.value) for s in scalars(run) if s.name == "valid/mrr"]
    assert [(one.step, one.value) for one in history] == expected


def test_11_tensorboard_itself_reads_it(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = write_run(tmp_path / "run", "fedep")
    assert fedkge("track", run, "--to", "tensorboard").exit_code == 0
    found = reading.EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {one.name for one in scalars(run)}
    expected = [(s.round, pytest.approx(s.value)) for s in scalars(run) if s.name == "valid/mrr"]
    assert [(one.step, one.value) for one in found.Scalars("valid/mrr")] == expected


def test_11_wandb_runs_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", "fedep", options=("name='mine'",))
    logged: list[Any] = []

    def init(**options: Any) -> Any:
        assert options["mode"] == "offline"
        assert options["name"] == "mine"
        assert options["settings"] == {"silent": True, "console": "off"}  # nothing but numbers is taken
        return SimpleNamespace(
            log=logged.append, finish=lambda: logged.append("end"), define_metric=lambda *a, **k: 0
        )

    monkeypatch.setitem(sys.modules, "wandb", None)
    assert "needs wandb" in refused("track", run, "--to", "wandb")
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, Settings=dict))
    assert fedkge("track", run, "--to", "wandb", "--out", tmp_path / "w").exit_code == 0
    assert logged[-1] == "end"
    assert len(logged) == len(list(scalars(run))) + 1


def test_11_a_run_under_way_is_followed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "fedep")
    total = len(list(scalars(run)))
    journals = [path for path in run.rglob("*.jsonl") if path.name != "run.jsonl"]
    whole = {path: path.read_text().splitlines(keepends=True) for path in (*journals, run / "run.jsonl")}
    (run / "summary.json").unlink()
    for path, lines in whole.items():
        path.write_text("".join(lines[: len(lines) // 2]))
    tracking = Tracking(run, "mlflow", tmp_path / "live")
    first = tracking.read()
    assert 0 < first < total
    assert tracking.read() == 0
    for path, lines in whole.items():
        path.write_text("".join(lines))
    assert first + tracking.read() == total
    assert not tracking.ended


# 12: reports know no method by name


def test_12_no_method_is_known_by_name() -> None:
    folder = Path(reports.__file__).parent
    for path in folder.rglob("*.py"):
        told = {
            node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
        }
        assert not told & set(METHODS), path


@pytest.mark.parametrize("name", list(METHODS))
def test_12_every_method_says_how_sites_work_together(name: str) -> None:
    expected = {"single": Kind.ALONE, "collective": Kind.POOLED, "fkge": Kind.PEERS}
    assert METHODS[name]().kind == expected.get(name, Kind.HUB)


def test_12_gains_have_keys(runs: Path, tmp_path: Path) -> None:
    rows = answer("report", runs, "--out", tmp_path / "p.html")["sites"]
    for row in rows:
        assert row["gains"] == {"fedep": pytest.approx(row["fedep"] - row["single"])}
