"""`fedkge watch`: a run as its folder tells it, under way and at its end."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import ENVIRONMENT, LINE, fedkge, journal_of, printed, refused, summary_of
from fedkge.cli.watch import notes
from fedkge.nodes.journal import Journal
from fedkge.reports.folders.watching import watched


@pytest.fixture(scope="module")
def run(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hub and sites as processes, under a secret."""
    (home / "secret").write_bytes(bytes(range(32)))
    out = tmp_path_factory.mktemp("runs") / "watched"
    options = ("method.name=fedep", "align.secret=secret", 'runtime={name="processes"}', "rounds=4")
    line = [*LINE, "run", "tiny.toml", "--out", str(out)]
    line += [part for one in options for part in ("--set", one)]
    subprocess.run(line, cwd=home, env=ENVIRONMENT, check=True, capture_output=True)
    return out


def seen(*arguments: object) -> list[dict[str, Any]]:
    found = fedkge("watch", *arguments, "--json")
    assert found.exit_code == 0, found.output
    return [printed(line) for line in found.stdout.splitlines()]


def test_a_finished_run_is_as_its_summary_says(run: Path) -> None:
    (now,), summary = seen(run), summary_of(run)
    assert (now["state"], now["round"], now["rounds"], now["method"]) == ("ended", 4, 4, "fedep")
    assert now["up_bytes"] == summary["traffic"]["up_bytes"]
    assert now["down_bytes"] == summary["traffic"]["down_bytes"]
    assert now["best_round"] == summary["best_round"]
    validated = [event["mrr"] for event in journal_of(run) if event["event"] == "evaluate"]
    assert (now["mrr"], now["best"]) == (validated[-1], max(validated))
    assert [(one["site"], one["round"], one["late"], one["now"]) for one in now["sites"]] == [
        ("north", 4, 0, ""),
        ("south", 4, 0, ""),
    ]
    assert now["notes"] == ["20 entity rows are shared, 20 of them by exactly two sites"]


def test_people_are_shown_a_line_and_a_table(run: Path) -> None:
    for arguments in ((), ("--once",)):
        found = fedkge("watch", run, *arguments)
        assert found.exit_code == 0, found.output
        first, *rest = found.stdout.splitlines()
        assert first.startswith("watched: ended, round 4/4  loss ")
        assert any("north" in line for line in rest)
        assert "20 of them by exactly two sites" in rest[-1]


def test_a_sites_own_folder_can_be_watched(run: Path) -> None:
    (now,) = seen(run / "sites" / "north")
    assert (now["state"], now["round"], [one["site"] for one in now["sites"]]) == ("ended", 4, ["north"])


def cut(run: Path, to: Path, kind: str, round: int = 0, site: str | None = None) -> Path:
    """The same folder as it was before the first such event."""
    ends = [("done", None), ("end", None), (kind, round), ("traffic", round)]
    shutil.copytree(run, to)
    for journal in (to / "run.jsonl", to / "hub" / "journal.jsonl"):
        kept = []
        for line in journal.read_text().splitlines(keepends=True):
            event = json.loads(line)
            about = event["event"], None if event["event"] in ("done", "end") else event.get("round")
            if about in ends and site in (None, event.get("site", site)):
                break
            kept.append(line)
        journal.write_text("".join(kept))
    return to


def test_who_is_waited_for_in_an_open_round(run: Path, tmp_path: Path) -> None:
    """The journal ends before the second answer to round 3."""
    events = [event for event in journal_of(run) if event.get("round") == 3]
    first, second = [event["site"] for event in events if event["event"] == "answered"][:2]
    open_ = cut(run, tmp_path / "open", "answered", 3, second)
    (asked, *_) = (event["time"] for event in events if event["event"] == "asked")
    now = watched(open_, asked + 90)
    assert (now.state, now.round) == ("trains", 2)
    assert {one.site: one.now for one in now.sites} == {
        first: "has answered",
        second: "is waited for since 90 s",
    }
    assert f"waits for {second}" in fedkge("watch", open_, "--once").stdout
    assert "nothing was written down for 70 s" in notes(replace(now, quiet=70.0))


def test_it_follows_a_run_until_it_is_over(run: Path, tmp_path: Path) -> None:
    """A run that writes its journal while somebody watches: a line per round, and the end."""
    going = cut(run, tmp_path / "going", "round", 2)
    hub = [json.loads(line) for line in (run / "hub" / "journal.jsonl").read_text().splitlines()]
    rest = hub[next(i for i, e in enumerate(hub) if e["event"] == "round" and e["round"] == 2) :]

    def write() -> None:
        for event in rest:
            if event["event"] in ("round", "done"):
                time.sleep(0.5)
            Journal(going / "hub" / "journal.jsonl").append([event], sync=False)

    writer = threading.Thread(target=write)
    writer.start()
    found = seen(going, "--every", 0.05)
    writer.join()
    assert [now["round"] for now in found if now["state"] == "trains"][-1] >= 3
    assert (found[-1]["state"], found[-1]["round"]) == ("ended", 4)
    assert {2, 3, 4} <= {now["round"] for now in found}


def test_a_failed_run_says_why(run: Path, tmp_path: Path) -> None:
    failed = cut(run, tmp_path / "failed", "done")
    hub = Journal(failed / "hub" / "journal.jsonl")
    hub.write("declined", site="south", round=4, why="rounds: 9, the site accepts at most 3")
    hub.write("failed", round=4, why="round 4: 0 of 2 sites answered")
    (now,) = seen(failed)
    assert (now["state"], now["why"]) == ("failed", "round 4: 0 of 2 sites answered")
    assert now["sites"][1]["now"] == "declines: rounds: 9, the site accepts at most 3"
    Journal(failed / "run.jsonl").write("start", sites=["north", "south"])
    assert watched(failed, time.time()).state == "waits for sites", "it was begun again"


def test_a_terminal_is_drawn_on(run: Path) -> None:
    own, other = pty.openpty()
    found = subprocess.Popen([*LINE, "watch", str(run)], stdout=other, env={**ENVIRONMENT, "COLUMNS": "120"})
    os.close(other)
    drawn = b""
    while True:
        try:
            piece = os.read(own, 4096)
        except OSError:
            break
        if not piece:
            break
        drawn += piece
    assert found.wait(30) == 0
    assert "watched: ended, round 4/4" in drawn.decode()
    assert "north" in drawn.decode()


def test_what_is_no_run_is_an_error(run: Path, tmp_path: Path) -> None:
    assert "not a run folder" in refused("watch", tmp_path)
    assert "--every: expected a number above 0" in refused("watch", run, "--every", 0)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(run / "config.toml", tmp_path / name)
    assert "2 runs are in it" in refused("watch", tmp_path)
