"""`fedkge sweep`: every point of a grid, interrupted and resumed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import (
    CONFIG,
    answer,
    fedkge,
    files,
    journal_of,
    made,
    notes,
    printed,
    refused,
    started,
    summary_of,
    write_site,
)
from fedkge.cli.grid import axis, folder_name, split
from fedkge.cli.results import say_edges
from fedkge.config import read_toml, variants
from fedkge.graphs import files as graph_files

pytest.importorskip("numba")
here = pytest.mark.usefixtures("here")

SHORT = ("--set", "rounds=2")


@here
def test_sweep(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "trainer.lr=0.01,0.1", "--grid", "model.dim=4,8", *SHORT)
    found = answer(*line, "--out", tmp_path / "grid")
    points = [(lr, dim) for lr in (0.01, 0.1) for dim in (4, 8)]
    assert [(row["trainer.lr"], row["model.dim"]) for row in found["points"]] == points
    for row in found["points"]:
        folder = tmp_path / "grid" / f"trainer.lr={row['trainer.lr']},model.dim={row['model.dim']}"
        measured = summary_of(folder)["metrics"]
        assert row["valid_mrr"] == measured["valid"]["mrr"]
        assert row["mrr"] == (measured["test"]["mrr"] if row["best"] else None)
        config = read_toml(folder / "config.toml")
        assert (config["trainer"]["lr"], config["model"]["dim"]) == (row["trainer.lr"], row["model.dim"])
    (best,) = (row for row in found["points"] if row["best"])
    assert best["valid_mrr"] == max(row["valid_mrr"] for row in found["points"])
    config = read_toml(Path(found["best"]))
    assert (config["trainer"]["lr"], config["model"]["dim"]) == (best["trainer.lr"], best["model.dim"])
    everything = answer(*line, "--out", tmp_path / "grid", "--resume", "--show-test")["points"]
    assert all(row["mrr"] is not None for row in everything)
    assert [row["best"] for row in everything] == [row["best"] for row in found["points"]]
    page = Path(found["report"]).read_text()
    assert "trainer.lr" in page
    assert "model.dim" in page
    alone = ("run", "tiny.toml", "--set", "trainer.lr=0.1", "--set", "model.dim=4", *SHORT)
    answer(*alone, "--out", tmp_path / "alone")
    assert made(tmp_path / "alone") == made(tmp_path / "grid" / "trainer.lr=0.1,model.dim=4")


def test_a_choice_at_the_edge_of_the_grid_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    def told(best: float, *others: float) -> str:
        values = sorted([best, *others])
        say_edges([{"method.name": "fedr", "lr": one, "best": one == best} for one in values], ["lr"], 512)
        return capsys.readouterr().err

    beyond = "note: fedr: validation chose the {} lr that was tried, {}; {} ones may do better\n"
    assert told(0.1, 0.01, 0.001) == beyond.format("largest", 0.1, "larger")
    assert told(0.001, 0.01, 0.1) == beyond.format("smallest", 0.001, "smaller")
    assert told(0.01, 0.001, 0.1) == ""
    assert told(0.1, 0.01) == "", "one of two is always at the edge"
    say_edges([{"codec": one, "best": one == "a"} for one in "abc"], ["codec"], 512)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("tried", "best", "more"),
    [
        ((1, 16, 64), 64, "larger"),
        ((1, 16, 512), 512, None),
        ((1, 16, 1024), 1024, None),
        ((1, 16, 64), 1, None),
        ((512, 1024, 2048), 512, "smaller"),
    ],
)
def test_no_chunk_is_beyond_its_batch(
    tried: tuple[int, ...], best: int, more: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"trainer.chunk": one, "best": one == best} for one in tried]
    say_edges(rows, ["trainer.chunk"], 512)
    told = capsys.readouterr().err
    assert f"{more} ones may do better" in told if more else told == ""
    own = [row | {"trainer.batch_size": 4096} for row in rows]  # swept beside it
    say_edges(own, ["trainer.chunk"], 512)
    assert ("larger ones may do better" in capsys.readouterr().err) == (best == tried[-1])


@here
def test_a_sweep_knows_its_batch(tmp_path: Path) -> None:
    """All three chunks are whole batches of 64, so the first of equals is best."""
    line = ("sweep", "tiny.toml", "--grid", "trainer.chunk=256,128,64", *SHORT, "--out", tmp_path / "grid")
    found = fedkge(*line, "--json")
    assert found.exit_code == 0, found.output
    assert [row["trainer.chunk"] for row in printed(found.stdout)["points"] if row["best"]] == [256]
    assert "may do better" not in notes(found.stderr).replace("more rounds may do better", "")


@here
def test_sweep_for_people(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "evaluate.every=1,2", "--seeds", "0,1", "--out", tmp_path)
    shown = fedkge(*line, *SHORT, "--set", "method.name=fedr")
    assert shown.exit_code == 0, shown.output
    assert notes(shown.stderr) == ""
    assert "evaluate.every=2/seed-1 (4/4): round 2/2  loss " in shown.stderr
    for row in answer(*line, *SHORT, "--set", "method.name=fedr", "--resume")["points"]:
        assert row["seeds"] == 2
        assert f"{row['valid_mrr']:.4f} ± {row['valid_mrr_std']:.4f}" in shown.stdout
        if row["best"]:
            assert f"{row['mrr']:.4f} ± {row['mrr_std']:.4f}" in shown.stdout
    assert (tmp_path / "evaluate.every=2" / "seed-1" / "summary.json").is_file()
    assert f"report: {tmp_path / 'report.html'}" in shown.stdout


@here
def test_options_that_a_point_does_not_have_make_no_points(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "method.name=fedep,fedprox,single", "--grid", "method.mu=0,0.5")
    found = answer(*line, "--out", tmp_path / "grid", *SHORT)
    names = ["method.name=fedep", "method.name=fedprox,method.mu=0", "method.name=fedprox,method.mu=0.5"]
    assert sorted(p.name for p in (tmp_path / "grid").iterdir()) == [
        "best.toml", *names, "method.name=single", "report.html"
    ]  # fmt: skip
    assert len(found["points"]) == 4
    chosen = variants(read_toml(tmp_path / "grid" / "best.toml"))
    assert list(chosen) == ["single", "fedep", "fedprox"]  # of each method its best
    best = [row for row in found["points"] if row["best"] and row["method.name"] == "fedprox"]
    assert [chosen["fedprox"]["method"]["mu"]] == [row["method.mu"] for row in best]
    folder = tmp_path / "grid" / f"method.name=fedprox,method.mu={best[0]['method.mu']:g}"
    assert chosen["fedprox"] == read_toml(folder / "config.toml")
    mrr = [summary_of(tmp_path / "grid" / name)["metrics"]["test"]["mrr"] for name in names]
    assert mrr[0] == mrr[1]  # without a pull, FedProx is FedEP
    assert mrr[1] != mrr[2]


@here
def test_data_is_loaded_once_and_may_be_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(tmp_path / "other" / "east", 5, "ab")
    read, loaded = graph_files.read_federation, []

    def counted(path: Path, **options: bool) -> object:
        loaded.append(path)
        return read(path, **options)

    monkeypatch.setattr(graph_files, "read_federation", counted)
    paths = f"data.path=federation,{tmp_path / 'other'}"
    found = answer(
        *("sweep", "tiny.toml", "--grid", paths, "--grid", "model.dim=4,8"),
        *("--out", tmp_path / "grid", "--set", "rounds=1"),
    )
    assert loaded == [Path("federation").resolve(), tmp_path / "other"]
    assert len(found["points"]) == 4
    assert {Path(row["data.path"]).name for row in found["points"]} == {"federation", "other"}


@here
def test_killed_and_resumed(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "method.name=fedep,fedprox,fedec", "--set", "rounds=40")
    whole = answer(*line, "--out", tmp_path / "whole")
    grid = tmp_path / "grid"
    sweep = started(*line, "--out", grid)
    second = grid / "method.name=fedprox" / "run.jsonl"
    while not second.exists():
        assert sweep.poll() is None, sweep.communicate()
        time.sleep(0.001)
    sweep.send_signal(signal.SIGKILL)
    sweep.communicate()
    first = files(grid / "method.name=fedep")
    assert "summary.json" in first
    assert not (grid / "method.name=fedec").exists()
    said = fedkge(*line, "--out", grid, "--resume")
    assert said.exit_code == 0, said.output
    assert notes(said.stderr) == f"note: {grid}: 1 of 3 runs are done, 1 to go on with, 1 new\n"
    assert files(grid / "method.name=fedep") == first
    assert any(event["event"] == "resumed" for event in journal_of(second.parent))
    again = answer(*line, "--out", grid, "--resume")
    assert all(row["best"] for row in again["points"])
    assert [row["mrr"] for row in again["points"]] == [row["mrr"] for row in whole["points"]]
    for name in ("fedep", "fedprox", "fedec"):
        assert made(grid / f"method.name={name}") == made(tmp_path / "whole" / f"method.name={name}")


@here
def test_a_single_point_shows_its_keys(tmp_path: Path) -> None:
    (row,) = answer("sweep", "tiny.toml", "--grid", "model.dim=4", "--out", tmp_path, *SHORT)["points"]
    assert row["model.dim"] == 4


@here
def test_a_point_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "trainer.lr=1e30,0.01", "--out", tmp_path, *SHORT)
    found = fedkge(*line, "--set", "trainer.optimizer=sgd", "--set", "model.name=distmult")
    assert found.exit_code == 2, found.output
    assert notes(found.stderr).startswith(f"error: {tmp_path / 'trainer.lr=1e+30'}: ")
    assert (tmp_path / "trainer.lr=0.01" / "summary.json").exists()
    assert "–" in found.stdout


@here
@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["method.mue=0,1"], "--grid method.mue: no such option; did you mean 'mu'?"),
        (["metod.mu=0,1"], "--grid metod: no such option; did you mean 'method'?"),
        (["model.dim=4,x"], "--grid model.dim: expected int, got 'x'"),
        (
            ["method.name=fedep,fedpro"],
            "--grid method.name: no method is named 'fedpro'; did you",
        ),
        (
            ["method.name=fedep,fedec", "method.mue=1"],
            "--grid method.mue: no such option of fedep, fedec;",
        ),
        (["rounds.x=1,2"], "--grid rounds.x=1: rounds is not a table"),
        (["model.dim"], "--grid model.dim: expected KEY=V1,V2, as in method.mu=0,0.1,1"),
        (["model.dim="], "--grid model.dim=: expected KEY=V1,V2"),
        (["model.dim=4,,8"], "--grid model.dim=4,,8: expected KEY=V1,V2"),
        (["trainer.lr=1,1.0"], "--grid trainer.lr: 1 stands twice"),
        (["model.dim=4", "model.dim=8"], "--grid: model.dim stands twice; name all its values at once"),
        (["seed=0,1"], "--grid seed: a seed is no choice but a repetition; give --seeds 0,1,2"),
        (['model={name="transe"},{name="rotate"}'], "--grid model: expected plain values, got {name="),
    ],
)
def test_bad_grids(grid: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(CONFIG + '[method]\nname = "fedprox"\n')
    options = [part for one in grid for part in ("--grid", one)]
    said = refused("sweep", tmp_path / "x.toml", *options, "--out", tmp_path / "grid")
    assert said.startswith(message)
    assert not (tmp_path / "grid").exists()


@here
def test_a_grid_is_not_overwritten(tmp_path: Path) -> None:
    line = ("sweep", "tiny.toml", "--grid", "model.dim=4,8", "--out", tmp_path / "grid", "--set", "rounds=1")
    answer(*line)
    assert "holds a run already; choose another folder or give --resume" in refused(*line)
    said = refused(*line, "--set", "trainer.lr=0.5", "--resume")
    assert "another experiment; a run is resumed with the same options" in said


# Names


def test_axes() -> None:
    assert axis("a.b = 1, 2.5,x") == ("a.b", ["1", "2.5", "x"])
    assert axis("a=[1, 2],[3]")[1] == ["[1, 2]", "[3]"]
    assert axis("""a="x,y",'z,"'""")[1] == ['"x,y"', """'z,"'"""]


@given(st.lists(st.text("ab1.-", min_size=1), min_size=1))
def test_plain_values_are_split_at_commas(values: list[str]) -> None:
    assert list(split(",".join(values))) == values


def test_folder_names() -> None:
    assert folder_name({"method.mu": 0.1, "model.dim": 64}) == "method.mu=0.1,model.dim=64"
    assert (
        folder_name({"trainer.lr": 1e-5, "trainer.filtered": True})
        == "trainer.lr=1e-05,trainer.filtered=true"
    )
    assert folder_name({"method.mu": 0.0}) == "method.mu=0"


VALUES = (
    st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False) | st.lists(st.text(), max_size=3)
)


@given(VALUES, VALUES)
def test_folder_names_are_safe_and_tell_points_apart(one: object, other: object) -> None:
    names = [folder_name({"some.key": value, "another": 3}) for value in (one, other)]
    for name in names:
        assert name.isascii()
        assert len(name) < 140
        assert not set(name) & set('/\\:*?"<>| \0')
    if str(one) != str(other) and one != other:
        assert names[0] != names[1]
