"""A plot as plain data for plotly.js, its pieces, and the plots of a page; colours are left to the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape
from math import ceil, floor, isfinite, log10
from typing import Any, NamedTuple, TypeAlias

Trace: TypeAlias = dict[str, Any]  #: `meta.series` names the page's variable with its colour
NUMBERS = 16  #: sites that leave room for words in the cells of a heat map
Values: TypeAlias = Sequence[Sequence[float | None]]
Cells: TypeAlias = Sequence[Sequence[str]]  #: what is written on values


class End(NamedTuple):
    """A line's name beside its last point, where the screen is wide enough."""

    series: str
    name: str
    y: float
    shift: float  #: pixels upwards, so that names do not cover each other


@dataclass(frozen=True)
class Figure:
    """One plot: `label` says to those who cannot see it what it shows."""

    title: str
    label: str
    data: Sequence[Trace]
    layout: Mapping[str, Any]
    height: int = 360  #: pixels
    tools: bool = False  #: buttons for zooming and saving
    ends: Sequence[End] = ()  #: stand in for the legend
    longest: int = 28  #: characters of a name, where cutting it leaves all names apart

    def __post_init__(self) -> None:
        """Names have their final length here, where all of them are known."""
        short = fitted({one["name"] for one in self.data if "name" in one}, self.longest)
        short |= fitted({end.name for end in self.ends}, self.longest)
        data = [{**one, "name": short[one["name"]]} if "name" in one else one for one in self.data]
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "ends", [end._replace(name=short[end.name]) for end in self.ends])


def fitted(names: Iterable[str], longest: int) -> dict[str, str]:
    """Plotly texts in `longest` characters: cut at their end, before it or in the middle.

    A name is cut only so that no other name becomes the same; where that cannot be, it stays whole.
    """
    plain = {name: unescape(name) for name in names}
    half = longest // 2
    ways: tuple[Callable[[str], str], ...] = (
        lambda name: f"{name[: longest - 1]}…",
        lambda name: f"…{name[1 - longest :]}",
        lambda name: f"{name[: half - 1]}…{name[-half:]}",
    )
    found = {}
    for name, whole in plain.items():
        cuts = [
            way(whole)
            for way in ways
            if all(way(whole) != way(other) for other in plain.values() if other != whole)
        ]
        found[name] = text(cuts[0] if len(whole) > longest and cuts else whole)
    return found


def mark(kind: str, name: str, series: str, dash: int = 0, hover: str = "", **data: Any) -> Trace:
    """Marks of one colour: `data` in plotly's words; `hover` is what the pointer reads."""
    trace: Trace = {"type": kind, "meta": {"series": series, "dash": dash}, **data}
    trace |= {"name": text(name)} if name else {}
    return trace | (
        {"hovertemplate": hover if "<extra>" in hover else f"{hover}<extra></extra>"} if hover else {}
    )


def whiskers(up: Sequence[float | None], down: Sequence[float | None] | None = None) -> Trace:
    """From each value to both ends of its interval; nothing where none is known."""
    if not any(end is not None for end in up):
        return {}
    sides = {} if down is None else {"symmetric": False, "arrayminus": down}
    return {"error_y": {"type": "data", "array": up, "width": 3, "thickness": 1.3, **sides}}


def beside(form: str) -> Trace:
    """Numbers at the ends of bars."""
    return {"texttemplate": form, "textposition": "outside", "cliponaxis": False}


def heat(x: Sequence[int], z: Values, cells: Cells, room: bool) -> Trace:
    """A cell for every row and column, with words in them where there is room."""
    trace: Trace = {"type": "heatmap", "x": x, "y": list(range(len(z))), "z": z, "xgap": 2, "ygap": 2}
    trace |= {"hoverongaps": False, "meta": {"series": "heat"}}
    return trace | {"text": cells} | ({"texttemplate": "%{text}"} if room else {})


def sites_by_sites(
    title: str, label: str, sites: Sequence[str], values: Values, cells: Cells, hover: str, **more: Any
) -> Figure:
    """A cell for every two sites; `hover` knows the row's and the column's as `customdata`."""
    names = list(map(text, sites))
    trace = heat(list(range(len(names))), values, cells, len(names) <= NUMBERS) | more
    trace["customdata"] = [[[row, column] for column in names] for row in names]
    trace["hovertemplate"] = f"{hover}<extra></extra>"
    axes = {"xaxis": named_axis(sites), "yaxis": named_axis(sites, down=True)}
    return Figure(title, label, [trace], axes, max(320, 90 + 34 * len(names)))


def colorbar(title: str, **more: Any) -> dict[str, Any]:
    """What the colours of a heat map mean."""
    return {"colorbar": {"thickness": 12, "outlinewidth": 0, **titled(text(title)), **more}}


def titled(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, **more}


def named_axis(names: Sequence[str], down: bool = False) -> dict[str, Any]:
    """An axis of positions with names: plotly would take a site named 7 for a number. `down`: from above."""
    short = fitted(map(text, names), 24)
    ticks = {"tickvals": list(range(len(names))), "ticktext": [short[text(name)] for name in names]}
    return {**ticks, "showgrid": False, "zeroline": False} | ({"autorange": "reversed"} if down else {})


def bytes_axis(title: str) -> dict[str, Any]:
    """20 MB rather than 20000000."""
    return titled(title, tickformat="~s", ticksuffix="B", rangemode="tozero")


def decades(low: float, high: float, written: Callable[[float], str]) -> dict[str, Any]:
    """Ticks of a logarithmic axis: as many of every decade as there is room for."""
    digits = range(1, 10) if high < 10 * low else (1, 2, 5) if high < 1000 * low else (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [digit * 10.0**power for power in powers for digit in digits]
    return {"type": "log", "tickvals": values, "ticktext": [written(value) for value in values]}


def text(name: str) -> str:
    """A name as plotly text, which knows a little HTML and takes dollars for formulas."""
    return escape(name, quote=False).replace("$", "&#36;")


def finite(value: float | None) -> float | None:
    """JSON knows no infinity; a gap is drawn."""
    return value if value is not None and isfinite(value) else None


class Canvas:
    """The plots placed so far."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}

    def place(self, figure: Figure, caption: str = "") -> str:
        """The place where the script will draw `figure`."""
        name = f"plot{len(self.figures)}"
        self.figures[name] = figure
        more = f" {escape(caption)}" if caption else ""
        return (
            f'<figure><figcaption><span class="title">{escape(figure.title)}</span>{more}</figcaption>'
            f'<div class="plot" id="{name}" style="height:{figure.height}px" role="img" '
            f'aria-label="{escape(figure.label)}"></div></figure>'
        )

    def grid(self, figures: Sequence[Figure]) -> str:
        """Small plots side by side, as many as the screen is wide."""
        return f'<div class="grid">{"".join(map(self.place, figures))}</div>' if figures else ""

    def json(self) -> str:
        """Data that no browser takes for markup, whatever sites are called."""
        plain: dict[str, Any] = {
            name: {k: getattr(figure, k) for k in ("data", "layout", "height", "tools", "ends")}
            for name, figure in self.figures.items()
        }
        text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
