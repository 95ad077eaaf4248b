"""The page's part on what privacy costs: accuracy over ε, the numbers, and what they mean in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite, log10

from fedkge.privacy.words import number
from fedkge.reports.compared.experiments import Spread, experiments
from fedkge.reports.compared.frontier import (
    FULLDP,
    METRICS,
    OFF,
    U_ONLY,
    Choice,
    Difference,
    Frontier,
    frontiers,
    rows_of,
    unplaced,
)
from fedkge.reports.drawing.figure import Canvas, Figure, Trace, decades, text, titled
from fedkge.reports.drawing.lines import coloured, dotted, level
from fedkge.reports.folders.options import listed
from fedkge.reports.folders.run import Run, side_note
from fedkge.reports.pages.markup import SEEDS, Column, difference, folded, listing, share, soft, table, words

ROOM = 1.3  #: factor by which levels reach beyond the smallest and the largest ε
STYLE = {OFF: ("pooled", 3), U_ONLY: ("alone", 2)}  #: colour and dash of a level
EPSILON = "ε, the largest over sites; smaller is more private"
DASHED = 1  #: of lines without a guarantee


def frontier_figures(frontier: Frontier) -> list[Figure]:
    """One per metric, the first with a legend; none when no ε is known."""
    lines = {name: drawn for name, of in frontier.lines.items() if (drawn := [*filter(_drawn, of)])}
    if not lines:
        return []
    known = [choice.order for of in lines.values() for choice in of]
    ends = min(known) / ROOM, max(known) * ROOM
    sides = side_note(run for choice in frontier.choices for run in choice.experiment.runs)
    levels = [(name, choice) for name, of in frontier.levels.items() for choice in of]
    figures = []
    for i, (metric, title) in enumerate(METRICS.items()):
        beside = [level(name, *STYLE[one.mode], one.test(metric), ends) for name, one in levels]
        traces = [trace for of in beside for trace in of]
        traces += [_line(name, of, metric, *coloured(j)) for j, (name, of) in enumerate(lines.items())]
        xaxis = titled(EPSILON, range=list(map(log10, ends)), **decades(*ends, "{:g}".format))
        layout = {"xaxis": xaxis, "yaxis": titled(f"test {title}"), "showlegend": not i}
        what = f"Test {title} over ε{sides}"
        label = f"{what}: {', '.join([*lines, *frontier.levels])}; the table below has the numbers."
        figures.append(Figure(what, label, traces, layout, 280 if i else 400, tools=not i, longest=48))
    return figures


def _drawn(choice: Choice) -> bool:
    """A logarithmic axis has a place for it."""
    return choice.epsilon is not None and choice.epsilon > 0 and isfinite(choice.epsilon)


def _line(name: str, choices: Sequence[Choice], metric: str, colour: str, turn: int) -> Trace:
    """Hollow and dashed where one of them is no guarantee."""
    proven = all(choice.guarantee == "formal" for choice in choices)
    symbol = ("circle", "diamond", "square")[turn % 3] + "-open" * (not proven)
    look: Trace = {"mode": "lines+markers", "marker": {"size": 10, "symbol": symbol}}
    look["text"] = list(map(_hover, choices))
    found = [(choice.order, choice.test(metric)) for choice in choices]
    hover, name = "%{fullData.name}<br>%{y:.4f} at %{text}", name if proven else f"{name}: no guarantee"
    return dotted(name, colour, 0 if proven else DASHED, hover, found, **look)


def _hover(choice: Choice) -> str:
    """ε with all that it must be told with, of the site that spent most."""
    worst = choice.worst or {}
    parts = [
        f"ε = {number(choice.order)}, δ = {choice.delta:g}",
        f"guarantee: {choice.guarantee}, accountant: {choice.told('accountant')}",
        f"{worst.get('mechanism')}",
        f"sampling: {worst.get('sampling')}",
        f"seeds: {len(choice.experiment.ended)}",
    ]
    return "<br>".join(map(text, parts))


OPEN = 6  #: sentences on single ε that are not folded away
UNPLACED = (
    "Not compared, since no other experiment here differs from it in privacy options, seed, rounds and "
    "training budget alone:"
)
NOTE = (
    "Up is better, left is more private. Whiskers and bands, where there are several seeds, are one standard "
    "deviation. Dashed and hollow: ε is no guarantee. Levels need no noise: what is reached without "
    "protection, and without confidential triples, which is what every ε has to beat."
)
COLUMNS = (
    Column("mode", "Mode", words),
    Column("epsilon", "ε", number, "the largest over sites, rounded up; smaller is more private"),
    Column("delta", "δ", lambda value: f"{value:g}", "added to what e^ε allows; far below 1 / triples"),
    Column("unit", "Unit", words, "what is protected", words=True),
    Column("guarantee", "Guarantee", words, "formal: proven; none: ε is only a number", words=True),
    Column("accountant", "Accountant", words, words=True),
    *(Column(key, title, share, "test, over all sites; higher is better") for key, title in METRICS.items()),
    Column("gain", "Gain", difference, "in Hits@10, over leaving confidential triples out"),
    SEEDS,
)
CAPTION = (
    "Accuracy, and what is promised for it. Neighbours are graphs that differ in one unit: in one "
    "confidential triple, or in everything said about one person."
)


def privacy_cost(page: Canvas, runs: Sequence[Run]) -> str:
    """A part per frontier, and who is on none; empty when there is one experiment, or none with noise."""
    groups = experiments(runs)
    if len(groups) < 2:
        return ""
    found = frontiers(groups)
    heads = [f"<h3>{escape(one.label)}</h3>" if len(found) > 1 else "" for one in found]
    parts = [head + _part(page, one) for head, one in zip(heads, found, strict=True)]
    if left := [group.label for group in unplaced(groups, found)]:
        parts.append(soft(f"{UNPLACED} {'; '.join(left)}."))
    return "".join(parts)


def _part(page: Canvas, frontier: Frontier) -> str:
    figures = frontier_figures(frontier)
    parts = [page.place(figure, "" if i else NOTE) for i, figure in enumerate(figures)]
    said, each = list(map(escape, meaning(frontier))), list(map(escape, each_epsilon(frontier)))
    few = len(each) <= OPEN
    parts.append(listing(said + each) if few else listing(said) + folded("Each ε in words", listing(each)))
    parts.append(table(rows_of(frontier), COLUMNS, CAPTION))
    return "".join([*parts, listing(map(escape, cautions(frontier)))])


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
        told = {key: ["unset" if value is None else value for value in of] for key, of in differing.items()}
        named = "; ".join(f"{key} ({listed(values, LIST)})" for key, values in told.items())
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
            text += f": {_most(choice.minus(base, METRIC))}"
        said[choice.mode].append(f"{text}.")
    return [text for mode, texts in said.items() for text in texts or [LACKING[mode]]]


def _most(found: Difference) -> str:
    if found.spread is None or (found.seen and found.gain > 0):
        return f"the most there is to gain from them is {_signed(found.gain)}{_if_unknown(found)}"
    return f"{_unseen(found)}: even so the confidential triples add nothing that can be seen"


def _choice(name: str, choice: Choice, frontier: Frontier) -> str:
    """One ε: what it gains over leaving triples out, and what it costs against no protection."""
    promise = "" if choice.epsilon is None else f" at ε = {number(choice.epsilon)}"
    if choice.guarantee == "none":
        promise += " (no guarantee)"
    text = f"{name}{promise} reaches {_value(choice.test(METRIC))}"
    if without := frontier.without(choice):
        text += f": {_gain(choice.minus(without, METRIC))}"
    if openly := frontier.base(choice, OFF):
        text += f". Against no protection: {_signed((found := choice.minus(openly, METRIC)).gain)}"
        text += "" if found.spread is None else f", {_beside(found)}"
    return f"{text}."


def _gain(found: Difference) -> str:
    does = f"training on confidential triples {'gains' if found.gain > 0 else 'loses'} "
    does += share(abs(found.gain))
    if found.spread is None:
        return f"{does}{_if_unknown(found)}"
    if not found.seen:
        return f"{_unseen(found)}: at this ε the confidential triples add nothing that can be seen"
    more = "" if found.gain > 0 else ": at this ε the noise costs more than they give"
    return f"{does}, which is {_beside(found)}{more}"


def _unseen(found: Difference) -> str:
    return f"a difference of {_signed(found.gain)}, {_beside(found)}"


def _from_where(name: str, frontier: Frontier) -> list[str]:
    """From which ε on a gain can be seen; nothing of what is no guarantee, or has too few points or seeds."""
    pairs = [
        (choice, choice.minus(base, METRIC))
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
