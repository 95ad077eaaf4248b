"""Keys in which runs were meant to differ."""

from __future__ import annotations

from pathlib import Path

from fedkge.reports.experiments import experiments
from fedkge.reports.load import load_runs
from fedkge.reports.options import swept_keys
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
