"""The order of tests that pytest-xdist distributes (``make test``), and tests that need programs of the system."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from system_programs import missing, packages_of
from xdist.scheduler import LoadFileScheduling

OF_PROCESSES = (("interop", "upstream", "dashboard"), ("system", "service"), ("spark_jvm",))
"""Rooms whose tests start processes, and wait more than they work: of each of these, one test at a time.

Those of the last one share a Spark session.
"""

LONG = (
    "tests/upstream/test_upstream_kafka_python.py",
    *(f"tests/{room}/" for rooms in OF_PROCESSES for room in rooms),
    "tests/testing/test_storms.py",
    "tests/zookeeper/test_embedded_kazoo_suite.py",
    "tests/docs/test_docs_testing.py",
    "tests/cli/test_cli_data.py",
    "tests/cli/test_cli_cluster.py",
    "tests/cli/test_cli_simulate.py",
    "tests/fixtures/test_fixtures_plugin.py",
    "tests/docs/test_docs_commands.py",
    "tests/testing/test_cluster_failures.py",
    "tests/testing/test_cluster_guards.py",
    "tests/groups/test_groups_cluster_classic.py",
    "tests/zookeeper/test_zookeeper_ensemble.py",
    "tests/admin/test_admin_schemathesis.py",
)
"""What takes longest comes first: the last to come are shared evenly."""


MISSING = "missing programs"
"""Name of the property of a test's report that lists the programs it needs and that are not installed."""


class RoomScheduling(LoadFileScheduling):
    """What is of one file stays together, and so do rooms that start processes."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        room = file.split("/")[1]
        return next((" ".join(rooms) for rooms in OF_PROCESSES if room in rooms), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RoomScheduling | None:
    """For ``--dist loadfile``."""
    config.option.loadscopereorder = False
    return RoomScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first; else in the order of the files."""
    items.sort(key=lambda item: next((at for at, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: not to be looked through again in each of hundreds of collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose programs are not installed; fail it in continuous integration (``CI`` is set)."""
    needed = [program for mark in item.iter_markers("needs_program") for program in mark.args]
    absent = missing(dict.fromkeys(needed))
    if absent:
        item.user_properties.append((MISSING, absent))
        reason = f"not installed: {', '.join(absent)} (Debian: apt install {' '.join(packages_of(absent))})"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Name the packages that were missing in one line, just before pytest's own last line."""
    yield
    for category, what in (("skipped", "skipped"), ("error", "failed")):
        reports = terminalreporter.stats.get(category, [])
        properties = [dict(getattr(report, "user_properties", ())) for report in reports]
        absent = [found[MISSING] for found in properties if MISSING in found]
        if absent:
            packages = " ".join(packages_of({program for programs in absent for program in programs}))
            count = f"{len(absent)} test{'s' if len(absent) > 1 else ''}"
            line = f"{count} {what} because programs are not installed; Debian packages: {packages}"
            terminalreporter.write_line(line, yellow=True)
