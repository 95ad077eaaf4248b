"""The front door, item 1: everything a notebook needs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedkge
from commands import fedkge as command
from commands import made, write_home, write_site
from fedkge.errors import ConfigError, DataError
from fedkge.front.progress import progress
from fedkge.graphs.files import read_federation
from fedkge.runtimes.progress import Progress

pytest.importorskip("numba")
pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore:.*stand in the train of another site")
ROOT = Path(__file__).parents[2]
FEW: dict[str, Any] = {
    "rounds": 2,
    "dim": 4,
    "epochs": 1,
    "negatives": 2,
    "batch_size": 64,
    "progress": False,
}
ROWS = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")]


def tables() -> dict[str, Any]:
    """Two sites as DataFrames of numbers."""
    found = {}
    for seed, (site, relations) in enumerate({"north": 2, "south": 3}.items()):
        rows = np.unique(np.random.default_rng(seed).integers(0, [20, relations, 20], (200, 3)), axis=0)
        found[site] = pd.DataFrame(rows, columns=["head", "relation", "tail"])
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> fedkge.Comparison:
    """Two methods on two sites."""
    folder = tmp_path_factory.mktemp("runs")
    sites = fedkge.load(tables()).split()
    return fedkge.compare(sites, ["single", "fedep"], folder=folder, **FEW)


def test_1_ten_lines_from_dataframes_to_a_plot() -> None:
    """The first block of the guide, which the tests of documents run."""
    block = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)[0]
    lines = [line for line in block.splitlines() if line.strip()]
    assert len(lines) <= 10
    assert any("DataFrames" in line for line in lines)
    assert any(".plot()" in line for line in lines)


def test_1_importing_takes_a_tenth_of_a_second() -> None:
    """Without torch; the best of three, as other work may run beside."""
    code = "import time; t = time.perf_counter(); import fedkge; print(time.perf_counter() - t)"
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(3)]
    assert min(float(one.stdout) for one in found) < 0.1


def test_1_importing_is_cheap_and_complete() -> None:
    code = (
        "import sys, fedkge\n"
        "heavy = {'torch', 'numpy', 'pandas', 'plotly', 'rich', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert set(fedkge.__all__) <= set(dir(fedkge))\n"
        "for name in fedkge.__all__: assert getattr(fedkge, name) is getattr(fedkge, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        fedkge.trian  # type: ignore[attr-defined]


def test_1_the_stub_has_the_same_names_and_all_are_documented() -> None:
    stub = ast.parse((ROOT / "src" / "fedkge" / "__init__.pyi").read_text())
    names = [alias.asname for line in stub.body if isinstance(line, ast.ImportFrom) for alias in line.names]
    assert sorted([*names, "__version__"]) == sorted(fedkge.__all__)
    assert all(getattr(fedkge, name).__doc__ for name in fedkge.__all__)


def kinds() -> dict[str, Callable[[], Any]]:
    frame = pd.DataFrame(ROWS, columns=["Head", "relation", "tail"])

    def polars() -> Any:
        return pytest.importorskip("polars").from_pandas(frame)

    def file(text: str, name: str) -> Path:
        Path(name).write_text(text)
        return Path(name)

    return {
        "pandas": lambda: frame,
        "other order": lambda: frame[["tail", "Head", "relation"]],
        "subject": lambda: frame.set_axis(["subject", "predicate", "object"], axis=1),
        "three columns": lambda: frame.set_axis(["x", "y", "z"], axis=1),
        "polars": polars,
        "array": lambda: np.array(ROWS),
        "list": lambda: ROWS,
        "train": lambda: {"train": ROWS},
        "graph": lambda: fedkge.load(ROWS)["graph"],
        "file": lambda: file("".join("\t".join(row) + "\n" for row in ROWS), "own.tsv"),
    }


@pytest.mark.parametrize("kind", list(kinds()))
def test_1_a_site_can_be_any_kind_of_table(kind: str) -> None:
    data = kinds()[kind]()
    sites = fedkge.load({7: data})
    assert list(sites) == ["7"]
    assert sites["7"].digest() == fedkge.load(ROWS)["graph"].digest()
    assert [tuple(row) for row in sites.triples("7")[["head", "relation", "tail"]].to_numpy()] == ROWS


def test_1_columns_marks_and_names() -> None:
    wide = pd.DataFrame({"id": [1, 2], "from": [1, 2.0], "kind": ["r", "r"], "to": ["x", "y"]})
    graph = fedkge.load(wide.assign(confidential=[True, False]), columns=["from", "kind", "to"])["graph"]
    assert list(graph.entities) == ["1", "2", "x", "y"]
    assert graph.confidential is not None
    assert graph.confidential.tolist() == [True, False]
    with pytest.raises(DataError, match=r"graph, train: which columns are head, relation and tail.*columns="):
        fedkge.load(wide)
    with pytest.raises(DataError, match=r"no column 'form'; did you mean 'from'\?"):
        fedkge.load(wide, columns=["form", "kind", "to"])
    with pytest.raises(DataError, match=r"north, train\[1\]: a missing value; leave out such rows"):
        fedkge.load({"north": pd.DataFrame({"h": ["a", None], "r": ["r", "r"], "t": ["b", "c"]})})
    with pytest.raises(DataError, match=r"\[0\]: expected head, relation and tail, found \('a', 'b'\)"):
        fedkge.load([("a", "b")])


def test_1_folders_and_names_are_read_as_by_the_command_line(here: Path) -> None:
    write_site(here / "federation" / "north", 0, "ab")
    assert (
        fedkge.load("federation")["north"].digest() == read_federation(here / "federation")["north"].digest()
    )
    assert len(fedkge.load("atlas")) == 4
    assert fedkge.load("atlas").stats.set_index("site").loc["airline", "train"] == 10225


def test_1_align_makes_names_equal() -> None:
    sites = fedkge.load({"north": [("USA", "in", "x")], "south": [("United States", "in", "y")]})
    for links in ([("USA", "United States")], pd.DataFrame([("USA", "United States")])):
        same = sites.align(links)
        assert "USA" in same["north"].entities
        assert "USA" in same["south"].entities
        assert same.links.loc[0, ["axis", "given", "used"]].tolist() == ["entity", 1, 1]


def test_1_it_trains_what_the_command_line_trains(here: Path) -> None:
    write_home(here)
    options = {"trainer": {"epochs": 1, "batch_size": 64, "negatives": 4, "lr": 2e-2}, "rounds": 6, "dim": 6}
    rest = {"margin": 4.0, "evaluate": {"every": 2, "patience": 0}}
    assert command("run", "tiny.toml", "--set", "method.name=fedep").exit_code == 0
    by_path = fedkge.train("federation", "fedep", progress=False, **options, **rest)
    assert made(by_path.path) == made("runs/tiny")
    in_memory = fedkge.train(fedkge.load("federation"), "fedep", progress=False, **options, **rest)
    assert in_memory.path != by_path.path
    assert made(in_memory.path) == made("runs/tiny")
    assert command("evaluate", in_memory.path).exit_code == 0
    private = [path for path in (here / "runs" / "data").rglob("*.tsv") if path.stat().st_mode & 0o77]
    assert not private


def test_1_a_cell_can_run_twice(found: fedkge.Comparison) -> None:
    """What is done is returned, what was interrupted goes on, other options are another run."""
    folder, sites = found[0].path.parent, fedkge.load(tables()).split()
    before = {run.path: (run.path / "run.jsonl").read_bytes() for run in found}
    again = fedkge.compare(sites, ["single", "fedep"], folder=folder, **FEW)
    assert {run.path: (run.path / "run.jsonl").read_bytes() for run in again} == before
    assert fedkge.train(sites, "fedep", folder=folder, **FEW).path == found["fedep"].path
    other = fedkge.train(sites, "fedep", folder=folder, **(FEW | {"dim": 5}))
    assert other.path not in before
    (other.path / "summary.json").unlink()
    resumed = fedkge.train(sites, "fedep", folder=folder, **(FEW | {"dim": 5}))
    assert resumed.path == other.path
    assert "resumed" in (resumed.path / "run.jsonl").read_text()


def test_1_a_name_is_one_experiment(found: fedkge.Comparison) -> None:
    folder, sites = found[0].path.parent, fedkge.load(tables()).split()
    first = fedkge.train(sites, "single", folder=folder, name="first", **FEW)
    assert first.path.name == "first"
    assert fedkge.train(sites, "single", folder=folder, name="first", **FEW).path == first.path
    with pytest.raises(ConfigError, match="another experiment"):
        fedkge.train(sites, "fedep", folder=folder, name="first", **FEW)
    with pytest.raises(ConfigError, match="name: expected the name of a folder"):
        fedkge.train(sites, "single", folder=folder, name="data", **FEW)


def test_1_without_valid_or_test_the_error_is_the_command_lines() -> None:
    said = "site 'north' has no valid triples; name a ratio, as in data.ratio = '8:1:1'"
    with pytest.raises(ConfigError, match=re.escape(said)):
        fedkge.train(tables(), "single", **FEW)
    assert not list(Path("runs").glob("single*"))
    assert fedkge.train(tables(), "single", ratio="8:1:1", **FEW).sites == ["north", "south"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dmi": 4}, "dmi: no such option; did you mean 'dim'?"),
        ({"mu": 0.1}, "mu: no such option"),
        ({"trainer": {"lrr": 1}}, "trainer.lrr: no such option; did you mean 'lr'?"),
        ({"dim": 4, "model": {"name": "transe", "dim": 5}}, "dim: given twice, by itself and in model"),
        ({"data": {"ratio": "8:1:1"}}, "multiple values for argument 'data'"),
        ({"codec": 8}, "codec: expected a name, or a table"),
        ({"model": "transse"}, "no model is named 'transse'; did you mean 'transe'?"),
        ({"name": ""}, "name: expected a word or more"),
        ({"name": "a/b"}, "name: expected the name of a folder"),
    ],
)
def test_1_wrong_keywords_are_errors(options: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=re.escape(said)):
        fedkge.train("atlas", **({"method": "fedep", "progress": False} | options))


def test_1_a_word_of_two_tables_must_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkge.front.options._names", lambda part, name: {"lr"})
    with pytest.raises(
        ConfigError, match=r"lr: an option of model and of method and of trainer; write model="
    ):
        fedkge.train("atlas", "fedep", lr=0.1)


def test_1_options_of_a_method_go_to_those_that_have_them(here: Path) -> None:
    sites = fedkge.load(tables()).split()
    few = FEW | {"rounds": 1}
    found = fedkge.compare(
        sites, ["single", {"name": "fedprox", "restart": False}], mu=np.float64(0.3), **few
    )
    assert found["fedprox"].config["method"]["mu"] == 0.3
    assert found["fedprox"].config["method"]["restart"] is False
    assert "mu" not in found["single"].config["method"]


def test_1_a_run_tells_everything_as_tables(found: fedkge.Comparison, here: Path) -> None:
    run = found["fedep"]
    assert run.sites == ["north", "south"]
    assert list(run.metrics.index) == ["north", "south", "all sites"]
    assert run.metrics.loc["all sites", "mrr"] == pytest.approx(run.summary["metrics"]["test"]["mrr"])
    assert set(run.curves.columns) == {"round", "site", "loss", "mrr"}
    assert run.privacy.empty
    measured = run.evaluate()
    both = measured[(measured.site == "north") & (measured.side == "both")]
    assert both.mrr.item() == pytest.approx(run.metrics.loc["north", "mrr"])
    assert set(run.evaluate(by_relation=True).relation) == {"0", "1", "2"}
    assert run.embeddings("north").shape == (20, 4)
    assert run.embeddings("south", axis="relation").index.tolist() == list(run._held("south").graph.relations)
    assert run.report(here / "page.html").is_file()
    assert "Run(fedep, transe, 2 sites, test MRR 0." in repr(run)
    assert "<table" in run._repr_html_()


def test_1_questions_in_python(found: fedkge.Comparison) -> None:
    run = found["fedep"]
    one = run.predict("north", head=1, relation=0, top=3)
    assert list(one.columns) == ["head", "relation", "tail", "score", "known"]
    asked = pd.DataFrame({"head": [1, 1], "relation": [0, 0], "tail": [None, "?"]})
    many = run.predict("north", questions=asked, top=3)
    assert many["tail"].tolist() == one["tail"].tolist() * 2
    missing = run.missing("north", relation=0, top=5)
    assert len(missing) == 5
    known = {
        tuple(row) for row in fedkge.load(tables()).triples("north")[["head", "relation", "tail"]].to_numpy()
    }
    assert not known & {tuple(row) for row in missing[["head", "relation", "tail"]].to_numpy()}
    assert len(run.neighbours(1, "north", top=4)) == 4
    with pytest.raises(ConfigError, match="site: which one"):
        run.predict(head=1, relation=0)
    with pytest.raises(DataError, match="no entity is named 'nobody'"):
        run.predict("north", head="nobody", relation=0)


def test_1_packs_and_folders_are_opened(found: fedkge.Comparison, here: Path) -> None:
    run = fedkge.open_run(found["fedep"].path)
    assert isinstance(run, fedkge.Run)
    pack = run.pack(here / "pack", "north")
    again = fedkge.open_run(here / "pack")
    assert isinstance(again, fedkge.Pack)
    expected = run.predict("north", head=1, relation=0)
    for one in (pack, again):
        pd.testing.assert_frame_equal(one.predict(head=1, relation=0), expected)


def test_1_comparisons_are_tables_and_a_plot(found: fedkge.Comparison, here: Path) -> None:
    assert list(found.metrics.index) == ["single", "fedep"]
    assert list(found.sites.columns)[1:3] == ["single", "fedep"]
    assert found.joining.loc["fedep", "sites"] == 2
    figure = found.plot()
    assert [trace.name for trace in figure.data] == ["single", "fedep"]
    assert list(figure.data[1].y) == pytest.approx(found.sites.fedep[:2].tolist())
    assert found.report(here / "page.html").is_file()
    beside = found["single"].compare(found["fedep"])
    pd.testing.assert_frame_equal(beside.sites, found.sites)
    with pytest.raises(KeyError, match="0 runs are by 'fede'"):
        found["fede"]


def test_1_seeds(here: Path) -> None:
    sites = fedkge.load(tables()).split()
    found = fedkge.compare(sites, ["single"], seeds=[0, 1], **(FEW | {"rounds": 1}))
    assert len(found) == 2
    assert found.metrics.seeds.tolist() == [2]


def test_1_no_nan_in_json_files(here: Path) -> None:
    """A site without unrestricted validation triples has nothing to measure."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    run = fedkge.train(fedkge.load(tables()).split(), "fedep", **(FEW | {"persons": {"prefixes": ["1"]}}))
    files = [path for suffix in ("json", "jsonl") for path in run.path.rglob(f"*.{suffix}")]
    assert len(files) > 5
    for path in files:
        for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(text, parse_constant=refuse)


def test_1_progress_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.HTML = str  # type: ignore[attr-defined]
    handle = SimpleNamespace(update=shown.append)
    display.display = lambda what, display_id: shown.append(what) or handle  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with progress("a<b") as watch:
        watch(Progress(2, 6, 0.5, 0.25, 1000.0, 0))
    assert shown[0] == "a&lt;b: begins"
    assert '<progress value="2" max="6">' in shown[1]
    assert "valid MRR 0.2500" in shown[1]
    assert shown[2] == ""


def test_1_what_there_is() -> None:
    assert "fedep" in fedkge.available("method").name.tolist()
    assert fedkge.explain("fedprox").option.tolist()[-2:] == ["method.mu", "method.squared"]
    with pytest.raises(ConfigError, match="nothing is named 'fedporx'; did you mean 'fedprox'"):
        fedkge.explain("fedporx")


def test_1_marks_and_names_are_read_as_in_files() -> None:
    frame = pd.DataFrame({"head": [1, 2, 3], "relation": "r", "tail": [True, 2.0, "c"]})
    for marks, read in {
        ("0", "false", "1"): [False, False, True],
        (1.0, None, 0.0): [True, False, False],
        (True, False, None): [True, False, False],
    }.items():
        graph = fedkge.load(frame.assign(confidential=list(marks)))["graph"]
        assert graph.confidential is not None
        assert graph.confidential.tolist() == read
    assert sorted(graph.entities) == ["1", "2", "3", "True", "c"]
    with pytest.raises(DataError, match=r"graph, train\[0\]: expected true, false, 1, 0 or nothing"):
        fedkge.load(frame.assign(confidential="perhaps"))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.array([1, 2, 3]), r"train\[0\]: expected head, relation and tail, found 1"),
        (None, "expected a table, an array or rows of three names, found None"),
        ([("a", "r", "b", True), ("b", "r", "c")], r"train\[1\]: expected head, relation and tail"),
        (
            pd.DataFrame([list("abcd")], columns=["head", "head", "relation", "tail"]),
            "expected columns with names of their own, found head, head, relation, tail",
        ),
    ],
)
def test_1_what_is_no_table_is_said(data: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        fedkge.load(data)


def test_1_lazy_frames_arrow_tables_and_tensors() -> None:
    polars, pyarrow, torch = map(pytest.importorskip, ("polars", "pyarrow", "torch"))
    columns = {"head": [0, 1], "relation": [5, 5], "tail": [1, 2]}
    for table in (polars.LazyFrame(columns), pyarrow.table(columns), torch.tensor([[0, 5, 1], [1, 5, 2]])):
        assert list(fedkge.load(table)["graph"].entities) == ["0", "1", "2"]
