"""Privacy in words: whose data is protected, against whom, by which assumption, and how much that is."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from math import exp, isfinite

from fedkge.privacy.accountants import ACCOUNTANTS
from fedkge.privacy.costs import Cost
from fedkge.privacy.delta import caution
from fedkge.privacy.releases import Everything, Poisson
from fedkge.privacy.units import Unit, unit_of

FALSE_ALARMS = 0.05  #: share of triples wrongly taken for members, at which attacks are bounded
NEARLY_ALL = 0.99  #: of the true ones: a bound above it rules out practically nothing


def headline(cost: Cost) -> str:
    """ε as it must always be printed: with δ, unit, neighbours, accountant and what it is worth."""
    return (
        f"{cost.site}: ε = {number(cost.epsilon)} at δ = {cost.delta:g} "
        f"(unit: {unit_of(cost.unit).one}; neighbours: "
        f"{unit_of(cost.unit).neighbours or cost.neighbours.replace('-', ' ')}; "
        f"accountant: {ACCOUNTANTS[cost.accountant]().about}; guarantee: {cost.guarantee})"
    )


def explained(costs: Sequence[Cost]) -> list[str]:
    """A headline per site, and what these mean: a sentence or two per item, said once for all sites."""
    proven = [cost for cost in costs if cost.guarantee == "formal"]
    said = [headline(cost) for cost in costs]
    said += dict.fromkeys(_why_none(cost) for cost in costs if cost not in proven)
    for unit in dict.fromkeys(unit_of(cost.unit) for cost in proven):
        said += _guarantee([cost for cost in proven if unit_of(cost.unit) == unit], unit)
    return said


def _guarantee(costs: Sequence[Cost], unit: Unit) -> list[str]:
    sites = ", ".join(cost.site for cost in costs)
    near = [caution(cost.delta, cost.site, cost.triples, unit_of(cost.unit).all) for cost in costs]
    return [
        *(f"Warning: {said}." for said in near if said),
        *_empty(costs, unit),
        f"Protected: {unit.protected.format(sites)}",
        "Against: whoever sees everything that left training, every table after every step and every upload: "
        "the hub (one that only reads, and one that also sends what it likes), other sites, and readers of "
        "the final embeddings, together and whatever else they know.",
        _meaning(costs, unit),
        _assumptions(costs, unit),
        f"Covered by ε: messages to and from the hub, tables after any step, and {unit.covered}",
        f"Not protected: {unit.others}",
        _kept(losses=True),
    ]


def _empty(costs: Sequence[Cost], unit: Unit) -> list[str]:
    """A warning of sites whose ε is so large that next to nothing follows."""
    sites = [cost.site for cost in costs if most_found(cost) > NEARLY_ALL]
    if not sites:
        return []
    return [
        f"Warning: the ε of {', '.join(sites)} alone rules out practically nothing: it allows a test that "
        f"wrongly accuses {FALSE_ALARMS:.0%} of other {unit.many} to find more than {NEARLY_ALL:.0%} of the "
        "true ones."
    ]


def _meaning(costs: Sequence[Cost], unit: Unit) -> str:
    """What (ε, δ) says of the site that has spent most, and of the others all the more."""
    worst = max(costs, key=lambda cost: cost.epsilon)
    found, others = most_found(worst), "; at the other sites no more" * (len(costs) > 1)
    factor = "" if found > NEARLY_ALL else f" = {number(exp(worst.epsilon))}"
    said = (
        f"That is: anything that they may see has at most e^ε{factor} times the probability, plus δ, if "
        f"{unit.was.format(worst.site)}, compared with if it was not; and the other way round. "
        f"What can be seen only if {unit.there} is seen with a probability of at most δ."
    )
    if found > NEARLY_ALL:
        return said
    return (
        f"{said} A test that wrongly accuses {FALSE_ALARMS:.0%} of other {unit.many} finds at most "
        f"{found:.1%} of the true ones{others}."
    )


def _kept(losses: bool) -> str:
    """Files of a run's folder, and what is printed, that depend on confidential triples without noise."""
    journals = "sites/*/journal.jsonl: losses. " if losses else ""
    return (
        "Not protected, and to be kept at the site: what is computed from all its triples exactly, so "
        "that guesses can be checked against it. summary.json: `digest`, a hash of the graph, which confirms "
        "a guess of the one triple that somebody does not know; `structure`, exact degrees and "
        f"clustering; `metrics`. run.json: the digest again. run.jsonl: the last metrics. {journals}"
        "sites/*/metrics.json: the site's metrics. sites/*/ranks.safetensors: test triples, and their "
        "ranks among what all triples leave open. sites/*/kit.checkpoint: the graph itself. report.html, "
        "attack.json, attack.html: made of these and of the graph. Answers of `fedkge evaluate` and `fedkge "
        "predict`: they look at the graph."
    )


def _assumptions(costs: Sequence[Cost], unit: Unit) -> str:
    samplings = {type(release.sampling) for cost in costs for release in cost.releases}
    found = [
        f"the entities, relations, number of {unit.all} and schedule of steps are public",
        "nothing was tuned, stopped or chosen by confidential triples (each further run adds its own ε)",
        f"{unit.clipped}, and every row gets noise at every step, also of an empty batch",
    ]
    if Poisson in samplings:
        found.append(f"batches are drawn {unit.drawn}, independently, by a key that only the site has")
    if Everything in samplings:
        found.append("some releases use all triples and gain nothing from sampling")
    found.append("what is in train, valid and test was decided without regard to this")
    found.append("norms and noise in floating point are taken for exact ones")
    return "Assuming: " + "; ".join(found) + "."


def _why_none(cost: Cost) -> str:
    if cost.flaws:
        return (
            f"guarantee: none, because {'; '.join(cost.flaws)}. The ε is what the accountant says if this "
            "is left aside; the true one may be far larger, or infinite."
        )
    return "guarantee: none, because something was released without noise."


def unprotected(mode: str, released: str = "triple") -> list[str]:
    """What to say of a run whose ledger has no releases; `released` is the unit that it would have."""
    if mode == "off":
        return [
            "guarantee: none, because training added no noise (privacy.mode is off).",
            "Nothing is protected: tables, uploads and embeddings may reveal any training triple, "
            "confidential or not, to whoever sees them.",
        ]
    if mode == "u-only":
        unit = unit_of(released)
        return [
            "Confidential triples were not used (privacy.mode is u-only): nothing that left the sites "
            f"depends on them, ε = 0 (unit: {unit.one}; neighbours: {unit.neighbours or 'zero out one'}).",
            "Assuming: entities and relations are public, also those that only confidential triples name. "
            "Unrestricted triples are not protected.",
            _kept(losses=False),
        ]
    return [
        f"Nothing has been released yet (privacy.mode is {mode}): the ledger has no entries.",
    ]


def most_found(cost: Cost) -> float:
    """The largest share of members that any test finds, as (ε, δ) bounds it (Kairouz et al., 2015).

    found <= min(e^ε · alarms + δ, 1 - e^-ε · (1 - δ - alarms))
    """
    if not isfinite(cost.epsilon) or cost.epsilon > 700:
        return 1.0
    factor, alarms = exp(cost.epsilon), FALSE_ALARMS
    return min(1.0, factor * alarms + cost.delta, 1 - (1 - cost.delta - alarms) / factor)


def number(value: float | None) -> str:
    """Three digits, rounded up: an ε is a bound, and never printed below itself."""
    if value is None or not isfinite(value):  # JSON has null for it
        return "∞"
    return f"{Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(value):f}" if value else "0"
