"""Plots of a sweep: what each value of a swept key gives, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fedkge.reports.compared.details import time_row
from fedkge.reports.compared.experiments import COLOURS, Group, Spread
from fedkge.reports.compared.sweep import lines_of
from fedkge.reports.drawing.figure import Figure, Trace, bytes_axis, finite, text
from fedkge.reports.folders.options import flat, same, valued


class Places(NamedTuple):
    """Where the values of a key stand on its axis."""

    of: dict[str, float]  # value, as `same` writes it -> place
    axis: dict[str, Any]
    numbers: bool  #: an order that a line may follow


def places(key: str, values: Sequence[Any]) -> Places:
    """Numbers to scale, logarithmic over more than a decade; side by side where neither is possible."""
    distinct = {same(value): value for value in values}
    title = text(key, 60)
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct.values())
    if numbers:
        distinct = dict(sorted(distinct.items(), key=lambda pair: float(pair[1])))
        low, high = min(distinct.values()), max(distinct.values())
        least = min((value for value in distinct.values() if value > 0), default=high)
        wide = high > 10 * least
        marks = {"tickvals": list(distinct.values()), "ticktext": [valued(v) for v in distinct.values()]}
        if low > 0 or not wide:
            kind = "log" if wide else "linear"
            return Places(dict(distinct), {**marks, "title": {"text": title}, "type": kind}, True)
        title += " (not to scale)"  # zero has no place on a logarithmic axis
    side = {name: float(i) for i, name in enumerate(distinct)}
    ticks = {"tickvals": list(side.values()), "ticktext": [text(valued(v)) for v in distinct.values()]}
    return Places(side, {**ticks, "title": {"text": title}, "range": [-0.3, len(side) - 0.7]}, numbers)


def sweep_figures(key: str, groups: Sequence[Group], keys: Sequence[str]) -> list[Figure]:
    """Test MRR over a key's values, then bytes and seconds, small; the other swept keys are lines."""
    lines = lines_of(key, groups, keys)
    having = [group for of in lines.values() for group in of]
    where = places(key, [flat(group.first.config)[key] for group in having])
    rest = [g for g in groups if g not in having and g.first.reference is not None]
    kinds: list[tuple[str, dict[str, Any], Callable[[Group], Spread | None]]] = [
        ("Test MRR", {"title": {"text": "test MRR, filtered"}}, lambda group: group.test()),
        ("Bytes sent", bytes_axis(""), lambda group: group.over(lambda run: run.traffic.bytes)),
        (
            "Seconds",
            {"title": {"text": ""}, "rangemode": "tozero"},
            lambda group: group.over(lambda run: time_row(run)["seconds"]),
        ),
    ]
    figures = []
    for i, (what, yaxis, value) in enumerate(kinds):
        traces = [] if i else [trace for group in rest for trace in _level(group, where)]
        for j, (name, of) in enumerate(lines.items()):
            traces.append(_line(key, name, of, where, value, j))
        layout = {"xaxis": where.axis, "yaxis": yaxis, "showlegend": not i and len(traces) > 1}
        title = f"{what} over {key}"
        label = f"{title}: one point per value, {len(lines)} line(s); the table below has the numbers."
        if any(trace["y"] != [None] * len(trace["y"]) for trace in traces):
            figures.append(Figure(title, label, traces, layout, 240 if i else 360, tools=not i))
    return figures


def _line(
    key: str,
    name: str,
    groups: Sequence[Group],
    where: Places,
    value: Callable[[Group], Spread | None],
    i: int,
) -> Trace:
    found = sorted(
        ((where.of[same(flat(group.first.config)[key])], value(group)) for group in groups),
        key=lambda pair: pair[0],
    )
    references = {group.first.reference for group in groups}
    (same_kind,) = references if len(references) == 1 else (None,)
    colour = f"s{i % COLOURS}" if same_kind is None else str(same_kind)
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if where.numbers else "markers",
        "name": text(name, 40),
        "x": [x for x, _ in found],
        "y": [finite(of.mean) if of else None for _, of in found],
        "marker": {"size": 9},
        "hovertemplate": "%{fullData.name}<br>%{x}: %{y:.4~g}<extra></extra>",
        "meta": {"series": colour, "dash": i // COLOURS},
    }
    if any(of and of.std is not None for _, of in found):
        deviations = [of.std if of else None for _, of in found]
        trace["error_y"] = {"type": "data", "array": deviations, "width": 4, "thickness": 1.5}
    return trace


def _level(group: Group, where: Places) -> list[Trace]:
    """An experiment without the key: a level to compare with."""
    found = group.test()
    if found is None:
        return []
    ends = [min(where.of.values()), max(where.of.values())]
    trace: Trace = {"type": "scatter", "mode": "lines", "name": text(group.label, 40), "x": ends}
    trace |= {"y": [found.mean] * 2, "hovertemplate": "%{fullData.name}: %{y:.4f}<extra></extra>"}
    return [{**trace, "meta": {"series": group.colour, "dash": 1}}]
