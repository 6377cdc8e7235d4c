"""Generates ``docs/reference/client-matrix.md``: ``python tests/interop/matrix_page.py``; a test compares the two."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from matrix_clusters import KREPLICA, NAMES, VERSIONS
from matrix_scenarios import SCENARIOS
from matrix_table import Scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "client-matrix.md"
PAGE_TEXT = """\
# Client compatibility

Scenarios (`tests/interop/matrix_*.py`) run with the client library `kreplica.client` on three brokers of kreplica, and
on three brokers each of Apache Kafka {versions}. Each scenario has one expected result; *yes* means that the
cluster returned it. `make test` runs the scenarios on kreplica, `make soak` on all three clusters, which needs Java and
Maven. `python tests/interop/matrix_page.py` generates this page.

{same} of {count} scenarios have the expected result on every cluster.

{subjects}
## Differences

{differences}
"""


def subject(name: str, scenarios: list[Scenario]) -> str:
    """Return the table of one subject."""
    head = [f"| {name} | {' | '.join(_title(each) for each in NAMES)} |", f"|---|{'---|' * len(NAMES)}"]
    rows = [f"| {each.title} | {' | '.join(_result_cell(each, cluster) for cluster in NAMES)} |" for each in scenarios]
    return "\n".join([f"## {name.capitalize()}", "", *head, *rows, ""])


def differences() -> str:
    """Return a list of the results that differ, with the reasons."""
    lines = [
        f"* {each.subject}, {each.title}, on {_title(cluster)}: `{other.expected!r}` instead of `{each.expected!r}`, "
        f"because {other.why}."
        for each in SCENARIOS
        for cluster, other in each.others.items()
    ]
    return "\n".join(lines) or "None."


def text() -> str:
    """Return the page."""
    tables = [subject(name, list(rows)) for name, rows in groupby(SCENARIOS, key=lambda each: each.subject)]
    return PAGE_TEXT.format(
        versions=" and ".join(VERSIONS.values()),
        count=len(SCENARIOS),
        same=sum(not each.others for each in SCENARIOS),
        subjects="\n".join(tables),
        differences=differences(),
    )


def _title(cluster: str) -> str:
    return cluster if cluster == KREPLICA else f"Kafka {VERSIONS[cluster]}"


def _result_cell(row: Scenario, cluster: str) -> str:
    return "different" if cluster in row.others else "yes"


if __name__ == "__main__":
    PAGE.write_text(text())
