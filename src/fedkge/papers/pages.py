"""docs/results/: a page for each table or figure, made of records; docs/results.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedkge.papers.catalogue import Table, is_recorded, read_tables
from fedkge.papers.cells import cell, difference, markdown, unit_of
from fedkge.papers.choosing import best_lines
from fedkge.papers.curves import overview, pictures
from fedkge.papers.curves_page import NAME as CURVES
from fedkge.papers.curves_page import curves_page, shown
from fedkge.papers.index import INDEX, index
from fedkge.papers.lines import Line, over_seeds, rows_of, sharing
from fedkge.papers.protocols import Protocol, read_protocols
from fedkge.papers.records import Record, by_cap, publish, seconds_of
from fedkge.papers.seen import IN_VIEW
from fedkge.papers.texts import CHOSEN, COSTS, HEAD, MARKS, SHARED, TEST_SEEN, TOOK
from fedkge.reports.compared.experiments import spread
from fedkge.reports.compared.reference import CONVERGED, LEVELS

PAGES = Path("docs") / "results"
TOLD = (CONVERGED, *LEVELS)  #: what costs are counted up to


def write_pages(root: Path, records: Mapping[str, Record]) -> list[Path]:
    """Write the index and every page; those of tables that are no more are removed."""
    files = pages(root, records)
    for path in [*(root / PAGES).glob("*.md"), *(root / PAGES).glob("*.svg")]:
        if path.name not in files:
            path.unlink()
    for file, text in files.items():
        publish(root / PAGES / file, text)
    publish(root / INDEX, index(root, records))
    return [root / INDEX, *(root / PAGES / file for file in files)]


def pages(root: Path, records: Mapping[str, Record]) -> dict[str, str]:
    """All files of docs/results: a page for each table or figure, one of curves, and their pictures."""
    protocols, tables = read_protocols(root), read_tables(root)
    files = {}
    for name, table in tables.items():
        if table.runs:
            files[f"{name}.md"] = page(table, protocols[table.protocol], records)
            if table.curves:
                found = rows_of(table, protocols[table.protocol], records)
                files |= {one.file: one.svg for one in pictures(table, found)}
    drawn, without = overview(tables.values(), protocols, records)
    return files | {f"{CURVES}.md": curves_page(drawn, without)} | {one.file: one.svg for one in drawn}


def page(table: Table, protocol: Protocol, records: Mapping[str, Record]) -> str:
    """One table or figure: beside the paper, and what it took."""
    found = rows_of(table, protocol, records)
    parts = [f"# {table.name}: {table.title}\n", f"{protocol.paper}. {protocol.note}"]
    parts += [f"{table.note}\n" if table.note else "", HEAD]
    parts.append(_accuracy(table, found))
    best = best_lines(table, protocol, records) if table.beside else []
    if table.beside:
        told = CHOSEN.format(beside=", ".join(f"[{name}]({name}.md)" for name in table.beside))
        parts += [f"## What validates best\n\n{told}", _accuracy(table, best)]
    ran = [line for line in found if line.records and not line.view]
    if table.costs and any(line.costs for line in ran):
        parts += [f"## What it took to converge\n\n{COSTS}", _converged([line for line in ran if line.costs])]
    if ran or best:
        parts += _what_it_took(ran, best)
        parts.append(f"## Curves\n\n{MARKS}")
        parts += map(shown, pictures(table, found))
        parts.append(_not_drawn(ran) if table.curves else "")
    return "\n".join(part for part in parts if part)


def _what_it_took(ran: Sequence[Line], best: Sequence[Line]) -> list[str]:
    """The table's own rows, and those of other tables that stand for rows of the paper."""
    own = {line.job.key for line in ran}
    others = {line.job.key: replace(line, view="") for line in best if line.job.key not in own}
    every = [*ran, *others.values()]
    marks = SHARED if any(sharing(line.records) for line in every) else ""
    marks += TEST_SEEN if any(IN_VIEW in told for line in every for told in line.departures) else ""
    return [f"## What it took\n\n{TOOK}{marks}", _took(sorted(every, key=lambda line: line.subject))]


def _not_drawn(ran: Sequence[Line]) -> str:
    without = [line for line in ran if not is_recorded(line.traced, drawn=True)]
    names = "".join(f"- {', '.join(line.subject)}: {line.name}\n" for line in without)
    return f"Recorded without a curve, and therefore missing here:\n\n{names}" if names else ""


def _accuracy(table: Table, found: Sequence[Line]) -> str:
    head = ["data", "model", "method", "paper's row", "seeds"]
    rules = ["---"] * 4 + ["---:"]
    for metric in table.metrics:
        title = metric.upper() if metric in ("mr", "mrr") else metric.capitalize()
        head += [f"{title}, paper", "ours", "difference"]
        rules += ["---:"] * 3
    if why := any(line.choice for line in found):
        head, rules = [*head, "why this row"], [*rules, "---"]
    body = []
    for line in found:
        named = f"{line.paper['named']}, {line.paper['table']}" if line.paper else "–"
        row = [*line.subject, _named(line), named, str(len(line.records) or "–")]
        for metric in table.metrics:
            paper, own, gap = line.paper.get(metric), line.metric(metric), difference(line, metric)
            row += ["–" if paper is None else f"{paper:.2f}", cell(own, 2, unit_of(metric))]
            row.append("–" if gap is None else f"{gap:+.2f}".replace("-", "−"))
        body.append([*row, line.choice] if why else row)
    return markdown([head, rules, *body])


def _named(line: Line) -> str:
    return line.name + (f" ({line.note})" if line.note else "")


def _took(found: Sequence[Line]) -> str:
    head = [
        "data",
        "model",
        "method",
        "differs",
        "budget",
        "rounds",
        "kept",
        "10³ steps",
        "10⁶ triples",
        "seconds",
        "MB sent",
        "device",
    ]
    rules = ["---"] * 7 + ["---:"] * 4 + ["---"]
    body = []
    for line in found:
        trainer = line.job.experiment().trainer
        visited = [record["triples"] for record in line.records if "triples" in record]
        body.append(
            [
                *line.subject,
                _named(line),
                ", ".join(line.differs) or "–",
                f"{trainer.epochs} × {line.cap}",
                cell(spread(_last(record) for record in line.records), 0),
                _kept(line),
                cell(spread(count / trainer.batch_size / 1e3 for count in visited), 1),
                cell(spread(count / 1e6 for count in visited), 1),
                _of(line, seconds_of, 0),
                _of(line, lambda record: sum(record["bytes"].values()) / 1e6, 1),
                ", ".join(dict.fromkeys(record["environment"]["device"] for record in line.records)),
            ]
        )
    return markdown([head, rules, *body])


def _last(record: Record) -> int:
    return max(course["rounds"] for course in record["courses"].values())


def _kept(line: Line) -> str:
    best = line.best_rounds()
    several = any(len(record["courses"]) > 1 for record in line.records)
    words = str(best[0]) if min(best) == max(best) else f"{min(best)} to {max(best)}"
    words += ", by site" if several else ""
    if max(best) == line.cap:
        return f"{words}, at the cap"
    return f"{words}, ended by the cap" if any(map(by_cap, line.records)) else words


def _of(line: Line, value: Callable[[Record], float], digits: int) -> str:
    """Over the records that have it: those that were made before records had everything lack some."""
    return cell(spread(value(record) for record in line.records if "curve" in record), digits)


def _converged(found: Sequence[Line]) -> str:
    columns: list[tuple[str, str, int, float]] = [(f"R@{level}", f"R@{level}", 0, 1.0) for level in TOLD]
    columns += [(f"10⁶ values@{level}", f"values@{level}", 1, 1e6) for level in TOLD]
    columns += [(f"{kind}@{level}", f"{kind}@{level}", 4, 1.0) for kind in "PB" for level in TOLD]
    head, body = ["data", "model", "method"], []
    for title, key, *_ in columns:
        head += [title] + ([f"{title}, paper"] if any(key in line.paper for line in found) else [])
    for line in found:
        row = [*line.subject, _named(line)]
        for _, key, digits, unit in columns:
            row.append(cell(over_seeds([cost.get(key) for cost in line.costs]), digits, unit))
            if any(key in other.paper for other in found):
                row.append(f"{line.paper[key]:.{digits}f}" if key in line.paper else "–")
        body.append(row)
    return markdown([head, ["---"] * 3 + ["---:"] * (len(head) - 3), *body])
