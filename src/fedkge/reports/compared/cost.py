"""Plots over bytes: what accuracy cost on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedkge.reports.compared.averages import WEIGHTED, losses, mean_curve, over_bytes, point, validation
from fedkge.reports.compared.experiments import Group
from fedkge.reports.drawing.figure import Figure, bytes_axis
from fedkge.reports.drawing.lines import Line, Scale, line_figure, small_figure
from fedkge.reports.folders.run import Run

BY_BYTES = "%{x:.3s}B sent: %{y:.4f}"
DIRECTIONS = {"bytes": "in both directions", "up_bytes": "up, to the hub", "down_bytes": "down, to sites"}


def own_bytes_figures(run: Run) -> list[Figure]:
    """One run's validation MRR and training loss over bytes: in both directions, and each by itself."""
    looks = {"bytes": ("ink", 0), "up_bytes": ("up", 1), "down_bytes": ("down", 2)}
    figures = []
    for title, unit, mean, curve in (
        ("Validation MRR over bytes sent", "filtered MRR", WEIGHTED, mean_curve(*validation(run))),
        ("Training loss over bytes sent", "loss", "mean over sites", mean_curve(*losses(run))),
    ):
        lines = [
            Line(words, over_bytes([curve], [run.sent(kind)]), *looks[kind])
            for kind, words in DIRECTIONS.items()
        ]
        scale = Scale(bytes_axis("sent so far"), {"title": {"text": unit}}, BY_BYTES)
        label = f"{title}, {mean}: a line for both directions and one for each."
        figures.append(replace(line_figure(title, label, lines, scale), ends=()))  # they end far apart
    return figures


def bytes_figures(groups: Sequence[Group]) -> list[Figure]:
    """Validation MRR over bytes, both directions and each; who sends nothing is a level to compare with."""
    figures = []
    for kind, words in DIRECTIONS.items():
        most = max(max(run.sent(kind).values(), default=0) for group in groups for run in group.runs)
        if not most:
            return []
        lines = [_line(group, kind, most) for group in groups]
        yaxis = {"title": {"text": "filtered MRR"}}
        scale = Scale(bytes_axis(f"sent so far, {words}"), yaxis, BY_BYTES)
        title = f"Validation MRR over bytes sent {words}"
        label = f"{title}, one line per experiment; {WEIGHTED}."
        figures.append((line_figure if kind == "bytes" else small_figure)(title, label, lines, scale))
    return figures


def _line(group: Group, kind: str, most: float) -> Line:
    means = [mean_curve(*validation(run)) for run in group.runs]
    if any(run.traffic.bytes for run in group.runs):
        sent = [run.sent(kind) for run in group.runs]
        return Line(group.label, over_bytes(means, sent, group.known_until), group.colour, group.dash)
    best = [max(curve.values()) for curve in means if curve]
    level = [point(x, best) for x in (0, most)] if best else []
    return Line(group.label, level, group.colour, 1)
