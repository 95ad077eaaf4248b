"""What a site needs to train on confidential triples: noise, a ledger and a secret of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from fedkge.errors import ConfigError, DataWarning
from fedkge.graphs.graph import Graph, Split
from fedkge.graphs.persons import Limited, about_nobody, limited, owners
from fedkge.nodes.ledgers import open_ledger
from fedkge.nodes.terms import Terms
from fedkge.privacy import Account, Privacy, Spending
from fedkge.training.cadence import Cadence
from fedkge.training.confidential import hides, marked, unmarked
from fedkge.training.private import Protection
from fedkge.training.secret import Secret


def protection(
    terms: Terms, site: str, graph: Graph, home: Path, accounts: Mapping[str, Path], run: str
) -> Protection | None:
    """How a site's confidential triples are protected; none where there are none, or they need no noise.

    The ledger must have what the site's own folder knows to have been released. `accounts` are the folders
    of the sites that the triples are of, and `run` is who spends.
    """
    privacy = terms.privacy
    if not privacy.noisy or not hides(graph, privacy):
        return None
    marks = marked(graph, privacy)
    owner, persons = None, 0
    if privacy.by_person:
        assert graph.persons is not None, "no unit of persons without persons"
        owner, persons = owners(graph), int(graph.persons.sum())
    units = persons or int(marks.sum())
    privacy.check_units(site, units)
    cadence = Cadence.of(terms.trainer, privacy, units)
    steps = terms.rounds * terms.trainer.epochs * cadence.steps
    noise = _multiplier(privacy, cadence.rate, steps)
    owned = {name: Account(folder) for name, folder in accounts.items()}
    key = owned[site].key if site in owned else None
    ledger = open_ledger(home, key)
    spending = Spending(ledger, site, privacy.budget, units, owned, run)
    step, rest = cadence.release(privacy, noise, 1), steps - ledger.count(site)
    if privacy.budget is not None and any(account.limit is not None for account in owned.values()):
        rest = min(rest, privacy.budget.allowed(step, ledger.releases(site), max(0, rest)))
    for name, account in owned.items():
        account.check_plan(name, step, rest, units)
    return Protection(privacy, marks, noise, cadence, new_secret(site), spending, owner, persons)


def new_secret(site: str) -> Secret:
    """A site's, new whenever it starts or goes on, and kept nowhere: no noise is drawn twice."""
    return Secret.new()


@cache
def _multiplier(privacy: Privacy, rate: float, steps: int) -> float:
    """Finding one takes seconds."""
    return privacy.multiplier(rate, steps)


def trained_on(terms: Terms, site: str, graph: Graph, key: Callable[[], bytes]) -> Graph:
    """What may be trained on: all, unless the mode leaves confidential triples out.

    Where persons are protected, only triples about exactly one of them, and of these not too many; the site's
    `key` decides which.
    """
    privacy = terms.privacy
    if privacy.strict and privacy.by_person and hides(graph, privacy):
        assert privacy.per_person is not None
        kept = limited(graph, privacy.per_person, key())
        _tell_left_out(site, kept)
        return kept.graph
    if privacy.mode != "u-only":
        return graph
    left = unmarked(graph, terms.privacy)
    if not len(left.train):
        raise ConfigError(
            f"privacy.mode: all training triples of site {site!r} are confidential, so that 'u-only' "
            "leaves none to train on"
        )
    return left


def _tell_left_out(site: str, kept: Limited) -> None:
    """Only the site sees warnings."""
    why = {
        "about two persons": kept.several,
        "about nobody": kept.nobody,
        "beyond privacy.per_person": kept.beyond,
    }
    if said := ", ".join(f"{count:,} {reason}" for reason, count in why.items() if count):
        warnings.warn(
            f"site {site!r}: confidential triples that are not trained on: {said}", DataWarning, stacklevel=3
        )


def check_validation(terms: Terms, site: str, graph: Graph) -> None:
    """Validation triples cannot be marked; those of relations that none has in the open are so too."""
    if not terms.privacy.closed:
        return
    if terms.evaluate.every >= terms.rounds:  # one validation, at the end, that chooses nothing
        return
    marks = marked(graph, terms.privacy)
    valid = about_nobody(graph, Split.VALID)  # what is said about persons is not asked about
    found = valid[~np.isin(valid[:, 1], graph.train[~marks, 1])]
    if len(found) and marks.any():
        first = graph.relations[int(found[0, 1])]
        raise ConfigError(
            f"evaluate: {len(found):,} of {len(graph.valid):,} validation triples of {site!r} are "
            "confidential, as no training triple in the open has their relations (first: "
            f"{first!r}); choosing a round by them would reveal them past the noise. Divide the data with "
            "`fedkge data split --keep-confidential`, which leaves them out of valid and test (after `fedkge "
            "data mark`, if the marks are in the experiment and not in the data), or have nothing chosen: "
            f"evaluate.every = {terms.rounds}, as many as there are rounds"
        )


def rounds_left(terms: Terms, one: Protection | None) -> int | None:
    """How many more rounds a site's budgets have steps for; None where there is none."""
    if one is None or not one.spending.bounded:
        return None
    each = one.cadence.steps * terms.trainer.epochs
    step = one.cadence.release(terms.privacy, one.noise, 1)
    return -(-one.spending.left(step, terms.rounds * each) // each)


def check_budget(terms: Terms, site: str, one: Protection | None) -> None:
    """An error where not one step fits a site's privacy budget."""
    privacy = terms.privacy
    if one is None or one.spending.left(one.cadence.release(privacy, one.noise, 1), 1):
        return
    spent = one.spending.ledger.count(site)
    if one.spending.budget is None:
        raise ConfigError(f"account: not one more step fits the limit of all runs of site {site!r}")
    raise ConfigError(
        f"privacy.epsilon: not one {'more ' * bool(spent)}step with noise {one.noise:g} fits "
        f"{privacy.epsilon:g} at delta {privacy.delta:g} for site {site!r}, which has taken "
        f"{spent:,}; take more noise, smaller batches or a larger epsilon, in a new run"
    )
