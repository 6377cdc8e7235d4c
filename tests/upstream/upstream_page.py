"""Generates ``docs/reference/upstream-tests.md``: ``python tests/upstream/upstream_page.py``; a test compares them."""

from __future__ import annotations

from crates import LIBRDKAFKA_SUITE, RDKAFKA_SUITE
from go_clients import FRANZ_GO, FRANZ_GO_ADMIN, KAFKA_GO, SARAMA
from kafka_python import KAFKA_PYTHON, OLDER_KAFKA_PYTHON
from suites import ROOT, Expected, Suite
from unpublished_suites import UNPUBLISHED

GO_SUITES = (FRANZ_GO, FRANZ_GO_ADMIN, SARAMA, KAFKA_GO)
CRATES = (LIBRDKAFKA_SUITE, RDKAFKA_SUITE)
PAGE = ROOT / "docs" / "reference" / "upstream-tests.md"

PROGRAMS = (
    "tests/interop/test_interop_kafka_tools.py",
    "tests/interop/test_interop_kafka_groups.py",
    "tests/interop/test_interop_java_transactions.py",
    "tests/interop/test_interop_message_copier.py",
    "tests/interop/test_interop_kafka_streams.py",
    "tests/interop/test_interop_kafka_connect.py",
    "tests/interop/test_interop_mirror_maker.py",
    "tests/interop/test_interop_kafka_members.py",
)
PAGE_TEXT = """\
# Upstream test suites

The test suites of client libraries run against processes of kreplica (`tests/upstream`).
`python tests/upstream/upstream_page.py` generates this page.

## Python suites

These suites are part of the source distributions of Python clients. They are downloaded once to `build/upstream`,
pinned by version and hash, and run unchanged. The tables list the tests that do not pass. The run fails if any other
test fails or is skipped, or if a listed test passes. `make test` runs the newest version of a suite, `make soak` the
older one.

{suites}
## Go suites

Go modules contain their own tests. They are downloaded from the Go module proxy, by version and checksum; `make soak`
runs them.

{go_suites}
## Rust crates

The crate rdkafka contains its tests, and the crate rdkafka-sys contains librdkafka's source with its C tests. Cargo
downloads both by version, their checksums are verified, and both are built from source; `make soak` runs them.
librdkafka's tests run in quick mode and with classic groups; those that need no broker are excluded. rdkafka's
`test_base_producer_timeout` is also excluded: it passes only if a broker takes more than 100 ms to create a topic.

{crates}
## Suites that are not published

The source distributions of aiokafka and confluent-kafka do not contain their tests. Equivalent tests of kreplica
use these clients with three brokers. The npm package of kafkajs (2.2.4) contains only a unit test, so kafkajs is not
tested. node-rdkafka's tests (`e2e/`) are not run, because node-rdkafka is based on librdkafka.

{unpublished}
In a checkout of confluent-kafka's repository, its tests can use a broker with the settings in
`tests/upstream/conftest.py`. The tests read the broker's address from the environment. kreplica's test runs do
not include them.

    BROKERS=127.0.0.1:9092 python -m pytest tests/integration/consumer tests/integration/producer

## Programs of Apache Kafka

`make soak` runs these programs, which are downloaded from Maven Central and need Java.

{programs}
"""


def suite(one: Suite) -> str:
    """Return the section of a Python suite."""
    left = one.test_count - one.passed_count
    counts = f"`{one.run}`: {one.passed_count} of {one.test_count} tests pass. The other {left} tests:"
    rows = [f"| `{name.removeprefix(one.run).lstrip('/')}` | {reason} |" for name, reason in one.not_passed.items()]
    table = ["| Prefix of test names | Reason |", "|---|---|", *rows]
    return "\n".join([f"### {one.project} {one.version}", "", counts, "", *table, ""])


def other_suite(one: Expected) -> str:
    """Return the section of a suite in another language."""
    left = one.test_count - one.passed_count
    counts = f"{one.passed_count} of {one.test_count} tests pass." + (f" The other {left} tests:" if left else "")
    rows = [f"| `{name}` | {reason} |" for name, reason in one.not_passed.items()]
    table = ["| Tests | Reason |", "|---|---|", *rows, ""] if rows else []
    return "\n".join([f"### {one.project} {one.version}", "", counts, "", *table])


def unpublished() -> str:
    """Return the sections of the suites that are not published."""
    parts = []
    for head, rows in UNPUBLISHED.items():
        lines = [f"| {part} | {_with_code(where)} |" for part, where in rows.items()]
        parts.append("\n".join([f"### {head}", "", "| Tests | Equivalent tests |", "|---|---|", *lines, ""]))
    return "\n".join(parts)


def programs() -> str:
    """Return a table of the files with the first lines of their docstrings."""
    rows = []
    for name in PROGRAMS:
        first = (ROOT / name).read_text().splitlines()[0].strip('"')
        rows.append(f"| `{name}` | {first.partition('; needs Java')[0].rstrip('.')} |")
    return "\n".join(["| File | Content |", "|---|---|", *rows])


def _with_code(where: str) -> str:
    return where if where.startswith("no: ") else ", ".join(f"`{file}`" for file in where.split(", "))


def text() -> str:
    """Return the page."""
    return PAGE_TEXT.format(
        suites="\n".join(map(suite, (KAFKA_PYTHON, OLDER_KAFKA_PYTHON))),
        crates="\n".join(map(other_suite, CRATES)),
        go_suites="\n".join(map(other_suite, GO_SUITES)),
        unpublished=unpublished(),
        programs=programs(),
    )


if __name__ == "__main__":
    PAGE.write_text(text())
