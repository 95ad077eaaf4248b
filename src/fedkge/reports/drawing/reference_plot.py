"""Validation MRR over bytes, with the levels of a reference that are to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from math import ceil, floor, isfinite, log10
from statistics import fmean
from typing import Any

from fedkge.reports.compared.averages import WEIGHTED, mean_curve, over_bytes, point, validation
from fedkge.reports.compared.cost import BY_BYTES
from fedkge.reports.compared.experiments import Group, foremost
from fedkge.reports.compared.reference import LEVELS, Cost, beside, best, progress, reached, references
from fedkge.reports.drawing.figure import Figure
from fedkge.reports.drawing.lines import Line, Point, Scale, line_figure
from fedkge.reports.pages.markup import size

DRAWN = 8  #: experiments beside the reference; of more, the best
NEAR = 0.9  #: of the least that any line reaches is where all begin, so that levels can be told apart


def reference_figures(groups: Sequence[Group], reference: str) -> list[Figure]:
    """One per reference that has ended, with the experiments on the same data and model."""
    bases = references(groups, reference)
    figures = []
    for base in bases:
        compared = [group for group in groups if beside(group, bases) is base]
        others = foremost([group for group in compared if group is not base], DRAWN)
        drawn = [group for group in compared if group is base or group in others]
        figures += _figure(base, drawn)
    return figures


def _figure(base: Group, groups: Sequence[Group]) -> list[Figure]:
    """None when nothing was sent, or the level to reach is not known yet."""
    tops = [top for run in base.runs if (top := best(run)) is not None]
    talking = [group for group in groups if any(run.traffic.bytes for run in group.runs)]
    lines = {line.name: line for line in _near([_over_bytes(group) for group in talking])}
    sent = [of.x for line in lines.values() for of in line.points]
    if not tops or not sent:
        return []
    ends = min(sent), max(sent)
    drawn = [lines.get(group.label) or _silent(group, ends) for group in groups]
    for name, share in LEVELS.items():
        level = [Point(x, share * fmean(tops)) for x in ends]
        drawn.append(Line(f"{name} % of {base.label}", level, "soft", 2))
    title = f"Validation MRR over bytes sent, beside {base.label}"
    label = f"{title}, one line per experiment, and the levels to reach; {WEIGHTED}."
    xaxis = {"title": {"text": "sent so far, in both directions"}, "type": "log", **_ticks(*ends)}
    return [line_figure(title, label, drawn, Scale(xaxis, {"title": {"text": "filtered MRR"}}, BY_BYTES))]


def _over_bytes(group: Group) -> Line:
    """With a star where a run converged; means over seeds have no such point."""
    curves = [mean_curve(*validation(run)) for run in group.runs]
    points = over_bytes(curves, [run.sent() for run in group.runs], group.known_until)
    top = best(group.first)
    found = reached(group.first, top)
    alone = len(group.runs) == 1
    star = Point(found.bytes, top) if alone and top is not None and isinstance(found, Cost) else None
    return Line(group.label, points, group.colour, group.dash, star)


def _near(lines: Sequence[Line]) -> list[Line]:
    """Each from just before it comes near the best of the worst; without what a logarithm does not have."""
    known = [[of for of in line.points if of.x > 0 and isfinite(of.y)] for line in lines]
    least = NEAR * min((max(of.y for of in points) for points in known if points), default=0.0)
    before = [sum(1 for _ in takewhile(lambda of: of.y < least, points)) for points in known]
    return [
        replace(line, points=points[max(0, n - 1) :])
        for line, points, n in zip(lines, known, before, strict=True)
    ]


def _ticks(low: float, high: float) -> dict[str, Any]:
    """As many of every decade as there is room for, in units that people use."""
    digits = range(1, 10) if high < 10 * low else (1, 2, 5) if high < 1000 * low else (1,)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    values = [digit * 10**decade for decade in decades for digit in digits]
    return {"tickvals": values, "ticktext": [size(value) for value in values]}


def _silent(group: Group, ends: tuple[float, float]) -> Line:
    """Who sends nothing is a level, at the best that it reaches."""
    tops = [max(curve.values()) for run in group.runs if (curve := progress(run))]
    return Line(group.label, [point(x, tops) for x in ends] if tops else [], group.colour, 1)
