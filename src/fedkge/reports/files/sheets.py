"""The tables and plots of a report as files: CSV with keys and raw numbers, LaTeX, Markdown, SVG."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from io import StringIO
from math import isnan
from pathlib import Path
from typing import Any

from fedkge.durable import write_whole
from fedkge.errors import DataError
from fedkge.reports.drawing.figure import Canvas
from fedkge.reports.drawing.svg import svg
from fedkge.reports.folders.run import Run
from fedkge.reports.pages.markup import Sheet, recorded
from fedkge.reports.pages.sections import USUAL, Shown, sections

TEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
}


def write_tables(runs: Sequence[Run], folder: Path, form: str, shown: Shown = USUAL) -> list[Path]:
    """Write every table (`csv`, `latex`, `markdown`) or every plot (`svg`) of a report into a folder."""
    canvas = Canvas()
    with recorded() as sheets:
        parts = sections(runs, canvas, shown)
    if form == "svg":
        figures = canvas.figures.items()
        content = [(_name(parts, f'id="{name}"', one.title), svg(one)) for name, one in figures]
    else:
        write, _ = FORMS[form]
        content = [(_name(parts, sheet.html, sheet.caption), write(sheet)) for sheet in sheets]
    ending = ".svg" if form == "svg" else FORMS[form][1]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = []
        for i, (name, text) in enumerate(content, 1):
            path = folder / f"{i:02d}-{name}{ending}"
            write_whole(path, text.encode(), sync=False)
            made.append(path)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror}") from None
    return made


def _name(parts: Mapping[str, str], content: str, words: str) -> str:
    """A name for a file: the section that something stands in, and the first words about it."""
    section = next((title for title, html in parts.items() if content in html), "")
    return "-".join(re.findall(r"[a-z0-9]+", f"{section} {words}".lower())[:8])


def as_csv(sheet: Sheet) -> str:
    """Keys in the first line, then raw values; deviations over seeds have columns of their own."""
    keys = [
        key
        for column in sheet.columns
        for key in (column.key, f"{column.key}_std")
        if key == column.key or any(key in row for row in sheet.rows)
    ]
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_raw(row.get(key)) for key in keys] for row in sheet.rows)
    return out.getvalue()


def _raw(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and isnan(value)) else value


def as_markdown(sheet: Sheet) -> str:
    """A table with its caption above it."""
    head = [column.title for column in sheet.columns]
    line = ["---" if column.words or not i else "---:" for i, column in enumerate(sheet.columns)]
    rows = [head, line, *_cells(sheet)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return f"{sheet.caption}\n\n" + "\n".join(lines) + "\n"


def as_latex(sheet: Sheet) -> str:
    """A `table` that needs the package booktabs."""
    kinds = "".join("l" if column.words or not i else "r" for i, column in enumerate(sheet.columns))
    head = [column.title for column in sheet.columns]
    body = [" & ".join(map(_tex, row)) + r" \\" for row in [head, *_cells(sheet)]]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_tex(sheet.caption)}}}",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _cells(sheet: Sheet) -> list[list[str]]:
    """Every cell as a reader of the page sees it."""
    rows = []
    for row in sheet.rows:
        cells = []
        for column in sheet.columns:
            value, std = row[column.key], row.get(f"{column.key}_std")
            shown = "–" if value is None else _plain(column.form(value))
            cells.append(shown if std is None else f"{shown} ± {_plain(column.form(std))}")
        rows.append(cells)
    return rows


def _plain(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", html))


def _tex(text: str) -> str:
    return "".join(TEX.get(c, c) for c in text)


FORMS: dict[str, tuple[Callable[[Sheet], str], str]] = {
    "csv": (as_csv, ".csv"),
    "latex": (as_latex, ".tex"),
    "markdown": (as_markdown, ".md"),
}
