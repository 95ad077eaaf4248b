"""Going on from a run, as a user does it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from commands import answer, fedkge, files, journal_of, printed, refused, summary_of
from fedkge.config import read_toml

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here", "done")


def test_a_run_goes_on_from_another(tmp_path: Path) -> None:
    found = fedkge("run", "tiny.toml", "--out", tmp_path / "after", "--set", "start=runs/tiny")
    assert found.exit_code == 0, found.output
    config = read_toml(tmp_path / "after" / "config.toml")
    assert config["start"] == str(Path("runs/tiny").resolve()), "whole, as a run is used from other folders"
    summary = summary_of(tmp_path / "after")
    assert (summary["start"]["method"], summary["start"]["rounds"]) == ("single", 6)
    events = [event for event in journal_of(tmp_path / "after") if event["event"] != "traffic"]
    kinds = [(event["event"], event.get("round")) for event in events]
    assert kinds[:3] == [("start", None), ("leaks", None), ("warm_start", None)]
    assert kinds[3:5] == [("aligned", 0), ("evaluate", 0)]
    told = answer("report", "runs/tiny", tmp_path / "after", "--out", tmp_path / "report.html")
    assert [row["run"] for row in told["metrics"]] == ["single", "single after single"]
    assert {row["run"] for row in told["paired"]} == {"single after single"}
    again = fedkge("run", "tiny.toml", "--out", tmp_path / "after", "--set", "start=runs/tiny", "--resume")
    assert again.exit_code == 0, again.output


def test_sites_that_join_with_what_they_have_are_told_who_gains(tmp_path: Path) -> None:
    """Also with another learning rate, and each keeping its own best: that is no mere sweep."""
    options = ("method.name=fedep", "start=runs/tiny", "evaluate.keep=each", "trainer.lr=1e-4")
    given = [word for option in options for word in ("--set", option)]
    found = fedkge("run", "tiny.toml", "--out", tmp_path / "joined", *given)
    assert found.exit_code == 0, found.output
    before, after = summary_of(Path("runs/tiny")), summary_of(tmp_path / "joined")
    for site, own in after["sites"].items():
        assert own["metrics"]["valid"]["mrr"] >= before["sites"][site]["metrics"]["valid"]["mrr"]
    told = fedkge("report", "runs/tiny", tmp_path / "joined", "--out", tmp_path / "report.html")
    assert "Test MRR minus alone" in told.output
    assert "fedep after single · lr=0.0001: " in told.output


def test_seeds_go_on_from_seeds(tmp_path: Path) -> None:
    for out, start in (("first", ()), ("second", ("--set", f"start={tmp_path / 'first'}"))):
        found = fedkge("run", "tiny.toml", "--out", tmp_path / out, "--seeds", "0,1", *start)
        assert found.exit_code == 0, found.output
    for seed in (0, 1):
        run = tmp_path / "second" / f"seed-{seed}"
        assert summary_of(run)["start"]["run"] == str(tmp_path / "first" / f"seed-{seed}")
    told = answer("report", tmp_path / "second", "--out", tmp_path / "report.html")
    assert [(row["run"], row["seeds"]) for row in told["metrics"]] == [("single after single", 2)]


def test_a_start_that_is_wrong_is_said_before_anything_trains(tmp_path: Path) -> None:
    said = refused("run", "tiny.toml", "--out", tmp_path / "run", "--set", "start=nowhere")
    assert said.startswith(f"start: {Path.cwd() / 'nowhere'}: not a run folder")
    arguments = ("--set", "start=runs/tiny", "--set", "model.dim=7")
    said = refused("compare", "tiny.toml", "--method", "single,fedep", "--out", tmp_path / "run", *arguments)
    assert "tables of transe (dim = 6" in said
    assert "trains transe (dim = 7" in said
    said = refused("run", "tiny.toml", "--set", "start=runs/tiny", "--set", "privacy.mode=u-only")
    assert said.startswith("--set start: with privacy.mode 'u-only'")
    assert not (tmp_path / "run").exists()


CHAIN = """
[variants.alone]
[variants.joined]
after    = "alone"
method   = { name = "fedep" }
evaluate = { keep = "each" }
[variants.finished]
after    = "joined"
trainer  = { lr = 1e-4 }
"""


def test_variants_go_on_from_each_other(tmp_path: Path) -> None:
    """By one command or by several, with the same tables."""
    chain = Path("chain.toml")
    chain.write_text(Path("tiny.toml").read_text() + CHAIN)
    given = ("--set", "rounds=2", "--seeds", "0,1")
    found = fedkge("compare", chain, "--out", tmp_path / "all", *given)
    assert found.exit_code == 0, found.output
    for name, before in (("joined", "alone"), ("finished", "joined")):
        for seed in ("seed-0", "seed-1"):
            told = summary_of(tmp_path / "all" / name / seed)["start"]
            assert told["run"] == str(tmp_path / "all" / before / seed)
    for name in ("alone", "joined"):
        found = fedkge("run", chain, "--variant", name, "--out", tmp_path / "each" / name, *given)
        assert found.exit_code == 0, found.output
    entities = "joined/seed-0/sites/{}/entities.safetensors"
    for site in summary_of(tmp_path / "all" / "joined" / "seed-0")["sites"]:
        one, other = (tmp_path / way / entities.format(site) for way in ("all", "each"))
        assert one.read_bytes() == other.read_bytes()


def test_variants_that_cannot_go_on(tmp_path: Path) -> None:
    chain = Path("chain.toml")
    chain.write_text(Path("tiny.toml").read_text() + CHAIN)
    said = refused("compare", chain, "--variant", "joined,alone", "--out", tmp_path / "run")
    assert said.endswith("chain.toml: joined goes on from alone; name alone before it")
    said = refused("run", chain, "--variant", "joined", "--out", tmp_path / "run")
    assert said.startswith(f"start: {tmp_path / 'alone'}: not a run folder")
    expected = "variants.joined.after: expected another variant of the file (alone, finished), got"
    for after in ("alnoe", "joined"):
        chain.write_text(Path("tiny.toml").read_text() + CHAIN.replace('"alone"', f'"{after}"'))
        assert f"{expected} {after!r}" in refused("compare", chain, "--out", tmp_path / "run")
    both = CHAIN.replace('after    = "alone"', 'after = "alone"\nstart = "runs/tiny"')
    chain.write_text(Path("tiny.toml").read_text() + both)
    assert "the variant has start too" in refused("compare", chain, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_used_after_its_start_has_gone(
    tmp_path: Path, done: subprocess.CompletedProcess[str]
) -> None:
    assert done.returncode == 0
    shutil.copytree("runs/tiny", tmp_path / "before")
    given = ("--out", tmp_path / "after", "--set", f"start={tmp_path / 'before'}")
    assert fedkge("run", "tiny.toml", *given).exit_code == 0
    shutil.rmtree(tmp_path / "before")
    was = files(tmp_path / "after" / "sites")
    assert fedkge("evaluate", tmp_path / "after").exit_code == 0
    again = fedkge("run", "tiny.toml", *given, "--resume")
    assert again.exit_code == 0, again.output
    assert files(tmp_path / "after" / "sites") == was


def test_it_is_explained() -> None:
    (option,) = printed(fedkge("explain", "start", "--json").stdout)
    assert "start with its tables" in json.dumps(option)
