"""`fedkge tune` and `compare --tune`: a search by validation, which a kill does not change."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from commands import answer, fedkge, made, printed, refused, started, summary_of, write_home
from fedkge.config import read_toml, variants
from fedkge.front.searching import Axis
from fedkge.front.tuning import FIRST

pytest.importorskip("numba")
pytest.importorskip("optuna")

LINE = ("tune", "tiny.toml", "--over", "trainer.lr=1e-3..1e-1:log", "--over", "model.dim=4..8:2")
ATLAS = """
rounds   = 3
data     = { name = "atlas" }
model    = { name = "transe", dim = 8, margin = 8.0 }
method   = { name = "fedep" }
trainer  = { epochs = 1, batch_size = 512, negatives = 4, lr = 5e-3 }
evaluate = { every = 1, patience = 0 }
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    return tmp_path


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_validation_chooses_the_best_trial(home: Path) -> None:
    found = answer(*LINE, "--trials", 4, "--out", "s")
    values = [row["valid_mrr"] for row in found["trials"]]
    assert len(values) == 4
    for row in found["trials"]:
        folder = home / "s" / "trials" / f"{row['trial']:04d}"
        config = read_toml(folder / "config.toml")
        assert (config["trainer"]["lr"], config["model"]["dim"]) == (row["trainer.lr"], row["model.dim"])
        assert row["valid_mrr"] == summary_of(folder)["metrics"]["valid"]["mrr"]
        assert 1e-3 <= row["trainer.lr"] <= 1e-1
        assert row["model.dim"] in (4, 6, 8)
    (best,) = (row for row in found["trials"] if row["best"])
    assert best["valid_mrr"] == max(values)
    folder = home / "s" / "trials" / f"{best['trial']:04d}"
    assert found["test"]["mrr"] == summary_of(folder)["metrics"]["test"]["mrr"]
    assert read_toml(Path(found["best"])) == read_toml(folder / "config.toml")
    assert "holds a search already" in refused(*LINE, "--trials", 4, "--out", "s")
    more = answer(*LINE, "--trials", 5, "--out", "s", "--resume")
    assert [row["valid_mrr"] for row in more["trials"][:4]] == values
    other = ("tune", "tiny.toml", "--over", "model.dim=4,8", "--out", "s", "--resume")
    assert "holds a search with other options" in refused(*other)
    shown = fedkge(*LINE, "--trials", 5, "--out", "s", "--resume").stdout
    assert "test of the best: MRR" in shown
    assert all(f"{row['trainer.lr']:g}" in shown for row in more["trials"])


def test_killed_and_resumed_it_tries_the_same(home: Path) -> None:
    line = (*LINE, "--set", "rounds=40", "--trials", "6")
    whole = answer(*line, "--out", "whole")
    search = started(*line, "--out", "cut")
    third = home / "cut" / "trials" / "0002" / "run.jsonl"
    while not third.exists():
        assert search.poll() is None, search.communicate()
        time.sleep(0.001)
    search.send_signal(signal.SIGKILL)
    search.communicate()
    again = answer(*line, "--out", "cut", "--resume")
    assert again["trials"] == whole["trials"]
    for number in ("0002", "0005"):
        if (home / "whole" / "trials" / number / "summary.json").exists():
            assert made(home / "cut" / "trials" / number) == made(home / "whole" / "trials" / number)


def test_trials_without_hope_are_ended(home: Path) -> None:
    line = ("tune", "tiny.toml", "--over", "trainer.lr=1e-9..1e-1:log", "--set", "rounds=20", "--trials", 14)
    found = answer(*line, "--out", "s")["trials"]
    states = {
        state: [row["trial"] for row in found if row["state"] == state] for state in ("complete", "pruned")
    }
    assert states["pruned"]
    assert min(states["pruned"]) >= FIRST
    for number in states["pruned"]:
        assert not (home / "s" / "trials" / f"{number:04d}" / "summary.json").exists()
    every = answer(*line, "--out", "t", "--no-prune")["trials"]
    assert {row["state"] for row in every} == {"complete"}


def test_a_point_that_was_tried_costs_no_trial(home: Path) -> None:
    line = ("tune", "tiny.toml", "--over", "model.dim=4..14:2", "--set", "rounds=2", "--out", "s")
    found = answer(*line, "--trials", 5)["trials"]
    assert len({row["model.dim"] for row in found}) == len(found) == 5
    more = fedkge(*line, "--trials", 9, "--resume", "--json")
    assert "note: s: all 6 points were tried" in more.stderr
    rows = printed(more.stdout)["trials"]
    assert rows[:5] == found
    assert sorted(row["model.dim"] for row in rows) == [4, 6, 8, 10, 12, 14]
    again = fedkge(*line, "--trials", 9, "--resume", "--json")
    assert "note: s: all 6 points were tried" in again.stderr
    assert printed(again.stdout)["trials"] == rows


def test_points_that_only_some_parts_have(home: Path) -> None:
    over = ("--over", "method.name=single,fedprox", "--over", "method.mu=0,0.5")
    done = fedkge("tune", "tiny.toml", *over, "--trials", 4, "--set", "rounds=2", "--out", "s", "--json")
    assert "note: s: all 3 points were tried" in done.stderr
    points = {(row["method.name"], row["method.mu"]) for row in printed(done.stdout)["trials"]}
    assert points == {("single", None), ("fedprox", "0"), ("fedprox", "0.5")}


@pytest.mark.slow
def test_a_search_on_atlas_is_the_same_after_a_kill(home: Path) -> None:
    """Kills in the first trial and in one that may be ended early; some trials are."""
    (home / "atlas.toml").write_text(ATLAS)
    over = ("--over", "trainer.lr=1e-5,1e-4,1e-3,1e-2", "--over", "trainer.negatives=1,4")
    line = ("tune", "atlas.toml", *over, "--trials", "9")
    whole = answer(*line, "--out", "whole")
    states = [row["state"] for row in whole["trials"]]
    assert len(states) == 8  # all points
    assert "pruned" in states
    assert "pruned" not in states[:FIRST]
    for number, event in ((0, b'"round": 2'), (states.index("pruned"), b'"event"')):
        search = started(*line, "--out", "cut", "--resume")
        journal = home / "cut" / "trials" / f"{number:04d}" / "run.jsonl"
        while not (journal.exists() and event in journal.read_bytes()):
            assert search.poll() is None, search.communicate()
            time.sleep(0.001)
        search.send_signal(signal.SIGKILL)
        search.communicate()
    again = answer(*line, "--out", "cut", "--resume")
    assert again["trials"] == whole["trials"]
    assert again["test"] == whole["test"]


def test_a_trial_that_diverges_does_not_end_the_search(home: Path) -> None:
    line = ("tune", "tiny.toml", "--over", "trainer.lr=1e30,0.01", "--trials", 4, "--set", "rounds=2")
    found = answer(*line, "--set", "trainer.optimizer=sgd", "--set", "model.name=distmult", "--out", "s")
    assert {row["state"] for row in found["trials"]} == {"failed", "complete"}
    (best,) = (row for row in found["trials"] if row["best"])
    assert best["trainer.lr"] == "0.01"


def test_methods_have_equally_many_trials(home: Path) -> None:
    over = ("--tune", 3, "--over", "trainer.lr=1e-3..1e-1:log", "--over", "method.mu=0.01..1.0:log")
    line = ("compare", "tiny.toml", "--method", "single,fedep,fedprox", *over, "--seeds", "0,1", "--out", "c")
    found = answer(*line)
    for method in ("single", "fedep", "fedprox"):
        trials = sorted((home / "c" / method / "trials").iterdir())
        assert len(trials) == 3
        tuned = variants(read_toml(home / "c" / "best.toml"))[method]
        best = max(trials, key=lambda folder: summary_of(folder)["metrics"]["valid"]["mrr"])
        assert tuned == read_toml(best / "config.toml")
        second = read_toml(home / "c" / method / "seed-1" / "config.toml")
        assert second == {**tuned, "seed": 1}
        assert not (home / "c" / method / "seed-0").exists()  # the trial is that run
    assert [row["seeds"] for row in found["methods"]] == [2, 2, 2]
    again = fedkge(*line, "--resume")
    assert "round " not in again.stderr
    assert refused(*line[:4], "--tune", 3).startswith("--tune: which options?")
    assert refused(*line[:4], "--over", "model.dim=4,8").startswith("--over: of no use without --tune")


def test_private_trials_are_in_the_account(home: Path) -> None:
    pytest.importorskip("dp_accounting")
    options = {
        "marks.share": 0.5,
        "privacy.mode": "strict",
        "privacy.epsilon": 0.1,
        "privacy.delta": 1e-4,
        "rounds": 1,
        "evaluate.every": 1,
    }
    given = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    done = fedkge("tune", "tiny.toml", "--over", "trainer.lr=0.01..0.1", "--trials", 2, "--out", "s", *given)
    assert done.exit_code == 0, done.output
    assert "note: north, all 2 runs together" in done.stderr
    for row in answer("account", "tiny.toml", "--delta", "1e-4"):
        assert row["runs"] == 2
    assert {path.stat().st_mode & 0o777 for path in (home / "s").rglob("*") if path.is_file()} == {0o600}


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (["trainer.lr=1..0.1"], "--over trainer.lr=1..0.1: expected a range"),
        (["trainer.lr=a..b"], "--over trainer.lr=a..b: expected numbers around .."),
        (["trainer.lr=0..1:log"], "--over trainer.lr=0..1:log: a logarithmic range begins above 0"),
        (["trainer.lr=0.1..1:2"], "--over trainer.lr=0.1..1:2: expected a range"),
        (["method.mu=0,1"], "--over method.mu: no such option of fedep"),
        (["model.dim=4,8", "model.dim=4..8"], "--over: model.dim stands twice"),
        (["seed=0,1"], "--over seed: a seed is no choice"),
        (["seed=0..5"], "--over seed: a seed is no choice"),
        (["rounds=2..8"], "--over rounds: changes the question and not the answer"),
        (["data.path=a,b"], "--over data.path: changes the question and not the answer"),
        (["trainer.lr=0.1,1", "evaluate.sides=both,tail"], "--over evaluate.sides: changes the question"),
        (["privacy.epsilon=1.0..9.0"], "--over privacy.epsilon: changes the question"),
        (["start=a,b"], "--over start: changes the question"),
    ],
)
def test_bad_searches(over: list[str], message: str, home: Path) -> None:
    options = [part for one in over for part in ("--over", one)]
    assert refused("tune", "tiny.toml", *options, "--out", "s", "--set", "method.name=fedep").startswith(
        message
    )
    assert not (home / "s").exists()


def test_compare_searches_no_question_either(home: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single,fedep", "--tune", 2, "--out", "c")
    assert refused(*line, "--over", "align.names=true,false").startswith(
        "--over align.names: changes the question and not the answer, so scores of its values do not "
    )


def test_axes() -> None:
    assert Axis.parse("a.b=4..8:2", ()) == Axis("a.b", (), 4, 8, 2, True, False)
    assert Axis.parse("a.b=1e-4..1e-2:log", ()) == Axis("a.b", (), 1e-4, 1e-2, 1, False, True)
    assert Axis.parse("a.b=x,y", ["x", "y"]) == Axis("a.b", ("x", "y"))
    assert json.dumps(vars(Axis("a", ("x",))))
