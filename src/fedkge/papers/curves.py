"""Curves of runs as pictures: validation MRR over rounds and over bytes, for each data set and model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fedkge.papers.lines import Line
from fedkge.reports.compared.experiments import COLOURS
from fedkge.reports.drawing.figure import Figure, Trace, bytes_axis
from fedkge.reports.drawing.svg import svg

ROUND, BYTES = 0, 3  #: places in a point of a record's curve
AXES = {"rounds": (ROUND, {"title": {"text": "round"}}), "bytes": (BYTES, bytes_axis("sent, both ways"))}


def pictures(name: str, found: Sequence[Line]) -> Iterator[tuple[str, str, str]]:
    """Of each: a file's name, what it shows, the SVG. Runs without curves are in none.

    A line is the curve of its first seed. Over bytes are runs that send something.
    """
    drawn = [line for line in found if not line.view and any("curve" in one for one in line.records)]
    for (data, model), group in groupby(drawn, key=lambda line: line.subject):
        lines = list(group)
        for over, (place, axis) in AXES.items():
            traces = [trace for i, line in enumerate(lines) if (trace := _trace(line, place, i))["x"]]
            if traces:
                title = f"{data}, {model}: validation MRR over {over}"
                label = f"{title}: one line for each of {', '.join(trace['name'] for trace in traces)}."
                layout = {"xaxis": axis, "yaxis": {"title": {"text": "validation MRR"}}}
                picture = svg(Figure(title, label, traces, layout, 360, longest=60))
                yield f"{name}-{data}-{model}-{over}.svg", title, picture


def _trace(line: Line, place: int, number: int) -> Trace:
    curve = next(record["curve"] for record in line.records if "curve" in record)
    points = [point for point in curve if place == ROUND or point[place] > 0]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": line.name,
        "x": [point[place] for point in points],
        "y": [point[1] for point in points],
        "meta": {"series": f"s{number % COLOURS}", "dash": number // COLOURS},
    }
