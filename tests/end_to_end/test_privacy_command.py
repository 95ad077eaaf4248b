"""`fedkge privacy`: table, words and plot of a run's ledger; nothing promised without one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commands import answer, fedkge, refused
from fedkge.privacy import Ledger, Release
from fedkge.privacy.accountants import Rdp
from fedkge.privacy.releases import Gaussian, Poisson, Shuffled, TouchedRows
from run_folders import write_run

STRICT = ["privacy.mode=strict", "privacy.epsilon=2.0", "privacy.delta=1e-6", "privacy.accountant=rdp"]
PAPER = ["privacy.mode=paper", "privacy.noise=0.7", "privacy.delta=1e-6"]
SITES = ("north", "south")
STATEMENTS = 5000  #: confidential ones of each


def private_run(
    folder: Path, options: list[str], release: Release, epochs: int = 6, method: str = "fede"
) -> Path:
    run = write_run(folder, method, sites=SITES, options=options)
    ledger = Ledger(run / "ledger.jsonl")
    for epoch in range(1, epochs + 1):
        for site in SITES[: 1 + (epoch <= 3)]:  # south stops after three epochs
            ledger.record(site, epoch, release, STATEMENTS)
    return run


@pytest.fixture
def strict(tmp_path: Path) -> Path:
    pytest.importorskip("dp_accounting")
    pytest.importorskip("plotly")
    return private_run(tmp_path / "strict", STRICT, Release(Gaussian(1.2), Poisson(0.01), 50))


def test_a_run_with_a_ledger(strict: Path) -> None:
    (run,) = answer("privacy", strict)["runs"]
    epsilon = Rdp().epsilon([Release(Gaussian(1.2), Poisson(0.01), 300)], 1e-6)
    north, south = run["sites"]
    assert north == {
        "site": "north",
        "epsilon": epsilon,
        "delta": 1e-6,
        "unit": "triple",
        "neighbours": "zero-out-one",
        "accountant": "rdp",
        "guarantee": "formal",
        "releases": 300,
        "mechanism": "Gaussian noise 1.2 on every row",
        "sampling": "Poisson, rate 0.01",
    }
    assert south["epsilon"] < epsilon
    assert run["mode"] == "strict"
    assert sum(word.startswith("Protected: each confidential") for word in run["words"]) == 1
    page = Path(run["plot"])
    assert page == strict.resolve() / "privacy.html"
    assert "ε over epochs" in page.read_text()
    assert "Against: whoever sees everything" in page.read_text()


def test_for_people(strict: Path) -> None:
    shown = fedkge("privacy", strict)
    assert shown.exit_code == 0, shown.output
    for said in ("strict: what was spent", "formal", "Assuming: ", "Not protected: ", "plot: "):
        assert said in shown.stdout
    for line in shown.stdout.splitlines():
        if line.startswith(SITES):
            assert "unit: one confidential triple; neighbours: zero out one; accountant: " in line


def test_another_delta_and_accountant(strict: Path) -> None:
    base = answer("privacy", strict)["runs"][0]["sites"][0]
    loose = answer("privacy", strict, "--delta", "1e-5")["runs"][0]["sites"][0]
    older = answer("privacy", strict, "--accountant", "rdp-paper")["runs"][0]["sites"][0]
    assert loose["epsilon"] < base["epsilon"] < older["epsilon"]
    assert "no accountant is named 'pdl'; did you mean 'pld'" in refused(
        "privacy", strict, "--accountant", "pdl"
    )
    assert "delta: expected above 0 and below 1" in refused("privacy", strict, "--delta", "2")


def test_a_delta_beside_the_number_of_triples(strict: Path, tmp_path: Path) -> None:
    """What publishes one of 5,000 triples at random has δ = 2e-4."""
    for delta in ("2e-4", "0.5"):
        assert "allows publishing one of the 5,000 confidential triples of site 'north'" in refused(
            "privacy", strict, "--delta", delta
        )
    near = fedkge("privacy", strict, "--delta", "1e-4")
    assert near.exit_code == 0
    assert "Warning: δ = 0.0001 is 0.5 of one in the 5,000 confidential triples of north" in near.stdout
    assert "Warning" not in fedkge("privacy", strict, "--delta", "1e-5").stdout
    release = Release(TouchedRows(0.7, 20.0), Shuffled(0.01), 50)
    paper = private_run(tmp_path / "paper", PAPER, release)
    assert fedkge("privacy", paper, "--delta", "2e-4").exit_code == 0, "which promises nothing"


def test_paper_mode_promises_nothing(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    release = Release(TouchedRows(0.7, 20.0), Shuffled(0.01), 50)
    (run,) = answer("privacy", private_run(tmp_path / "paper", PAPER, release))["runs"]
    assert {site["guarantee"] for site in run["sites"]} == {"none"}
    assert {site["accountant"] for site in run["sites"]} == {"rdp-paper"}
    assert run["words"][2].startswith("guarantee: none, because noise on touched rows alone")
    assert "pld cannot account for" in refused("privacy", tmp_path / "paper", "--accountant", "pld")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "guarantee: none, because training added no noise (privacy.mode is off)."),
        (["privacy.mode=u-only"], "Confidential triples were not used (privacy.mode is u-only)"),
    ],
)
def test_a_run_without_a_ledger(tmp_path: Path, options: list[str], said: str) -> None:
    run = write_run(tmp_path / "run", options=options)
    shown = fedkge("privacy", run)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(said)
    assert answer("privacy", run)["runs"][0]["sites"] == []
    assert not (run / "privacy.html").exists()


def test_a_private_run_before_its_first_round(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", options=STRICT, ended=False)
    journal = (run / "run.jsonl").read_text()
    (run / "run.jsonl").write_text(journal.splitlines(keepends=True)[0])
    shown = fedkge("privacy", run)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("Nothing has been released yet (privacy.mode is strict)")
    (run / "run.jsonl").write_text(journal)
    assert "run.jsonl has rounds that made some: what was spent is not known" in refused("privacy", run)


def test_runs_add_up(strict: Path, tmp_path: Path) -> None:
    private_run(tmp_path / "again", STRICT, Release(Gaussian(1.5), Poisson(0.01), 50))
    found = answer("privacy", strict, tmp_path / "again")
    assert found["note"] is None
    both = [Release(Gaussian(noise), Poisson(0.01), 300) for noise in (1.2, 1.5)]
    assert found["together"][0]["epsilon"] == Rdp().epsilon(both, 1e-6)
    assert all(found["together"][0]["epsilon"] > run["sites"][0]["epsilon"] for run in found["runs"])
    assert "All runs together, if sites of one name" in fedkge("privacy", strict, tmp_path / "again").stdout


@pytest.mark.parametrize(
    ("option", "accountant", "delta"),
    [("privacy.accountant=pld", "pld", 1e-6), ("privacy.delta=1e-5", "rdp", 1e-5)],
)
def test_runs_that_were_counted_otherwise_are_counted_alike(
    strict: Path, tmp_path: Path, option: str, accountant: str, delta: float
) -> None:
    """Else a sum could be below its parts: here the second run adds hardly anything."""
    private_run(tmp_path / "other", [*STRICT, option], Release(Gaussian(90.0), Poisson(0.01), 1))
    alone = answer("privacy", strict)["runs"][0]["sites"][0]["epsilon"]
    found = answer("privacy", strict, tmp_path / "other")
    rows = [*found["together"], *(site for run in found["runs"] for site in run["sites"])]
    assert {(row["accountant"], row["delta"]) for row in rows} == {(accountant, delta)}
    north = found["together"][0]["epsilon"]
    assert north >= max(run["sites"][0]["epsilon"] for run in found["runs"])
    assert north < alone, "as the first run was counted by itself"
    assert f"All runs are counted by {accountant} at δ = {delta:g} here" in found["note"]
    assert found["note"] in fedkge("privacy", strict, tmp_path / "other").stdout


def test_runs_that_do_not_add_up(strict: Path, tmp_path: Path) -> None:
    """A run without protection, or on other triples, is no zero in a sum."""
    plain = write_run(tmp_path / "plain", "fede", sites=SITES)
    found = answer("privacy", strict, plain)
    assert found["together"] == []
    assert "plain trained on confidential triples without protection" in found["not_together"]
    release = Release(Gaussian(1.2), Poisson(0.01), 50)
    pooled = private_run(tmp_path / "pooled", STRICT, release, method="collective")
    assert "some runs pool all graphs" in answer("privacy", strict, pooled)["not_together"]
    other = private_run(tmp_path / "other", STRICT, Release(Gaussian(1.2), Poisson(0.01), 50))
    summary = json.loads((other / "summary.json").read_text())
    summary["sites"]["north"]["digest"] = "another"
    (other / "summary.json").write_text(json.dumps(summary))
    shown = fedkge("privacy", strict, other).stdout
    assert "Not added up: north had other triples" in shown
    assert "All runs together" not in shown


def seal(run: Path) -> None:
    """Have the summary say what the ledger has, as that of a run does."""
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | Ledger(run / "ledger.jsonl").seal))


@pytest.mark.parametrize("command", ["privacy", "report"])
def test_the_end_of_an_ended_runs_ledger_is_known(strict: Path, command: str) -> None:
    seal(strict)
    assert fedkge(command, strict).exit_code == 0
    *lines, last = (strict / "ledger.jsonl").read_text().splitlines(keepends=True)
    for changed in ("".join(lines), "".join([*lines, last.replace('"noise": 1.2', '"noise": 100.0')])):
        (strict / "ledger.jsonl").write_text(changed)
        assert "not all of, the 450 that the run has made" in refused(command, strict)
    (strict / "ledger.jsonl").unlink()
    assert "its 0 releases are not, or not all of, the 450" in refused(command, strict)


def test_a_damaged_ledger_is_an_error(strict: Path) -> None:
    lines = (strict / "ledger.jsonl").read_text().splitlines(keepends=True)
    (strict / "ledger.jsonl").write_text("".join(lines[:2] + lines[3:]))
    assert "ledger.jsonl:3: lines were removed or changed here" in refused("privacy", strict)


def test_without_dp_accounting(strict: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedkge.privacy import accountants

    accountants._divergence.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert "pip install 'fedkge[privacy]'" in refused("privacy", strict)
    assert fedkge("report", strict).exit_code == 0
    assert "needs dp-accounting, which is not installed" in (strict / "report.html").read_text()


def test_without_plotly_there_is_no_plot(strict: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    shown = fedkge("privacy", strict)
    assert shown.exit_code == 0, shown.output
    assert "plot: " not in shown.stdout
    assert "needs plotly" in shown.stderr


def test_reports_have_the_section(strict: Path, tmp_path: Path) -> None:
    assert fedkge("report", strict).exit_code == 0
    page = (strict / "report.html").read_text()
    assert ">Privacy</h2>" in page
    assert "ε over epochs" in page
    plain = write_run(tmp_path / "plain", sites=SITES)
    assert fedkge("report", plain).exit_code == 0
    assert ">Privacy</h2>" not in (plain / "report.html").read_text()
    assert fedkge("report", strict, plain, "--out", tmp_path / "both.html").exit_code == 0
    assert "<h3>strict</h3>" in (tmp_path / "both.html").read_text()
