"""Formats the results as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kreplica.testing.designs.design_claims import DesignClaim
from kreplica.testing.designs.measure import CaseResult

COLUMNS = (
    ("event", "event"),
    ("design", "design"),
    ("watches set", "watches_set"),
    ("fired", "watches_fired"),
    ("at end", "watches_at_end"),
    ("reads", "reads"),
    ("writes", "writes"),
    ("ZK kB", "zookeeper_bytes"),
    ("queued", "queued"),
    ("RPCs", "rpcs"),
    ("RPC kB", "rpc_bytes"),
    ("leaderless", "affected"),
    ("first ms", "first_s"),
    ("p50 ms", "median_s"),
    ("p99 ms", "p99_s"),
    ("last ms", "last_s"),
    ("truncated kB", "truncated_bytes"),
    ("settled s", "settled_s"),
)
"""Headings and fields."""

LEGEND = (
    "reads, writes: znodes read and written.  queued: state changes sent through znodes.\n"
    "leaderless: partitions that had no leader for a time; durations: first, median, 99th percentile, last.\n"
    "truncated: log bytes truncated, with one batch of 16 KiB in flight per partition.\n"
    "settled: time to the last response of ZooKeeper.\n"
    "Sessions expire at once: add the session timeout.  The times do not include CPU time of brokers."
)


def results_text(results: Iterable[CaseResult]) -> str:
    """Return one table per cluster: events by design."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        for row in result.rows():
            title = (
                f"{row['partitions']:,} partitions x {row['replication_factor']}, {row['brokers']} brokers, "
                f"round trip {row['rtt_ms']:g} ms, {row['calls']}"
            )
            groups.setdefault(title, []).append(row)
    parts = []
    for title, rows in groups.items():
        order = list(dict.fromkeys(row["event"] for row in rows))
        rows.sort(key=lambda row: order.index(row["event"]))
        cells = [[_cell(field, row[field]) for _, field in COLUMNS] for row in rows]
        parts.append(f"{title}\n{_align([name for name, _ in COLUMNS], cells, left=2)}")
    return "\n\n".join([*parts, LEGEND])


def _cell(field: str, value: Any) -> str:
    if field == "settled_s":
        return f"{value:.2f}"
    if field.endswith("_s"):
        return f"{value * 1000:,.0f}"
    if field.endswith("_bytes"):
        return f"{value / 1000:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def claims_text(claims: Sequence[DesignClaim]) -> str:
    """Return the table of the claims of the design documents."""
    rows = [[claim.claim, claim.design, claim.claimed, claim.measured] for claim in claims]
    return _align(["claim of the design documents", "design", "claimed", "measured"], rows, left=4)


def _align(names: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> str:
    widths = [max(len(line[column]) for line in (names, *rows)) for column in range(len(names))]
    lines = []
    for line in (names, *rows):
        cells = [
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
