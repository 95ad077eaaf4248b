"""Commands around training as a user runs them: exit codes, what is printed, what lies in the run folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedkge.cli.main import app
from fedkge.config import read_toml

pytest.importorskip("numba")

LINE = [sys.executable, "-c", "from fedkge.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "NUMBA_NUM_THREADS": "1"}
CONFIG = """
rounds = 6
data     = { path = "federation" }
model    = { name = "transe", dim = 6, margin = 4.0 }
trainer  = { epochs = 1, batch_size = 64, negatives = 4, lr = 2e-2 }
evaluate = { every = 2, patience = 0 }
"""


def write_site(folder: Path, seed: int, relations: str) -> None:
    """A graph over e0 .. e19 whose valid and test are of the same kind as train."""
    random = np.random.default_rng(seed)
    rows = np.unique(random.integers(0, [20, len(relations), 20], (220, 3)), axis=0)
    rows = random.permutation(rows)
    ends = {"train": rows[40:], "valid": rows[:20], "test": rows[20:40]}
    folder.mkdir(parents=True)
    for split, triples in ends.items():
        lines = [f"e{h}\t{relations[r]}\te{t}\n" for h, r, t in triples]
        (folder / f"{split}.tsv").write_text("".join(lines))


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [*LINE, *arguments], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a federation of two sites, an experiment, and one run of it by a real process."""
    home = tmp_path_factory.mktemp("home")
    write_site(home / "federation" / "north", 0, "ab")
    write_site(home / "federation" / "south", 1, "bcd")
    (home / "tiny.toml").write_text(CONFIG)
    return home


@pytest.fixture(scope="module")
def done(home: Path) -> subprocess.CompletedProcess[str]:
    """`fedkge run tiny.toml` as a process of its own; it leaves runs/tiny."""
    return process("run", "tiny.toml", cwd=home)


@pytest.fixture(autouse=True)
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.delenv("FEDKGE_DATA", raising=False)


def fedkge(*arguments: object) -> Result:
    """The command in this process, which is ten times faster."""
    return CliRunner().invoke(app, list(map(str, arguments)))


def answer(*arguments: object) -> list[dict]:
    found = fedkge(*arguments, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def refused(*arguments: object) -> str:
    """The one line on standard error of a command that exits with 2."""
    found = fedkge(*arguments)
    assert found.exit_code == 2, found.output
    assert found.stdout == ""
    (line,) = found.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# run


def test_run(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert "north" in done.stdout
    assert "report: runs/tiny/report.html" in done.stdout
    summary = json.loads(Path("runs/tiny/summary.json").read_text())
    assert summary["rounds"] == 6
    assert summary["best_round"] in (2, 4, 6)
    assert summary["sites"]["north"]["triples"]["test"] == 20
    assert set(summary["metrics"]) == {"valid", "test", "test_tail"}
    events = [json.loads(line)["event"] for line in Path("runs/tiny/run.jsonl").read_text().splitlines()]
    assert events == ["start", *["round", "round", "evaluate"] * 6, "end"]
    made = files(Path("runs/tiny"))
    for site in ("north", "south"):
        for name in ("entities.safetensors", "entities.tsv", "relations.safetensors", "relations.tsv"):
            assert f"sites/{site}/{name}" in made
    assert not any(name.endswith(".part") for name in made)
    config = read_toml(Path("runs/tiny/config.toml"))
    assert config["trainer"]["optimizer"] == "adam"


def test_output_that_is_no_terminal_has_no_progress_bar(done: subprocess.CompletedProcess[str]) -> None:
    assert done.stderr == ""
    assert "\r" not in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.usefixtures("done")
def test_a_run_repeats_bit_by_bit_in_another_process(tmp_path: Path) -> None:
    (summary,) = answer("run", "tiny.toml", "--out", tmp_path / "again")
    first, again = files(Path("runs/tiny/sites")), files(tmp_path / "again" / "sites")
    assert first == again
    assert summary["metrics"] == json.loads(Path("runs/tiny/summary.json").read_text())["metrics"]


@pytest.mark.usefixtures("done")
def test_a_run_is_not_overwritten() -> None:
    before = files(Path("runs/tiny"))
    assert "holds a run already; choose another folder or give --resume" in refused("run", "tiny.toml")
    said = refused("run", "tiny.toml", "--resume", "--set", "trainer.lr=0.5")
    assert "another experiment; a run is resumed with the same options" in said
    assert files(Path("runs/tiny")) == before


def test_set_overrides(tmp_path: Path) -> None:
    (summary,) = answer(
        *("run", "tiny.toml", "--out", tmp_path / "run", "--set", "model.name=rotate", "--set", "rounds=1"),
        *("--set", 'trainer.loss="logistic"', "--set", "seed=5"),
    )
    assert (summary["model"], summary["rounds"], summary["seed"]) == ("rotate", 1, 5)
    assert read_toml(tmp_path / "run" / "config.toml")["trainer"]["loss"] == "logistic"


def test_patience_stops_a_run_and_keeps_the_best(tmp_path: Path) -> None:
    (summary,) = answer(
        *("run", "tiny.toml", "--out", tmp_path / "run", "--set", "rounds=200", "--set", "evaluate.every=1"),
        *("--set", "evaluate.patience=2", "--set", "trainer.lr=0.2"),
    )
    for course, found in summary["courses"].items():
        assert found["rounds"] == found["best_round"] + 2 < 200, course
    journal = [json.loads(line) for line in (tmp_path / "run" / "run.jsonl").read_text().splitlines()]
    best = [e for e in journal if e["event"] == "evaluate" and e["course"] == "north"]
    mrr = max(event["mrr"] for event in best)
    assert summary["sites"]["north"]["metrics"]["valid"]["mrr"] == mrr


# A killed run goes on.


def rounds_in(journal: Path) -> int:
    return journal.read_text().count('"event": "round"') if journal.exists() else 0


def test_killed_and_resumed_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    many = ["--set", "rounds=60", "--set", "evaluate.every=3", "--set", "trainer.optimizer=row-adam"]
    whole, run = tmp_path / "whole", tmp_path / "killed"
    answer("run", "tiny.toml", "--out", whole, *many)
    random = np.random.default_rng(time.time_ns() % 2**32)
    journal, resume = run / "run.jsonl", []
    for after in (4, 40, 75):  # the second site starts at 61
        line = [*LINE, "run", "tiny.toml", "--out", str(run), *many, *resume]
        victim = subprocess.Popen(
            line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while rounds_in(journal) < after and victim.poll() is None:
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.02))
        victim.kill()
        _, said = victim.communicate()
        assert victim.returncode == -signal.SIGKILL, said
        assert not (run / "summary.json").exists()
        resume = ["--resume"]
    said = fedkge("report", run)
    assert said.exit_code == 0, said.output
    assert "–" in said.stdout  # what is not known yet
    answer("run", "tiny.toml", "--out", run, *many, "--resume")
    assert files(run / "sites") == files(whole / "sites")
    first, second = (json.loads((folder / "summary.json").read_text()) for folder in (whole, run))
    for same in ("metrics", "sites", "courses", "rounds", "best_round"):
        assert first[same] == second[same]
    assert (run / "report.html").stat().st_size > 10_000
    events = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    assert events.count("start") == 4
    assert "resumed" in events
    assert events[-1] == "end"


def test_a_finished_run_resumed_stays_as_it_is(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run", "--set", "rounds=2")
    (first,) = answer("run", "tiny.toml", *out)
    before = files(tmp_path / "run" / "sites")
    (second,) = answer("run", "tiny.toml", *out, "--resume")
    assert files(tmp_path / "run" / "sites") == before
    assert first["metrics"] == second["metrics"]


def test_resuming_over_other_data(tmp_path: Path) -> None:
    shutil.copytree("federation", tmp_path / "data")
    line = ("run", "tiny.toml", "--out", tmp_path / "run", "--set", f"data.path={tmp_path / 'data'}")
    answer(*line, "--set", "rounds=2")
    with (tmp_path / "data" / "north" / "train.tsv").open("a") as file:
        file.write("somebody\ta\te1\n")
    assert refused(*line, "--set", "rounds=2", "--resume") == (
        f"{tmp_path / 'run'}: the data of 'north' has changed since the run"
    )
    assert refused("evaluate", tmp_path / "run").endswith(
        "the data of site 'north' has changed since the run"
    )


# compare and report


def test_compare(tmp_path: Path) -> None:
    rows = answer(
        *("compare", "tiny.toml", "--method", "single, collective", "--out", tmp_path / "both"),
        *("--set", "rounds=2"),
    )
    assert [row["site"] for row in rows] == ["north", "south", "all"]
    assert all(0 < row[method] <= 1 for row in rows for method in ("single", "collective"))
    assert (tmp_path / "both" / "report.html").is_file()
    collective = json.loads((tmp_path / "both" / "collective" / "summary.json").read_text())
    assert list(collective["courses"]) == ["collective"]
    again = answer(
        *("compare", "tiny.toml", "--method", "single,collective", "--out", tmp_path / "both"),
        *("--set", "rounds=2", "--resume"),
    )
    assert again == rows
    runs = [tmp_path / "both" / name for name in ("single", "collective")]
    reported = fedkge("report", *runs, "--out", tmp_path / "page.html", "--json")
    assert reported.exit_code == 0, reported.output
    assert (tmp_path / "page.html").is_file()
    assert json.loads(reported.stdout)["metrics"]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("single,colective", "method.name: expected one of 'single', 'collective', got 'colective'; did you"),
        (",", "--method: expected names, as in single,collective"),
        ("single,single", "--method: single stands twice"),
    ],
)
def test_compare_refuses_before_it_trains(method: str, message: str, tmp_path: Path) -> None:
    said = refused("compare", "tiny.toml", "--method", method, "--out", tmp_path / "both")
    assert said.startswith(message)
    assert not (tmp_path / "both").exists()


# evaluate


@pytest.mark.usefixtures("done")
def test_evaluate_repeats_the_runs_own_metrics() -> None:
    rows = answer("evaluate", "runs/tiny")
    summary = json.loads(Path("runs/tiny/summary.json").read_text())
    assert [(row["site"], row["side"]) for row in rows] == [
        (site, side) for site in ("north", "south") for side in ("both", "head", "tail")
    ]
    assert rows[0]["mrr"] == pytest.approx(summary["sites"]["north"]["metrics"]["test"]["mrr"], rel=1e-12)
    valid = answer("evaluate", "runs/tiny", "--split", "valid")
    assert valid[0]["mrr"] == pytest.approx(summary["sites"]["north"]["metrics"]["valid"]["mrr"], rel=1e-12)


@pytest.mark.usefixtures("done")
def test_evaluate_ties_and_types() -> None:
    best, middle, worst = (
        answer("evaluate", "runs/tiny", "--ties", ties)[0]["mrr"]
        for ties in ("optimistic", "realistic", "pessimistic")
    )
    assert best >= middle >= worst
    typed, plain = answer("evaluate", "runs/tiny", "--types", "train"), answer("evaluate", "runs/tiny")
    assert all(few["mrr"] >= all_["mrr"] for few, all_ in zip(typed, plain, strict=True))
    assert answer("evaluate", "runs/tiny", "--types", "openke")


@pytest.mark.usefixtures("done")
def test_evaluate_by_relation() -> None:
    rows = answer("evaluate", "runs/tiny", "--by-relation")
    north = {row["relation"]: row for row in rows if row["site"] == "north"}
    assert set(north) == {"a", "b"}
    whole = answer("evaluate", "runs/tiny")[0]
    count = sum(row["count"] for row in north.values())
    assert count == whole["count"]
    assert sum(row["mrr"] * row["count"] for row in north.values()) / count == pytest.approx(whole["mrr"])


@pytest.mark.usefixtures("done")
def test_evaluate_classification() -> None:
    rows = answer("evaluate", "runs/tiny", "--classify")
    assert [row["site"] for row in rows] == ["north", "south"]
    assert all(0 <= row["accuracy"] <= 1 and 0 <= row["auc"] <= 1 for row in rows)
    assert set(rows[1]["thresholds"]) == {"b", "c", "d"}
    shown = fedkge("evaluate", "runs/tiny", "--classify")
    assert shown.exit_code == 0, shown.output
    assert "accuracy" in shown.stdout


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "tset"], "--split: expected one of valid, test, got 'tset'; did you mean 'test'?"),
        (["--ties", "mean"], "--ties: expected one of optimistic, realistic, pessimistic, got 'mean'"),
        (["--types", "all"], "--types: expected one of none, train, openke, got 'all'"),
    ],
)
def test_evaluate_refuses(arguments: list[str], message: str) -> None:
    assert refused("evaluate", "runs/tiny", *arguments) == message


def test_not_a_run() -> None:
    assert refused("evaluate", "federation").startswith("federation: not a run folder; expected one with")
    assert refused("predict", "nowhere", "--site", "a", "--head", "e1").startswith(
        "nowhere: not a run folder"
    )


# predict


def known_statements() -> set[tuple[str, ...]]:
    lines = [
        line
        for split in ("train", "valid", "test")
        for line in Path(f"federation/north/{split}.tsv").read_text().splitlines()
    ]
    return {tuple(line.split("\t")) for line in lines}


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (["--head", "e1", "--relation", "a"], "tail"),
        (["--tail", "e1", "--relation", "b"], "head"),
        (["--head", "e1", "--tail", "e2"], "relation"),
    ],
)
def test_predict(given: list[str], asked: str) -> None:
    line = ("predict", "runs/tiny", "--site", "north", *given)
    everything = answer(*line, "--known", "--top", 50)
    assert len({row[asked] for row in everything}) == len(everything) == (2 if asked == "relation" else 20)
    scores = [row["score"] for row in everything]
    assert scores == sorted(scores, reverse=True)
    stated = known_statements()
    assert all(row["known"] == ((row["head"], row["relation"], row["tail"]) in stated) for row in everything)
    new = answer(*line, "--top", 50)
    assert new == [row for row in everything if not row["known"]]
    assert answer(*line, "--top", 1) == new[:1]


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--head", "e1"], "predict: expected two of head, relation and tail, got head"),
        (["--head", "e111", "--relation", "a"], "no entity is named 'e111'; did you mean 'e11'?"),
        (["--head", "e1", "--relation", "aa"], "no relation is named 'aa'; did you mean 'a'?"),
        (["--head", "e1", "--relation", "a", "--top", "0"], "top: expected at least 1, got 0"),
    ],
)
def test_predict_refuses(given: list[str], message: str) -> None:
    assert refused("predict", "runs/tiny", "--site", "north", *given) == message


@pytest.mark.usefixtures("done")
def test_unknown_site() -> None:
    said = refused("predict", "runs/tiny", "--site", "nroth", "--head", "e1", "--relation", "a")
    assert said == "runs/tiny: no tables of a site named 'nroth'; did you mean 'north'? (known: north, south)"


# embeddings


@pytest.mark.usefixtures("done")
@pytest.mark.parametrize(
    ("format", "package", "expected"),
    [
        (
            "safetensors",
            "safetensors",
            ["entities.safetensors", "entities.tsv", "relations.safetensors", "relations.tsv"],
        ),
        ("tsv", "torch", ["entities.vectors.tsv", "relations.vectors.tsv"]),
        ("parquet", "pyarrow", ["entities.parquet", "relations.parquet"]),
        ("pykeen", "pykeen", ["trained_model.pkl"]),
    ],
)
def test_embeddings(format: str, package: str, expected: list[str], tmp_path: Path) -> None:
    pytest.importorskip(package)
    rows = answer("embeddings", "runs/tiny", "--site", "north", "--out", tmp_path / "e", "--format", format)
    names = [Path(row["file"]).name for row in rows]
    assert names[: len(expected)] == expected
    assert all(Path(row["file"]).stat().st_size == row["bytes"] > 0 for row in rows)


@pytest.mark.usefixtures("done")
def test_embeddings_refuses(tmp_path: Path) -> None:
    line = ("embeddings", "runs/tiny", "--site", "north", "--out", tmp_path / "e", "--format")
    said = refused(*line, "parqet")
    assert said == (
        "--format: expected one of safetensors, parquet, tsv, pykeen, got 'parqet'; did you mean 'parquet'?"
    )
    (tmp_path / "file").touch()
    said = refused("embeddings", "runs/tiny", "--site", "north", "--out", tmp_path / "file")
    assert said.startswith(f"{tmp_path / 'file'}: cannot be written: ")


# list


@pytest.mark.parametrize(
    ("what", "some"),
    [
        ("models", {"transe", "rotate", "rescal"}),
        ("losses", {"self-adversarial", "margin", "logistic"}),
        ("optimizers", {"adam", "row-adam", "adagrad", "sgd"}),
        ("data", {"atlas", "fb15k-237"}),
    ],
)
def test_list(what: str, some: set[str]) -> None:
    rows = answer("list", what)
    assert some <= {row["name"] for row in rows}
    assert fedkge("list", what).exit_code == 0
    if what != "data":
        assert all(row["about"] for row in rows)


def test_list_refuses() -> None:
    assert refused("list", "model").endswith("got 'model'; did you mean 'models'?")


# Experiments that cannot be right.


def test_data_that_is_not_there_is_named_in_full(tmp_path: Path) -> None:
    said = refused("run", "tiny.toml", "--out", tmp_path / "run", "--set", "data.path=nowhere")
    assert said == f"{Path.cwd() / 'nowhere'}: no such file or folder"


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["trainer.batchsize=3"], "trainer.batchsize: no such option; did you mean 'batch_size'?"),
        (["trainer.lr=fast"], "trainer.lr: expected float, got 'fast'"),
        (["rounds=1.5"], "rounds: expected int, got 1.5"),
        (["model.name=trnse"], "model.name: no model is named 'trnse'; did you mean 'transe'?"),
        (["model.norm=3"], "model.norm: expected one of 1, 2, got 3"),
        (["trainer.loss=margins"], "trainer.loss: expected one of"),
        (["rounds"], "--set rounds: expected KEY=VALUE, as in model.dim=64"),
        (["rounds.x=3"], "--set rounds.x=3: rounds is not a table"),
        (["data.name=atlas"], "data.name, path: expected one of the two"),
        (["data.ratio=8:x"], "ratio: expected numbers as in 8:1:1, got '8:x'"),
        (["seed=2026-01-02"], "seed: expected int, got datetime.date(2026, 1, 2)"),
    ],
)
def test_bad_options(assignments: list[str], message: str, tmp_path: Path) -> None:
    given = [part for assignment in assignments for part in ("--set", assignment)]
    said = refused("run", "tiny.toml", "--out", tmp_path / "run", *given)
    assert said.startswith(message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ": no such file"),
        ("rounds = = 3", ": Invalid value (at line 1, column 10)"),
        ("rounds = 3", "model: expected a table"),
    ],
)
def test_bad_files(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_text(content)
    assert message in refused("run", path, "--out", tmp_path / "run")


def test_devices(tmp_path: Path) -> None:
    import torch

    line = ("run", "tiny.toml", "--out", tmp_path / "run", "--device")
    assert refused(*line, "gpu") == "--device: expected auto, cpu or cuda, got 'gpu'"
    if not torch.cuda.is_available():
        assert refused(*line, "cuda").startswith("--device cuda: this machine has no CUDA device")


def test_a_real_process_fails_in_one_line() -> None:
    found = process("run", "tiny.toml", "--out", "refused", "--set", "model.dmi=3")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("error: model.dmi: no such option; did you mean 'dim'?")
    assert found.stderr.count("\n") == 1
    assert not Path("refused").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written: " in refused("run", "tiny.toml", "--out", tmp_path / "file" / "run")


def test_data_without_valid_and_test(tmp_path: Path) -> None:
    shutil.copytree("federation", tmp_path / "data")
    for site in ("north", "south"):
        for split in ("valid", "test"):
            (tmp_path / "data" / site / f"{split}.tsv").unlink()
    line = ("run", "tiny.toml", "--set", f"data.path={tmp_path / 'data'}", "--set", "rounds=1")
    said = refused(*line, "--out", tmp_path / "run")
    assert said == (
        "site 'north' has no valid statements; name a ratio, as in data.ratio = '8:1:1', "
        "or split the data with `fedkge data split`"
    )
    (summary,) = answer(*line, "--out", tmp_path / "run", "--set", "data.ratio=8:1:1")
    assert all(site["triples"]["test"] >= 15 for site in summary["sites"].values())
    assert answer("evaluate", tmp_path / "run")[0]["count"] > 0


# What is imported when.


@pytest.mark.parametrize("statement", ["import fedkge", "from fedkge.cli.main import main; main()"])
def test_nothing_heavy_is_imported_for_help(statement: str) -> None:
    code = (
        f"import sys; sys.argv = ['fedkge', '--help']\ntry:\n    {statement}\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'numba', 'pyarrow', 'plotly', 'sklearn', 'pykeen', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr == "[]\n"
    assert ("embeddings" in found.stdout) == ("main" in statement)


def test_plain_torch_instead_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import load_file

    line = ("run", "tiny.toml", "--set", "rounds=2")
    answer(*line, "--out", tmp_path / "fast")
    monkeypatch.setitem(os.environ, "FEDKGE_KERNELS", "reference")
    answer(*line, "--out", tmp_path / "slow")
    fast, slow = (
        load_file(tmp_path / name / "sites" / "south" / "entities.safetensors")["rows"]
        for name in ("fast", "slow")
    )
    torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-3)
