"""The time to accuracy as a picture: what `reach.py` measured on each device, and PyKEEN's time beside it."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Any

WIDE, HIGH = 640, 330
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 70, 50  #: around the axes
NAMES = {"reach": "#1f77b4", "gpu-reach": "#d62728"}  #: of measurements, and their colours
GREY = "#555555"


def picture(results: dict[str, Any]) -> str | None:
    """An SVG of validation MRR over the seconds of training; None without a course."""
    found = {name: results[name] for name in NAMES if "course" in results.get(name, {})}
    if not found:
        return None
    budget = max((one["triples"] for one in found.values() if "triples" in one), default=None)
    theirs = results.get("reach-pykeen")
    slow = budget / theirs["triples_per_s"] if budget and theirs else None
    seconds = [point[0] for one in found.values() for point in one["course"]] + ([slow] if slow else [])
    low, high = floor(log10(min(seconds))), ceil(log10(max(seconds)))
    top = 1.05 * max(one["mrr"] for one in found.values())

    def x(at: float) -> float:
        return LEFT + (log10(at) - low) / (high - low) * (WIDE - LEFT - RIGHT)

    def y(mrr: float) -> float:
        return HIGH - BOTTOM - mrr / top * (HIGH - TOP - BOTTOM)

    parts = list(_axes(x, y, low, high, top))
    for number, (name, one) in enumerate(found.items()):
        line = " ".join(f"{x(s):.1f},{y(mrr):.1f}" for s, _, mrr in one["course"])
        parts.append(f'<polyline points="{line}" fill="none" stroke="{NAMES[name]}" stroke-width="2"/>')
        told = (
            f"{one['machine'].split(',')[0]}: 99 % after {one['seconds']:.3g} s" if "seconds" in one else name
        )
        if "seconds" in one:
            mrr = one["course"][one["reached"] - 1][2]
            at = f'cx="{x(one["seconds"]):.1f}" cy="{y(mrr):.1f}"'
            parts.append(f'<circle {at} r="4" fill="{NAMES[name]}"/>')
        parts.append(_text(LEFT, 18 + 16 * number, told, NAMES[name]))
    if slow:
        ends = f'x1="{x(slow):.1f}" x2="{x(slow):.1f}" y1="{y(0):.1f}" y2="{TOP}"'
        parts.append(f'<line {ends} stroke="{GREY}" stroke-width="2" stroke-dasharray="6 4"/>')
        told = f"PyKEEN, 2 cores: {slow / 3600:.2g} h for as many triples (extrapolated)"
        parts.append(_text(LEFT, 18 + 16 * len(found), told, GREY))
    style = "font-family:sans-serif;font-size:12px;background:white"
    size = f'width="{WIDE}" height="{HIGH}" viewBox="0 0 {WIDE} {HIGH}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{style}">{"".join(parts)}</svg>\n'


def _text(x: float, y: float, words: str, colour: str = "black", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


def _axes(x: Any, y: Any, low: int, high: int, top: float) -> Any:
    for power in range(low, high + 1):
        at = f'x1="{x(10**power):.1f}" x2="{x(10**power):.1f}" y1="{TOP}" y2="{HIGH - BOTTOM}"'
        yield f'<line {at} stroke="#dddddd"/>'
        yield _text(x(10**power), HIGH - BOTTOM + 16, f"{10.0**power:g} s", anchor="middle")
    for step in range(int(top * 10) + 1):
        at = f'x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(step / 10):.1f}" y2="{y(step / 10):.1f}"'
        yield f'<line {at} stroke="#dddddd"/>'
        yield _text(LEFT - 6, y(step / 10) + 4, f"{step / 10:.1f}", anchor="end")
    yield _text((LEFT + WIDE - RIGHT) / 2, HIGH - 10, "seconds of training (logarithmic)", anchor="middle")
    yield _text(4, TOP - 8, "MRR")
