"""Writes ``performance.md`` and its chart from ``performance/kafka.json``.  ``python docs/performance.py [ROWS.json]``

Given rows that ``make bench-kafka ARGS="--json ROWS.json"`` has written, it keeps them first.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = HERE / "performance" / "kafka.json"
PAGE = HERE / "performance.md"
CHART = HERE / "performance" / "ratios.svg"

NOTES = HERE / "performance" / "notes.md"
"""What people wrote of the figures: where they fall short, and why."""

LOWER_IS_BETTER = ("us/MB", "ms", "s", "MB", "MB for 10,000", "us/record")

HEAD = """# Performance

kreplica beside Apache Kafka 3.9 (ZooKeeper mode, 1 GB heap, its own start script's flags) on the same machine, in the
same run, under the same load from the same C programs on librdkafka. Both run at the same time and are loaded in turns;
pages of logs are touched before they are written; a first round, in which the virtual machine warms up, does not count.
MB are 10^6 bytes of values; CPU is of all brokers together, from the scheduler's own books. `make bench-kafka` measures
it again (it needs Java, Maven, gcc and librdkafka-dev); this page is written by `python docs/performance.py`.

{machine}

"""


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    rows = results["benchmarks"]["kafka"]["rows"]
    machine = results["machine"]
    told = (
        f"{machine['cpus']} cores, Linux {machine['kernel']}, Python {machine['python']}, commit "
        f"`{machine['commit'][:7]}`, scale {results['scale']}, {machine['time'][:10]}."
    )
    return "\n".join(
        [
            HEAD.format(machine=told) + "![How many times better than Kafka](performance/ratios.svg)",
            "",
            *_table(rows),
            "",
            NOTES.read_text().strip() if NOTES.exists() else "",
            "",
        ]
    )


def _table(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    yield "| scenario | figure | kreplica | Kafka | ratio | target | target ratio | |"
    yield "| --- | --- | --: | --: | --: | --- | --- | --- |"
    before = ""
    for row in rows:
        name = row["scenario"] if row["scenario"] != before else ""
        before = row["scenario"]
        yield (
            f"| {name} | {row['figure']} | {_number(row['kreplica'])} | {_number(row['Kafka'])} | "
            f"{_number(row['ratio'])} | {row['target']} | {row['target ratio']} | {row['']} |"
        )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def advantage(row: Mapping[str, Any]) -> float | None:
    """How many times better than Kafka, whichever way is better; None where nothing was compared."""
    ratio = row["ratio"]
    if not ratio:
        return None
    return 1 / ratio if row["figure"].endswith(LOWER_IS_BETTER) and not row["figure"].endswith("/s") else float(ratio)


WIDTH, LEFT, BAR, GAP = 760, 290, 16, 8
STOPS = (0.5, 1, 2, 5, 10, 20, 50)


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """A bar for each figure that has a target, on a scale of logarithms; the line is Kafka."""
    bars = [(f"{row['scenario']}, {row['figure']}", better) for row in rows if row[""] and (better := advantage(row))]
    most = max([4.0, *(better for _, better in bars)])
    least = min([0.5, *(better for _, better in bars)])

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - 60) * (math.log(value / least) / math.log(most / least))

    height = 30 + len(bars) * (BAR + GAP) + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="How many times better than Apache Kafka" font-family="sans-serif" font-size="12">',
        "<style>text{fill:#57606a}.better{fill:#2da44e}.worse{fill:#cf222e}line{stroke:#8c959f}"
        "@media(prefers-color-scheme:dark){text{fill:#9aa4af}}</style>",
    ]
    for stop in STOPS:
        if least <= stop <= most:
            dash = "" if stop == 1 else ' stroke-dasharray="2 4"'
            out.append(f'<line x1="{x(stop):.1f}" x2="{x(stop):.1f}" y1="22" y2="{height - 20}"{dash}/>')
            label = "Kafka" if stop == 1 else f"{stop:g}x"
            out.append(f'<text x="{x(stop):.1f}" y="16" text-anchor="middle">{label}</text>')
    for number, (name, better) in enumerate(bars):
        y = 28 + number * (BAR + GAP)
        begin, end = sorted((x(1), x(better)))
        kind = "better" if better >= 1 else "worse"
        out.append(f'<text x="{LEFT - 8}" y="{y + BAR - 4}" text-anchor="end">{escape(name)}</text>')
        out.append(
            f'<rect class="{kind}" x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="{BAR}" rx="2"/>'
        )
        out.append(f'<text x="{end + 6:.1f}" y="{y + BAR - 4}">{better:.2g}x</text>')
    return "\n".join([*out, "</svg>", ""])


def written() -> dict[Path, str]:
    """Each file, and what it is to hold."""
    results = json.loads(ROWS.read_text())
    return {PAGE: page(results), CHART: chart(results["benchmarks"]["kafka"]["rows"])}


def main() -> None:
    if len(sys.argv) > 1:
        ROWS.parent.mkdir(exist_ok=True)
        ROWS.write_text(json.dumps(json.loads(Path(sys.argv[1]).read_text()), indent=1) + "\n")
    for path, text in written().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
