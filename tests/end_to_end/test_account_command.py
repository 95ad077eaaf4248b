"""`fedkge account`, and what runs say of it: seeds add up, all are told, and a limit stops the next run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import answer, fedkge, refused, write_home

OPTIONS = {
    "marks.share": 0.5,
    "privacy.mode": "strict",
    "privacy.epsilon": 0.1,
    "privacy.delta": 1e-4,
    "rounds": 1,
    "evaluate.every": 1,
    "method.name": "fedep",
}
PRIVATE = [word for key, value in OPTIONS.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("dp_accounting")
    write_home(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKGE_DATA", raising=False)
    return tmp_path


def test_three_seeds_at_a_tenth_spend_more_than_a_tenth_and_everybody_is_told(home: Path) -> None:
    done = fedkge("run", "tiny.toml", "--out", "runs/s", "--seeds", "0,1,2", *PRIVATE)
    assert done.exit_code == 0, done.output
    assert "note: north, all 3 runs together: ε = 0.18" in done.stderr
    assert "(unit: triple; neighbours: zero-out-one; accountant: pld; guarantee: formal)" in done.stderr
    rows = answer("account", "tiny.toml", "--delta", "1e-4")
    assert [row["site"] for row in rows] == ["north", "south"]
    for row in rows:
        assert (row["runs"], row["unit"], row["limit"]) == (3, "triple", None)
        assert row["neighbours"] == "zero-out-one"
        assert 0.18 < float(row["epsilon"]) < 0.19
    summary = json.loads((home / "runs" / "s" / "seed-2" / "summary.json").read_text())
    assert [cost["epsilon"] for cost in summary["accounts"]] == pytest.approx(
        [float(row["epsilon"]) for row in rows], rel=0.02
    )
    page = (home / "runs" / "s" / "report.html").read_text()
    assert "What all runs of each site have spent together" in page
    said = fedkge("privacy", "runs/s/seed-2").stdout
    assert "All runs of each site together" in said

    (home / "runs" / "s").rename(home / "gone")  # moved runs change nothing; nor does edited data
    train = home / "federation" / "north" / "train.tsv"
    train.write_text("".join(train.read_text().splitlines(keepends=True)[:-5]))
    answer("account", "tiny.toml", "--site", "north", "--limit", "0.2", "--delta", "1e-4")
    again = fedkge("run", "tiny.toml", "--out", "runs/t", *PRIVATE)
    assert again.exit_code == 2
    said = again.stderr
    assert "account: site 'north' has spent epsilon 0.18" in said
    assert "of its limit 0.2 at delta 0.0001, in 3 runs" in said
    assert not (home / "runs" / "t").exists(), "it was refused before it began"
    (row,) = answer("account", "tiny.toml", "--site", "north", "--delta", "1e-4")
    assert row["runs"] == 3


def test_unlearning_charges_the_account_of_the_run_that_it_starts_from(home: Path) -> None:
    given = [word.replace("privacy.epsilon=0.1", "privacy.noise=30.0") for word in PRIVATE]
    given += ["--set", "privacy.accountant=rdp", "--set", "persons.prefixes=['e1']"]
    done = fedkge("run", "tiny.toml", "--out", "runs/x", *given)
    assert done.exit_code == 0, done.output
    head, relation, tail = (
        (home / "federation" / "north" / "train.tsv").read_text().splitlines()[3].split("\t")
    )
    (home / "forget.tsv").write_text(f"{head}\t{relation}\t{tail}\n")
    (before,) = answer("account", "tiny.toml", "--site", "north", "--delta", "1e-4")
    asked = ["runs/x", "--site", "north", "--forget", "forget.tsv", "--mode", "exact", "--out", "runs/y"]
    done = fedkge("unlearn", *asked)
    assert done.exit_code == 0, done.output
    (row,) = answer("account", "tiny.toml", "--site", "north", "--delta", "1e-4")
    assert (before["runs"], row["runs"]) == (1, 2)
    assert row["releases"] == 2 * before["releases"]
    config = (home / "runs" / "y" / "config.toml").read_text()
    assert "data-persons.txt" in config
    listed = (home / "runs" / "y" / "data-persons.txt").read_text().split()
    assert listed
    assert all(name.startswith("e1") for name in listed)


def test_a_site_that_is_not_there(home: Path) -> None:
    assert "no site is named 'nroth'; did you mean 'north'" in refused(
        "account", "tiny.toml", "--site", "nroth", "--delta", "1e-4"
    )
    assert "which δ" in refused("account", "tiny.toml")
