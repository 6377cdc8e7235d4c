"""Pictures of growth with the number of partitions, as SVG: both axes logarithmic, one line per design."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from kreplica.testing.designs.measure import PIPELINED_CALLS

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 110, 40, 50
COLORS = {"race": "#c0392b", "leader": "#2471a3", "controller": "#1e8449"}

Row = Mapping[str, Any]
"""A row of ``CaseResult.rows``."""

Points = Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture.

    :param event: event whose value is shown.
    :param field: field of its row.
    :param scale: factor from the field to the unit of the title.
    """

    name: str
    title: str
    event: str
    field: str
    scale: float = 1.0


PICTURES = (
    Picture("watches", "Watches of a running cluster", "whole cluster starts", "watches_at_end"),
    Picture("death-unled", "Broker dies: all partitions have leaders, ms", "broker dies", "last_s", 1000),
    Picture("death-requests", "Broker dies: ZooKeeper requests", "broker dies", "requests"),
    Picture("death-bytes", "Broker dies: bytes with ZooKeeper", "broker dies", "zookeeper_bytes"),
    Picture("start-unled", "Cluster starts: all partitions have leaders, ms", "whole cluster starts", "last_s", 1000),
    Picture("start-requests", "Whole cluster starts: ZooKeeper requests", "whole cluster starts", "requests"),
    Picture("return-truncated", "Broker comes back: bytes truncated", "broker comes back", "truncated_bytes"),
)


def write_pictures(rows: Sequence[Row], directory: Path) -> list[Path]:
    """Write all pictures of ``CaseResult.rows`` and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pictures(rows):
        path = directory / f"{name}.svg"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def pictures(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the name and SVG of each picture, for the first number of brokers and the middle round trip."""
    chosen = _comparable(rows)
    for picture in PICTURES:
        points: dict[str, list[tuple[float, float]]] = {}
        for row in chosen:
            value = row[picture.field] * picture.scale
            if row["event"] == picture.event and value > 0:
                points.setdefault(row["design"], []).append((row["partitions"], value))
        if points:
            yield picture.name, draw(picture.title, "partitions", points)


def _comparable(rows: Sequence[Row]) -> list[Row]:
    """Return the rows for the number of brokers and round trip with the most sizes, the smallest size first."""
    groups: dict[tuple[int, float], list[Row]] = {}
    for row in rows:
        if row["calls"] == PIPELINED_CALLS:
            groups.setdefault((row["brokers"], row["rtt_ms"]), []).append(row)
    chosen = max(groups.values(), key=lambda group: len({row["partitions"] for row in group}), default=[])
    return sorted(chosen, key=lambda row: row["partitions"])


def draw(title: str, x_title: str, points: Points) -> str:
    """Return one picture.

    :param points: positive coordinates by line.
    """
    every = [point for line in points.values() for point in line]
    x_axis = _Axis([x for x, _ in every], LEFT, WIDTH - RIGHT)
    y_axis = _Axis([y for _, y in every], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>',
    ]
    for power in y_axis.powers:
        y = y_axis.at(10**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_number(power)}</text>')
    for power in x_axis.powers:
        x = x_axis.at(10**power)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_number(power)}</text>')
    for name, line in points.items():
        parts += _line(name, [(x_axis.at(x), y_axis.at(y)) for x, y in line])
    return "\n".join([*parts, "</svg>", ""])


def _line(name: str, pixels: Sequence[tuple[float, float]]) -> list[str]:
    color = COLORS.get(name, "#555")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in pixels]
    x, y = pixels[-1]
    label = f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{color}">{escape(name)}</text>'
    return [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>', *dots, label]


class _Axis:
    """Logarithmic axis from pixel ``start`` to pixel ``end``, over whole powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low = floor(log10(min(values)))
        high = max(ceil(log10(max(values))), self._low + 1)
        self.powers = range(self._low, high + 1)
        self._start = start
        self._per_power = (end - start) / (high - self._low)

    def at(self, value: float) -> float:
        return self._start + (log10(value) - self._low) * self._per_power


def _number(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10**power:g}"
