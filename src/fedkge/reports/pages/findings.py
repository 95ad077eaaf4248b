"""What the numbers say, in sentences: the main finding, who gains and loses, and what to be careful with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isfinite

from fedkge.reports.compared.baseline import BETTER, WORSE, Differences, Versus, alone, versus
from fedkge.reports.compared.details import AFTER, SHARE, TRAINED, budget_rows
from fedkge.reports.compared.experiments import Group, Row
from fedkge.reports.compared.tables import kept_at
from fedkge.reports.folders.options import listed, valued
from fedkge.reports.folders.run import Kind, Run, asked
from fedkge.reports.pages.markup import difference, listing, notice, share, sites, size

#: What a reader must know about a method before comparing it.
TERMS = {
    Kind.ALONE: "Every site trains alone on its own graph. Nothing leaves a site.",
    Kind.POOLED: "All graphs are pooled in one place and trained as one, then measured site by site. "
    "A reference that shows what sharing everything would give; it is not private.",
    Kind.HUB: "Graphs stay at their sites; "
    "rows of embeddings for what sites share travel to the hub and back.",
    Kind.PEERS: "Graphs stay at their sites; sites talk to each other, in pairs. There is no hub.",
}
NAMED = 6  #: sites that are named in a sentence


def finding(groups: Sequence[Group]) -> str:
    """The one thing to remember, as HTML."""
    ended = [group for group in groups if group.test() is not None]
    if not ended:
        return "No test results yet: this page shows what has been journalled so far."
    if len(groups) == 1:
        n = len(groups[0].sites)
        where = f"over {n} sites, weighted by their test triples" if n > 1 else "at its one site"
        asked_ = asked(groups[0].runs)
        return f"Test MRR is {_value(groups[0])} {where} (filtered, {asked_}, realistic ties)."
    if len({group.first.dataset for group in groups}) > 1:
        return "The runs used different data: read each by itself."
    sentences = []
    if apart := [group for group in ended if not group.first.pools]:
        best = _best(apart)
        text = f"<strong>{escape(best.label)}</strong> reaches a test MRR of {_value(best)}"
        if len(apart) > 1:
            text = (
                f"Of those that keep every graph at its site, <strong>{escape(best.label)}</strong> has the "
                f"highest test MRR, {_value(best)}"
            )
        sentences.append(f"{text}{_against(best, groups)}")
    if pooled := [group for group in ended if group.first.pools]:
        best = _best(pooled)
        text = f"Pooling all graphs in one place ({escape(best.label)}, not private) gives {_value(best)}"
        sentences.append(f"{text}{_against(best, groups)}")
    return " ".join(sentences)


def _value(group: Group) -> str:
    found = group.test()
    if found is None:
        return "not known"
    std = "" if found.std is None else f" ± {share(found.std)} ({found.n} seeds)"
    return f"<strong>{share(found.mean)}</strong>{std}"


def _best(groups: Sequence[Group]) -> Group:
    return max(groups, key=lambda group: found.mean if (found := group.test()) else -1.0)


def _against(group: Group, groups: Sequence[Group]) -> str:
    found = versus(group, alone(group, groups))
    if found is None:
        return "."
    return f", {difference(found.gain)} against every site alone: {outcome(found)}."


def outcome(found: Versus) -> str:
    """Who gains and who loses by joining, never the one without the other."""
    n, losers = len(found.sites), len(found.losers)
    if not losers:
        return f"no site loses by joining, {len(found.winners)} of {n} gain"
    return f"{len(found.winners)} of {sites(n)} gain, {losers} lose{'s' * (losers == 1)} by joining"


def joining(groups: Sequence[Group], beyond: Mapping[str, Differences] | None = None) -> str:
    """A sentence per experiment about sites that do worse than alone, and one on chance; as HTML.

    `beyond` has the differences of sites by label, as `against_alone` gives them.
    """
    items = []
    for group in groups:
        found = versus(group, alone(group, groups))
        if found is None:
            continue
        lost, n = found.losers, sites(len(found.sites))
        named = ", ".join(f"{escape(site)} ({difference(found.sites[site])})" for site in lost[:NAMED])
        named += f" and {len(lost) - NAMED} more" if len(lost) > NAMED else ""
        text = f"{len(lost)} of {n} lose{'s' * (len(lost) == 1)} by joining: {named}."
        if not lost:
            text = f"no site loses by joining; {len(found.winners)} of {n} gain."
        if known := (beyond or {}).get(group.label):
            worse = [site for site, one in known.items() if one.verdict == WORSE]
            better = sum(one.verdict == BETTER for one in known.values())
            text += f" Beyond chance: {better or 'none'} {BETTER} than alone, {len(worse) or 'none'} {WORSE}"
            text += f" ({listed(list(map(escape, worse)), NAMED)})." if worse else "."
        items.append(f"<strong>{escape(group.label)}</strong>: {text}")
    return listing(items)


def notices(groups: Sequence[Group]) -> str:
    """What is wrong with taking the page at face value."""
    return "".join(map(notice, doubts(groups)))


def doubts(groups: Sequence[Group]) -> list[str]:
    """The same as sentences."""
    return [*(text for group in groups for text in _own_doubts(group)), *_common_doubts(groups)]


def _common_doubts(groups: Sequence[Group]) -> Iterator[str]:
    runs = [run for group in groups for run in group.runs]
    more = "; …" * (len(groups) > NAMED)
    if len({run.dataset for run in runs}) > 1:
        yield "The runs used different data; their numbers cannot be compared with each other."
    elif len({tuple(sorted(run.sites)) for run in runs if run.sites}) > 1:
        yield "The runs have different sites; averages over all sites cannot be compared."
    elif _digests_differ(groups):
        yield "The runs' graphs differ although their names are the same; numbers cannot be compared."
    yield from _leaked(groups)
    yield from (_went_before(group) for group in groups if group.first.before)
    if differing := _differing(groups):
        values = [list(dict.fromkeys(valued(row[group.label]) for group in groups)) for row in differing]
        pairs = zip(differing, values, strict=True)
        names = ", ".join(f"{row['option']} ({listed(of, NAMED)})" for row, of in pairs)
        yield f"Budgets differ in {names}: a difference in results may be the budget's."
    if rising := [group.label for group in groups if any(map(_rising, group.ended))]:
        names = listed(rising, NAMED)
        yield f"Best at the last validation of the last round: {names}; more rounds may do better."
    if len({frozenset(run.seed for run in group.runs) for group in groups}) > 1:
        seeds = "; ".join(f"{g.label}: {', '.join(str(run.seed) for run in g.runs)}" for g in groups[:NAMED])
        yield f"Seeds differ ({seeds}{more})."
    if len({run.sides for run in runs}) > 1:
        judged = "; ".join(f"{g.label}: {asked(g.runs)}" for g in groups[:NAMED])
        yield f"Runs are judged by different questions ({judged}{more})."


def _rising(run: Run) -> bool:
    """Whether the budget, not validation, has ended a run, of all sites or of some."""
    return kept_at(run) == run.last_round == run.config["rounds"]


def _leaked(groups: Sequence[Group]) -> list[str]:
    """Whether sites were measured by what others had trained on, and that all runs treat it alike."""
    found = {
        group.label: leaks
        for group in groups
        for run in group.ended
        if (leaks := (run.summary or {}).get("leaks"))
    }
    if not any(of["valid"] or of["test"] for of in found.values()):
        return []
    trained = [label for label, of in found.items() if not of["dropped"] and (of["valid"] or of["test"])]
    most = max(found.values(), key=lambda of: (of["test"], of["valid"]))
    counts = f"{most['test']:,} test and {most['valid']:,} valid triples"
    text = f"{counts} of sites stand in the train of another site"
    if not trained:
        return [f"{text}. They were left out of train (data.drop_leaks)."]
    if len(trained) == len(found):
        return [f"{text}, from which they may have been learnt; data.drop_leaks = 'across' leaves them out."]
    names = listed(trained, NAMED)
    return [f"{text}. {names} may have learnt them there, the others left them out of train: not comparable."]


def _differing(groups: Sequence[Group]) -> list[Row]:
    """Budgets that are not the same; that validation ends one run before another is no such difference."""
    rows = {row["option"]: row for row in budget_rows(groups) if row["differs"] and row["option"] != AFTER}
    shares = {rows[SHARE][group.label] for group in groups} if SHARE in rows else set()
    counted = () if len(shares - {None}) > 1 else (SHARE, TRAINED)
    return [row for option, row in rows.items() if option not in counted]


def _went_before(group: Group) -> str:
    before = [run.before for run in group.runs if run.before]
    spent = " or ".join(dict.fromkeys(one.spent for one in before))
    sent = max(one.sent for one in before)
    return (
        f"{group.label} goes on from {before[0].approach}: {spent}, and {size(sent)} that these sent, are "
        "not in its own rounds, bytes and seconds."
    )


def _own_doubts(group: Group) -> Iterator[str]:
    for run in group.runs:
        name = group.label if len(group.runs) == 1 else f"{group.label}, seed {run.seed},"
        last, most, done = run.last_round, run.config.get("rounds"), run.rounds.values()
        if run.over and not run.ended:
            yield f"{name} has ended with round {last}. The hub has no test results: each site keeps its own."
        elif not run.ended:
            so_far = f"round {last} of at most {most} so far, no test results"
            yield f"{name} has not ended: {so_far}. `fedkge run --resume` goes on with it."
        if void := [one for one in done if one.void]:
            reason = next((why for one in void for why in one.refused.values()), None)
            why = "fewer sites answered" if reason is None else "answers were refused and fewer were left"
            why += " than the quorum asks for" + ("" if reason is None else f": {reason}")
            yield f"{name}: {len(void)} of {len(done)} rounds came to nothing, because {why}."
        if left_out := [one.refused for one in done if one.refused and not one.void]:
            sites = ", ".join(sorted({site for refused in left_out for site in refused}))
            what = f"went on without uploads that the hub refused, of {sites}"
            yield f"{name}: {len(left_out)} of {len(done)} rounds {what}: {next(iter(left_out[0].values()))}."
        if bad := [site for site, of in run.losses.items() if not all(map(isfinite, of.values()))]:
            yield f"{name} diverged at {', '.join(bad)}: the loss is no number; the plot has a gap there."


def _digests_differ(groups: Sequence[Group]) -> bool:
    """Whether a site's graph is another one elsewhere.

    Marks are part of a digest. A share draws them by the seed, and persons make them if they are the unit.
    """
    found: dict[tuple[object, ...], set[str]] = {}
    for group in groups:
        for run in group.ended:
            drawn = run.seed if run.config.get("marks", {}).get("share") is not None else None
            unit = run.config.get("privacy", {}).get("unit")
            for site, of in (run.summary or {})["sites"].items():
                if "digest" in of:
                    found.setdefault((site, drawn, unit), set()).add(str(of["digest"]))
                    found.setdefault((site,), set()).add(str(of["triples"]))
    return any(len(digests) > 1 for digests in found.values())


def terms(groups: Sequence[Group]) -> str:
    """What the methods on this page mean for those whose data it is."""
    begin = "Sites begin with the tables of {}, whose terms hold here too. Then: "
    alike: dict[str, dict[str, None]] = {}
    for group in groups:
        before = group.first.before
        text = (begin.format(before.approach) if before else "") + TERMS[group.first.kind]
        alike.setdefault(text, {})[group.approach] = None
    items = "".join(f"<dt>{escape(', '.join(n))}</dt><dd>{escape(text)}</dd>" for text, n in alike.items())
    return f'<dl class="terms">{items}</dl>'
