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
# Other people's tests

What clients' authors expect of a Kafka broker, they have written down as tests. They run here in `make test`, against
real processes (`tests/upstream`). This page is written by `python tests/upstream/upstream_page.py`.

## Suites that are run as they are

A suite is taken from its project's source distribution, pinned by version and hash, fetched from the package index once
(`build/upstream`) and run unchanged. What does not pass is listed by name; a failure or a skip that is not listed fails
the run, and so does a listed test that passes. The newest version is part of `make test`, the other of `make soak`.

{suites}
## Suites of Go clients

They are published with their modules, which the Go proxy serves by version and checksum; `make soak` runs them.

{go_suites}
## Suites in Rust crates

The crate rdkafka publishes its tests, and the crate rdkafka-sys librdkafka's source with its tests in C. Cargo fetches
both by version, their checksums are compared, and both are built from source; `make soak` runs them. librdkafka's tests
run in its quick mode, by the classic protocol of groups, without those that need no broker.
rdkafka's `test_base_producer_timeout` is not run: it passes only if a broker takes more than 100 ms to create a topic.

{crates}
## Scenarios after suites that are not published

The source distributions of aiokafka and confluent-kafka leave their tests out. What their integration tests ask of a
broker is asked here in tests of our own, with these clients, against three brokers. kafkajs leaves all but a unit test
out of its npm package (2.2.4), and has no test here; node-rdkafka publishes its own (`e2e/`), which are not run: it is
built on librdkafka, whose suite is.

{unpublished}
Who has a checkout of confluent-kafka's repository can point its own tests at a broker, with settings as in
`tests/upstream/conftest.py`: they read its address from the environment. No run here does.

    BROKERS=127.0.0.1:9092 python -m pytest tests/integration/consumer tests/integration/producer

## Apache Kafka's own programs

They come from Maven, and need Java; `make soak` runs them.

{programs}
"""


def suite(one: Suite) -> str:
    """What a suite is, and why some of it does not pass."""
    left = one.tests_count - one.passed_count
    counts = f"`{one.run}`: {one.tests_count} tests run, {one.passed_count} pass, {left} do not:"
    rows = [f"| `{name.removeprefix(one.run).lstrip('/')}` | {reason} |" for name, reason in one.not_passed.items()]
    table = ["| tests whose names begin with | why |", "|---|---|", *rows]
    return "\n".join([f"### {one.project} {one.version}", "", counts, "", *table, ""])


def other_suite(one: Expected) -> str:
    """What a suite of a client in another language is, and why some of it does not pass."""
    left = one.tests_count - one.passed_count
    counts = f"{one.tests_count} tests run, {one.passed_count} pass, {left} do not" + (":" if left else ".")
    rows = [f"| `{name}` | {reason} |" for name, reason in one.not_passed.items()]
    table = ["| tests | why |", "|---|---|", *rows, ""] if rows else []
    return "\n".join([f"### {one.project} {one.version}", "", counts, "", *table])


def unpublished() -> str:
    """Part by part, where its like is found."""
    parts = []
    for head, rows in UNPUBLISHED.items():
        lines = [f"| {part} | {_with_code(where)} |" for part, where in rows.items()]
        parts.append("\n".join([f"### {head}", "", "| tests | asked here in |", "|---|---|", *lines, ""]))
    return "\n".join(parts)


def programs() -> str:
    """The files that run them, by what their first line says."""
    rows = []
    for name in PROGRAMS:
        first = (ROOT / name).read_text().splitlines()[0].strip('"')
        rows.append(f"| `{name}` | {first.partition('; needs Java')[0].rstrip('.')} |")
    return "\n".join(["| file | what it runs |", "|---|---|", *rows])


def _with_code(where: str) -> str:
    return where if where.startswith("no: ") else ", ".join(f"`{file}`" for file in where.split(", "))


def text() -> str:
    """The page."""
    return PAGE_TEXT.format(
        suites="\n".join(map(suite, (KAFKA_PYTHON, OLDER_KAFKA_PYTHON))),
        crates="\n".join(map(other_suite, CRATES)),
        go_suites="\n".join(map(other_suite, GO_SUITES)),
        unpublished=unpublished(),
        programs=programs(),
    )


if __name__ == "__main__":
    PAGE.write_text(text())
