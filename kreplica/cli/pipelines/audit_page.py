"""Report of an audit as one HTML page without scripts or external resources, in a light and a dark theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files

from kreplica.cli.pipelines.audit_charts import (
    KIND_DESCRIPTIONS,
    STRIPS_MAX,
    bytes_chart,
    coverage_chart,
    differences_chart,
    shape,
)
from kreplica.cli.terminal.screen import bytes_text, count_text, seconds_text
from kreplica.spark.pipelines.audit.replica_findings import Comparison
from kreplica.spark.pipelines.audit.report import AuditReport

ROWS_MAX = 2000
"""Maximum rows per table; browsers are slow with more."""

STYLE = """
*, *::before, *::after { box-sizing: border-box; }
html { font: var(--body) / 1.5 var(--sans); background: var(--ground); color: var(--text); }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1.25rem 4rem; }
h1, h2, p, ul, dl, dd, figure { margin: 0; padding: 0; }
h1 { font-size: var(--title); line-height: 1.25; font-weight: 650; letter-spacing: -0.012em; }
h2 { font-size: var(--large); font-weight: 620; margin: var(--gap-large) 0 0.6rem; }
ul { list-style: none; }
a { color: var(--accent); }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
header { display: grid; gap: 0.5rem; margin-bottom: var(--gap); }
.muted, .hint { color: var(--muted); font-size: var(--small); }
.skip { position: fixed; inset: 0.5rem auto auto 0.5rem; padding: 0.5rem 1rem; background: var(--accent);
  color: var(--on-accent); border-radius: var(--round-small); transform: translateY(-200%); }
.skip:focus { transform: none; }
.verdict { display: flex; gap: 0.6rem; padding: 0.75rem 1rem; border: 1px solid; border-left-width: 4px;
  border-radius: var(--round-small); font-weight: 600; overflow-wrap: anywhere; }
.verdict.good { color: var(--good); background: var(--good-soft); }
.verdict.bad { color: var(--bad); background: var(--bad-soft); }
.numbers { display: flex; flex-wrap: wrap; gap: 1px;
  background: var(--line); border: 1px solid var(--line); border-radius: var(--round); overflow: hidden; }
.numbers > div { flex: 1 1 8rem; background: var(--surface); padding: 0.75rem 1.1rem; }
.numbers dt { font-size: var(--small); color: var(--muted); }
.numbers dd { font-size: 1.375rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.numbers .worry dd { color: var(--bad); }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: var(--round); overflow-x: auto; }
figure.card { padding: 0.75rem 1rem; margin-bottom: 0.8rem; }
figcaption { color: var(--muted); font-size: var(--small); margin-top: 0.4rem; }
.plot { display: block; width: 100%; min-width: 42rem; height: auto; font-size: 14px; }
.plot text { fill: var(--text); }
.plot .note { fill: var(--muted); font-variant-numeric: tabular-nums; }
.lane { fill: var(--sunken); }
.read { fill: var(--first); }
.short { fill: var(--second); }
.mark { fill: var(--surface); stroke: var(--bad); stroke-width: 2; }
.shape { width: 1rem; height: 1rem; vertical-align: -0.15rem; margin-right: 0.35rem; }
.swatch { display: inline-block; width: 1.25rem; height: 0.5rem; margin-right: 0.35rem; background: var(--first); }
.swatch.late { background: var(--second); }
.legend { display: flex; flex-wrap: wrap; gap: 0.1rem 1.2rem; font-size: var(--small); margin-top: 0.4rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0.6rem 0.9rem 0.2rem; color: var(--muted); font-size: var(--small); }
th, td { padding: 0.45rem 0.9rem; text-align: left; vertical-align: baseline; }
thead th { font-size: var(--small); font-weight: 600; color: var(--muted); border-bottom: 1px solid var(--line);
  white-space: nowrap; }
tbody th { font-weight: 500; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
.number { text-align: right; white-space: nowrap; }
.wrong { color: var(--bad); font-weight: 600; white-space: nowrap; }
details > summary { cursor: pointer; font-weight: 500; width: fit-content; }
details > summary + * { margin-top: 0.6rem; }
"""

Column = tuple[str, bool]
"""Title of a column, and True if its values are numbers."""


def audit_page(report: AuditReport, now: datetime | None = None) -> str:
    """Return the page as HTML.

    :param now: time of the report; None for the current time.
    """
    created = (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    cluster = f" of cluster {report.cluster_id}" if report.cluster_id else ""
    tokens = files("kreplica.admin.dashboard").joinpath("tokens.css").read_text()
    parts = [
        f"<header><h1>Audit of replicas{escape(cluster)}</h1>",
        f'<p class="muted">{created}; replicas were read from {_source(report)}.</p>',
        _verdict(report),
        "</header>",
        _numbers(report),
        _differences(report),
        _brokers(report),
        _coverage(report),
        _notes(report),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit: {escape(report.verdict)}</title>\n<style>\n{tokens}{STYLE}</style>\n</head>\n"
        '<body>\n<a class="skip" href="#found">Skip to the differences</a>\n<main>\n' + "\n".join(parts) + "\n</main>\n"
        "</body>\n</html>\n"
    )


def _source(report: AuditReport) -> str:
    return "the brokers, as a debugging consumer" if report.source == "brokers" else "the brokers' files"


def _verdict(report: AuditReport) -> str:
    kind, sign = ("good", "●") if report.agrees else ("bad", "✕")
    text = report.verdict[0].upper() + report.verdict[1:]
    return f'<p class="verdict {kind}"><span aria-hidden="true">{sign}</span>{escape(text)}.</p>'


def _numbers(report: AuditReport) -> str:
    short = sum(each.short for each in report.by_broker())
    totals = [
        ("Partitions", f"{len(report.partitions):,}", False),
        ("Replicas", f"{sum(len(each.coverages) for each in report.partitions):,}", False),
        ("Batches", f"{report.batches:,}", False),
        ("Read", bytes_text(report.size_bytes) or "", False),
        ("Duration", seconds_text(report.seconds) or "", False),
        ("Differences", f"{report.difference_count:,}", report.difference_count > 0),
        ("Behind other replicas", f"{short:,}", False),
    ]
    rows = "".join(
        f'<div class="{"worry" if worry else "calm"}"><dt>{name}</dt><dd>{value}</dd></div>'
        for name, value, worry in totals
    )
    return f'<dl class="numbers">{rows}</dl>'


def _differences(report: AuditReport) -> str:
    head = '<h2 id="found">Differences</h2>'
    listed = report.differences
    if not listed:
        return f'{head}<p class="muted">None.</p>'
    strips = [each for each in report.partitions if each.differences]
    legend = "".join(
        f"<li>{shape(kind)}{escape(KIND_DESCRIPTIONS[kind])}</li>"
        for kind in KIND_DESCRIPTIONS
        if kind in {each.kind for each in listed}
    )
    chart = (
        f'<figure class="card" tabindex="0">{differences_chart(strips)}<ul class="legend">{legend}</ul>'
        "<figcaption>From the first compared offset of each partition to its high watermark.</figcaption></figure>"
    )
    caption = "Offset: first offset of the batch. Broker: the one whose replica differs from the others."
    if report.difference_count > min(len(listed), ROWS_MAX):
        caption += f" The first {min(len(listed), ROWS_MAX):,} of {report.difference_count:,}."
    columns = [("Topic", False), ("Partition", True), ("Offset", True), ("Broker", True), ("Kind", False)]
    rows = [
        (each.topic, each.partition, each.base_offset, each.broker, _ErrorText(each.kind.value), each.detail)
        for each in listed[:ROWS_MAX]
    ]
    return head + chart + _table([*columns, ("Detail", False)], rows, caption)


def _brokers(report: AuditReport) -> str:
    brokers = report.by_broker()
    columns = [
        ("Broker", False),
        ("Replicas", True),
        ("Batches", True),
        ("Read", True),
        ("Behind other replicas", True),
    ]
    rows = [
        (
            f"broker {each.broker}",
            each.replicas,
            each.batches,
            bytes_text(each.size_bytes),
            each.short,
            each.differences,
        )
        for each in brokers
    ]
    return (
        f'<h2>Brokers</h2><figure class="card" tabindex="0">{bytes_chart(brokers)}'
        "<figcaption>Bytes of the batches that were read and checksummed.</figcaption></figure>"
        + _table([*columns, ("Differences", True)], rows, "Data read from each broker.")
    )


def _coverage(report: AuditReport) -> str:
    partitions = sorted(report.partitions, key=_severity)
    charted = partitions[:STRIPS_MAX]
    more = f" The other {len(partitions) - len(charted):,} are in the table." if len(partitions) > len(charted) else ""
    brokers = ", ".join(str(each.broker) for each in report.by_broker())
    rows = [
        (each.topic, each.partition, own.broker, own.start, own.end, each.high_watermark, own.batches,
         bytes_text(own.size_bytes), "behind" if own.is_short else "")
        for each in report.partitions for own in each.coverages
    ]  # fmt: skip
    columns = [("Topic", False), ("Partition", True), ("Broker", True), ("From", True), ("To", True)]
    columns += [("High watermark", True), ("Batches", True), ("Bytes", True), ("", False)]
    caption = "From: first offset that all replicas have. To: offset after the last compared batch."
    if len(rows) > ROWS_MAX:
        caption += f" The first {ROWS_MAX:,} of {len(rows):,} replicas."
    return (
        f'<h2>Coverage</h2><figure class="card" tabindex="0">{coverage_chart(charted)}<ul class="legend">'
        '<li><span class="swatch"></span>compared</li>'
        '<li><span class="swatch late"></span>compared, and ends earlier than other replicas</li></ul>'
        f"<figcaption>One line for each broker with a replica, in the order {brokers}.{more}</figcaption>"
        f"</figure><details><summary>All {count_text(len(rows), 'replica')}</summary>"
        f"{_table(columns, rows[:ROWS_MAX], caption)}</details>"
    )


def _severity(partition: Comparison) -> tuple[bool, bool, bool, str, int]:
    """Return a sort key that puts the partitions with differences first."""
    is_short = any(each.is_short for each in partition.coverages)
    is_empty = partition.high_watermark <= partition.start
    return not partition.difference_count, not is_short, is_empty, partition.topic, partition.partition


def _notes(report: AuditReport) -> str:
    compacted = sum(each.compacted_count for each in report.partitions)
    notes = list(report.notes)
    if compacted:
        notes.append(f"{count_text(compacted, 'batch', 'batches')} of compacted topics differ because of compaction")
    if report.taken_over:
        notes.append(f"{count_text(report.taken_over, 'partition')}: results reused from an earlier run")
    if not notes:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in notes[:ROWS_MAX])
    return f'<h2>Notes</h2><ul class="card" style="padding: 0.75rem 1rem">{items}</ul>'


class _ErrorText(str):
    """A text that is highlighted as an error."""

    __slots__ = ()


def _table(columns: Sequence[Column], rows: Iterable[Sequence[object]], caption: str) -> str:
    head = "".join(f'<th scope="col"{_number(is_number)}>{escape(title)}</th>' for title, is_number in columns)
    body = "".join(
        "<tr>" + "".join(_cell(at, value, columns[at][1]) for at, value in enumerate(row)) + "</tr>" for row in rows
    )
    return (
        f'<div class="card" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(column: int, value: object, is_number: bool) -> str:
    text = f"{value:,}" if isinstance(value, int) and is_number else str(value)
    if column == 0:
        return f'<th scope="row"{_number(is_number)}>{escape(text)}</th>'
    style = ' class="wrong"' if isinstance(value, _ErrorText) else _number(is_number)
    return f"<td{style}>{escape(text)}</td>"


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
