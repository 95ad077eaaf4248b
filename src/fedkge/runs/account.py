"""Where a site keeps what outlives its runs: its key, and the ledger of all that it has ever released."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedkge.privacy.keyfile import key_in

if TYPE_CHECKING:
    from fedkge.runs.experiment import Experiment

FOLDER, KEY = ".fedkge", "site.key"


def accounts_folder(experiment: Experiment) -> Path:
    """The folder that has one for each site: as the experiment says, beside the data, or the user's own.

    Data that is read by name, or from where nobody can write, has its sites' ledgers in the user's state
    folder (`XDG_STATE_HOME`), under its name or its full path.
    """
    if experiment.account.folder is not None:
        return experiment.account.folder
    path = experiment.data.path
    if path is not None:
        home = path if path.is_dir() else path.parent
        if (home / FOLDER).is_dir() or os.access(home, os.W_OK):
            return home / FOLDER
    name = experiment.data.name or str(path and path.resolve())
    return state_folder() / "accounts" / name.strip("/").replace("/", "%2F")


def state_folder() -> Path:
    """`$XDG_STATE_HOME/fedkge`, or `~/.local/state/fedkge` (XDG Base Directory Specification)."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state") / "fedkge"


def account_of(experiment: Experiment, site: str) -> Path:
    """One site's folder."""
    return accounts_folder(experiment) / site


def person_key(account: Path) -> bytes:
    """What decides which triples of a person are trained on, in every run of this site."""
    return key_in(account / KEY)
