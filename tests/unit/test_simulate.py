"""A federation in one process: odd names, odd rounds, and data that changes under a run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fedkge.errors import ConfigError, DataError
from fedkge.exchange.rows import Message
from fedkge.graphs.graph import Axis, Split
from fedkge.nodes.learner import Fitted
from fedkge.nodes.result import read_result
from fedkge.nodes.stack import _groups
from fedkge.reports.folders.load import events
from fedkge.runs.folder import RunFolder
from fedkge.runtimes.loop import Interrupted
from fedkge.runtimes.run import Progress, Simulated, Simulation, run
from small_federations import assert_same, experiment, federated, played, rows, small_federation

SITES = small_federation()


class Stopped(Exception):
    pass


def interrupted(path: Path, after: int, **options: Any) -> None:
    def stop(progress: Progress) -> None:
        if progress.round > after:
            raise Stopped

    broken = federated(path, SITES, how=Simulation(save_every=0), watch=stop, **options)
    with pytest.raises(Stopped):
        broken.play()


@pytest.mark.parametrize("change", ["gone", "new", "other"])
def test_a_run_does_not_go_on_with_other_sites(tmp_path: Path, change: str) -> None:
    interrupted(tmp_path, 2, method={"name": "fedep"})
    sites = {
        "gone": {site: SITES[site] for site in "bc"},
        "new": {**SITES, "d": SITES["a"]},
        "other": {**SITES, "a": SITES["b"]},
    }[change]
    with pytest.raises(DataError, match=f"site '{'d' if change == 'new' else 'a'}' has other triples or"):
        federated(tmp_path, sites, method={"name": "fedep"})


def test_a_run_goes_on_stacked_or_not(tmp_path: Path) -> None:
    options = {"method": {"name": "single"}, "rounds": 6}
    whole = played(tmp_path / "whole", SITES, **options)
    interrupted(tmp_path / "broken", 2, **options)
    resumed = played(tmp_path / "broken", SITES, how=Simulation(stacked=False), **options)
    assert all(torch.equal(tensor, rows(whole)[name]) for name, tensor in rows(resumed).items())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_round_end_and_saves(tmp_path: Path, number: signal.Signals) -> None:
    options = {"method": {"name": "fedep"}, "rounds": 6}
    whole = played(tmp_path / "whole", SITES, **options)

    def raised(message: Message) -> None:
        if message.kind == "upload" and message.round == 3 and message.sender == "a":
            signal.raise_signal(number)

    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted, match=f"^{number.name}$"):
        played(tmp_path / "left", SITES, tap=raised, **options)
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    resumed = federated(tmp_path / "left", SITES, **options)
    assert resumed.round == 3
    resumed.play()
    assert_same(whole, resumed)
    assert resumed.record.tally.summary() == whole.record.tally.summary()


def test_a_second_signal_is_not_waited_for(tmp_path: Path) -> None:
    def raised(message: Message) -> None:
        if message.kind == "upload" and message.round == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        played(tmp_path, SITES, tap=raised, method={"name": "fedep"}, rounds=6)
    assert federated(tmp_path, SITES, method={"name": "fedep"}, rounds=6).round == 0


def test_a_run_that_ends_before_the_signal_is_heeded_has_ended(tmp_path: Path) -> None:
    def raised(message: Message) -> None:
        if message.kind == "stop" and message.recipient == "a":
            signal.raise_signal(signal.SIGINT)

    run_ = played(tmp_path, SITES, tap=raised, method={"name": "fedep"})
    assert run_.hub.phase == "done"


def test_a_void_round_that_validates_measures_the_hubs_last_answer(tmp_path: Path) -> None:
    run_ = federated(
        tmp_path,
        SITES,
        method={"name": "fede"},
        rounds=30,
        evaluate={"every": 1, "patience": 0},
        participation={"fraction": 0.67, "dropout": 0.45},
    )
    measured: list[tuple[bool, bool]] = []  # whether the hub has an answer, and whether the site holds it
    for site in run_.sites.values():

        def watched(message: Message, site: Any = site, receive: Any = site.receive) -> list[Message]:
            answers: list[Message] = receive(message)
            if message.kind == "measure":
                measured.append((Axis.ENTITY in run_.hub.hub.by_id, bool(site.held)))
            return answers

        site.receive = watched  # type: ignore[method-assign]
    run_.play()
    void = [event["void"] for event in events(tmp_path) if event["event"] == "round"]
    assert any(void[void.index(False) :]), "no void round after a good one: choose another seed"
    assert all(known == held for known, held in measured)
    assert any(known for known, _ in measured)


@pytest.mark.parametrize("name", ["fede", "fedep", "feds"])
def test_sites_whose_names_look_like_parts_of_keys(tmp_path: Path, name: str) -> None:
    odd = dict(zip(("a", "a.ids", "a.values"), SITES.values(), strict=True))
    for absent in ("out", "last"):
        run_ = played(tmp_path / absent, odd, method={"name": name, "absent": absent}, rounds=3)
        assert run_.hub.phase == "done"


@pytest.mark.parametrize("site", ["hub", "../x", "a/b", "", ".."])
def test_sites_that_cannot_be_named_so(tmp_path: Path, site: str) -> None:
    one = experiment()
    folder = RunFolder.create(tmp_path / "run", one, resume=False)
    with pytest.raises(ConfigError, match="a site is named"):
        run(one, folder, torch.device("cpu"), {site: SITES["a"]})


def test_where_nothing_is_exchanged_nobody_is_waited_for(tmp_path: Path) -> None:
    hard = {"fraction": 0.34, "dropout": 0.9, "quorum": 1.0}
    single = played(tmp_path / "hard", SITES, method={"name": "single"}, participation=hard)
    plain = played(tmp_path / "plain", SITES, method={"name": "single"})
    assert all(torch.equal(tensor, rows(plain)[name]) for name, tensor in rows(single).items())


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_journal_has_every_byte_of_the_summary(tmp_path: Path, dropout: float) -> None:
    options = {"method": {"name": "fede"}, "participation": {"dropout": dropout, "quorum": 0.3}, "rounds": 8}
    run_ = federated(tmp_path / "run", SITES, **options)
    sent: list[Message] = []
    for site in run_.sites.values():
        finish = site.finish

        def counted(number: int, trained: Fitted, finish: Any = finish) -> Message:
            sent.append(finish(number, trained))
            return sent[-1]

        site.finish = counted  # type: ignore[method-assign]
    run_.play()
    rounds = [event for event in events(tmp_path / "run") if event["event"] == "round"]
    summary = run_.record.tally.summary()
    for kind in ("up_bytes", "down_bytes", "up_values", "down_values"):
        assert sum(line[kind] for line in rounds) == summary[kind] > 0
    assert summary["up_values"] == sum(message.body["entity.values"].numel() for message in sent)
    again = federated(tmp_path / "run", SITES, **options)
    again.play()
    assert again.record.tally.summary() == summary, "a finished run sends nothing when it is opened again"


def test_sites_are_stacked_as_long_as_they_fit() -> None:
    assert list(_groups([3, 3, 3, 9, 1, 1], 6)) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(_groups([3, 3, 3], 0)) == [(0, 1), (1, 2), (2, 3)]
    assert list(_groups([3, 3, 3], 1 << 62)) == [(0, 3)]


def test_kept_tables_are_those_of_the_best_round(tmp_path: Path) -> None:
    run_: Simulated = played(
        tmp_path, SITES, method={"name": "fede"}, rounds=9, evaluate={"every": 1, "patience": 0}
    )
    best = max((e for e in events(tmp_path) if e["event"] == "evaluate"), key=lambda event: event["mrr"])
    found = {name: site.learner.measure(site.best, Split.VALID)[name] for name, site in run_.sites.items()}
    assert {site: metrics["both"]["mrr"] for site, metrics in found.items()} == {
        site: metrics["mrr"] for site, metrics in best["sites"].items()
    }
    told = {site: read_result(tmp_path / "sites" / site)["metrics"]["valid"][site] for site in SITES}
    assert told == found, "which is what a site writes down"


def test_two_processes_do_not_run_one_run(tmp_path: Path) -> None:
    one = experiment()
    folder = RunFolder.create(tmp_path, one, resume=False)
    with folder.alone(), pytest.raises(ConfigError, match="another process is running this run"):
        run(one, RunFolder(tmp_path), torch.device("cpu"), SITES)
    assert not folder.journal.path.exists()
    run(one, folder, torch.device("cpu"), SITES)
    assert (tmp_path / "summary.json").exists()


def test_the_summary_has_what_was_sent_until_the_best_round(tmp_path: Path) -> None:
    one = experiment(
        method={"name": "fede"}, rounds=6, evaluate={"every": 1, "patience": 0}, trainer={"lr": 0.5}
    )
    folder = RunFolder.create(tmp_path / "run", one, resume=False)
    summary = run(one, folder, torch.device("cpu"), SITES)
    best, rounds = summary["best_round"], summary["traffic"]["per_round"]
    assert 0 < best < 6, "choose another rate"
    assert summary["converged"] == {
        "rounds": best,
        **{
            kind: sum(r[kind] for r in rounds[:best])
            for kind in ("up_bytes", "down_bytes", "up_values", "down_values")
        },
    }
    assert 0 < summary["converged"]["up_values"] < summary["traffic"]["up_values"]


@pytest.mark.parametrize("says", [False, True])
def test_a_site_adopts_what_it_holds_only_where_the_hub_says_so(tmp_path: Path, says: bool) -> None:
    run_ = federated(tmp_path, SITES, method={"name": "fede"})
    run_.play(until=lambda round: round == 1)
    site, hub = run_.sites["a"], run_.hub
    rows_ = site.site.read(Axis.ENTITY)
    site.receive(hub.message("a", "measure", 1, {"entity.values": rows_.values + 1}))
    assert site.held
    assert site.begin(hub.message("a", "train", 3, **{"held": True} if says else {})) is None
    moved = site.site.read(Axis.ENTITY).values - rows_.values
    assert float(moved.min()) == pytest.approx(1.0 if says else 0.0, abs=1e-5)
    assert not site.held
