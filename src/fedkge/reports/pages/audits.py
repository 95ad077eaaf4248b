"""Attacks and erasures as pages: how well an attack did; what was to be forgotten, and who can still tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from fedkge.audits.base import Attack, Bars, Curves, Row, interval
from fedkge.reports.drawing.figure import Canvas, Figure, mark, titled
from fedkge.reports.drawing.lines import Line, Point, Scale, coloured, line_figure
from fedkge.reports.folders.options import tails
from fedkge.reports.pages.html import document
from fedkge.reports.pages.markup import Column, count, rank, seconds, share, size, table, words
from fedkge.reports.pages.plain import forgotten

BESIDE = ("s7", 2), ("s6", 1)  #: colour and dash of what guessing gives, and of other lines beside


def attack_page(title: str, found: Mapping[Attack, Sequence[Row]]) -> str:
    """A section for each attack, of the rows that it found."""
    page = Canvas()
    return document(title, "", {one.title: _section(page, one, rows) for one, rows in found.items()}, page)


def _section(page: Canvas, attack: Attack, rows: Sequence[Row]) -> str:
    said = "".join(f"<p>{escape(line)}</p>" for line in attack.words(rows).splitlines())
    if not rows:
        return said
    plots = [_bars(plot) if isinstance(plot, Bars) else _curves(plot) for plot in attack.plots(rows)]
    shown = list(map(attack.shown, rows))
    return said + "".join(map(page.place, plots)) + table(shown, _columns(shown), attack.caption)


def _columns(rows: Sequence[Row]) -> list[Column]:
    forms = {int: count, float: rank}
    return [
        Column(key, key, forms.get(type(value), words), words=not str(value)[:1].isdigit())
        for key, value in rows[0].items()
    ]


def _curves(plot: Curves) -> Figure:
    styles = [(line, coloured(i)) for i, line in enumerate(plot.lines)]
    styles += [(line, BESIDE[min(i, 1)]) for i, line in enumerate(plot.beside)]
    lines = [Line(name, [Point(x, y) for x, y in points], *style) for (name, points), style in styles]
    scale = Scale(titled(plot.x, type="log"), titled(plot.y), plot.hover)
    return line_figure(plot.title, f"{plot.title}; the table has the numbers.", lines, scale)


def _bars(plot: Bars) -> Figure:
    """Histograms over the same edges, side by side."""
    names = [f"{a:,.0f}" if b - a <= 1 else f"{a:,.0f}–{b - 1:,.0f}" for a, b in pairwise(plot.edges)]
    places, hover = list(range(len(names))), "%{customdata}<br>%{fullData.name}: %{y}"
    traces = [
        mark("bar", name, f"s{i}", 0, hover, x=places, y=counts, customdata=names)
        for i, (name, counts) in enumerate(plot.counts.items())
    ]
    xaxis = titled(plot.x, tickvals=places, ticktext=names)
    layout = {"xaxis": xaxis, "yaxis": titled(plot.y), "barmode": "group"}
    label = f"{plot.title}; the table has the numbers."
    return Figure(plot.title, label, traces, layout, 320, tools=True, longest=60)


LABELS = {"before": "before", "after": "after", "retrained": "re-trained"}
DIGEST = 12  #: characters of a digest that tables show


def erasure_page(title: str, found: Mapping[str, Any]) -> str:
    """The page of `erasure.json`."""
    page = Canvas()
    parts = {"What was asked": _asked(found["requests"])}
    audit = found["audit"] or {}
    if "standing" in audit:
        parts["Before and after"] = _standing(audit)
    if audit.get("membership"):
        parts["Who can tell what was forgotten"] = _membership(page, audit["membership"])
    if "withdrawn" in audit:
        parts["What is left of sites that withdrew"] = _withdrawn(audit["withdrawn"])
    parts["Tables"] = _tables(found)
    if found["derived"]:
        parts["Runs that may still remember"] = _derived(found["derived"])
    said = [f'<p class="finding">{escape(text)}</p>' for text in (forgotten(audit), sentence(found)) if text]
    return document(title, "".join(said), parts, page)


def sentence(found: Mapping[str, Any]) -> str:
    """What became of the last request."""
    last = found["requests"][-1]
    if not last["sites"] and not last["withdrawn"]:
        return "Nothing was asked to be forgotten: the tables are those of before, bit by bit."
    asked = _triples(last)
    what = [f"{asked:,} triples at {', '.join(last['sites'])}"] if asked else []
    what += [f"site {site} as a whole" for site in last["withdrawn"]]
    verb = "were" if asked or len(what) > 1 else "was"
    said = f"{' and '.join(what)} {verb} taken out in mode {last['mode']}, in {last['seconds']:.1f} s."
    if len(every := found["requests"]) > 1:
        total, took = sum(map(_triples, every)), sum(one["seconds"] for one in every)
        said += f" It is request {len(every)}; all together {total:,} triples are gone, in {took:.1f} s."
    for site, of in ((found["audit"] or {}).get("withdrawn") or {}).items():
        if of["after"]["count"]:
            said += (
                f" With its old relation rows, the others rank {of['after']['hits@1']:.1%} of what they can "
                f"know of {site} first; before it was {of['before']['hits@1']:.1%}."
            )
            if last["mode"] != "exact":
                said += " Only mode exact removes what they have learnt from it."
    for view, of in ((found["audit"] or {}).get("verdicts") or {}).items():
        said += (
            f" By the {view} tables they are {of['verdict']}: Hits@1 {of['hits@1']:.1%}, "
            f"expected {of['expected']:.1%} by {of['by']}"
        )
        if "difference" in of:
            said += f"; their membership AUC by {of['signal']} is {of['difference']:+.3f} off"
        said += "."
    return said


def _triples(request: Mapping[str, Any]) -> int:
    return sum(sum(of["triples"].values()) for of in request["sites"].values())


def _text(key: str, title: str = "", note: str = "") -> Column:
    return Column(key, title or key, words, note, words=True)


def _asked(requests: Sequence[Mapping[str, Any]]) -> str:
    nothing = {"triples": {}, "lost": {"entities": 0, "relations": 0}}
    rows = [
        {name: request[name] for name in ("mode", "rounds", "seconds", "bytes")}
        | {"number": number, "when": request["when"][:16].replace("T", " "), "site": site}
        | {"triples": sum(of["triples"].values()), **of["lost"]}
        | {"withdrawn": ", ".join(request["withdrawn"]) or "–"}
        | {"digest": (request["digests"].get(site) or ["–"])[0][:DIGEST]}
        for number, request in enumerate(requests, 1)
        for site, of in request["sites"].items() or (("–", nothing),)
    ]
    columns = [
        Column("number", "request", count),
        _text("when", "when (UTC)"),
        *map(_text, ("mode", "site")),
        Column("triples", "triples", count, "Of train, valid and test."),
        Column("entities", "entities lost", count, "Their last triple is gone: so are row and name."),
        Column("relations", "relations lost", count),
        *[_text("withdrawn")] * any(one["withdrawn"] for one in requests),
        Column("rounds", "rounds", count),
        Column("seconds", "time", seconds),
        Column("bytes", "sent", size),
        _text("digest", "first digest", "Of an HMAC-SHA-256; the key is with whoever asked."),
    ]
    caption = "Digests of all triples are in erasure.json; they can be checked with the key."
    return table(rows, columns, caption)


def _standing(audit: Mapping[str, Any]) -> str:
    cells = [(kind, metric) for kind in ("forget", "test") for metric in ("mrr", "hits@1")]
    rows = [
        {"tables": f"{view}, {LABELS[when]}"}
        | {f"{kind} {metric}": of[kind][metric] if of[kind]["count"] else None for kind, metric in cells}
        for when, views in audit["standing"].items()
        for view, of in views.items()
    ]
    titles = {"mrr": "MRR", "hits@1": "Hits@1"}
    columns = [Column(f"{kind} {metric}", f"{kind} {titles[metric]}", share) for kind, metric in cells]
    caption = (
        "Filtered by what is retained, before and after alike. hub: the mean over owners of the rows that "
        "travel. others: the forgetting site's relation rows with the other sites' entity rows."
    )
    if gone := sum(audit["gone"].values()):
        caption += f" {gone:,} forgotten triples are of names that are gone: nobody can be asked about them."
    return table(rows, [_text("tables"), *columns], caption)


def _membership(page: Canvas, rows: Sequence[Mapping[str, Any]]) -> str:
    kinds = {"auc": "AUC", "before": "AUC before", "retrained": "AUC re-trained", "difference": "difference"}
    kinds["lost"] = "AUC of what was lost"
    forms = {"difference": "+.3f"}
    shown = [
        {"tables": row["view"], "signal": row["signal"], "triples": row["members"]}
        | {kind: interval(dict(row), kind, forms.get(kind, ".3f")) for kind in kinds}
        for row in rows
    ]
    notes = {"lost": "The attacker has the tables of before and after."}
    columns = [_text("tables"), _text("signal"), Column("triples", "forgotten", count)]
    columns += [Column(kind, title, words, notes.get(kind, "")) for kind, title in kinds.items()]
    caption = (
        "Forgotten triples beside held-out ones of the same relations, sites pooled; 95 % intervals "
        "(DeLong). The target is what re-training gives, not 0.5: triples that were never trained on need "
        "not look like held-out ones."
    )
    lines = [
        Line(f"{row['view']}, {row['signal']}", [Point(x, y) for x, y in row["curve"]], *coloured(i))
        for i, row in enumerate(rows)
        if row["signal"] == "rank"
    ]
    axes = titled("false alarms", type="log"), titled("forgotten triples found")
    scale = Scale(*axes, "%{y:.3f} found at %{x:.4f} false alarms")
    figure = line_figure("ROC: forgotten triples found over false alarms", "By their ranks.", lines, scale)
    return page.place(figure) + table(shown, columns, caption)


def _withdrawn(sites: Mapping[str, Any]) -> str:
    told = [(site, when, of) for site, runs in sites.items() for when, of in runs.items()]
    rows = [{**of, "site": site, "when": LABELS[when]} for site, when, of in told]
    columns = [_text("site"), _text("when", "tables"), Column("mrr", "MRR", share)]
    columns += [Column("hits@1", "Hits@1", share), Column("count", "questions", count)]
    caption = "The withdrawn site's triples, by its old relation rows with the others' entities."
    return table(rows, columns, caption)


def _tables(found: Mapping[str, Any]) -> str:
    rows = [{"file": file, "digest": digest} for file, digest in found["tables"].items()]
    changed = [
        {"site": site, "rows": ", ".join(f"{n:,} {name}" for name, n in of.items())}
        for site, of in found["requests"][-1]["changed"].items()
    ]
    moved = [_text("site"), _text("rows", "rows changed")]
    said = table(changed, moved, "Rows that are still there, and other than before.") if changed else ""
    caption = "On a CPU, mode exact gives the same digests to whoever has the retained data."
    return said + (table(rows, [_text("file"), _text("digest", "SHA-256")], caption) if rows else "")


def _derived(rows: Sequence[Mapping[str, str]]) -> str:
    near = tails(row["run"] for row in rows)
    shown = [{**row, "run": near[row["run"]]} for row in rows]
    caption = "Found near the old run; whoever keeps others has to look for them."
    return table(shown, [_text("run"), _text("why")], caption)
