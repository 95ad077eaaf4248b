"""What a frontier means for those who must choose an ε, in sentences that follow from its numbers."""

from __future__ import annotations

from fedkge.privacy.words import number
from fedkge.reports.compared.experiments import Spread
from fedkge.reports.compared.frontier import (
    FULLDP,
    METRICS,
    OFF,
    U_ONLY,
    Choice,
    Difference,
    Frontier,
    difference,
)
from fedkge.reports.folders.options import valued
from fedkge.reports.pages.markup import share

METRIC = "hits@10"  #: that sentences are about
NAME = METRICS[METRIC]
LACKING = {
    U_ONLY: f"No experiment here leaves confidential triples out (privacy.mode = {U_ONLY}): whether "
    "training on them gains anything at all cannot be said.",
    OFF: f"No experiment here is without protection (privacy.mode = {OFF}): what it costs cannot be said.",
}
LIST = 6  #: values that are named in a sentence


def meaning(frontier: Frontier) -> list[str]:
    """First the ends, then from which ε on it pays."""
    return _ends(frontier) + [text for name in frontier.lines for text in _from_where(name, frontier)]


def each_epsilon(frontier: Frontier) -> list[str]:
    """A sentence or two per choice with noise."""
    pairs = [(name, choice) for name, line in frontier.lines.items() for choice in line]
    return [_choice(name, choice, frontier) for name, choice in pairs]


def cautions(frontier: Frontier) -> list[str]:
    """What must be known before the numbers are believed."""
    noisy = [choice for line in frontier.lines.values() for choice in line]
    said = []
    if any(choice.guarantee == "none" for choice in noisy):
        said.append("ε of paper rules is what the paper would print; it is no guarantee.")
    if any(choice.mode == FULLDP for choice in noisy):
        said.append(
            f"{FULLDP} protects all triples, also unrestricted ones, and is therefore not compared with "
            "leaving confidential ones out."
        )
    unknown = sum(choice.epsilon is None for choice in noisy)
    if unknown:
        said.append(f"ε of {unknown} of {len(noisy)} experiments is not in their summaries, and not drawn.")
    if len({choice.delta for choice in noisy if choice.delta}) > 1:
        said.append("δ differs; ε at one δ cannot be compared with ε at another.")
    if differing := frontier.differing():
        named = "; ".join(f"{key} ({_values(values)})" for key, values in differing.items())
        said.append(
            f"Experiments also differ in how they trained: {named}. That may explain differences too."
        )
    if any(choice.test(METRIC).std is None for choice in frontier.choices):
        said.append(
            "Where there is one seed, the spread between seeds is unknown; run several (--seeds 0,1,2)."
        )
    said.append(
        "Each ε is of one run by itself. Several runs on the same triples cost more if more than one is "
        "published (`fedkge privacy RUN RUN` tells), and choosing among them by these numbers is covered by "
        "no ε."
    )
    return said


def _values(values: list[object]) -> str:
    told = ["unset" if value is None else valued(value) for value in values]
    return ", ".join(told[:LIST]) + ", …" * (len(told) > LIST)


def _ends(frontier: Frontier) -> list[str]:
    """Without confidential triples, and without protection: between them is what there is to gain."""
    levels = [(name, choice) for name, of in frontier.levels.items() for choice in of]
    said = {U_ONLY: list[str](), OFF: list[str]()}
    for name, choice in levels:
        mode, reached = choice.mode + name.removeprefix(choice.kind), _value(choice.test(METRIC))
        if choice.mode == U_ONLY:
            text = f"Leaving confidential triples out ({mode}, ε = 0) reaches {NAME} {reached}"
        else:
            text = f"Training on them without protection ({mode}) reaches {reached}"
        if base := frontier.without(choice):
            text += f": {_most(difference(choice, base, METRIC))}"
        said[choice.mode].append(f"{text}.")
    return [text for mode, texts in said.items() for text in texts or [LACKING[mode]]]


def _most(found: Difference) -> str:
    if found.spread is None or (found.seen and found.gain > 0):
        return f"the most there is to gain from them is {_signed(found.gain)}{_if_unknown(found)}"
    return (
        f"a difference of {_signed(found.gain)}, {_beside(found)}: even so the confidential triples add "
        "nothing that can be seen"
    )


def _choice(name: str, choice: Choice, frontier: Frontier) -> str:
    """One ε: what it gains over leaving triples out, and what it costs against no protection."""
    promise = "" if choice.epsilon is None else f" at ε = {number(choice.epsilon)}"
    if choice.guarantee == "none":
        promise += " (no guarantee)"
    text = f"{name}{promise} reaches {_value(choice.test(METRIC))}"
    if without := frontier.without(choice):
        text += f": {_gain(difference(choice, without, METRIC))}"
    if openly := frontier.base(choice, OFF):
        text += f". Against no protection: {_cost(difference(choice, openly, METRIC))}"
    return f"{text}."


def _gain(found: Difference) -> str:
    does = f"training on confidential triples {'gains' if found.gain > 0 else 'loses'} "
    does += share(abs(found.gain))
    if found.spread is None:
        return f"{does}{_if_unknown(found)}"
    if not found.seen:
        return (
            f"a difference of {_signed(found.gain)}, {_beside(found)}: at this ε the confidential triples "
            "add nothing that can be seen"
        )
    more = "" if found.gain > 0 else ": at this ε the noise costs more than they give"
    return f"{does}, which is {_beside(found)}{more}"


def _cost(found: Difference) -> str:
    return _signed(found.gain) + ("" if found.spread is None else f", {_beside(found)}")


def _from_where(name: str, frontier: Frontier) -> list[str]:
    """From which ε on a gain can be seen; nothing of what is no guarantee, or has too few points or seeds."""
    pairs = [
        (choice, difference(choice, base, METRIC))
        for choice in frontier.lines[name]
        if choice.guarantee == "formal" and (base := frontier.without(choice))
    ]
    if len(pairs) < 2 or any(found.spread is None for _, found in pairs):
        return []
    paying = [choice.epsilon or 0.0 for choice, found in pairs if found.seen and found.gain > 0]
    if paying:
        return [f"The smallest ε of {name} with a gain that can be seen is {number(min(paying))}."]
    return [
        f"At no ε here does {name} gain more than the spread between seeds: leaving confidential triples "
        "out does as well, and costs no privacy."
    ]


def _beside(found: Difference) -> str:
    more = "more" if found.seen else "no more"
    return f"{more} than the spread between seeds ({share(found.spread or 0.0)})"


def _if_unknown(found: Difference) -> str:
    return " (one seed: the spread between seeds is unknown)" if found.spread is None else ""


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{share(abs(value))}"


def _value(found: Spread) -> str:
    return share(found.mean) + ("" if found.std is None else f" ± {share(found.std)}")
