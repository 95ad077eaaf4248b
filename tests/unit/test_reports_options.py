"""Keys in which runs were meant to differ."""

from __future__ import annotations

from pathlib import Path

from fedkge.reports.compared.baseline import alone
from fedkge.reports.compared.details import budget_rows
from fedkge.reports.compared.experiments import experiments
from fedkge.reports.folders.load import load_runs
from fedkge.reports.folders.options import swept_keys
from fedkge.reports.pages.sweep_section import sweep_rows, swept
from run_folders import write_run


def test_what_a_mode_of_privacy_brings_along_is_no_sweep(tmp_path: Path) -> None:
    """An accountant that strict has and u-only has not says nothing beside the mode."""
    modes = {
        "none": ["privacy.mode='u-only'"],
        "ten": ["privacy.mode='strict'", "privacy.epsilon=10.0", "privacy.accountant='pld'"],
        "two": ["privacy.mode='strict'", "privacy.epsilon=2.0", "privacy.accountant='pld'"],
    }
    runs = load_runs([write_run(tmp_path / name, options=own) for name, own in modes.items()])
    assert swept_keys(runs) == ["privacy.mode", "privacy.epsilon"]
    assert [group.label for group in experiments(runs)] == [
        "single · u-only",
        "single · strict · epsilon=10",
        "single · strict · epsilon=2",
    ]


def test_whose_round_is_kept_is_no_choice_of_sites_alone_or_pooled(tmp_path: Path) -> None:
    """Else every comparison of sites that keep each their own with sites alone would be a sweep."""
    kept = {"single": "together", "collective": "together", "fedep": "each"}
    runs = load_runs(
        [
            write_run(tmp_path / method, method, options=[f"evaluate.keep='{keep}'"])
            for method, keep in kept.items()
        ]
    )
    assert swept_keys(runs) == ["method.name"]
    assert swept(runs) == []
    assert [group.label for group in experiments(runs)] == ["single", "fedep", "collective"]
    more = [*runs, *load_runs([write_run(tmp_path / "all", "fedep", options=["evaluate.keep='together'"])])]
    told = [
        [row["differs"] for row in budget_rows(experiments(of)) if row["option"] == "keep"]
        for of in (runs, more)
    ]
    assert told == [[False], [True]], "it decides when a run ends, where it is a choice"
    assert swept(more) == ["method.name", "evaluate.keep"]
    assert [row["evaluate.keep"] for row in sweep_rows(more)] == [None, "each", "together", None]
    assert [group.label for group in experiments(more)] == [
        "single",
        "fedep · keep=each",
        "fedep · keep=together",
        "collective",
    ]


def test_sites_are_compared_with_those_alone_that_are_trained_alike(tmp_path: Path) -> None:
    """Whatever these say of a choice that is none to them."""
    slow = write_run(tmp_path / "a", options=["trainer.lr=1e-5", "evaluate.keep='each'"])
    right = write_run(tmp_path / "z", options=["evaluate.keep='together'"])
    own = write_run(tmp_path / "m", "fedep", options=["evaluate.keep='each'"])
    groups = experiments(load_runs([slow, right, own]))
    (joined,) = (group for group in groups if group.approach == "fedep")
    found = alone(joined, groups)
    assert found is not None
    assert found.first.path == right


def test_points_say_what_they_go_on_from_and_how_far_they_were_to_go(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", "fedep", options=["rounds=60"])
    after = write_run(tmp_path / "after", "fedep", options=["rounds=70", "start='runs/single'"])
    runs = load_runs([first, after])
    assert swept(runs) == ["rounds", "method.name"]
    found = [(row["method.name"], row["rounds"], row["trained"]) for row in sweep_rows(runs)]
    assert found == [("fedep", 60, 55), ("fedep after single", 70, 55)]
