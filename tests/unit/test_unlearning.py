"""Unlearning as a run: what changes and what does not, sequences, withdrawal, resuming, the report."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedkge.audits.account import account
from fedkge.audits.asked import Party, Questions
from fedkge.audits.erasure import verdicts
from fedkge.audits.roc import Scored, auc, difference
from fedkge.audits.standing import standing, withdrawn
from fedkge.audits.telling import membership
from fedkge.audits.yardsticks import chosen, yardsticks
from fedkge.errors import ConfigError, DataError
from fedkge.graphs.graph import Axis, Graph, Names
from fedkge.graphs.writing import write_federation
from fedkge.methods.unlearn import Unlearn
from fedkge.models import MODELS, Tables
from fedkge.nodes.ledgers import run_entries
from fedkge.reports.pages.audits import sentence
from fedkge.runs.derived import derived
from fedkge.runs.experiment import Experiment, Marks
from fedkge.runs.folder import RunFolder
from fedkge.runs.holdings import Holdings
from fedkge.runs.requests import Erasure, Request
from fedkge.runtimes.run import run
from fedkge.runtimes.unlearning import original, planned, unlearn
from fedkge.training.interference import Confusion
from small_federations import small_federation
from unlearning import QUICK, forgetting, some, trained

KEY = b"sixteen bytes or more"


def files(run: Path, pattern: str = "*.safetensors") -> dict[str, bytes]:
    return {str(f.relative_to(run)): f.read_bytes() for f in sorted(run.rglob(pattern)) if f.is_file()}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Holdings:
    return trained(tmp_path_factory.mktemp("raw") / "run", method={"name": "fedlu"})


def test_unlearning_nothing_changes_no_bit(raw: Holdings, tmp_path: Path) -> None:
    before = files(raw.folder.path, "*")
    done = forgetting(raw, tmp_path / "new", [])
    assert files(done.folder.path) == files(raw.folder.path)
    assert files(raw.folder.path, "*") == before
    found = account(done, KEY)
    assert found["requests"][-1]["digests"] == {}
    assert not any(sum(of.values()) for of in found["requests"][-1]["changed"].values())


def test_the_old_run_is_not_touched(raw: Holdings, tmp_path: Path) -> None:
    before = files(raw.folder.path, "*")
    forgetting(raw, tmp_path / "new", some(raw, "a"))
    assert files(raw.folder.path, "*") == before


def test_the_same_request_gives_the_same_bits(raw: Holdings, tmp_path: Path) -> None:
    one, two = (forgetting(raw, tmp_path / name, some(raw, "a")) for name in ("one", "two"))
    assert files(one.folder.path) == files(two.folder.path)
    other = forgetting(raw, tmp_path / "three", some(raw, "a", start=10))
    assert files(other.folder.path) != files(one.folder.path)


def test_exact_is_a_plain_run_on_what_is_retained(raw: Holdings, tmp_path: Path) -> None:
    done = forgetting(raw, tmp_path / "new", some(raw, "a"), how=Unlearn("exact"))
    new = Holdings.open(done.folder.path)
    plain = Experiment.parse(raw.experiment.config() | {"data": {"path": str(tmp_path / "new" / "data")}})
    run(plain, RunFolder.create(tmp_path / "plain", plain, False), torch.device("cpu"))
    assert files(tmp_path / "plain") == files(done.folder.path)
    found = account(done, KEY)
    assert set(found["tables"]) == {
        f for f in files(new.folder.path) if f.endswith(("entities.safetensors", "relations.safetensors"))
    }


def test_no_forgotten_name_or_triple_is_in_the_new_folder(raw: Holdings, tmp_path: Path) -> None:
    """An entity of one site only: its name is searched in every file, whatever its format."""
    everyone = [set(graph.entities) for graph in raw.sources.named.values()]
    mine = sorted(everyone[1] - everyone[0] - everyone[2])
    name = mine[0]
    erasure = Erasure.of(raw.sources.named, [Request("b", entities=[name])])
    done = unlearn(raw, tmp_path / "new", erasure, QUICK)
    account(done, KEY)
    lost = name.encode()
    for file in sorted((tmp_path / "new").rglob("*")):
        if file.is_file():
            found = file.read_bytes()
            assert not any(found.find(lost + end) >= 0 for end in (b"\t", b"\n", b'"', b"'")), file
    graph = Holdings.open(tmp_path / "new").sources.named["b"]
    assert name not in graph.entities
    assert any(lost + b"\n" in f for f in files(raw.folder.path, "*.tsv").values())  # it could be found


def test_other_owners_keep_what_a_site_has_lost(raw: Holdings, tmp_path: Path) -> None:
    graphs = raw.sources.named
    name = next(n for n in graphs["a"].entities if n in graphs["b"].entities)
    erasure = Erasure.of(graphs, [Request("a", entities=[name])])
    new = Holdings.open(unlearn(raw, tmp_path / "new", erasure, QUICK).folder.path)
    assert name not in new.sources.named["a"].entities
    assert name in new.sources.named["b"].entities
    assert len(new.tables("a").entities) == new.sources.named["a"].n_entities


def test_requests_follow_one_another_and_are_reported_together(raw: Holdings, tmp_path: Path) -> None:
    held, asked = raw, []
    for number in range(3):
        triples = some(held, "a", 1)
        asked += triples
        done = forgetting(held, tmp_path / str(number), triples, how=Unlearn(rounds=1, epochs=1))
        found = account(done, KEY, audited=number == 2)
        held = Holdings.open(done.folder.path)
    assert len(found["requests"]) == 3
    assert "It is request 3; all together 3 triples are gone" in sentence(found)
    assert found["requests"][0]["rounds"] == 1
    assert original(held).rounds == raw.experiment.rounds  # what exact would train again
    graph = held.sources.named["a"]
    left = {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.all().tolist()}
    assert not left & set(asked)
    assert len(left) == len(raw.sources.named["a"].all()) - 3


def test_a_site_withdraws(raw: Holdings, tmp_path: Path) -> None:
    erasure = Erasure.of(raw.sources.named, [], ["b"])
    done = unlearn(raw, tmp_path / "new", erasure, QUICK)
    new = Holdings.open(done.folder.path)
    assert set(new.sources.named) == {"a", "c"}
    assert not (tmp_path / "new" / "sites" / "b").exists()
    found = account(done, KEY)
    assert found["audit"]["withdrawn"]["b"]["after"]["count"] > 0
    assert withdrawn(raw, raw, "b")["count"] > 0
    mine = set(raw.sources.named["b"].relations)
    for file in (tmp_path / "new").rglob("*"):
        if file.is_file():
            assert not any(f"{name}\n".encode() in file.read_bytes() for name in mine), file


def test_rows_that_a_leaving_site_had_a_part_in_begin_anew(
    raw: Holdings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody trains, so that the new run's tables are those that its sites began with."""
    from fedkge.nodes.stack import Stack

    erasure = Erasure.of(raw.sources.named, [], ["c"])
    monkeypatch.setattr(Stack, "fit", lambda self, names, round: dict.fromkeys(names, 0.0))
    new = Holdings.open(unlearn(raw, tmp_path / "new", erasure, Unlearn(rounds=1)).folder.path)
    first = Holdings.open(unlearn(raw, tmp_path / "first", erasure, Unlearn("exact")).folder.path)
    theirs = raw.sources.federation["c"].entities
    for site in ("a", "b"):
        had = torch.tensor([name in theirs for name in raw.sources.federation[site].entities])
        assert had.any()
        assert not had.all()
        before, after, anew = (run.tables(site) for run in (raw, new, first))
        assert torch.equal(after.relations, before.relations)
        assert before.second is not None
        assert after.second is not None
        for old, now in ((before, after), (before.second, after.second)):
            assert torch.equal(now.entities[~had], old.entities[~had])
            assert torch.equal(now.entities[had], anew.entities[had])


def test_after_a_withdrawal_sites_train_as_the_run_did_unless_told(raw: Holdings, tmp_path: Path) -> None:
    erasure = Erasure.of(raw.sources.named, [], ["b"])
    found = {rounds: planned(raw, erasure, Unlearn(rounds=rounds), tmp_path) for rounds in (None, 7)}
    assert (found[None].rounds, found[None].evaluate) == (raw.experiment.rounds, raw.experiment.evaluate)
    assert (found[7].rounds, found[7].evaluate.every) == (7, 7)


def test_small_requests_are_followed_by_fewer_rounds(raw: Holdings) -> None:
    graph = raw.sources.named["a"]
    one = [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.train[:2].tolist()]
    erasure = Erasure.of(raw.sources.named, [Request("a", tuple(one))])
    assert erasure.share == 2 / len(graph.train)
    assert [Unlearn().sized(share).count("rounds") for share in (0.001, 0.01)] == [2, 4]
    assert Unlearn(rounds=7).sized(0.001).count("rounds") == 7
    assert Unlearn("paper").sized(0.01) == Unlearn("paper")


def test_rounds_that_follow_have_a_learning_rate_of_their_own(raw: Holdings, tmp_path: Path) -> None:
    erasure = Erasure.of(raw.sources.named, [Request("a", some(raw, "a"))])
    plain, slow = (planned(raw, erasure, Unlearn("paper", lr=lr), tmp_path) for lr in (None, 1e-5))
    assert (plain.trainer, slow.trainer.lr) == (raw.experiment.trainer, 1e-5)
    short = planned(raw, erasure, Unlearn(training=raw.experiment.trainer.epochs + 1), tmp_path).trainer
    assert short == replace(raw.experiment.trainer, epochs=raw.experiment.trainer.epochs + 1)
    ways = (Unlearn(rounds=1), Unlearn(rounds=1, lr=1e-5), Unlearn(rounds=1, confusion=Confusion(lr=1e-5)))
    done = [unlearn(raw, tmp_path / str(i), erasure, how) for i, how in enumerate(ways)]
    pushed = [one.sites["a"]["0"]["interference"] for one in done]
    assert pushed[0] == pushed[1]  # interference has its own
    assert pushed[0] != pushed[2]
    assert len({json.dumps(files(one.folder.path), default=hash) for one in done}) == len(ways)


def test_tables_that_never_travel_follow_in_part(
    raw: Holdings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody trains, so that what is moved at the other site is what was passed on."""
    from fedkge.nodes.stack import Stack

    monkeypatch.setattr(Stack, "fit", lambda self, names, round: dict.fromkeys(names, 0.0))
    moved = {}
    for passed in (0.0, None, 1.0):
        how = Unlearn(rounds=1, passed=passed)
        done = forgetting(raw, tmp_path / str(passed), some(raw, "a"), how=how)
        new = Holdings.open(done.folder.path)
        moved[passed] = new.tables("b").entities - raw.tables("b").entities
    assert not moved[0.0].any()
    assert moved[1.0].any()
    mu = raw.experiment.method.mu  # type: ignore[attr-defined]
    assert torch.allclose(moved[None], mu / (2 + mu) * moved[1.0], atol=1e-6)


def test_an_interrupted_unlearning_goes_on(
    raw: Holdings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedkge.nodes.stack import Stack
    from fedkge.runtimes.simulate import Simulation

    triples = some(raw, "a")
    whole = forgetting(raw, tmp_path / "whole", triples)
    fit, calls = Stack.fit, []

    def broken(self: Stack, names: list[str], round: int) -> dict[str, float]:
        calls.append(round)
        if round == 2 and calls.count(2) == 1:
            raise KeyboardInterrupt
        return fit(self, names, round)

    monkeypatch.setattr(Stack, "fit", broken)
    with pytest.raises(KeyboardInterrupt):
        forgetting(raw, tmp_path / "new", triples, simulation=Simulation(save_every=0))
    with pytest.raises(ConfigError, match="--resume"):
        forgetting(raw, tmp_path / "new", triples)
    done = forgetting(raw, tmp_path / "new", triples, resume=True)
    assert done.sites == whole.sites  # the report has what was said before the interruption, too
    assert files(done.folder.path, "entities.safetensors") == files(whole.folder.path, "entities.safetensors")
    (tmp_path / "killed").mkdir()  # before the data was written
    shutil.copy(tmp_path / "whole" / "config.toml", tmp_path / "killed" / "config.toml")
    config = tmp_path / "killed" / "config.toml"
    config.write_text(config.read_text().replace(str(tmp_path / "whole"), str(tmp_path / "killed")))
    again = forgetting(raw, tmp_path / "killed", triples, resume=True)
    assert files(again.folder.path, "entities.safetensors") == files(
        whole.folder.path, "entities.safetensors"
    )
    with pytest.raises(DataError, match="in use"):
        forgetting(raw, tmp_path / "refused", triples, write_data=tmp_path / "whole")
    assert not (tmp_path / "refused").exists()
    with pytest.raises(ConfigError, match="no unlearning to resume"):
        forgetting(raw, tmp_path / "nowhere", triples, resume=True)


def test_pooled_and_private_runs_are_trained_again_or_refused(tmp_path: Path) -> None:
    pooled = trained(tmp_path / "pooled", method={"name": "collective"})
    with pytest.raises(ConfigError, match="mode exact"):
        forgetting(pooled, tmp_path / "new", some(pooled, "a"))
    assert forgetting(pooled, tmp_path / "again", some(pooled, "a"), how=Unlearn("exact")).folder.summary()
    erasure = Erasure.of(pooled.sources.named, [Request("a", some(pooled, "a"))])
    started = Experiment.parse(pooled.experiment.config() | {"start": "elsewhere"})
    begun = Holdings(pooled.folder, started, pooled.sources, pooled.summary)
    with pytest.raises(ConfigError, match="start"):
        unlearn(begun, tmp_path / "third", erasure, Unlearn("exact"))


def test_a_run_without_tables_is_refused(raw: Holdings, tmp_path: Path) -> None:
    shutil.copytree(raw.folder.path, tmp_path / "bare")
    for file in (tmp_path / "bare" / "sites").rglob("*.safetensors"):
        file.unlink()
    bare = Holdings.open(tmp_path / "bare")
    for mode in ("target", "exact"):
        with pytest.raises(DataError, match="no tables of"):
            forgetting(bare, tmp_path / "new", some(bare, "a"), how=Unlearn(mode))  # type: ignore[arg-type]
        assert not (tmp_path / "new").exists()


def test_the_mean_of_the_hub_has_all_that_a_site_moved(tmp_path: Path) -> None:
    """With k owners, (k - 1) times the displacement is added to what leaves the site, and nothing stays."""
    from fedkge.exchange.rows import Rows
    from fedkge.methods.state import Shared, Site
    from fedkge.models import MODELS, Tables

    tables = Tables(MODELS["transe"](dim=2), torch.zeros(3, 2), torch.zeros(1, 2))
    shared = {Axis.ENTITY: Shared(torch.tensor([2, 0]), torch.arange(2))}
    site = Site("a", tables, shared, {})
    plain = site.read(Axis.ENTITY)
    site.beyond[Axis.ENTITY] = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]])
    sent = site.read(Axis.ENTITY)
    assert torch.equal(sent.values, torch.tensor([[3.0, 4.0], [1.0, 2.0]]))
    assert torch.equal(plain.values, torch.zeros(2, 2))
    assert isinstance(sent, Rows)
    assert torch.equal(tables.entities, torch.zeros(3, 2))


def test_runs_that_may_remember_are_listed(raw: Holdings, tmp_path: Path) -> None:
    home = tmp_path / "runs"
    shutil.copytree(raw.folder.path, home / "old")
    shutil.copytree(raw.folder.path, home / "twin")
    done = forgetting(Holdings.open(home / "old"), home / "new", some(raw, "a"))
    twin = {"run": str(home / "twin"), "why": "it was trained on the same triples"}
    assert account(done, KEY, audited=False)["derived"] == [twin]  # not the run that forgets
    config = (home / "twin" / "config.toml").read_text()
    (found,) = derived(home / "new", home / "next", "a")[:1]
    assert found["why"] == "it was trained on the same triples of other sites, and on another graph of a"
    (home / "twin" / "run.json").unlink()
    (home / "twin" / "config.toml").write_text(f'start = "{home / "old"}"\n{config}')
    assert derived(home / "old", home / "new", "a")[0]["why"] == "it began with the tables of this run"


def test_the_report_names_over_and_under_forgetting(raw: Holdings, tmp_path: Path) -> None:
    exact = forgetting(raw, tmp_path / "exact", some(raw, "a"), how=Unlearn("exact"))
    done = forgetting(raw, tmp_path / "new", some(raw, "a"))
    found = account(done, KEY, exact.folder.path)
    audit = found["audit"]
    assert {"before", "after", "retrained"} == set(audit["standing"])
    assert {row["view"] for row in audit["membership"]} == {"local", "global", "hub"}
    assert all(
        row["difference_low"] <= row["difference"] <= row["difference_high"] for row in audit["membership"]
    )
    words = {"as re-trained", "over-forgotten", "under-forgotten"}
    assert {of["verdict"] for of in audit["verdicts"].values()} <= words
    assert json.loads((tmp_path / "new" / "erasure.json").read_text())["requests"]
    with pytest.raises(DataError, match="mode exact"):
        account(done, KEY, raw.folder.path)


def test_a_site_without_triples_to_compare_with_is_left_out_of_the_attack() -> None:
    """What it forgets is an entity's last triple in train: a split would never have held that out."""
    names = Names([f"e{i}" for i in range(5)]), Names(["r"], Axis.RELATION)
    train, held = np.array([[0, 0, 1], [1, 0, 2], [2, 0, 0]]), np.array([[0, 0, 2]])
    graph, tables = Graph(*names, train, held, held), Tables(MODELS["transe"](dim=2), *torch.rand(2, 5, 2))
    tables.relations = tables.relations[:1]
    for forgotten, rows in ((np.array([[3, 0, 4]]), 0), (np.array([[1, 0, 0]]), 3)):
        asked = Questions({"a": Party(graph, graph, forgotten)}, (), {})
        assert len(membership(asked, {"a": tables})) == rows


def test_before_and_after_have_one_filter(raw: Holdings, tmp_path: Path) -> None:
    """What stands of the raw run is asked as of the new one: by what is retained."""
    done = forgetting(raw, tmp_path / "new", some(raw, "a"))
    new = Holdings.open(done.folder.path)
    asked = Questions.of(done.erasure, new)
    found = standing(asked, asked.tables(new))
    told = new.summary["metrics"]["test"]["mrr"]
    assert found["local"]["test"]["mrr"] == pytest.approx(told, rel=1e-6)


def test_the_difference_of_two_areas_is_theirs_and_its_interval_shrinks() -> None:
    generator = torch.Generator().manual_seed(0)

    def groups(shift: float, count: int) -> list[Scored]:
        drawn = torch.randn(2, count, generator=generator, dtype=torch.float64).numpy()
        return [Scored(drawn[0] + shift, drawn[1])]

    one, two = groups(1.0, 2000), groups(0.0, 2000)
    found = difference(one, two)
    assert found.value == pytest.approx(auc(one).value - auc(two).value, abs=1e-12)
    assert found.low < found.value < found.high
    assert difference(one, one).low == difference(one, one).high == 0
    few = difference(
        [Scored(one[0].members[:50], one[0].others[:50])], [Scored(two[0].members[:50], two[0].others[:50])]
    )
    assert few.high - few.low > found.high - found.low


def test_what_a_private_run_has_spent_stays_in_the_ledger(tmp_path: Path) -> None:
    privacy = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
    held = trained(tmp_path / "raw", privacy=privacy, marks={"share": 0.5}, evaluate={"every": 2})
    with pytest.raises(ConfigError, match=r"privacy.mode.*mode exact"):
        forgetting(held, tmp_path / "new", some(held, "a"))
    done = forgetting(held, tmp_path / "again", some(held, "a"), how=Unlearn("exact"))
    spent, now = (len(run_entries(run.path)) for run in (held.folder, done.folder))
    assert now == 2 * spent
    assert done.folder.experiment().marks == Marks()  # the written data has the marks
    epsilon = {cost["site"]: cost["epsilon"] for cost in held.summary["privacy"]}
    for cost in done.folder.summary()["privacy"]:
        assert cost["epsilon"] > epsilon[cost["site"]]


def test_the_ledger_of_pooled_graphs_is_carried_too(tmp_path: Path) -> None:
    privacy = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
    more = {"marks": {"share": 0.5}, "evaluate": {"every": 2}, "method": {"name": "collective"}}
    held = trained(tmp_path / "raw", privacy=privacy, **more)
    done = forgetting(held, tmp_path / "again", some(held, "a"), how=Unlearn("exact"))
    assert len(run_entries(done.folder.path)) == 2 * len(run_entries(held.folder.path)) > 0


def test_settings_that_decide_what_is_trained_on_and_sent_are_kept(tmp_path: Path) -> None:
    data = {"name": None, "path": str(tmp_path / "raw-data"), "drop_leaks": "across"}
    persons = {"prefixes": ["e3"], "mentions": True}
    changes = {"data": data, "persons": persons, "accept": {"a": {}, "b": {}}}
    held = trained(tmp_path / "raw", method={"name": "fede"}, **changes)
    erasure = Erasure.of(held.sources.named, [Request("a", some(held, "a"))])
    plan = planned(held, erasure, Unlearn("exact"), tmp_path / "left")
    assert plan.data.drop_leaks == "across"
    assert plan.persons.mentions
    done = unlearn(held, tmp_path / "new", Erasure.of(held.sources.named, [], ["a"]), QUICK)
    assert set(done.folder.experiment().accept) == {"b"}  # the site that has left accepts nothing
    one = Holdings.open(done.folder.path)
    assert set(forgetting(one, tmp_path / "next", some(one, "c", 1), "c").folder.experiment().accept) == {"b"}


def test_the_last_person_and_the_last_withheld_name_can_go(tmp_path: Path) -> None:
    (tmp_path / "withheld.txt").write_text("e31\n")
    changes = {"persons": {"prefixes": ["e30"]}, "align": {"withhold": str(tmp_path / "withheld.txt")}}
    held = trained(tmp_path / "raw", method={"name": "fede"}, **changes)
    erasure = Erasure.of(held.sources.named, [Request("b", entities=["e30", "e31"])])
    new = unlearn(held, tmp_path / "new", erasure, QUICK).folder.experiment()
    assert not new.persons.named
    assert new.align.withhold is None


def test_a_chain_of_requests_spends_from_one_account(tmp_path: Path) -> None:
    held = trained(tmp_path / "raw", method={"name": "fede"})
    account(forgetting(held, tmp_path / "one", some(held, "a")), KEY, audited=False)
    shutil.rmtree(tmp_path / "raw-data")  # it has what was forgotten
    one = Holdings.open(tmp_path / "one")
    two = forgetting(one, tmp_path / "two", some(one, "a"))
    assert two.folder.experiment().account == one.experiment.account


def test_another_request_cannot_go_on_with_an_unlearning(raw: Holdings, tmp_path: Path) -> None:
    def interrupted(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forgetting(raw, tmp_path / "new", some(raw, "a"), watch=interrupted)
    with pytest.raises(DataError, match="not what this request leaves"):
        forgetting(raw, tmp_path / "new", some(raw, "a", start=20), resume=True)
    forgetting(raw, tmp_path / "new", some(raw, "a"), resume=True)


def test_yardsticks_of_a_run_with_persons(tmp_path: Path) -> None:
    held = trained(tmp_path / "raw", method={"name": "fede"}, persons={"prefixes": ["e30"]})
    erasure = Erasure.of(held.sources.named, [Request("a", some(held, "a"))])
    rows = yardsticks(held, erasure, tmp_path / "all", chosen(["alone"]))
    assert [row["run"] for row in rows] == ["raw", "alone"]
    other = Erasure.of(held.sources.named, [Request("a", some(held, "a", start=20))])
    with pytest.raises(DataError, match="not what this request leaves"):
        yardsticks(held, other, tmp_path / "all", chosen(["alone"]))


def test_in_mode_u_only_no_confidential_triple_has_a_part(tmp_path: Path) -> None:
    """Two federations that differ in confidential triples alone forget the same to the bit."""
    left = {}
    for number in range(2):
        graphs = small_federation()
        own = graphs["a"]
        random = np.random.default_rng(100 + number)
        more = np.unique(random.integers(0, [own.n_entities, 3, own.n_entities], (30, 3)), axis=0)
        known = {tuple(triple) for triple in own.all().tolist()}
        more = np.array([triple for triple in more.tolist() if tuple(triple) not in known])[:20]
        marks = np.repeat((False, True), (len(own.train), len(more)))
        graphs["a"] = replace(own, train=np.concatenate((own.train, more)), confidential=marks)
        home = tmp_path / str(number)
        write_federation(graphs, home / "raw-data")
        held = trained(home / "raw", method={"name": "fede"}, privacy={"mode": "u-only"})
        h, r, t = own.train[0]
        named = own.entities[h], own.relations[r], own.entities[t]
        how = Unlearn("paper", epochs=2, decay=2, rounds=1)
        left[number] = files(forgetting(held, home / "new", [named], how=how).folder.path, "*.safetensors")
        quick = forgetting(held, home / "quick", [named]).folder.path
        left[number] |= {f"target {name}": of for name, of in files(quick, "*.safetensors").items()}
        h, r, t = more[0]
        closed = own.entities[h], own.relations[r], own.entities[t]
        assert not forgetting(held, home / "closed", [closed]).sites  # there is nothing to forget
    chosen = [name for name in left[0] if name.endswith("entities.safetensors")]
    assert len(chosen) >= 6
    assert all(left[0][name] == left[1][name] for name in chosen)


def test_what_was_left_out_of_training_is_not_forgotten_by_interference(tmp_path: Path) -> None:
    graphs = small_federation(relations_in_common=True)
    own, asked = graphs["a"], graphs["c"]
    there = {(own.entities[h], own.relations[r], own.entities[t]) for h, r, t in own.all().tolist()}
    held_out = np.concatenate((asked.valid, asked.test)).tolist()
    words = [(asked.entities[h], asked.relations[r], asked.entities[t]) for h, r, t in held_out]
    leak = next(word for word in words if word not in there and {word[0], word[2]} <= set(own.entities))
    one = [[own.entities.id(leak[0]), own.relations.id(leak[1]), own.entities.id(leak[2])]]
    graphs["a"] = replace(own, train=np.concatenate((own.train, one)))
    write_federation(graphs, tmp_path / "raw-data")
    data = {"name": None, "path": str(tmp_path / "raw-data"), "drop_leaks": "across"}
    held = trained(tmp_path / "raw", method={"name": "fede"}, data=data)
    done = forgetting(held, tmp_path / "new", [leak])
    assert not done.sites
    assert not Holdings.open(done.folder.path).sources.leaks["a"].train


def test_a_refused_unlearning_leaves_nothing_behind(tmp_path: Path) -> None:
    privacy = {"mode": "strict", "noise": 1.0, "delta": 1e-4, "accountant": "rdp"}
    held = trained(tmp_path / "raw", privacy=privacy, marks={"share": 0.1}, evaluate={"every": 2})
    requests = []
    for site, graph in held.sources.named.items():
        assert graph.confidential is not None
        marked = graph.train[graph.confidential].tolist()
        requests.append(
            Request(site, [(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in marked])
        )
    with pytest.raises(ConfigError, match="confidential"):  # none would be left
        unlearn(held, tmp_path / "some" / "new", Erasure.of(held.sources.named, requests), Unlearn("exact"))
    assert not (tmp_path / "some").exists()


def test_a_relation_without_held_out_triples_has_a_verdict_too(tmp_path: Path) -> None:
    graphs = small_federation()
    own = graphs["a"]
    rare = own.valid[:, 1] == own.relations.id("a.r0")
    train = np.concatenate((own.train, own.valid[rare]))
    graphs["a"] = replace(own, train=train, valid=own.valid[~rare])
    write_federation(graphs, tmp_path / "raw-data")
    held = trained(tmp_path / "raw", method={"name": "fedlu"})
    triples = [triple for triple in some(held, "a", 20) if triple[1] == "a.r0"][:3]
    found = account(forgetting(held, tmp_path / "new", triples), KEY)
    assert set(found["audit"]["verdicts"]) == {"local", "global", "hub"}
    for one in found["audit"]["verdicts"].values():
        assert 0 <= one["expected"] <= 1
    assert "by held-out triples" in sentence(found)


def test_a_copy_has_names_and_data_of_its_own(tmp_path: Path) -> None:
    options = {"persons": {"prefixes": ["e3"]}, "marks": {"share": 0.2}, "privacy": {"mode": "u-only"}}
    held = trained(tmp_path / "raw", method={"name": "fede"}, **options)
    account(forgetting(held, tmp_path / "one", some(held, "a")), KEY, audited=False)
    forgetting(Holdings.open(tmp_path / "one"), tmp_path / "two", [])
    shutil.rmtree(tmp_path / "one")
    assert Holdings.open(tmp_path / "two").summary
    forgetting(held, tmp_path / "three", [], write_data=tmp_path / "kept")
    shutil.rmtree(tmp_path / "raw-data")
    assert Holdings.open(tmp_path / "three").summary


def test_an_unlearning_without_a_report_is_no_plain_run(tmp_path: Path) -> None:
    def interrupted(progress: object) -> None:
        raise KeyboardInterrupt

    held = trained(tmp_path / "raw", method={"name": "fede"}, rounds=3)
    with pytest.raises(KeyboardInterrupt):
        forgetting(held, tmp_path / "new", some(held, "a"), watch=interrupted)
    one = RunFolder(tmp_path / "new").experiment()
    folder = RunFolder.create(tmp_path / "new", one, resume=True)
    with pytest.raises(ConfigError, match="an unlearning that was interrupted"):
        run(one, folder, torch.device("cpu"))
    done = forgetting(held, tmp_path / "new", some(held, "a"), resume=True)
    assert original(Holdings.open(done.folder.path)).rounds == 3  # before there is a report
    account(done, KEY, audited=False)
    assert original(Holdings.open(done.folder.path)).rounds == 3


def test_areas_that_differ_are_over_or_under_forgetting_where_hits_agree(
    raw: Holdings, tmp_path: Path
) -> None:
    done = forgetting(raw, tmp_path / "new", some(raw, "a"))
    asked = Questions.of(done.erasure, Holdings.open(done.folder.path))
    tables = asked.tables(Holdings.open(done.folder.path))
    stand = standing(asked, tables)
    row = {"view": "local", "signal": "rank", "difference": -0.2, "difference_low": -0.3}
    for high, word in ((-0.06, "over-forgotten"), (-0.04, "as re-trained")):
        found = verdicts(asked, tables, stand, stand, [{**row, "difference_high": high}])
        assert found["local"]["verdict"] == word
        assert found["hub"]["verdict"] == "as re-trained"
    assert verdicts(asked, tables, stand, stand)["local"]["verdict"] == "as re-trained"


def test_a_new_run_is_read_from_any_folder(
    raw: Holdings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    account(forgetting(raw, Path("new"), some(raw, "a")), KEY, audited=False)
    forgetting(Holdings.open(Path("new")), Path("copy"), [])
    monkeypatch.chdir(raw.folder.path)
    assert Holdings.open(tmp_path / "new").summary
    assert Holdings.open(tmp_path / "copy").summary
