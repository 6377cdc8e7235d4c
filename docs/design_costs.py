"""Generates the tables and pictures of ``design-costs.md``: ``python docs/design_costs.py [FIGURES.json]``.

The argument is a result of ``kreplica designs --json FIGURES.json``; the figures that the page shows are stored in
``explanation/design-costs.json``.  The text between the tables is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kreplica.testing.designs.pictures import pictures

HERE = Path(__file__).parent
PAGE = HERE / "explanation" / "design-costs.md"
STORED = HERE / "explanation" / "design-costs.json"
PICTURES = HERE / "images" / "designs"

DESIGNS = ("race", "leader", "controller")
SIZES = (10_000, 100_000)
ROUND_TRIPS = (
    ("1 ms", 1.0, "pipelined"),
    ("4 ms", 4.0, "pipelined"),
    ("4 ms, one request at a time", 4.0, "one by one"),
)
BROKERS = (3, 10, 50)
FITTED_SIZES = (1_000, 10_000, 100_000)
FITTED_EVENTS = ("whole cluster starts", "broker dies")
EVENTS = (
    "whole cluster starts",
    "broker dies",
    "broker comes back",
    "preferred leaders elected",
    "controlled shutdown",
    "ZooKeeper session lost",
    "topic created",
    "reassignment",
    "topic deleted",
)
BLOCK = re.compile(r"(?<=<!-- generated: )([\w ,]+)( -->\n)(.*?)(?=\n<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


class Figures:
    """Stored rows of ``kreplica designs --json``."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.events: list[Row] = document["events"]
        self.design_texts: list[Row] = document["design_texts"]

    def of(self, event: str, design: str, partitions: int, *, brokers: int = 3, rtt_ms: float = 1.0,
           calls: str = "pipelined") -> Row:  # fmt: skip
        """Return the row of one event of one run."""
        wanted = {"event": event, "design": design, "partitions": partitions, "brokers": brokers, "rtt_ms": rtt_ms,
                  "calls": calls}  # fmt: skip
        return next(row for row in self.events if row.items() >= wanted.items())


def is_shown(row: Row) -> bool:
    """Return True if the page has this row, or a picture has it as a point."""
    return row["event"] in EVENTS and (
        (row["brokers"] == 3 and row["rtt_ms"] == 1.0)
        or (row["partitions"] == 10_000 and row["event"] in ("whole cluster starts", "broker dies"))
    )


# --- tables ---


def events(figures: Figures, partitions: int) -> Iterator[str]:
    """One line per event and design: three brokers, round trip 1 ms."""
    yield from _head("Event", "Design", "Watches set", "Reads", "Writes", "MB", "RPCs", "Leaderless", "Median",
                     "Longest", "MB truncated")  # fmt: skip
    for event in EVENTS:
        for design in DESIGNS:
            row = figures.of(event, design, partitions)
            counts = [f"{row[name]:,}" for name in ("watches_set", "reads", "writes")]
            times = [_time(row["median_s"]), _time(row["last_s"])] if row["affected"] else ["-", "-"]
            yield _line(event, design, *counts, f"{row['zookeeper_bytes'] / 1e6:,.2f}", f"{row['rpcs']:,}",
                        f"{row['affected']:,}", *times, f"{row['truncated_bytes'] / 1e6:,.1f}")  # fmt: skip


def round_trips(figures: Figures) -> Iterator[str]:
    """Time until all partitions have leaders after a broker's death, by round trip."""
    yield from _head("Design", *(name for name, _, _ in ROUND_TRIPS))
    for design in DESIGNS:
        rows = [
            figures.of("broker dies", design, 10_000, rtt_ms=rtt_ms, calls=calls) for _, rtt_ms, calls in ROUND_TRIPS
        ]
        yield _line(design, *(_time(row["last_s"]) for row in rows))


def brokers(figures: Figures) -> Iterator[str]:
    """Requests of a start, and the time until all partitions have leaders after a death, by the number of brokers."""
    yield from _head("Design", "Requests at the start: 3 brokers", "10", "50",
                     "All partitions have leaders after a death: 3 brokers", "10", "50")  # fmt: skip
    for design in DESIGNS:
        starts = [figures.of("whole cluster starts", design, 10_000, brokers=count) for count in BROKERS]
        deaths = [figures.of("broker dies", design, 10_000, brokers=count) for count in BROKERS]
        yield _line(design, *(f"{row['requests']:,}" for row in starts), *(_time(row["last_s"]) for row in deaths))


def fitted(figures: Figures) -> Iterator[str]:
    """Costs of an event as a linear function of the number of partitions: three brokers, round trip 1 ms."""
    error = "Largest error"
    yield from _head("Event", "Design", "Requests", error, "All partitions have leaders after", error)
    for event in FITTED_EVENTS:
        for design in DESIGNS:
            rows = [figures.of(event, design, count) for count in FITTED_SIZES]
            requests = fit([(row["partitions"], row["requests"]) for row in rows])
            led_ms = fit([(row["partitions"], 1000 * row["last_s"]) for row in rows])
            yield _line(
                event, design,
                f"{requests.fixed:,.0f} + {requests.each:.2g} n", f"{100 * requests.error:.0f}%",
                f"{led_ms.fixed:,.1f} ms + {1000 * led_ms.each:,.0f} us n", f"{100 * led_ms.error:.0f}%",
            )  # fmt: skip


class Fit(NamedTuple):
    """``fixed + each * n``, and the largest relative error of a point."""

    fixed: float
    each: float
    error: float


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """Return the line with the smallest sum of squared relative errors.

    :param points: numbers of partitions with their costs, which are positive.
    """
    weights = [1 / cost**2 for _, cost in points]
    total = sum(weights)
    mean_n = sum(weight * n for weight, (n, _) in zip(weights, points, strict=True)) / total
    mean_cost = sum(weight * cost for weight, (_, cost) in zip(weights, points, strict=True)) / total
    covariance = sum(w * (n - mean_n) * (cost - mean_cost) for w, (n, cost) in zip(weights, points, strict=True))
    each = covariance / sum(w * (n - mean_n) ** 2 for w, (n, _) in zip(weights, points, strict=True))
    fixed = mean_cost - each * mean_n
    return Fit(fixed, each, max(abs(fixed + each * n - cost) / cost for n, cost in points))


def claims(figures: Figures) -> Iterator[str]:
    """The figures of the design documents."""
    yield from _head("Claim", "Design", "Claimed", "Measured")
    for row in figures.design_texts:
        yield _line(row["claim"], row["design"], row["claimed"] or "-", row["measured"])


TABLES = {
    "claims": claims,
    **{f"{size:,} partitions": (lambda figures, size=size: events(figures, size)) for size in SIZES},
    "round trips": round_trips,
    "brokers": brokers,
    "fitted costs": fitted,
}


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield "|" + "---|" * len(names)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _time(seconds: float) -> str:
    if not seconds:
        return "0"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


# --- files ---


def generated(page: str, stored: str) -> dict[Path, str]:
    """Return the text of the page and of its pictures by path."""
    document = json.loads(stored)
    figures = Figures(document)

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}\n{chr(10).join(TABLES[match[1]](figures))}\n"

    files = {PAGE: BLOCK.sub(block, page)}
    for name, text in pictures(document["events"]):
        if f"designs/{name}.svg" in page:
            files[PICTURES / f"{name}.svg"] = text
    return files


def compact(document: dict[str, Any]) -> str:
    """Return the rows that are shown as JSON, one per line, with times in microseconds."""
    rows = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
        for row in document["events"]
        if is_shown(row)
    ]
    lists = {"events": rows, "design_texts": document["design_texts"]}
    texts = (f'"{name}": [\n' + ",\n".join(map(json.dumps, each)) + "\n]" for name, each in lists.items())
    return "{" + ",\n".join(texts) + "}\n"


def main(arguments: Sequence[str]) -> None:
    """Store figures, and write the page and its pictures."""
    for path in arguments:
        STORED.write_text(compact(json.loads(Path(path).read_text())))
    for path, text in generated(PAGE.read_text(), STORED.read_text()).items():
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
