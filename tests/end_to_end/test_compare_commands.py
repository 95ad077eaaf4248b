"""`fedkge compare` and `report`: one experiment by several methods, side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import CONFIG, answer, fedkge, files, journal_of, notes, refused, summary_of
from fedkge.config import read_toml

pytest.importorskip("numba")
pytestmark = pytest.mark.usefixtures("here")

SHORT = ("--set", "rounds=2")
RISING = "warning: Best at the last validation of the last round: single, fedep; more rounds may do better.\n"


def test_compare(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single, collective,fede", "--out", tmp_path / "all", *SHORT)
    found = answer(*line)
    methods = ("single", "collective", "fede")
    summaries = {method: summary_of(tmp_path / "all" / method) for method in methods}
    rows = {row["site"]: row for row in found["sites"]}
    for site in ("north", "south"):
        mrr = {method: summaries[method]["sites"][site]["metrics"]["test"]["mrr"] for method in methods}
        assert {method: rows[site][method] for method in methods} == mrr
        assert rows[site]["gains"]["fede"] == pytest.approx(mrr["fede"] - mrr["single"])
    sent = {row["run"]: row["up_bytes"] for row in found["methods"]}
    assert sent == {"single": 0, "collective": 0, "fede": summaries["fede"]["traffic"]["up_bytes"]}
    assert sent["fede"] > 0
    assert found["report"] == str(tmp_path / "all" / "report.html")
    assert Path(found["report"]).is_file()
    assert list(summaries["collective"]["courses"]) == ["collective"]
    budgets = [summary["budget"] for summary in summaries.values()]
    assert budgets == [budgets[0]] * 3
    before = files(tmp_path / "all" / "fede")
    assert answer(*line, "--resume") == found
    assert files(tmp_path / "all" / "fede") == before  # what is done is not repeated


VARIANTS = """
[variants.alone]
method = { name = "single" }

[variants.near]
method  = { name = "fedprox", mu = 0.5 }
trainer = { lr = 1e-2 }
"""


def test_variants_of_a_file_are_run_one_by_one_and_compared(tmp_path: Path) -> None:
    Path("both.toml").write_text(CONFIG + VARIANTS)
    out = tmp_path / "all"
    found = answer("compare", "both.toml", "--out", out, *SHORT, "--set", "method.squared=false")
    assert {row["run"] for row in found["methods"]} == {"alone", "near"}
    assert set(found["sites"][0]) >= {"alone", "near"}
    config = read_toml(out / "near" / "config.toml")
    assert config["method"]["mu"] == 0.5
    assert config["method"]["squared"] is False  # of --set, for the variant that has it
    assert (config["trainer"]["lr"], config["trainer"]["negatives"]) == (1e-2, 4)  # the rest is the file's
    assert "variants" not in config
    (run,) = answer("run", "both.toml", "--variant", "alone", "--out", tmp_path / "one", *SHORT)
    assert run["metrics"] == summary_of(out / "alone")["metrics"]
    swept = answer("sweep", "both.toml", "--variant", "near", "--grid", "method.mu=0,0.5", *SHORT)
    assert [point["method.mu"] for point in swept["points"]] == [0, 0.5]


ALIKE = """
[variants.whole]
method = { name = "fedep" }
[variants.small]
method = { name = "fedep" }
model  = { name = "transe", dim = 4, margin = 4.0 }
[variants.called]
name   = "by its own name"
method = { name = "fedep" }
trainer = { lr = 1e-3 }
"""


def test_variants_of_one_method_are_told_apart(tmp_path: Path) -> None:
    Path("alike.toml").write_text(CONFIG + ALIKE)
    line = ("compare", "alike.toml", "--out", tmp_path / "all", *SHORT)
    found = answer(*line, "--reference", "small")
    assert {row["run"] for row in found["methods"]} == {"whole", "small", "by its own name"}
    assert {row["run"] for row in found["reference"]} == {"whole", "small", "by its own name"}
    by_own = answer(*line, "--resume", "--reference", "called")
    assert by_own["reference"] != found["reference"]
    again = answer("report", tmp_path / "all")
    assert set(again["sites"][0]) >= {"whole", "small", "by its own name"}
    page = (tmp_path / "all" / "report.html").read_text()
    assert all(name in page for name in ("whole", "small", "by its own name"))


def test_tuned_variants_have_their_names(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    Path("both.toml").write_text(CONFIG + VARIANTS)
    over = ("--tune", 2, "--over", "trainer.negatives=2,4", "--seeds", "0,1")
    found = answer("compare", "both.toml", "--out", tmp_path / "all", *SHORT, *over)
    assert {row["run"] for row in found["methods"]} == {"alone", "near"}


def test_a_variant_must_be_named_and_known() -> None:
    Path("both.toml").write_text(CONFIG + VARIANTS)
    assert "both.toml: variants: which of alone, near?" in refused("run", "both.toml")
    assert "no such variant; did you mean 'near'? (known: alone, near)" in refused(
        "run", "both.toml", "--variant", "neer"
    )
    assert "has no [variants.NAME]; name methods to compare" in refused("compare", "tiny.toml")
    Path("both.toml").write_text(CONFIG + "variants = 3")
    assert "variants: expected tables, as in [variants.fedep]" in refused("run", "both.toml")


def test_compare_says_who_is_worse_off_beyond_chance(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single,fedep,collective", "--out", tmp_path / "all", *SHORT)
    found = answer(*line)
    rows = {row["site"]: row for row in found["sites"]}
    assert [(row["run"], row["site"]) for row in found["paired"]] == [
        (run, site) for run in ("fedep", "collective") for site in ("north", "south")
    ]
    for row in found["paired"]:
        assert row["difference"] == pytest.approx(rows[row["site"]]["gains"][row["run"]], abs=1e-7)
        assert row["low"] < row["difference"] < row["high"]
        assert row["verdict"] == (
            "better off" if row["low"] > 0 else "worse off" if row["high"] < 0 else None
        )
    for one in found["joining"]:
        verdicts = [row["verdict"] for row in found["paired"] if row["run"] == one["run"]]
        assert len(one["better_off"]) == verdicts.count("better off")
        assert len(one["worse_off"]) == verdicts.count("worse off")
    shown = fedkge(*line, "--resume").stdout
    for row in found["paired"]:
        assert f"{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]" in shown
    assert answer("report", tmp_path / "all")["paired"] == found["paired"]
    again = fedkge("report", tmp_path / "all")
    assert "beyond chance" in again.stdout
    assert "Beyond chance: " in (tmp_path / "all" / "report.html").read_text()


def test_a_report_warns_of_other_budgets(tmp_path: Path) -> None:
    for method, rounds in (("single", 1), ("fedep", 2)):
        line = ("run", "tiny.toml", "--set", f"method.name={method}", "--set", f"rounds={rounds}")
        assert fedkge(*line, "--out", tmp_path / method).exit_code == 0
    found = fedkge("report", tmp_path / "single", tmp_path / "fedep", "--out", tmp_path / "page.html")
    assert "warning: Budgets differ in rounds (1, 2): a difference in results may be" in found.stderr


def test_compare_warns_where_alone_trains_more_often(tmp_path: Path) -> None:
    """`single` exchanges nothing, so nobody sits a round out, whatever fraction is configured."""
    line = ("compare", "tiny.toml", "--method", "single,fedep", "--set", "participation.fraction=0.5")
    found = fedkge(*line, "--set", "rounds=2", "--set", "trainer.epochs=1", "--out", tmp_path / "all")
    assert found.exit_code == 0, found.output
    told = "Budgets differ in share of rounds trained (1, 0.5), rounds trained per site (2, 1)"
    assert f"warning: {told}: a difference in results may be" in found.stderr
    assert told in (tmp_path / "all" / "report.html").read_text()
    budgets = [summary_of(tmp_path / "all" / method)["budget"] for method in ("single", "fedep")]
    assert [budget.pop("participation") for budget in budgets] == [1, 0.5]
    assert budgets[0] == budgets[1]


def test_a_run_shows_the_metrics_of_every_table(tmp_path: Path) -> None:
    line = ("run", "tiny.toml", "--set", "method.name=fedlu", "--set", "evaluate.every=1", *SHORT)
    shown = fedkge(*line, "--out", tmp_path / "run").stdout
    found = summary_of(tmp_path / "run")
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in shown.splitlines() if "│" in row]
    for table, split in (("local", "test"), ("global", "test_global"), ("hub", "test_hub")):
        (row,) = (row for row in rows if row[0] == table)
        names = ("mrr", "hits@1", "hits@3", "hits@10")
        assert [row[i] for i in (1, 3, 4, 5)] == [f"{found['metrics'][split][name]:.4f}" for name in names]
        course = found["courses"]["federation"]
        assert row[6] == str(course["best_round"] if table == "local" else course["best_rounds"]["global"])


def test_compare_for_people(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single,fedep", "--out", tmp_path / "both", *SHORT)
    shown = fedkge(*line)
    assert shown.exit_code == 0, shown.output
    rows = {row["site"]: row for row in answer(*line, "--resume")["sites"]}
    for row in rows.values():
        assert f"{row['fedep']:.4f} ({row['gains']['fedep']:+.3f})" in shown.stdout
    gains = sum(rows[site]["gains"]["fedep"] > 0 for site in ("north", "south"))
    losses = sum(rows[site]["gains"]["fedep"] < 0 for site in ("north", "south"))
    lose = "loses" if losses == 1 else "lose"
    assert f"fedep: {gains} of 2 sites gain, {losses} {lose}" in shown.stdout
    assert "in brackets, against every site alone" in " ".join(shown.stdout.split())
    assert f"report: {tmp_path / 'both' / 'report.html'}" in shown.stdout
    assert notes(shown.stderr) == RISING
    alone = fedkge(
        "compare", "tiny.toml", "--method", "fedep", "--out", tmp_path / "both", *SHORT, "--resume"
    )
    assert "in brackets" not in alone.stdout


def test_seeds_of_methods(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single,fede", "--seeds", "0,1", "--out", tmp_path / "all")
    found = answer(*line, *SHORT)
    assert sorted(path.parent.relative_to(tmp_path) for path in tmp_path.rglob("summary.json")) == [
        Path("all") / method / seed for method in ("fede", "single") for seed in ("seed-0", "seed-1")
    ]
    mrr = [
        summary_of(tmp_path / "all" / "fede" / seed)["metrics"]["test"]["mrr"]
        for seed in ("seed-0", "seed-1")
    ]
    whole = found["sites"][-1]
    assert whole["fede"] == pytest.approx(sum(mrr) / 2)
    assert whole["fede_std"] == pytest.approx(abs(mrr[0] - mrr[1]) / 2**0.5)
    shown = fedkge(*line, *SHORT, "--resume")
    assert f"{whole['fede']:.4f} ± {whole['fede_std']:.4f}" in shown.stdout


def test_with_resume_other_methods_join(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--out", tmp_path / "all", *SHORT)
    answer(*line, "--method", "single")
    before = files(tmp_path / "all" / "single")
    found = fedkge(*line, "--method", "single,fedep", "--resume")
    assert found.exit_code == 0, found.output
    assert notes(found.stderr) == (
        f"note: {tmp_path / 'all'}: 1 of 2 runs are done, 0 to go on with, 1 new\n{RISING}"
    )
    assert files(tmp_path / "all" / "single") == before
    assert summary_of(tmp_path / "all" / "fedep")["method"] == "fedep"


def test_options_go_to_the_methods_that_have_them(tmp_path: Path) -> None:
    (tmp_path / "prox.toml").write_text(CONFIG + '[method]\nname = "fedprox"\nmu = 0.25\nshare = "both"\n')
    answer(
        *("compare", tmp_path / "prox.toml", "--method", "single,fedep,fedprox,fedec", "--out", tmp_path),
        *("--set", "method.temperature=0.5", "--set", "method.restart=false", *SHORT),
        *("--set", "data.path=federation"),
    )
    given = {
        method: read_toml(tmp_path / method / "config.toml")["method"]
        for method in ("single", "fedep", "fedprox", "fedec")
    }
    assert given["single"] == {"name": "single", "restart": False}
    assert (given["fedep"]["share"], given["fedep"]["restart"]) == ("both", False)
    assert "mu" not in given["fedep"]
    assert (given["fedprox"]["share"], given["fedprox"]["mu"]) == ("both", 0.25)
    assert "temperature" not in given["fedprox"]
    assert (given["fedec"]["mu"], given["fedec"]["temperature"]) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("single,colective", [], "--method method.name: no method is named 'colective'; did you mean 'coll"),
        ("colective", [], "--method method.name: no method is named 'colective'; did you mean 'collective'?"),
        (",", [], "--method: expected a list, as in single,fede, got ','"),
        ("single,single", [], "--method: single stands twice"),
        (
            "fedep,fedprox",
            ["method.mue=1"],
            "--set method.mue: no such option of fedep, fedprox; did you mean 'mu'? (known: absent, mu, res",
        ),
        ("single,fedep", ["method.mu=1"], "--set method.mu: no such option of single, fedep (known: absent,"),
        ("fedep,fedprox", ["method.mu=-1"], "--set method.mu: expected at least 0, got -1.0"),
        ("fedep,fedprox", ["trainer.lrr=1"], "--set trainer.lrr: no such option; did you mean 'lr'?"),
    ],
)
def test_compare_refuses_before_it_trains(
    method: str, given: list[str], message: str, tmp_path: Path
) -> None:
    options = [part for one in given for part in ("--set", one)]
    said = refused("compare", "tiny.toml", "--method", method, "--out", tmp_path / "all", *options)
    assert said.startswith(message)
    assert not (tmp_path / "all").exists()


def test_options_of_the_file_that_no_method_has(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(CONFIG + '[method]\nname = "fedprox"\nmue = 0.25\n')
    said = refused("compare", tmp_path / "x.toml", "--method", "fedep,fedprox", "--out", tmp_path / "all")
    assert said.startswith(f"{tmp_path / 'x.toml'}: method.mue: no such option of fedep, fedprox; did you")


def test_a_folder_that_is_a_run(tmp_path: Path) -> None:
    answer("run", "tiny.toml", "--out", tmp_path / "run", *SHORT)
    said = refused("compare", "tiny.toml", "--method", "single", "--out", tmp_path / "run", *SHORT)
    assert said == f"{tmp_path / 'run'}: holds a run already; choose another folder for several runs"
    said = refused("compare", "tiny.toml", "--method", "run", "--out", tmp_path, *SHORT)
    assert said.startswith("--method method.name: no method is named 'run'")


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    """A small model cannot be larger than the large one."""
    line = ("compare", "tiny.toml", "--method", "fedkd,fedep", "--out", tmp_path / "all", *SHORT)
    found = fedkge(*line, "--set", "method.small=999")
    assert found.exit_code == 2, found.output
    assert notes(found.stderr).startswith(f"error: {tmp_path / 'all' / 'fedkd'}: ")
    assert "fedep" in found.stdout
    assert (tmp_path / "all" / "fedep" / "summary.json").exists()
    said = fedkge("run", "tiny.toml", "--out", tmp_path / "one", "--set", "method.name=fedprox", *SHORT)
    assert said.exit_code == 0, said.output


def test_what_does_not_go_together_is_said_before_anything_trains(tmp_path: Path) -> None:
    """row-adam leaves rows alone that FedProx would pull."""
    line = ("compare", "tiny.toml", "--method", "single,fedprox", "--out", tmp_path / "all", *SHORT)
    found = fedkge(*line, "--set", "trainer.optimizer=row-adam")
    assert found.exit_code == 2, found.output
    assert "trainer.optimizer: row-adam steps only touched rows" in found.stderr
    assert not (tmp_path / "all").exists()


def test_report(tmp_path: Path) -> None:
    answer("compare", "tiny.toml", "--method", "single,fede", "--seeds", "0,1", "--out", tmp_path, *SHORT)
    found = answer("report", tmp_path, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").is_file()
    assert [(row["run"], row["seeds"]) for row in found["metrics"]] == [("single", 2), ("fede", 2)]
    apart = answer("report", tmp_path / "single", tmp_path / "fede", "--out", tmp_path / "page.html")
    assert apart == found
    shown = fedkge("report", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert f"report: {tmp_path / 'report.html'}" in shown.stdout
    assert "fede: " in shown.stdout


def test_what_it_takes_beside_a_reference(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single,fedep,feds", "--out", tmp_path / "all")
    found = answer(*line, "--reference", "fedep")
    rows = {row["run"]: row for row in found["reference"]}
    assert list(rows) == ["single", "fedep", "feds"]
    assert "reference_seeds" not in found
    for method in ("fedep", "feds"):
        summary, row = summary_of(tmp_path / "all" / method), rows[method]
        rounds = [event for event in journal_of(tmp_path / "all" / method) if event["event"] == "round"]
        until = rounds[: summary["best_round"]]
        assert row["R@CG"] == summary["best_round"]
        assert row["values@CG"] == sum(of["up_values"] + of["down_values"] for of in until)
        assert row["bytes@CG"] == sum(of["up_bytes"] + of["down_bytes"] for of in until)
        for kind, ratio in (("R", "R_ratio"), ("values", "P"), ("bytes", "B")):
            assert row[f"{ratio}@CG"] == row[f"{kind}@CG"] / rows["fedep"][f"{kind}@CG"]
    again = answer("report", tmp_path / "all", "--reference", "fedep", "--out", tmp_path / "page.html")
    assert again["reference"] == found["reference"]
    for page in (found["report"], tmp_path / "page.html"):
        assert "What it takes to converge" in Path(page).read_text()
    shown = fedkge(*line, "--reference", "fedep", "--resume")
    assert shown.exit_code == 0, shown.output
    assert f"{rows['feds']['P@CG']:.4f}" in shown.stdout
    assert "best validation MRR of fedep" in shown.stdout
    without = answer(*line, "--resume")
    assert "reference" not in without
    assert "What it takes to converge" not in Path(without["report"]).read_text()


def test_a_reference_over_seeds(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "fedep,feds", "--seeds", "0,1", "--out", tmp_path / "all")
    found = answer(*line, *SHORT, "--reference", "fedep")
    ratios = [row["B@CG"] for row in found["reference_seeds"] if row["run"] == "feds"]
    row = found["reference"][1]
    assert (row["run"], row["seeds"]) == ("feds", 2)
    assert row["B@CG"] == pytest.approx(sum(ratios) / 2)
    assert row["B@CG_std"] == pytest.approx(abs(ratios[0] - ratios[1]) / 2**0.5)


def test_a_reference_that_is_not_there(tmp_path: Path) -> None:
    line = ("compare", "tiny.toml", "--method", "single,fedep", "--out", tmp_path / "all", *SHORT)
    said = refused(*line, "--reference", "fedpe")
    assert said == "--reference: expected one of single, fedep, got 'fedpe'; did you mean 'fedep'?"
    assert not (tmp_path / "all").exists()
    answer(*line)
    said = refused("report", tmp_path / "all", "--reference", "fedpe", "--out", tmp_path / "page.html")
    assert said == "--reference: no run is 'fedpe'; did you mean 'fedep'? (there are: single, fedep)"
    assert not (tmp_path / "page.html").exists()


def test_a_reference_that_fails(tmp_path: Path) -> None:
    """A small model cannot be larger than the large one."""
    line = ("compare", "tiny.toml", "--method", "fedkd,fedep", "--out", tmp_path / "all", *SHORT)
    found = fedkge(*line, "--set", "method.small=999", "--reference", "fedkd")
    assert found.exit_code == 2, found.output
    assert f"error: {tmp_path / 'all' / 'fedkd'}: " in found.stderr
    assert "What it took" in found.stdout
