"""Generates ``performance.md`` and its charts: ``python docs/performance.py [NAME=]ROWS.json ...``.

Each argument is a file that ``python -m benchmarks NAME ... --json ROWS.json`` wrote.  Its results, or only those of
NAME, are stored in ``performance/NAME.json``.  ``performance/notes/NAME.md`` contains hand-written comments.
"""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

from benchmarks.tables import text as cell

HERE = Path(__file__).parent / "reference"
BENCHMARKS = HERE.parent.parent / "benchmarks"
PAGE, KEPT = "performance.md", "performance"

TITLES = {
    "kafka": "Comparison with Apache Kafka",
    "kafka_java": "Comparison with Apache Kafka's own programs, and steady rates",
    "kafka_kraft": "Comparison with Apache Kafka 4 in KRaft mode",
    "kafka_tls": "Comparison with Apache Kafka over TLS",
    "efficiency": "Comparison with a C program that makes the same system calls",
    "interpreters": "Interpreters",
    "kernels": "Kernels in C",
    "bytecodes": "CPU time of a request in Python",
    "hand_overs": "Hand-overs of a record",
    "growth": "Growth",
    "cores": "Two cores",
    "roofline": "Many cores",
    "controller": "Controller",
    "redesign": "Controller redesign",
    "zookeeper": "ZooKeeper client",
    "zookeeper_appendix": "ZooKeeper client with 500,000 and 1,000,000 znodes",
    "codec": "Message codec",
    "compressed": "Compressed batches",
}
"""Titles of the benchmarks on the page, in its order."""

HEAD = """# Performance

This page shows the results of kreplica's benchmarks. CPU times come from the operating system's scheduler; other
programs on the machine distort them less than rates. 1 MB is 10^6 bytes.

`python -m benchmarks NAME --scale full --json rows.json` repeats a measurement (`make bench-kafka` for the comparison
with Apache Kafka, which needs Java, Maven, gcc and librdkafka-dev). `python docs/performance.py rows.json` generates
this page.
"""

Row = Mapping[str, Any]
Charts = Mapping[str, tuple[str, str]]
"""Title and SVG of each chart, by file name."""


# --- stored results ---


def keep(directory: Path, results: Mapping[str, Any], only: str | None = None) -> list[str]:
    """Store the rows of each benchmark on the page.

    :param directory: the page's directory.
    :param results: the output of ``python -m benchmarks --json``.
    :param only: name of a single benchmark to store.
    :return: names of the stored benchmarks.
    :raise ValueError: no benchmark matches, or one has failed; the stored rows are unchanged.
    """
    names = [name for name in TITLES if name in results["benchmarks"] and only in (None, name)]
    if not names:
        raise ValueError(f"no rows of {only or 'any of ' + ', '.join(TITLES)}")
    for name in names:
        benchmark = results["benchmarks"][name]
        if benchmark["problem"] or not benchmark["rows"]:
            raise ValueError(f"{name}: {benchmark['problem'] or 'no rows'}")
    for name in names:
        benchmark = results["benchmarks"][name]
        kept = {"machine": results["machine"], "scale": results["scale"], "rows": benchmark["rows"]}
        path = directory / KEPT / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(kept, indent=1) + "\n")
    return names


def written(directory: Path = HERE) -> dict[Path, str]:
    """Return the content of each generated file, by path; empty if no rows are stored."""
    sections, charts = [], dict[str, str]()
    for name in TITLES:
        path = directory / KEPT / f"{name}.json"
        if path.exists():
            results = json.loads(path.read_text())
            drawn = [(table, charts_of(name, table)) for table in tables(results["rows"])]
            notes = directory / KEPT / "notes" / f"{name}.md"
            sections.append(section(name, results, drawn, notes.read_text() if notes.exists() else ""))
            charts.update({file: chart for _, table_charts in drawn for file, (_, chart) in table_charts.items()})
    if not sections:
        return {}
    files = {directory / KEPT / file: chart for file, chart in charts.items()}
    return {directory / PAGE: "\n".join([HEAD, *sections]), **files}


# --- the page ---


def section(name: str, results: Mapping[str, Any], drawn: Sequence[tuple[Sequence[Row], Charts]], notes: str) -> str:
    """Return a section: introduction, machine, each table below its charts, and notes."""
    machine = results["machine"]
    commit = f"commit `{machine['commit'][:7]}`, " if machine["commit"] else ""
    congestion = f"congestion control {control}, " if (control := machine.get("congestion_control")) else ""
    parts = [
        f"## {TITLES[name]}",
        _introduction(name),
        f"{machine['cpus']} cores, Linux {machine['kernel']}, {congestion}Python {machine['python']}, {commit}"
        f"scale {results['scale']}, {machine['time'][:10]}.",
        *(part for table, charts in drawn for part in (_pictures(charts), "\n".join(_table(table)))),
        notes.strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _pictures(charts: Charts) -> str:
    return "\n".join(f"![{title}]({KEPT}/{file})" for file, (title, _) in charts.items())


def _introduction(name: str) -> str:
    """Return the benchmark's docstring without its command line."""
    docstring = ast.get_docstring(ast.parse((BENCHMARKS / f"{name}.py").read_text())) or ""
    paragraphs = [part for part in docstring.split("\n\n") if not part.startswith("``python")]
    return "\n\n".join(paragraphs).replace("``", "`").replace(".  ", ". ")


def tables(rows: Iterable[Row]) -> list[list[Row]]:
    """Split rows into tables: consecutive rows with the same keys."""
    return [list(group) for _, group in groupby(rows, key=tuple)]


def _table(rows: Sequence[Row]) -> Iterator[str]:
    keys = list(rows[0])
    numeric = [all(isinstance(row[key], int | float | None) for row in rows) for key in keys]
    yield f"| {' | '.join(keys)} |"
    yield f"| {' | '.join('--:' if right else '---' for right in numeric)} |"
    before = ""
    for row in rows:
        first, *others = [cell(row[key]) for key in keys]
        yield f"| {' | '.join([first if first != before or numeric[0] else '', *others])} |"
        before = first


# --- charts ---

COLOURS = (("#0969da", "#58a6ff"), ("#cf222e", "#ff7b72"), ("#1a7f37", "#3fb950"), ("#9a6700", "#d29922"),
           ("#8250df", "#bc8cff"), ("#57606a", "#9aa4af"))  # fmt: skip
"""Colours of lines on a light and on a dark background."""

QUANTITIES = {"us": "CPU time, us", "s": "Time, s", "MB": "Memory, MB"}
"""Axis titles by unit; columns with other units are not drawn."""


def charts_of(name: str, table: Sequence[Row]) -> Charts:
    """Return the charts of one table of a benchmark."""
    if name == "kafka":
        title = "Improvement over Apache Kafka"
        return {"kafka.svg": (title, bars(title, table))}
    if name != "growth":
        return {}
    charts = {}
    along, *columns = table[0]
    for unit, quantity in QUANTITIES.items():
        charted = [column for column in columns if _unit(column) == unit]
        if charted:
            title = f"{quantity}, by {along}"
            file = "-".join(re.findall("[a-z]+", f"{name} {along} {quantity}".lower())) + ".svg"
            charts[file] = (title, lines(title, along, charted, table))
    return charts


def _unit(column: str) -> str:
    """Return the unit of a column, which is the last word of its name."""
    return column.rpartition(" ")[2]


def advantage(row: Row) -> float | None:
    """Return the factor by which kreplica is better than Kafka; None if the value was not compared."""
    ratio = row["ratio"]
    if not ratio:
        return None
    return 1 / ratio if (row["target ratio"] or row["target"]).startswith("<=") else float(ratio)


WIDTH, BAR, GAP = 760, 16, 8
LETTER = 6.6
"""Approximate width of a letter of a label, in pixels."""

STOPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def bars(title: str, rows: Sequence[Row]) -> str:
    """Return a chart with a bar for each value that has a target; its scale is logarithmic, the solid line is Kafka."""
    better_by = [
        (f"{row['scenario']}, {row['figure']}", better) for row in rows if row[""] and (better := advantage(row))
    ]
    most = max([4.0, *(better for _, better in better_by)])
    least = min([0.5, *(better for _, better in better_by)])

    left = 16 + LETTER * max((len(name) for name, _ in better_by), default=0)

    def x(value: float) -> float:
        return left + (WIDTH - left - 60) * (math.log(value / least) / math.log(most / least))

    height = 30 + len(better_by) * (BAR + GAP) + 24
    out = _start(title, height, ".better{fill:#2da44e}.worse{fill:#cf222e}")
    for stop in STOPS:
        if least <= stop <= most:
            dash = "" if stop == 1 else ' stroke-dasharray="2 4"'
            out.append(f'<line x1="{x(stop):.1f}" x2="{x(stop):.1f}" y1="22" y2="{height - 20}"{dash}/>')
            out.append(_text(x(stop), 16, "Kafka" if stop == 1 else f"{stop:g}x", "middle"))
    for number, (name, better) in enumerate(better_by):
        y = 28 + number * (BAR + GAP)
        begin, end = sorted((x(1), x(better)))
        kind = "better" if better >= 1 else "worse"
        out.append(_text(left - 8, y + BAR - 4, name, "end"))
        out.append(
            f'<rect class="{kind}" x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}" height="{BAR}" rx="2"/>'
        )
        out.append(_text(end + 6, y + BAR - 4, f"{better:.2g}x"))
    return "\n".join([*out, "</svg>", ""])


MARGIN, PLOT, LINE = 64, 220, 18


def lines(title: str, along: str, figures: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a chart with a line per column over the first column; its scale is logarithmic, the other starts at 0."""
    steps = [float(row[along]) for row in rows]
    most = _round_up(max(float(row[figure]) for row in rows for figure in figures))
    top = 34 + LINE * len(figures)

    def x(value: float) -> float:
        share = math.log(value / steps[0]) / math.log(steps[-1] / steps[0]) if len(steps) > 1 else 0.5
        return MARGIN + 10 + (WIDTH - MARGIN - 60) * share

    def y(value: float) -> float:
        return top + PLOT * (1 - value / most)

    out = _start(title, top + PLOT + 44, _line_styles(len(figures)))
    out.append(_text(MARGIN, 18, title))
    for tick in range(5):
        value = most * tick / 4
        dash = "" if not tick else ' stroke-dasharray="2 4"'
        out.append(f'<line x1="{MARGIN}" x2="{WIDTH - 30}" y1="{y(value):.1f}" y2="{y(value):.1f}"{dash}/>')
        out.append(_text(MARGIN - 8, y(value) + 4, f"{value:,g}", "end"))
    for step in steps:
        out.append(_text(x(step), top + PLOT + 18, f"{step:,g}", "middle"))
    out.append(_text(x(steps[-1]), top + PLOT + 36, along, "end"))
    for number, figure in enumerate(figures):
        points = [(x(step), y(float(row[figure]))) for step, row in zip(steps, rows, strict=True)]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        out.append(f'<polyline class="line{number}" points="{path}"/>')
        for (across, down), row in zip(points, rows, strict=True):
            label = f"{figure}: {cell(row[figure])} at {cell(row[along])}"
            out.append(_dot(number, across, down, f"<title>{escape(label)}</title>"))
        legend = 18 + LINE * (number + 1)
        out.append(_dot(number, MARGIN + 5, legend - 4))
        out.append(_text(MARGIN + 16, legend, figure.removesuffix(f" {_unit(figure)}")))
    return "\n".join([*out, "</svg>", ""])


def _dot(number: int, x: float, y: float, inside: str = "") -> str:
    return f'<circle class="dot{number}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{inside}</circle>'


def _line_styles(count: int) -> str:
    def styles(shade: int) -> str:
        return "".join(
            f".line{number}{{stroke:{colours[shade]}}}.dot{number}{{fill:{colours[shade]}}}"
            for number, colours in zip(range(count), cycle(COLOURS), strict=False)
        )

    dark = f"@media(prefers-color-scheme:dark){{{styles(1)}}}"
    return f"polyline{{fill:none;stroke-width:2}}{styles(0)}{dark}"


def _round_up(value: float) -> float:
    """Round up to 1, 2, 4, 6, 8 or 10 times a power of ten, so that the four grid lines have round values."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(factor * power for factor in (1, 2, 4, 6, 8, 10) if value <= factor * power or factor == 10)


def _start(title: str, height: int, styles: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="12">',
        f"<style>text{{fill:#57606a}}line{{stroke:#8c959f}}{styles}"
        "@media(prefers-color-scheme:dark){text{fill:#9aa4af}}</style>",
    ]


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def main(arguments: Sequence[str], directory: Path = HERE) -> None:
    """Store rows, write the page and its charts, and delete charts that no row needs."""
    for argument in arguments:
        name, _, rows = argument.rpartition("=")
        keep(directory, json.loads(Path(rows).read_text()), name or None)
    files = written(directory)
    for path in directory.glob(f"{KEPT}/*.svg"):
        if path not in files:
            path.unlink()
    for path, text in files.items():
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
