"""Distributes tests to the processes of ``make test``, and skips tests that need programs which are not installed."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from system_programs import missing, packages_of
from xdist.scheduler import LoadFileScheduling

SERIAL_DIRECTORIES = (("interop", "upstream", "dashboard"), ("system", "service"), ("spark_jvm",))
"""Groups of directories whose tests mostly wait for processes; each group runs in one test process.

The tests in the last group share a Spark session.
"""

LONGEST_FIRST = (
    "tests/upstream/test_upstream_kafka_python.py",
    *(f"tests/{name}/" for names in SERIAL_DIRECTORIES for name in names),
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
"""The slowest test files, which start first, so that short ones at the end fill all test processes evenly."""

MISSING = "missing programs"
"""Name of the test report's property that lists the missing programs which the test needs."""


class DirectoryScheduling(LoadFileScheduling):
    """Runs the tests in a file, or in a group of serial directories, in the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        directory = file.split("/")[1]
        return next((" ".join(names) for names in SERIAL_DIRECTORIES if directory in names), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> DirectoryScheduling | None:
    """Return the scheduler for ``--dist loadfile``."""
    config.option.loadscopereorder = False
    return DirectoryScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


# The duration of an example depends on the load of the machine.
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")


def pytest_configure() -> None:
    """Accept SIGINT even if the suite runs in the background, and ignore the user's current profile.

    A shell starts background jobs with SIGINT ignored, and every process that a test starts would inherit that.
    """
    os.environ["KREPLICA_PROFILE"] = "none"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest files to the front, and keep the order otherwise."""

    def rank(item: pytest.Item) -> int:
        matching = (at for at, path in enumerate(LONGEST_FIRST) if item.nodeid.startswith(path))
        return next(matching, len(LONGEST_FIRST))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Exclude the collected tests, which live until the end, from every later garbage collection."""
    _collect_and_freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exclude objects that remain after a file, such as reports and caches, from every later garbage collection.

    Without this, each of the hundreds of tests that collect garbage visits the objects of all earlier tests.
    """
    if nextitem is not None and nextitem.path != item.path:
        _collect_and_freeze()


def _collect_and_freeze() -> None:
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
    """Print the missing packages in one line, just before pytest's last line."""
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
