"""Private runs: any method, resumed without forgetting, and stopped before anything is let out by mistake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import fedkge, refused
from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.graphs.files import read_federation
from fedkge.graphs.graph import Axis, Graph, Split
from fedkge.graphs.marks import mark_relations, mark_share
from fedkge.graphs.pool import pool
from fedkge.graphs.subgraph import in_name_order
from fedkge.nodes.journal import Journal
from fedkge.nodes.ledgers import LEDGER, open_ledger, run_entries
from fedkge.nodes.protection import new_secret
from fedkge.nodes.result import read_result
from fedkge.nodes.stack import Stack
from fedkge.privacy import read_ledger
from fedkge.privacy.seal import Head
from fedkge.runs.account import account_of
from fedkge.runs.dividing import with_marks
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.run import Simulated, Simulation, run
from fedkge.training.clipping import Caught
from fedkge.training.confidential import unmarked
from fedkge.training.private import PrivateTraining
from fedkge.training.secret import Secret
from small_federations import assert_same, differ, experiment, federated, played, rows, small_federation

MARKED = mark_share(small_federation(), 0.5, 0)
STRICT = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
PAPER = {"mode": "paper", "noise": 1.0, "delta": 1e-4}
CPU = torch.device("cpu")
SECRET = "fedkge.nodes.protection.new_secret"


def private(path: Path, name: str = "single", mode: Mapping[str, Any] = STRICT, **options: Any) -> Simulated:
    """A run whose sites have secrets that are the same in every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SECRET, lambda site: Secret(site.encode().ljust(32)))
        return played(path, MARKED, method={"name": name}, privacy=mode, **options)


@pytest.mark.parametrize("mode", [STRICT, PAPER], ids=["strict", "paper"])
@pytest.mark.parametrize("name", ["fedep", "fedprox", "fedlu"])
def test_stacked_equals_site_by_site(tmp_path: Path, name: str, mode: dict[str, Any]) -> None:
    first = private(tmp_path / "a", name, mode, rounds=2)
    second = private(tmp_path / "b", name, mode, rounds=2, how=Simulation(stacked=False))
    assert_same(first, second)
    other = played(tmp_path / "c", MARKED, method={"name": name}, privacy=mode, rounds=2)
    assert differ(first, other), "its secrets are its own"


def test_sites_without_marks_train_plainly(tmp_path: Path) -> None:
    some = {**small_federation(), "a": MARKED["a"]}
    both = played(tmp_path / "a", some, privacy=STRICT)
    plain = played(tmp_path / "b", small_federation())
    for name, row in rows(plain).items():
        assert torch.equal(row, rows(both)[name]) == (" a " not in name)
    assert {entry.site for entry in run_entries(tmp_path / "a")} == {"a"}
    assert [path.parent.name for path in (tmp_path / "a").rglob(LEDGER)] == ["a"]


def test_u_only_is_training_without_the_triples(tmp_path: Path) -> None:
    privacy = experiment(privacy=STRICT).privacy
    left = {site: unmarked(in_name_order(graph), privacy) for site, graph in MARKED.items()}
    first = played(tmp_path / "a", MARKED, privacy={"mode": "u-only"})
    assert_same(first, played(tmp_path / "b", left))
    assert not list((tmp_path / "a").rglob(LEDGER))


def test_ids_do_not_depend_on_confidential_triples(tmp_path: Path) -> None:
    """Two graphs that differ in confidential triples alone, which stand first: the same rows, in order."""
    kept = []
    for number, secret in enumerate((["e5 r e1 1", "e2 r e4 1"], ["e1 s e0 1", "e4 s e3 1"])):
        lines = [*secret, *(f"e{i} {r} e{(i + k) % 6} 0" for i in range(6) for k, r in enumerate("rs", 1))]
        splits = {"train": lines, "valid": ["e0 r e3", "e1 r e3"], "test": ["e2 s e0", "e3 s e1"]}
        folder = tmp_path / f"data{number}" / "here"
        folder.mkdir(parents=True)
        for split, rows_ in splits.items():
            (folder / f"{split}.tsv").write_text("\n".join(rows_).replace(" ", "\t") + "\n")
        made = experiment(privacy={"mode": "u-only"}, rounds=2)
        where = RunFolder.create(tmp_path / f"run{number}", made, resume=False)
        run(made, where, CPU, read_federation(folder.parent))
        kept.append(RunFolder.open(tmp_path / f"run{number}").load_site("here"))
    (first, *names), (second, *others) = kept
    assert names == others
    assert torch.equal(first.entities, second.entities)
    assert torch.equal(first.relations, second.relations)


@pytest.mark.parametrize("method", [{"name": "fedlu"}, {"name": "fedkd", "small": 4}], ids=["fedlu", "fedkd"])
def test_both_tables_have_noise_on_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: dict[str, Any]
) -> None:
    monkeypatch.setattr(Caught, "release_", lambda self, factors: None)  # noise alone moves them
    mode = STRICT | {"mode": "fulldp"}
    one = federated(tmp_path / "a", MARKED, method=method, privacy=mode, rounds=1)
    tables = {f"{site} {own}": t for site, stack in one.stack_of.items() for own, t in both(stack, site)}
    before = {key: table.clone() for key, table in tables.items()}
    one.play()
    assert len(tables) >= 3 * len(one.sites)
    for key, table in tables.items():
        assert (table != before[key]).any(-1).all(), key


def both(stack: Stack, site: str) -> list[tuple[str, torch.Tensor]]:
    own = stack.sites[site].tables
    assert own.second is not None
    tables = {"": own, "second": own.second}
    return [(f"{name} {axis}", one.table(axis)) for name, one in tables.items() for axis in Axis]


@pytest.mark.parametrize("mode", [STRICT, {"mode": "u-only"}], ids=["strict", "u-only"])
def test_what_chooses_a_round_does_not_know_confidential_triples(
    tmp_path: Path, mode: dict[str, Any]
) -> None:
    """Validation filters by unrestricted triples; what the site itself reads in the end, by all."""
    one = federated(tmp_path / "a", MARKED, privacy=mode)
    for stack in one.stacks:
        for name in stack.names:
            seen, hidden = (
                stack.ranks(name, stack.sites[name].tables, Split.VALID, openly)[name].values().sum()
                for openly in (False, True)
            )
            assert hidden > seen, "with fewer known answers left out, ranks are worse"


class Killed(Exception):
    pass


def killed_in(round: int, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """A private run that ends in the middle of a round's training."""
    take, calls = PrivateTraining._take_closed, [0]

    def kill(self: PrivateTraining, *arguments: Any) -> None:
        epochs = sum(entry.site == self.name for entry in self.protection.spending.ledger.entries)
        if epochs > 2 * (round - 1):
            calls[0] += 1
            if calls[0] > 1:
                raise Killed
        take(self, *arguments)

    monkeypatch.setattr(PrivateTraining, "_take_closed", kill)
    with pytest.raises(Killed):
        private(path, "fedep", how=Simulation(save_every=0.0))
    monkeypatch.undo()


def test_a_resumed_run_pays_again_and_with_other_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "killed"
    killed_in(3, monkeypatch, path)
    before = {site: read_ledger(path / "sites" / site / LEDGER) for site in MARKED}
    resumed = played(path, MARKED, method={"name": "fedep"}, privacy=STRICT)
    whole = private(tmp_path / "whole", "fedep")
    after, never_killed = run_entries(path), run_entries(tmp_path / "whole")
    for site in MARKED:
        assert before[site]
        assert read_ledger(path / "sites" / site / LEDGER)[: len(before[site])] == before[site]
        numbers = [n for entry in after if entry.site == site for n in entry.numbers]
        assert numbers == list(range(len(numbers))), "no number is given out twice"
    spent = {site: sum(e.release.count for e in after if e.site == site) for site in MARKED}
    least = {site: sum(e.release.count for e in never_killed if e.site == site) for site in MARKED}
    assert all(spent[site] >= least[site] for site in MARKED)
    assert sum(spent.values()) > sum(least.values())
    assert differ(resumed, whole)


def forged(ledger: Path, lines: list[str]) -> None:
    """A ledger as somebody without the site's key writes it: a chain, but no signatures and no head."""
    after = ""
    for number, line in enumerate(lines):
        plain = json.loads(line)
        plain.pop("mac")
        lines[number] = json.dumps(plain | {"after": after})
        after = blake2b(lines[number].encode(), digest_size=12).hexdigest()
    ledger.write_text("".join(f"{line}\n" for line in lines))
    Head.at(ledger).unlink()


def test_a_run_that_lost_its_ledger_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_in(3, monkeypatch, tmp_path / "killed")
    site = tmp_path / "killed" / "sites" / "b"
    (site / LEDGER).unlink()
    with pytest.raises(DataError, match=r"sites/b/.*: has 0 lines, and its head knows of"):
        played(tmp_path / "killed", MARKED, method={"name": "fedep"}, privacy=STRICT)
    Head.at(site / LEDGER).unlink()
    with pytest.raises(DataError, match=r"sites/b/.*: its 0 releases are not, or not all of, the"):
        played(tmp_path / "killed", MARKED, method={"name": "fedep"}, privacy=STRICT)
    journal = (site / "journal.jsonl").read_bytes()
    (site / "journal.jsonl").unlink()
    with pytest.raises(DataError, match=r"sites/b/.*: has 0 releases, and .* knows of .* this run has made"):
        played(tmp_path / "killed", MARKED, method={"name": "fedep"}, privacy=STRICT)
    shutil.rmtree(site)
    shutil.rmtree(account_of(experiment(), "b"))
    with pytest.raises(DataError, match=r"sites/b/.*: no releases, while .*hub/journal.* rounds that made"):
        played(tmp_path / "killed", MARKED, method={"name": "fedep"}, privacy=STRICT)
    for checkpoints in (tmp_path / "killed").rglob("checkpoints"):
        shutil.rmtree(checkpoints)
    (tmp_path / "killed" / "hub" / "journal.jsonl").unlink()
    site.mkdir()
    (site / "journal.jsonl").write_bytes(journal)
    with pytest.raises(DataError, match=r"sites/b/.*: its 0 releases are not, or not all of, the"):
        played(tmp_path / "killed", MARKED, method={"name": "fedep"}, privacy=STRICT)


def test_rounds_of_sites_that_hide_nothing_need_no_ledger(tmp_path: Path) -> None:
    some = {**small_federation(), "a": MARKED["a"]}
    journal = Journal(tmp_path / "hub" / "journal.jsonl")
    journal.write("round", round=1, participants=["b"], late=[], refused={})
    federated(tmp_path, some, privacy=STRICT)
    journal.write("round", round=2, participants=["b"], late=["a"], refused={})
    with pytest.raises(DataError, match="has rounds that made some"):
        federated(tmp_path, some, privacy=STRICT)


def test_an_ended_run_knows_its_ledger(tmp_path: Path) -> None:
    """Also when its last line is changed, which no later line tells of, and when it is gone on with."""
    path, one = tmp_path / "run", experiment(privacy=STRICT)
    summary = done(path, MARKED, privacy=STRICT)
    spent = {account["site"]: account["releases"] for account in summary["privacy"]}
    for site in MARKED:
        ledger, result = open_ledger(path / "sites" / site), read_result(path / "sites" / site)
        assert (result["ledger"], result["releases"]) == (ledger.head, ledger.total)
        assert ledger.total == spent[site] > 0
    assert fedkge("privacy", path).exit_code == 0
    home = path / "sites" / "c"
    *lines, last = (home / LEDGER).read_text().splitlines(keepends=True)
    (home / LEDGER).write_text("".join([*lines, last.replace('"noise": 1.0', '"noise": 100.0')]))
    assert "lines are missing or changed at the end" in refused("privacy", path)
    forged(home / LEDGER, [*lines, last.replace('"noise": 1.0', '"noise": 100.0')])
    says = f"its {spent['c']:,} releases are not, or not all of, the {spent['c']:,} that the run has made"
    assert says in refused("privacy", path)
    for checkpoints in path.rglob("checkpoints"):
        shutil.rmtree(checkpoints)
    for known in ("journal.jsonl", "metrics.json"):
        kept = (home / known).read_bytes()
        (home / known).unlink()
        assert says in refused("privacy", path), "either of the two is enough"
        with pytest.raises(DataError, match="not signed by this site's key"):
            run(one, RunFolder.create(path, one, resume=True), CPU, MARKED)
        (home / known).write_bytes(kept)
    (home / "metrics.json").write_text("{")
    with pytest.raises(DataError, match=r"sites/c/metrics\.json: not JSON"):
        run(one, RunFolder.create(path, one, resume=True), CPU, MARKED)
    for left in ("journal.jsonl", "metrics.json", LEDGER):
        (home / left).unlink()
    assert f"0 of the {spent['c']:,} releases that site 'c' has made" in refused("privacy", path)


def test_a_ledger_that_lost_lines_of_an_unfinished_run_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "killed"
    killed_in(3, monkeypatch, path)
    RunFolder(path).journal.write("start", environment={}, kind="hub", sites=list(MARKED))
    assert fedkge("privacy", path).exit_code == 0
    ledger = path / "sites" / "a" / LEDGER
    entries = read_ledger(ledger)
    rounds_1_and_2 = sum(entry.release.count for entry in entries if entry.epoch <= 4)
    assert rounds_1_and_2 < sum(entry.release.count for entry in entries), "the third had begun"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:3]))
    assert "has 3 lines, and its head knows of 5" in refused("privacy", path)
    forged(ledger, lines[:3])
    kept = sum(entry.release.count for entry in entries[:3])
    says = f"its {kept} releases are not, or not all of, the {rounds_1_and_2} that the run has made"
    assert says in refused("privacy", path)
    with pytest.raises(DataError, match="not signed by this site's key"):
        played(path, MARKED, method={"name": "fedep"}, privacy=STRICT)


def test_no_noise_is_drawn_twice(tmp_path: Path) -> None:
    """Whatever is deleted from a run's folder, or copied, and whatever changes about the data."""
    keys = []
    for _ in range(3):
        one = federated(tmp_path / "a", MARKED, privacy=STRICT)
        protections = [site.learner.protection for site in one.sites.values()]
        keys += [tuple(found.secret.cipher_key(0, "noise")) for found in protections if found is not None]
    assert len(set(keys)) == len(keys) == 9


def done(path: Path, federation: Mapping[str, Graph], **changes: Any) -> dict[str, Any]:
    one = experiment(**changes)
    return run(one, RunFolder.create(path, one, resume=False), CPU, federation)


def test_a_target_is_reached_and_not_passed(tmp_path: Path) -> None:
    mode = {"mode": "strict", "epsilon": 3.0, "delta": 1e-4, "accountant": "rdp"}
    summary = done(tmp_path / "a", MARKED, privacy=mode)
    assert [cost["site"] for cost in summary["privacy"]] == list(MARKED)
    for cost in summary["privacy"]:
        assert 2.9 < cost["epsilon"] <= 3.0
        assert (cost["guarantee"], cost["delta"], cost["unit"]) == ("formal", 1e-4, "triple")


def test_a_run_ends_when_no_site_has_a_step_left(tmp_path: Path) -> None:
    mode = {**STRICT, "epsilon": 20.0, "noise": 1.0}
    summary = done(tmp_path / "a", MARKED, privacy=mode, rounds=50, evaluate={"every": 1})
    assert summary["rounds"] < 50
    assert all(cost["epsilon"] <= 20.0 for cost in summary["privacy"])
    assert max(cost["epsilon"] for cost in summary["privacy"]) > 18.0


def test_by_the_papers_rules_there_is_no_guarantee(tmp_path: Path) -> None:
    summary = done(tmp_path / "a", MARKED, privacy=PAPER, rounds=1)
    assert {cost["guarantee"] for cost in summary["privacy"]} == {"none"}
    assert {cost["accountant"] for cost in summary["privacy"]} == {"rdp-paper"}


def test_secrets_are_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets: list[bytes] = []

    def noted(site: str) -> Secret:
        secret = new_secret(site)
        secrets.append(secret.content)
        return secret

    monkeypatch.setattr(SECRET, noted)
    done(tmp_path / "a", MARKED, privacy=STRICT, rounds=1)
    assert len(set(secrets)) == 3
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret in content or secret.hex().encode() in content for secret in secrets)


@pytest.mark.parametrize(
    "mode",
    [{"mode": "strict", "epsilon": 1e-5, "delta": 1e-4, "accountant": "rdp"}, {**STRICT, "mode": "fulldp"}],
)
def test_a_refused_run_leaves_nothing_behind(tmp_path: Path, mode: dict[str, Any]) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    for path in (tmp_path / "new" / "run", tmp_path / "there"):
        with pytest.raises(ConfigError, match=r"no noise reaches|validation triples"):
            done(path, MARKED, privacy=mode)
    assert [path.name for path in tmp_path.rglob("*")] == ["there", "notes.txt"]


def test_a_run_that_had_begun_is_not_removed(tmp_path: Path) -> None:
    one = experiment(privacy=STRICT)
    folder = RunFolder.create(tmp_path / "a", one, resume=False)
    run(one, folder, CPU, MARKED)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="site 'a' has other triples or marks"):
        run(one, folder, CPU, mark_share(small_federation(), 0.6, 0))
    assert before.keys() == {path for path in tmp_path.rglob("*") if path.is_file()}


def test_fulldp_takes_everything_for_confidential(tmp_path: Path) -> None:
    mode = {**STRICT, "mode": "fulldp"}
    summary = done(tmp_path / "a", small_federation(), privacy=mode, evaluate={"every": 4})
    entry = run_entries(tmp_path / "a")[0]
    graph = small_federation()[entry.site]
    assert entry.triples == len(graph.train)
    assert entry.release.sampling.rate == 16 / len(graph.train)  # type: ignore[attr-defined]
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["privacy"] == summary["privacy"]


def test_pooled_graphs_keep_marks() -> None:
    pooled = pool(MARKED).graph
    names = lambda graph, chosen: {  # noqa: E731
        (graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.train[chosen].tolist()
    }
    assert pooled.confidential is not None
    everyone = [names(graph, graph.confidential) for graph in MARKED.values()]
    assert names(pooled, pooled.confidential) == set.union(*everyone)
    assert pool(small_federation()).graph.confidential is None


def test_one_sites_mark_is_enough() -> None:
    graph = small_federation()["a"]
    first = replace(graph, confidential=np.arange(len(graph.train)) < 5)
    pooled = pool({"x": first, "y": graph}).graph
    assert pooled.confidential is not None
    assert pooled.confidential.sum() == 5


def test_marks_of_an_experiment_add_to_those_of_the_data(tmp_path: Path) -> None:
    listed = tmp_path / "relations.txt"
    listed.write_text("a.r0\n")
    marks = experiment(marks={"share": 0.3, "relations": str(listed)}).marks
    found = with_marks(marks, small_federation(), 0)
    expected = mark_relations(mark_share(small_federation(), 0.3, 0), ["a.r0"])
    assert {s: g.digest() for s, g in found.items()} == {s: g.digest() for s, g in expected.items()}
    assert with_marks(experiment().marks, small_federation(), 0).keys() == small_federation().keys()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"privacy": {**STRICT, "clip": 0.0}}, "clip: expected a number above 0"),
        ({"privacy": {**STRICT, "clip": -1.0}}, "clip: expected a number above 0"),
        ({"privacy": {**STRICT, "delta": 0.5}}, "allows publishing one of the"),
        ({"privacy": {"mode": "strict", "epsilon": 1e-5, "delta": 1e-4}}, "no noise reaches"),
        ({"privacy": {**STRICT, "epsilon": 0.5, "noise": 0.3}}, "not one step with noise 0.3 fits 0.5"),
        ({"privacy": STRICT, "trainer": {"subsampling": True}}, "trainer.subsampling"),
        ({"privacy": STRICT, "trainer": {"optimizer": "row-adam"}}, "trainer.optimizer: row-adam"),
        ({"privacy": {**STRICT, "mode": "fulldp"}}, "evaluate: 6 of 6 validation triples"),
    ],
)
def test_what_would_let_triples_out_is_an_error(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        federated(tmp_path, MARKED, **changes)
    assert not list(tmp_path.rglob(LEDGER))


@pytest.mark.parametrize("mode", [STRICT, PAPER, {"mode": "u-only"}])
def test_marks_that_match_nothing_are_an_error(tmp_path: Path, mode: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no training triple of any site is confidential"):
        federated(tmp_path, small_federation(), privacy=mode)


def test_validation_on_confidential_triples_is_an_error_unless_it_chooses_nothing(tmp_path: Path) -> None:
    by_relation = mark_relations(small_federation(), ["b.r1"])
    for mode in (STRICT, {"mode": "u-only"}):
        with pytest.raises(ConfigError, match=r"validation triples of 'b' .*first: 'b\.r1'"):
            federated(tmp_path / mode["mode"], by_relation, privacy=mode)
        federated(tmp_path / f"{mode['mode']} at the end", by_relation, privacy=mode, evaluate={"every": 4})
    federated(tmp_path / "paper", by_relation, privacy=PAPER)


def test_u_only_needs_something_to_train_on(tmp_path: Path) -> None:
    nothing = mark_share(small_federation(), 1.0, 0)
    with pytest.raises(ConfigError, match="leaves none to train on"):
        federated(tmp_path, nothing, privacy={"mode": "u-only"}, evaluate={"every": 4})


def test_marks_without_privacy_are_warned_of(tmp_path: Path) -> None:
    with pytest.warns(DataWarning, match="confidential triples are trained on like all others"):
        federated(tmp_path, MARKED)


@pytest.mark.parametrize("size", [1e10, 1e20, 1e38])
def test_rows_that_are_too_long_are_refused_whoever_meets_them(tmp_path: Path, size: float) -> None:
    one = federated(
        tmp_path / "a", MARKED, method={"name": "fedep"}, privacy=STRICT, model={"name": "rotate"}
    )
    one.stack_of["a"].sites["a"].tables.entities[3, 1] = size
    with pytest.raises(DataError, match=r"site 'a': entity has a number of .*, and private training needs"):
        one.play()
