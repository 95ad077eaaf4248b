"""Results for people who do not know the metrics: of 100 questions, how many are answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedkge.privacy.words import number
from fedkge.reports.compared.baseline import alone
from fedkge.reports.compared.experiments import Group, Row
from fedkge.reports.compared.frontier import OFF, U_ONLY, Choice, Frontier, frontiers
from fedkge.reports.compared.tables import ALL_SITES
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Column, count, folded, table, words

if TYPE_CHECKING:
    from fedkge.reports.compared.questions import Changed

FIRST = 10  #: answers; a question is answered if the right one is among them
METRIC = f"hits@{FIRST}"
ANSWERED = f"the right answer is among the first {FIRST}"
QUESTION = (
    "A question is a test triple with one end left out: which tail belongs to this head and relation, or "
    "which head to this relation and tail."
)
OPEN = 15  #: relations that are not folded away
KINDS = {"right": "Wrong alone, right together", "wrong": "Right alone, wrong together"}
UNKNOWN = (
    "Results by relation, and examples, are not known: no questions are in {names}. "
    "`fedkge evaluate RUN --keep-ranks` adds them."
)
HIDDEN = "No examples are shown: they are triples, and a run here protects some."
SHOWN = "Examples are test triples of the sites; `fedkge report --no-examples` leaves them out."


def hundred(*values: float) -> list[str]:
    """Shares as so many of a hundred; with a digit more where whole numbers hide a difference."""
    whole = [f"{100 * value:.0f}" for value in values]
    hides = len(set(whole)) < len(set(values))
    return [f"{100 * value:.1f}" for value in values] if hides else whole


def headline(groups: Sequence[Group]) -> str:
    """The first sentence of the page, as HTML; on private runs it is the price of privacy."""
    ended = [group for group in groups if group.test(METRIC) is not None]
    if not ended or len({group.first.dataset for group in groups}) > 1:
        return ""
    if any(_noisy(group) for group in ended):
        return _price(groups)
    apart = [group for group in ended if not group.first.pools] or ended
    joined = [group for group in apart if group.first.reference is None] or apart
    best = max(joined, key=_share)
    text = ANSWERED[0].upper() + ANSWERED[1:]
    if len(groups) > 1:
        text = f"With <strong>{escape(best.label)}</strong> {ANSWERED}"
    before, when = _before(best, groups)
    shown = hundred(_share(best), *before)
    after = f", {shown[1]} before{when}" if before else ""
    return f"{text} in <strong>{shown[0]} of 100</strong> questions{after}."


def _share(group: Group) -> float:
    found = group.test(METRIC)
    return found.mean if found else -1.0


def _before(group: Group, groups: Sequence[Group]) -> tuple[list[float], str]:
    """What it was before, and before what; nothing where that is not known."""
    base = alone(group, groups)
    if base is not None and (found := base.test(METRIC, split=group.first.headline())):
        return [found.mean], ", every site alone"
    others = [other for other in groups if other is not group and other.test(METRIC)]
    if len(others) == 1 and not others[0].first.pools:
        return [_share(others[0])], f", with {escape(others[0].label)}"
    met = group.over(lambda run: run.metrics(run.headline("before")).get(METRIC))
    if met is not None:
        return [met.mean], " the sites met"
    kept = [share for run in group.ended if (share := _before_forgetting(run)) is not None]
    return ([sum(kept) / len(kept)], " triples were forgotten") if kept else ([], "")


def _before_forgetting(run: Run) -> float | None:
    """The share that was answered by the tables that a run was made of by unlearning."""
    path = run.path / "erasure.json"
    if not path.is_file():
        return None
    audit: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["audit"] or {}
    views: Mapping[str, Any] = audit.get("standing", {}).get("before", {})
    found = next((of["test"].get(METRIC) for of in views.values()), None)
    return None if found is None else float(found)


def forgotten(audit: Mapping[str, Any]) -> str:
    """What an erasure changed, of a hundred questions; nothing where it was not measured."""
    standing: Mapping[str, Any] = audit.get("standing", {})
    if not {"before", "after"} <= standing.keys():
        return ""
    view = next(iter(standing["after"]))
    said = []
    found: dict[str, Mapping[str, Any]]
    for kind, what in (("forget", "questions about what was forgotten"), ("test", "test questions")):
        found = {when: standing[when].get(view, {}).get(kind, {}) for when in ("before", "after")}
        if all(of.get("count") for of in found.values()):
            old, new = hundred(*(of[METRIC] for of in found.values()))
            said.append(f"in {new} of 100 {what}, {old} before")
    return f"By the {view} tables {ANSWERED} {'; '.join(said)}." if said else ""


def _noisy(group: Group) -> bool:
    return Choice(group).noisy and bool(group.ended)


def private(groups: Sequence[Group]) -> bool:
    """Whether the page is about privacy first."""
    return any(map(_noisy, groups))


def _price(groups: Sequence[Group]) -> str:
    """What protection costs, in questions; of several frontiers the first."""
    found = frontiers(groups) if len(groups) > 1 else []
    if found:
        return _from(found[0])
    group = next(filter(_noisy, groups))
    choice = Choice(group)
    at = "" if choice.epsilon is None else f" at ε = {number(choice.epsilon)}"
    (shown,) = hundred(_share(group))
    name = f"<strong>{escape(group.label)}</strong>: " if len(groups) > 1 else ""
    return (
        f"{name}With protection{at}, {ANSWERED} in <strong>{shown} of 100</strong> questions. What "
        f"privacy costs is not known here: report this run beside one with privacy.mode = {OFF} and one "
        f"with {U_ONLY}."
    )


def _from(frontier: Frontier) -> str:
    noisy = [one for line in frontier.lines.values() for one in line]
    best = max(noisy, key=lambda one: one.test(METRIC).mean)
    openly, without = (frontier.base(best, mode) for mode in (OFF, U_ONLY))
    beside = {"without protection": openly, "without the confidential triples": without}
    known = {what: one for what, one in beside.items() if one is not None}
    shown = hundred(*(one.test(METRIC).mean for one in (best, *known.values())))
    at = "" if best.epsilon is None else f" at ε = {number(best.epsilon)}"
    text = f"With protection{at}, {ANSWERED} in <strong>{shown[0]} of 100</strong> questions"
    text += "".join(f", {value} {what}" for what, value in zip(known, shown[1:], strict=True)) + "."
    if openly is None:
        return text
    lost = 100 * (openly.test(METRIC).mean - best.test(METRIC).mean)
    price = f"{lost:.1f} of 100 questions" if lost > 0 else "no question that this test can see"
    return f"<strong>Privacy costs {price}.</strong> {text}"


def plainly(groups: Sequence[Group]) -> str:
    """By site: of 100 questions, how many each experiment answers."""
    ended = [group for group in groups if group.ended]
    if not ended:
        return ""
    sites = list(dict.fromkeys(site for group in ended for site in group.sites))
    rows: list[Row] = []
    for site in [*sites, None]:
        found = {group.label: group.test(METRIC, site) for group in ended}
        row: Row = {"site": ALL_SITES if site is None else site}
        rows.append(row | {label: of and of.mean for label, of in found.items()})
    columns = [Column("site", "Site", words)]
    columns += [
        Column(g.label, g.label if len(ended) > 1 else "Answered, of 100", _of_hundred) for g in ended
    ]
    caption = f"Of 100 questions, in how many {ANSWERED}. {QUESTION}"
    return table(rows, columns, caption, last_is_total=True)


def _of_hundred(value: float) -> str:
    return f"{100 * value:.1f}"


def by_relation(groups: Sequence[Group]) -> str:
    """Every relation with its questions, and how many of 100 are answered."""
    from fedkge.reports.compared.questions import relation_rows

    rows = relation_rows(groups, FIRST)
    if not rows:
        bare = [group.label for group in groups if group.ended]
        return f'<p class="soft">{escape(UNKNOWN.format(names=", ".join(bare)))}</p>' if bare else ""
    labels = [key for key in rows[0] if key not in ("relation", "sites", "questions")]
    columns = [
        Column("relation", "Relation", words),
        Column("sites", "Sites", count, "that have it, by name"),
        Column("questions", "Questions", count),
        *(Column(one, one if len(labels) > 1 else "Answered, of 100", _of_hundred) for one in labels),
    ]
    caption = f"Of 100 questions about a relation, in how many {ANSWERED}; the most asked first."
    first = table(rows[:OPEN], columns, caption)
    rest = rows[OPEN:]
    return first + (folded(f"{len(rest)} more relations", table(rest, columns, caption)) if rest else "")


def examples(groups: Sequence[Group], shown: bool = True) -> str:
    """What joining made right and wrong, and some questions of each kind."""
    from fedkge.reports.compared.questions import changed, protected

    known = [found for group in groups if (found := changed(group, groups, FIRST)) is not None]
    if not known:
        return ""
    best = max(known, key=lambda found: found.right - found.wrong)
    parts = [_changed(best, shown)]
    parts += [folded(found.run, _changed(found, shown)) for found in known if found is not best]
    hidden = any(protected(run) for group in groups for run in group.runs)
    note = HIDDEN if hidden else SHOWN if shown else ""
    return "".join(parts) + (f'<p class="soft">{note}</p>' if note else "")


def _changed(found: Changed, shown: bool) -> str:
    said = (
        f"{found.run}: of {found.questions:,} questions, {found.right:,} were not answered alone and are "
        f"together; {found.wrong:,} were answered alone and are not together. Answered: {ANSWERED}."
    )
    columns = [
        Column("question", "Question", words, "head · relation · tail"),
        Column("answer", "Right answer", words, words=True),
        Column("before", "Place alone", _place),
        Column("now", "Place together", _place),
        Column("site", "Site", words, words=True),
    ]
    tables = [
        table([one._asdict() for one in found.examples[kind]], columns, f"{title}: {found.run}.")
        for kind, title in KINDS.items()
        if shown and found.examples[kind]
    ]
    return f"<p>{escape(said)}</p>{''.join(tables)}"


def _place(rank: float) -> str:
    """Whole, but for ties."""
    return f"{rank:,.1f}".removesuffix(".0")
