"""`fedkge attack` and `fedkge cluster`: attacks succeed where nothing protects, and say how sure they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import answer, fedkge, refused, summary_of, write_home
from fedkge.privacy import Account

pytest.importorskip("numba")

MEMORISED = """
rounds = 40
data     = { path = "federation" }
model    = { name = "transe", dim = 32, margin = 6.0 }
trainer  = { epochs = 2, batch_size = 128, negatives = 16, lr = 2e-2 }
evaluate = { every = 40, patience = 0 }
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random triples, of which nothing can be learnt but which they are; half of them confidential.

    `plain` has learnt them by heart, `young` has hardly begun: what protects it is that it knows nothing.
    """
    home = tmp_path_factory.mktemp("attacked")
    random = np.random.default_rng(0)
    rows = random.permutation(np.unique(random.integers(0, [60, 3, 60], (700, 3)), axis=0))
    site = home / "federation" / "lab"
    site.mkdir(parents=True)
    ends = {"train": rows[200:], "valid": rows[:100], "test": rows[100:200]}
    for split, triples in ends.items():
        marks = [f"\t{i % 2}" if split == "train" else "" for i in range(len(triples))]
        lines = [f"e{h}\tr{r}\te{t}{mark}\n" for (h, r, t), mark in zip(triples, marks, strict=True)]
        (site / f"{split}.tsv").write_text("".join(lines))
    (home / "memorised.toml").write_text(MEMORISED)
    set_path = f"data.path={home / 'federation'}"
    for name, options in {
        "plain": [],
        "u-only": ["--set", "privacy.mode=u-only"],
        "young": ["--set", "trainer.lr=1e-5", "--set", "rounds=1", "--set", "evaluate.every=1"],
    }.items():
        done = fedkge("run", home / "memorised.toml", "--out", home / name, "--set", set_path, *options)
        assert done.exit_code == 0, done.output
    return home


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sites that have the same twenty entities, and average them."""
    home = tmp_path_factory.mktemp("exchanged")
    write_home(home)
    path = f"data.path={home / 'federation'}"
    for name in ("fedep", "feds", "pfedeg", "single"):
        options = ["--set", path, "--set", f"method.name={name}", "--set", "rounds=2"]
        done = fedkge("run", home / "tiny.toml", "--out", home / name, *options)
        assert done.exit_code == 0, done.output
        (home / f"{name}.err").write_text(done.stderr)
    return home


# Membership


def test_members_of_a_memorised_graph_are_found_and_of_an_untrained_one_not(home: Path) -> None:
    found = answer("attack", home / "plain", "--against", home / "young", "--name", "membership,ranks")
    rows = {(row["run"], row["signal"]): row for row in found["membership"]}
    assert all(row["confidential"] for row in rows.values())
    for signal in ("score", "calibrated", "rank"):
        assert rows["plain", signal]["auc"] >= 0.7
        assert rows["plain", signal]["auc_low"] > 0.65
        assert rows["young", signal]["auc_low"] < 0.5 < rows["young", signal]["auc_high"]
        assert rows["plain", signal]["tpr@1%"] > rows["young", signal]["tpr@1%"]
    assert rows["plain", "score"]["members"] == rows["young", "score"]["members"] > 100
    paper, plain, young = found["ranks"]
    assert "paper's" in paper["question"]
    assert paper["median_1"] < paper["median_2"]  # the untrained model ranks worse: that is all it says
    assert paper["p"] < 1e-10
    assert plain["below_low"] > 0.6
    assert plain["p"] < 1e-6
    assert young["below_low"] < 0.5 < young["below_high"]


def test_the_curve_is_that_of_scikit_learn(home: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    from fedkge.audits.candidates import candidates
    from fedkge.audits.membership import Membership, signals
    from fedkge.audits.targets import Target

    target = Target.open(home / "plain")
    tried = candidates(target.graph("lab"), 1000, 0, "lab")
    both = np.concatenate((tried.members, tried.others))
    truth = [1] * len(tried.members) + [0] * len(tried.others)
    scores = signals(target.tables["lab"], both)
    for found in Membership().run([target]):
        assert found["auc"] == pytest.approx(metrics.roc_auc_score(truth, scores[found["signal"]]))
        fpr, tpr, _ = metrics.roc_curve(truth, scores[found["signal"]], drop_intermediate=False)
        for rate, hits in found["curve"]:
            assert hits == pytest.approx(tpr[fpr <= rate + 1e-9].max())


def test_it_prints_tables_and_writes_a_page(home: Path) -> None:
    done = fedkge("attack", home / "plain", "--against", home / "young", "--name", "membership,ranks")
    assert done.exit_code == 0, done.output
    assert "AUC" in done.stdout
    assert "plain: confidential triples are told from held-out ones" in done.stdout
    assert "It says which model ranks better, not whether membership shows." in done.stdout
    page = (home / "plain" / "attack.html").read_text()
    assert "ROC: members found over false alarms" in page
    assert "non-members, young" in page
    kept = json.loads((home / "plain" / "attack.json").read_text())
    assert kept["membership"][0]["auc"] > 0.7


def test_the_same_seed_gives_the_same_answer(home: Path) -> None:
    command = ("attack", home / "plain", "--name", "membership", "--sample", 50)
    first, again, other = answer(*command), answer(*command), answer(*command, "--seed", 1)
    assert first == again
    assert first["membership"][0]["members"] == 50
    assert first["membership"] != other["membership"]


def test_what_cannot_be_attacked_is_said(home: Path, exchanged: Path) -> None:
    assert refused("attack", home / "nowhere").endswith("as `fedkge run` makes")
    assert "expected one of membership, pairs, ranks" in refused("attack", home / "plain", "--name", "magic")
    assert "no site is named 'lob'; did you mean 'lab'?" in refused("attack", home / "plain", "--site", "lob")
    assert "expected two runs on the same federation" in refused(
        "attack", home / "plain", "--against", exchanged / "single"
    )
    assert "--sample: expected at least 1" in refused("attack", home / "plain", "--sample", 0)
    assert "--rounds: expected at least 1" in refused(
        "attack", exchanged / "fedep", "--name", "pairs", "--rounds", 0
    )
    assert "did you mean 'int8'?" in refused(
        "attack", exchanged / "fedep", "--name", "pairs", "--codec", "int9"
    )


def test_attacks_are_listed_and_explained() -> None:
    assert [row["name"] for row in answer("list", "attacks")] == ["membership", "pairs", "ranks"]
    (found,) = answer("explain", "pairs")
    assert (found["kind"], found["example"]) == ("attack", "fedkge attack RUN --name pairs")
    assert [option["path"] for option in found["options"]] == ["--rounds", "--codec"]
    assert "rounds of the exchange are played again" in found["options"][0]["about"]


def test_members_that_no_training_saw_are_not_found(home: Path) -> None:
    """Without the confidential triples the model still learns the others by heart."""
    found = answer("attack", home / "plain", "--against", home / "u-only", "--name", "membership")
    rows = {(row["run"], row["signal"]): row for row in found["membership"]}
    for signal in ("score", "calibrated", "rank"):
        assert rows["u-only", signal]["auc_high"] < rows["plain", signal]["auc_low"]
        assert rows["u-only", signal]["auc_low"] < 0.55


def test_a_run_without_marks_stands_beside_one_with_marks(home: Path, tmp_path: Path) -> None:
    """The one is numbered as its files are, the other in the order of names: the triples are the same."""
    site = tmp_path / "federation" / "lab"
    site.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        lines = (home / "federation" / "lab" / f"{split}.tsv").read_text().splitlines()
        (site / f"{split}.tsv").write_text("".join("\t".join(line.split("\t")[:3]) + "\n" for line in lines))
    unmarked = tmp_path / "unmarked"
    path = f"data.path={tmp_path / 'federation'}"
    done = fedkge("run", home / "memorised.toml", "--out", unmarked, "--set", path)
    assert done.exit_code == 0, done.output
    found = answer("attack", unmarked, "--against", home / "u-only", "--name", "membership")
    rows = {(row["run"], row["signal"]): row for row in found["membership"]}
    assert rows["unmarked", "score"]["auc_low"] > 0.9, "its own tables with its own triples"
    assert rows["u-only", "score"]["auc_low"] < 0.55


def test_an_accounted_run_stands_beside_what_its_epsilon_allows(home: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "private"
    shutil.copytree(home / "young", run)
    cost = {"site": "lab", "epsilon": 2.0, "delta": 1e-5, "guarantee": "formal"}
    (run / "summary.json").write_text(json.dumps({**summary_of(run), "privacy": [cost]}))
    found = answer("attack", home / "plain", "--against", run, "--name", "membership")
    plain, private = (
        [row for row in found["membership"] if row["run"] == name] for name in ("plain", "private")
    )
    assert all("allowed" not in row for row in plain)
    assert all(row["epsilon"] == 2 and row["allowed"][-1] == [1, 1] for row in private)
    assert "leaves at most 7.4% to find at 1% false alarms" in found["words"]["membership"]
    page = (home / "plain" / "attack.html").read_text()
    assert "what \\u03b5 = 2 allows" in page
    cost["guarantee"] = "none"
    (run / "summary.json").write_text(json.dumps({**summary_of(run), "privacy": [cost]}))
    found = answer("attack", run, "--name", "membership")
    assert all("allowed" not in row for row in found["membership"])


# Rows of two sites


def test_a_run_says_before_it_starts_whose_rows_the_mean_gives_away(exchanged: Path) -> None:
    said = "note: 20 of 20 shared entities are at exactly two sites"
    for name in ("fedep", "feds", "pfedeg"):
        assert said in (exchanged / f"{name}.err").read_text()
        assert summary_of(exchanged / name)["exposed"] == [{"axis": "entity", "shared": 20, "by_two": 20}]
        assert "exactly two sites" in (exchanged / name / "report.html").read_text()
    assert "exactly two" not in (exchanged / "single.err").read_text()
    assert summary_of(exchanged / "single")["exposed"] == []
    assert "exactly two sites" not in (exchanged / "single" / "report.html").read_text()


def test_each_of_two_sites_computes_the_others_rows(exchanged: Path) -> None:
    codecs = ("--codec", "float16,int8,ternary")
    said = fedkge("attack", exchanged / "fedep", "--name", "pairs", "--rounds", 2, *codecs, "--json")
    lines = [line.partition("  ")[0] for line in said.stderr.splitlines()]
    assert lines[:3] == [
        "fedep, float32: round 1/2",
        "fedep, float32: round 2/2",
        "fedep, float16: round 1/2",
    ]
    assert len(lines) == 8
    found = answer("attack", exchanged / "fedep", "--name", "pairs", *codecs)["pairs"]
    rows = {row["codec"]: row for row in found}
    assert list(rows) == ["float32", "float16", "int8", "ternary"]
    assert all(row["rows"] == 40 for row in rows.values())  # twenty of the other, at each of two sites
    assert rows["float32"]["recovered"] == 1
    assert rows["float32"]["error_high"] < 1e-5
    assert rows["float32"]["guess"] > 0.05  # one's own row is something else
    assert (
        rows["float32"]["error"] < rows["float16"]["error"] < rows["int8"]["error"] < rows["ternary"]["error"]
    )
    assert rows["int8"]["error"] < 0.1
    assert rows["ternary"]["recovered"] < 0.1


def test_rows_chosen_by_a_selection_are_given_away_too(exchanged: Path) -> None:
    (row,) = answer("attack", exchanged / "feds", "--name", "pairs", "--rounds", 2)["pairs"]
    assert 0 < row["rows"] <= 80
    assert row["recovered"] == 1


def test_a_replay_with_noise_of_its_own_says_so(exchanged: Path) -> None:
    """It neither reads nor charges the run's ledger; the sites' accounts have it."""
    options = [f"data.path={exchanged / 'federation'}", "method.name=fedep", "rounds=2", "marks.share=0.5"]
    options += ["privacy.mode=strict", "privacy.noise=1.0", "privacy.delta=1e-4", "privacy.accountant=rdp"]
    run = exchanged / "strict"
    done = fedkge("run", exchanged / "tiny.toml", "--out", run, *(x for o in options for x in ("--set", o)))
    assert done.exit_code == 0, done.output
    before = {home: (run / "sites" / home / "ledger.jsonl").read_bytes() for home in ("north", "south")}
    accounts = exchanged / "federation" / ".fedkge"
    spent = Account(accounts / "north").ledger.total
    found = answer("attack", run, "--name", "pairs")
    assert "The replay of strict drew noise and samples of its own" in found["words"]["pairs"]
    assert "accounts were charged for these rounds" in (run / "attack.html").read_text()
    assert Account(accounts / "north").ledger.total == spent + spent // 2, "one of two rounds again"
    assert all((run / "sites" / home / "ledger.jsonl").read_bytes() == of for home, of in before.items())
    plain = answer("attack", exchanged / "fedep", "--name", "pairs")
    assert "drew noise" not in plain["words"]["pairs"]


def test_weighted_means_give_rows_away_too(exchanged: Path) -> None:
    """By likeness, summed over twenty entities: a hundredth of an answer is the site's own row."""
    found = answer("attack", exchanged / "pfedeg", "--name", "pairs")
    (row,) = found["pairs"]
    assert row["rows"] == 40
    assert row["recovered"] == 1
    assert row["error_high"] < 1e-5
    assert 0 < row["own_part"] < 0.03
    assert "of an answer, is taken off: the attacker is taken to know" in found["words"]["pairs"]


def test_where_no_mean_is_answered_there_is_nothing_to_subtract(exchanged: Path) -> None:
    found = answer("attack", exchanged / "single", "--name", "pairs")
    assert found["pairs"] == []
    assert found["words"]["pairs"].endswith("does not answer with means: there is nothing to subtract.")


def test_the_replay_is_the_run(exchanged: Path) -> None:
    """After as many rounds as the run had, the sites of the replay have the rows that the run ended with."""
    import torch

    from fedkge.audits.pairs import Replay
    from fedkge.audits.targets import Target
    from fedkge.runs.folder import RunFolder

    target = Target.open(exchanged / "fedep")
    folder = RunFolder.create(exchanged / "replay", target.experiment, resume=False)
    replay = Replay(target.experiment, target.sources, folder, 99)
    replay.play()
    for name, tables in target.tables.items():
        assert torch.equal(replay.run.sites[name].best.entities, tables.entities)


# Clusters


def test_runs_are_clustered_and_compared(home: Path) -> None:
    pytest.importorskip("sklearn")
    command = ("cluster", home / "plain", home / "young", "--relation", "r0", "--k", "2,3", "--repeats", 3)
    rows = answer(*command)
    assert [(row["first"], row["second"], row["k"]) for row in rows] == [
        (first, second, k)
        for k in (2, 3)
        for first, second in (("plain", "plain"), ("young", "young"), ("plain", "young"))
    ]
    assert all(-1e-9 <= row["nmi"] <= 1 + 1e-9 for row in rows)
    shown = fedkge(*command)
    assert "mutual information" in shown.stdout
    assert shown.exit_code == 0


def test_seeds_are_models_of_one_group(exchanged: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    seeds = exchanged / "seeds"
    options = [
        "--set",
        f"data.path={exchanged / 'federation'}",
        "--set",
        "rounds=1",
        "--set",
        "evaluate.every=1",
    ]
    done = fedkge("run", exchanged / "tiny.toml", "--out", seeds, "--seeds", "0,1", *options)
    assert done.exit_code == 0, done.output
    names = tmp_path / "names.txt"
    names.write_text("e1\ne2\ne3\ne4\ne5\ne6\n")
    command = ["cluster", seeds, exchanged / "fedep", "--entities", names, "--repeats", 2, "--k", 2]
    rows = answer(*command, "--site", "north")
    assert [row["pairs"] for row in rows] == [1, 1, 4]
    assert "--site: whose tables? one of north, south" in refused(*command)
    assert "expected at least two runs" in refused("cluster", seeds)
    assert "--k: expected whole numbers" in refused("cluster", seeds, exchanged / "fedep", "--k", "x")
    assert "--relation, --entities: expected one" in refused(*command, "--relation", "a")


# Neighbouring graphs


@pytest.mark.filterwarnings("ignore::fedkge.errors.DataWarning")  # trained on in the open, as is meant
def test_a_memorised_triple_ranks_worse_where_it_was_not_seen(home: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from fedkge.audits.neighbours import draw, neighbours
    from fedkge.audits.targets import Target

    target = Target.open(home / "plain")
    evaluate = replace(target.experiment.evaluate, every=10)
    experiment = replace(target.experiment, rounds=10, evaluate=evaluate)
    triples = draw(target.graph("lab"), 3, 0)
    found = neighbours(experiment, target.federation, "lab", triples, tmp_path)
    assert [one.head for one in found] == [target.graph("lab").entities[h] for h in triples[:, 0]]
    seen = np.mean([[one.rank_with, one.rank_again] for one in found])
    assert seen < np.mean([one.rank_without for one in found])
    assert all(isinstance(value, float) for one in found for value in list(one.plain().values())[3:])
