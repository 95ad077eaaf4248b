"""Where a site keeps what outlives its runs: its key, and the ledger of all that it has ever released."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from fedkge.durable import state_folder
from fedkge.errors import DataError, DataWarning, FedkgeError
from fedkge.privacy.account import Account, site_key

if TYPE_CHECKING:
    from fedkge.methods import Member
    from fedkge.runs.experiment import Experiment

FOLDER = ".fedkge"


def accounts_folder(experiment: Experiment) -> Path:
    """The folder that has one for each site: as the experiment says, beside the data, or the user's own.

    Data that is read by name, or from where nobody can write, has its sites' ledgers in the user's state
    folder (`XDG_STATE_HOME`), under its name or its full path.
    """
    if experiment.account.folder is not None:
        return experiment.account.folder
    return accounts_beside(experiment.data.path, experiment.data.name)


def accounts_beside(path: Path | None, name: str | None = None) -> Path:
    """The folder of accounts for data at a path, or of a name."""
    if path is not None:
        home = path if path.is_dir() else path.parent
        if (home / FOLDER).is_dir() or os.access(home, os.W_OK):
            return home / FOLDER
    called = str(path and path.resolve()) if name is None else _known_as(name)
    return state_folder() / "accounts" / called.strip("/").replace("/", "%2F")


def _known_as(name: str) -> str:
    """A data set's own name, in whichever case it was asked for."""
    from fedkge.graphs.datasets import find

    try:
        return find(name).name
    except DataError:  # graphs at hand may have any name
        return name


def account_of(experiment: Experiment, site: str) -> Path:
    """One site's folder."""
    return accounts_folder(experiment) / site


def accounts_of(experiment: Experiment, member: Member) -> dict[str, Path]:
    """The folders of the sites whose triples a member trains on."""
    return {site: account_of(experiment, site) for site in member.parts}


def delta_of(experiment: Experiment) -> float | None:
    """At which ε is meant: of private training, or of a method that spends by itself, as votes of peers."""
    return experiment.privacy.delta or getattr(experiment.method, "delta", None)


def sums(experiment: Experiment) -> list[dict[str, Any]]:
    """What all runs of each site have cost together so far, in the accounts of an experiment's data.

    Composed by one accountant, at the δ of the site's limit where it has one, else at the experiment's. An
    account that cannot be read is a warning.
    """
    found = []
    for folder in sorted(accounts_folder(experiment).glob("*/")):
        if not Account.exists(folder):
            continue
        try:
            found += _sums_of(Account(folder), folder, delta_of(experiment))
        except FedkgeError as error:  # it may be of a site that has no part in this run, which has ended
            warn(f"the sum of site {folder.name!r} is not known: {error}", DataWarning, stacklevel=2)
    return found


def _sums_of(account: Account, folder: Path, delta: float | None) -> list[dict[str, Any]]:
    limit = account.limit
    most = None if limit is None else limit.epsilon
    return [
        cost.plain() | {"runs": len(account.runs(cost.unit)), "limit": most, "account": str(folder)}
        for cost in account.costs(folder.name, delta)
    ]


def person_key(account: Path) -> bytes:
    """What decides which triples of a person are trained on, in every run of this site."""
    return site_key(account)
