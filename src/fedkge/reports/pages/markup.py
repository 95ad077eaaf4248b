"""Numbers and tables as HTML; everything that comes from a run folder is escaped here."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from html import escape
from typing import Any

from fedkge.reports.compared.experiments import Row
from fedkge.reports.folders.run import Run

NOTHING = '<span class="none" title="not known">–</span>'


@dataclass(frozen=True)
class Column:
    """One column of a table: which key, under which heading, written how."""

    key: str
    title: str
    form: Callable[[Any], str]  #: gives HTML
    note: str = ""  #: explains the heading
    better: int = 0  #: 1: the highest is best; -1: the lowest; 0: neither
    words: bool = False  #: text rather than numbers


@dataclass(frozen=True)
class Sheet:
    """A table as data, for those who do not read HTML."""

    caption: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    html: str


RECORD: ContextVar[list[Sheet] | None] = ContextVar("RECORD", default=None)


@contextmanager
def recorded() -> Iterator[list[Sheet]]:
    """Collect every table that is made in the block."""
    sheets: list[Sheet] = []
    token = RECORD.set(sheets)
    try:
        yield sheets
    finally:
        RECORD.reset(token)


def words(value: Any) -> str:
    """Text, escaped; a long name may be broken anywhere."""
    if value is None:
        return NOTHING
    plain = str(value).lower() if isinstance(value, bool) else str(value)
    text = escape(plain)
    return text if len(plain) <= 24 else f'<span class="long">{text}</span>'


count = "{:,.0f}".format  #: a whole number with thousands separators
rank = "{:,.1f}".format  #: a mean rank
share = "{:.4f}".format  #: a number between 0 and 1
percent = "{:.1%}".format  #: a share, to a tenth of a percent
decimal = "{:,.2f}".format  #: a small number


def difference(value: float) -> str:
    """Signed, so that colour is not all that tells gain from loss."""
    kind = "gain" if value > 0 else "loss" if value < 0 else "even"
    return f'<span class="{kind}">{"+" if value > 0 else "−" if value < 0 else "±"}{abs(value):.4f}</span>'


def seconds(value: float) -> str:
    """A duration in the units that people use."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(value: float) -> str:
    """Bytes in the units that people use, powers of ten."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.2f} TB"


def amount(value: float) -> str:
    """A large number to three digits: 23.4 M."""
    for unit in ("", " k", " M"):
        if abs(value) < 1000:
            return f"{value:,.3g}{unit}"
        value /= 1000
    return f"{value:,.4g} G"


RUN, SITE = Column("run", "Run", words), Column("site", "Site", words)
SEED, SEEDS = Column("seed", "Seed", count), Column("seeds", "Seeds", count)


def matrix(
    sites: Sequence[str], values: Sequence[Sequence[Any]], form: Callable[[Any], str], caption: str
) -> str:
    """A number for every two sites: each row's towards each column's."""
    pairs = zip(sites, values, strict=True)
    rows = [{"site": site, **{str(i): value for i, value in enumerate(row)}} for site, row in pairs]
    return table(rows, [SITE, *(Column(str(i), site, form) for i, site in enumerate(sites))], caption)


def soft(text: str) -> str:
    """A remark."""
    return f'<p class="soft">{escape(text)}</p>'


def notice(text: str) -> str:
    """What a reader must not miss."""
    return f'<p class="notice" role="note">{escape(text)}</p>'


def listing(items: Iterable[str]) -> str:
    """Sentences below each other, as HTML; nothing where there are none."""
    inner = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="joining">{inner}</ul>' if inner else ""


def by_run(runs: Sequence[Run], part: Callable[[Run], str]) -> str:
    """What there is of each run, under its name where there are several."""
    found = [(run.name, content) for run in runs if (content := part(run))]
    return "".join(of if len(runs) == 1 else f"<h3>{escape(name)}</h3>{of}" for name, of in found)


def folded(title: str, content: str) -> str:
    """Something long that opens when asked for."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def sites(n: int) -> str:
    """1 site, 2 sites."""
    return f"{n:,} site{'s' * (n != 1)}"


def best_of_columns(rows: Sequence[Row], columns: Sequence[Column]) -> set[tuple[int, str]]:
    """The best cell of each column that has a better end, when there is something to choose from."""
    ends = [([(i, c.key, row[c.key]) for i, row in enumerate(rows)], c.better) for c in columns if c.better]
    return {place for cells, better in ends for place in _best(cells, better)}


def best_of_rows(rows: Sequence[Row], keys: Sequence[str]) -> set[tuple[int, str]]:
    """The highest cell of each row among `keys`."""
    return {place for i, row in enumerate(rows) for place in _best([(i, key, row[key]) for key in keys], 1)}


def _best(cells: Sequence[tuple[int, str, float | None]], better: int) -> set[tuple[int, str]]:
    values = [value for _, _, value in cells if value is not None]
    if len(values) < 2 or min(values) == max(values):
        return set()
    top = max(values) if better > 0 else min(values)
    return {(i, key) for i, key, value in cells if value == top}


def table(
    rows: Sequence[Row],
    columns: Sequence[Column],
    caption: str,
    *,
    best: Container[tuple[int, str]] = (),
    marked: Container[int] = (),
    last_is_total: bool = False,
) -> str:
    """A table whose first column heads its rows; `marked` rows stand out, `best` cells are bold.

    A cell whose row knows its deviation over seeds shows it.
    """
    kinds = {column.key: ' class="words"' * column.words for column in columns}
    notes = {column.key: f' title="{escape(column.note)}"' if column.note else "" for column in columns}
    head = "".join(f'<th scope="col"{kinds[c.key]}{notes[c.key]}>{escape(c.title)}</th>' for c in columns)
    body = []
    for i, row in enumerate(rows):
        looks = ["marked"] * (i in marked) + ["total"] * (last_is_total and i == len(rows) - 1)
        cells = [f'<th scope="row">{columns[0].form(row[columns[0].key])}</th>']
        for column in columns[1:]:
            value = row[column.key]
            shown = NOTHING if value is None else column.form(value)
            if (std := row.get(f"{column.key}_std")) is not None:
                shown += f' <span class="std">± {column.form(std)}</span>'
            if (i, column.key) in best:
                shown = f'<strong title="best">{shown}</strong>'
            cells.append(f"<td{kinds[column.key]}>{shown}</td>")
        look = f' class="{" ".join(looks)}"' if looks else ""
        body.append(f"<tr{look}>{''.join(cells)}</tr>")
    html = (
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div></figure>"
    )
    if (record := RECORD.get()) is not None:
        record.append(Sheet(caption, rows, columns, html))
    return html
