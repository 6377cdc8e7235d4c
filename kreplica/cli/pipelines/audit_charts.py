"""Charts of an audit as inline SVG, each with a text description; the tables contain the same data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kreplica.cli.terminal.screen import bytes_text
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Coverage, Difference, Kind
from kreplica.spark.pipelines.audit.report import BrokerTotals

WIDTH = 1000
PLOT_START, PLOT_END = 230, 800
PLOT = PLOT_END - PLOT_START
ROW = 30
LANE = 7

STRIPS_MAX = 40
MARKS_MAX = 400
"""Maximum number of marks per strip; additional marks would overlap."""

SHAPES = {
    Kind.DAMAGED: "M-5-5L5 5M5-5L-5 5",
    Kind.MISSING: "M-5-5H5V5H-5Z",
    Kind.DIFFERENT: "M0-6L6 0L0 6L-6 0Z",
    Kind.EPOCHS: "M0-6L6 5H-6Z",
}
"""SVG paths that mark differences; the kinds differ in shape, not in colour."""

KIND_DESCRIPTIONS = {
    Kind.DAMAGED: "damaged: a checksum is wrong, or the bytes are not a batch",
    Kind.MISSING: "missing: the batch exists in other replicas",
    Kind.DIFFERENT: "different: other replicas have a different batch",
    Kind.EPOCHS: "epochs: the leader epoch checkpoint contradicts the batches",
}


def bytes_chart(brokers: Sequence[BrokerTotals]) -> str:
    """Draw the number of bytes read from each broker."""
    most = max((each.size_bytes for each in brokers), default=0) or 1
    rows = []
    for row, each in enumerate(brokers):
        y = row * ROW
        size = PLOT * each.size_bytes / most
        rows.append(
            _label(y, f"broker {each.broker}")
            + f'<rect class="lane" x="{PLOT_START}" y="{y + 8}" width="{PLOT}" height="14" rx="3"/>'
            + f'<rect class="read" x="{PLOT_START}" y="{y + 8}" width="{size:.1f}" height="14" rx="3"/>'
            + _note(y, f"{bytes_text(each.size_bytes)}, {each.batches:,} batches")
        )
    description = "; ".join(f"broker {each.broker} {bytes_text(each.size_bytes)}" for each in brokers)
    return _svg(len(brokers) * ROW, f"Bytes read from each broker: {description}", rows)


def differences_chart(partitions: Iterable[Comparison]) -> str:
    """Draw the offsets of differences, one strip per replica with differences."""
    strips = [
        (each, broker, differences)
        for each in partitions
        for broker, differences in sorted(_by_broker(each.differences).items())
    ]
    rows = []
    for at, (each, broker, differences) in enumerate(strips[:STRIPS_MAX]):
        y = at * ROW
        positions = dict.fromkeys(
            (difference.kind, round(_position(each, difference.base_offset))) for difference in differences
        )
        marks = "".join(
            f'<path class="mark" d="{SHAPES[kind]}" transform="translate({x} {y + 15})">'
            f"<title>{kind.value}</title></path>"
            for kind, x in list(positions)[:MARKS_MAX]
        )
        rows.append(
            _label(y, f"{each.topic}-{each.partition}, broker {broker}")
            + f'<rect class="lane" x="{PLOT_START}" y="{y + 11}" width="{PLOT}" height="8" rx="3"/>'
            + marks
            + _note(y, f"{len(differences):,} in {each.start:,}–{each.high_watermark:,}")
        )
    description = "; ".join(
        f"{each.topic}-{each.partition} on broker {broker} has {len(differences)}"
        for each, broker, differences in strips
    )
    return _svg(len(rows) * ROW, f"Offsets of differences: {description}", rows)


def coverage_chart(partitions: Sequence[Comparison]) -> str:
    """Draw the compared offsets: one strip per partition, with one line per broker."""
    rows = []
    y = 0
    for each in partitions[:STRIPS_MAX]:
        height = max(ROW, 14 + len(each.coverages) * (LANE + 3))
        middle = y + (height - ROW) // 2
        first = y + (height - len(each.coverages) * (LANE + 3) + 3) // 2
        lanes = "".join(_lane(each, coverage, first + at * (LANE + 3)) for at, coverage in enumerate(each.coverages))
        text = f"{each.start:,}–{each.high_watermark:,}" if each.high_watermark > each.start else "empty"
        rows.append(_label(middle, f"{each.topic}-{each.partition}") + lanes + _note(middle, text))
        y += height
    short = [
        f"{each.topic}-{each.partition}"
        for each in partitions
        if any(coverage.is_short for coverage in each.coverages)
    ]
    description = (
        f"some replicas of {', '.join(short)} end earlier than others"
        if short
        else "all replicas of a partition end at the same offset"
    )
    return _svg(y, f"Compared offsets of each replica: {description}", rows)


def shape(kind: Kind) -> str:
    """Draw the mark of a kind of difference, for the legend."""
    return f'<svg class="shape" viewBox="-8 -8 16 16" aria-hidden="true"><path class="mark" d="{SHAPES[kind]}"/></svg>'


def _lane(partition: Comparison, coverage: Coverage, y: int) -> str:
    start, end = _position(partition, coverage.start), _position(partition, coverage.end)
    style = "short" if coverage.is_short else "read"
    title = f"broker {coverage.broker}: {coverage.start:,} to {coverage.end:,}"
    return (
        f'<g><title>{title}</title><rect class="lane" x="{PLOT_START}" y="{y}" width="{PLOT}" height="{LANE}"/>'
        f'<rect class="{style}" x="{start:.1f}" y="{y}" width="{max(0.0, end - start):.1f}" height="{LANE}"/></g>'
    )


def _position(partition: Comparison, offset: int) -> float:
    span = max(1, partition.high_watermark - partition.start)
    return PLOT_START + PLOT * min(1.0, max(0.0, (offset - partition.start) / span))


def _by_broker(differences: Iterable[Difference]) -> dict[int, list[Difference]]:
    found: dict[int, list[Difference]] = {}
    for each in differences:
        found.setdefault(each.broker, []).append(each)
    return found


def _label(y: int, text: str) -> str:
    shown = text if len(text) <= 32 else f"{text[:14]}…{text[-17:]}"
    return f'<text x="{PLOT_START - 14}" y="{y + 19}" text-anchor="end">{escape(shown)}</text>'


def _note(y: int, text: str) -> str:
    return f'<text class="note" x="{PLOT_END + 14}" y="{y + 19}">{escape(text)}</text>'


def _svg(height: int, description: str, rows: Sequence[str]) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {max(height, 1)}" role="img" aria-label="{escape(description)}">'
        f"{''.join(rows)}</svg>"
    )
