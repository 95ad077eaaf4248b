"""Keys in which runs were meant to differ."""

from __future__ import annotations

from pathlib import Path

from fedkge.reports.experiments import experiments
from fedkge.reports.load import load_runs
from fedkge.reports.options import swept_keys
from fedkge.reports.sweep import sweep_rows, swept
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
    assert swept(more) == ["method.name", "evaluate.keep"]
    assert [row["evaluate.keep"] for row in sweep_rows(more)] == [None, "each", "together", None]
    assert [group.label for group in experiments(more)] == [
        "single",
        "fedep · keep=each",
        "fedep · keep=together",
        "collective",
    ]
