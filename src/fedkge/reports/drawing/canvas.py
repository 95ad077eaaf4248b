"""The plots of a page: a place for each in the text, and their data for the script that draws them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from fedkge.reports.drawing.figure import Figure


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
