"""What `fedkge watch` reads from journals: private runs, late sites, rounds that were played twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedkge.graphs.marks import mark_share
from fedkge.nodes.journal import Journal
from fedkge.nodes.ledgers import run_entries
from fedkge.privacy import costs
from fedkge.reports.folders.watching import watched
from small_federations import played, small_federation

SITES = small_federation()
PRIVATE: dict[str, Any] = {"mode": "strict", "noise": 1.0, "delta": 1e-3, "accountant": "rdp"}


def test_what_sites_have_spent_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    played(tmp_path, mark_share(SITES, 0.5, 0), method={"name": "fedep"}, privacy=PRIVATE, rounds=2)
    now = watched(tmp_path, 0.0)
    expected = {cost.site: cost.epsilon for cost in costs(run_entries(tmp_path), 1e-3, "rdp")}
    assert {one.site: one.epsilon for one in now.sites} == expected
    assert all(epsilon > 0 for epsilon in expected.values())
    assert now.delta == 1e-3


def folder(path: Path, own: list[dict[str, Any]], hub: list[dict[str, Any]]) -> Path:
    path.mkdir()
    (path / "config.toml").write_text('rounds = 9\n[method]\nname = "fedep"\n[model]\nname = "transe"\n')
    for file, events in ((path / "run.jsonl", own), (path / "hub" / "journal.jsonl", hub)):
        Journal(file).append(events)
    return path


def closed(time: float, round: int, here: str, late: str = "", **refused: str) -> dict[str, Any]:
    whole = {"participants": list(here), "late": list(late), "refused": refused}
    return {"event": "round", "time": time, "round": round, **whole}


def sent(time: float, round: int, a: int, b: int) -> dict[str, Any]:
    sites = {"a": {"up_bytes": a, "down_bytes": 1}, "b": {"up_bytes": b, "down_bytes": 2}}
    return {"event": "traffic", "time": time, "round": round, "sites": sites}


START = {"event": "start", "time": 1.0, "sites": ["a", "b", "c"]}


def test_a_run_that_waits_for_its_sites(tmp_path: Path) -> None:
    now = watched(folder(tmp_path / "run", [START], []), 100.0)
    assert (now.state, now.round, now.rounds, now.quiet) == ("waits for sites", 0, 9, 99.0)
    assert [one.site for one in now.sites] == ["a", "b", "c"]


def test_late_and_refused_sites_are_named(tmp_path: Path) -> None:
    hub = [closed(3, 1, "a", "b"), closed(4, 2, "a", "b", c="NaN"), closed(5, 3, "ab", "", c="declines: no")]
    now = watched(folder(tmp_path / "run", [START], hub), 6.0)
    assert [(one.site, one.round, one.late, one.now) for one in now.sites] == [
        ("a", 3, 0, ""),
        ("b", 3, 2, ""),
        ("c", 0, 0, "declines: no"),
    ]


def test_rounds_that_were_played_twice_count_once(tmp_path: Path) -> None:
    own = [START, sent(2, 0, 5, 5), sent(3, 1, 15, 15), sent(4, 2, 10, 10), sent(6, 2, 20, 30)]
    now = watched(
        folder(tmp_path / "run", own, [closed(3, 1, "ab"), closed(4, 2, "ab"), closed(6, 2, "ab")]), 7.0
    )
    assert {one.site: one.up_bytes for one in now.sites if one.up_bytes} == {"a": 35, "b": 45}
    assert (now.up_bytes, now.down_bytes) == (80, 6)
    only = watched(folder(tmp_path / "begun", [START, sent(2, 0, 5, 6)], []), 7.0)
    assert only.up_bytes == 11


def test_unknown_events_and_torn_lines_change_nothing(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", [START], [closed(3, 1, "ab"), {"event": "of the future", "time": 4.0}])
    with (path / "hub" / "journal.jsonl").open("a") as file:
        file.write('{"event": "round", "round": 2, "parti')
    assert watched(path, 5.0).round == 1


def test_a_validation_without_questions_is_no_best(tmp_path: Path) -> None:
    hub = [
        {"event": "evaluate", "time": 2.0, "round": 2, "sites": {"a": {"mrr": 0.2}}, "mrr": 0.2},
        {"event": "evaluate", "time": 3.0, "round": 4, "sites": {}, "mrr": float("nan")},
        {"event": "evaluate", "time": 4.0, "round": 6, "sites": {"a": {"mrr": 0.1}}, "mrr": 0.1},
    ]
    now = watched(folder(tmp_path / "run", [START], hub), 5.0)
    assert (now.mrr, now.best, now.best_round) == (0.1, 0.2, 2)
    assert now.sites[0].mrr == 0.1
