"""A drawing of several series over the same time, as SVG, without a library: panels under each other, marks across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 960, 150, 70, 20, 40, 42
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``series``: name and (minutes, value). The scale begins at 0."""

    title: str
    series: dict[str, Points]


@dataclass(frozen=True)
class Mark:
    """Something that happened at a time, in minutes."""

    at: float
    text: str


def draw(title: str, panels: Sequence[Panel], marks: Sequence[Mark], minutes: float) -> str:
    """The whole drawing."""
    height = TOP + len(panels) * (HEIGHT + GAP) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        out += _panel(panel, TOP + number * (HEIGHT + GAP) + 14, marks, minutes, named=number == 0)
    return "\n".join([*out, "</svg>\n"])


def _panel(panel: Panel, top: int, marks: Sequence[Mark], minutes: float, *, named: bool) -> list[str]:
    most = _round_up(max((value for points in panel.series.values() for _, value in points), default=1.0) or 1.0)
    wide = WIDTH - LEFT - RIGHT

    def x(at: float) -> float:
        return LEFT + at / minutes * wide

    def y(value: float) -> float:
        return top + HEIGHT - value / most * HEIGHT

    out = [f'<text x="{LEFT}" y="{top - 5}" font-weight="bold">{escape(panel.title)}</text>']
    for step in range(5):
        value = most * step / 4
        out.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for mark in marks:
        out.append(f'<path d="M{x(mark.at):.1f} {top}v{HEIGHT}" stroke="#999" stroke-dasharray="2 3"/>')
        if named:
            place = f'transform="translate({x(mark.at) + 3:.1f} {top + 4}) rotate(90)"'
            out.append(f'<text {place} fill="#666" font-size="9">{escape(mark.text)}</text>')
    out += [
        f'<text x="{x(minute):.1f}" y="{top + HEIGHT + 13}" text-anchor="middle">{minute} min</text>'
        for minute in range(0, int(minutes) + 1, max(1, round(minutes / 10)))
    ]
    for index, (name, points) in enumerate(panel.series.items()):
        colour = COLOURS[index % len(COLOURS)]
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        right = WIDTH - RIGHT - 130 * (len(panel.series) - 1 - index)
        out.append(f'<text x="{right}" y="{top - 5}" fill="{colour}" text-anchor="end">{escape(name)}</text>')
    return out


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10 times a power of ten."""
    power = 1.0
    while power * 10 < value:
        power *= 10
    while power > value:
        power /= 10
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
